//! A component built before `handlers` got `on-session-before-compact` and what came
//! later: it subscribes to the events, and has no functions for them. `/hi` tells whether
//! it works.

mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "extension" });
}

use bindings::exports::wharf::extension::handlers::Guest;
use bindings::wharf::extension::types::{CommandSpec, Notification, Registration};
use bindings::wharf::extension::ui::{self, NotifyKind};

const SUBSCRIPTIONS: [&str; 7] = [
    "session_before_compact",
    "session_before_fork",
    "session_before_tree",
    "session_directory",
    "session_fork",
    "session_tree",
    "stream_retry",
];

struct OlderApi;

impl Guest for OlderApi {
    fn register() -> Registration {
        Registration {
            id: "older-api".to_owned(),
            version: "0.1.0".to_owned(),
            description: String::new(),
            commands: vec![CommandSpec {
                name: "hi".to_owned(),
                description: String::new(),
                argument_hint: None,
            }],
            tools: Vec::new(),
            subscriptions: SUBSCRIPTIONS.map(str::to_owned).to_vec(),
            flags: Vec::new(),
            shortcuts: Vec::new(),
            permissions: Vec::new(),
        }
    }

    async fn run_command(_name: String, arguments: String) -> Result<(), String> {
        ui::notify(&format!("hi {arguments}"), NotifyKind::Info);
        Ok(())
    }

    async fn on_notification(event: Notification) -> Result<(), String> {
        let Notification::Other(note) = event else { return Err("it has a case".to_owned()) };
        ui::notify(&format!("{} {}", note.name, note.fields), NotifyKind::Info);
        Ok(())
    }
}

bindings::export!(OlderApi with_types_in bindings);
