//! A component built before `handlers` got `on-session-before-compact`: it subscribes
//! to the event, and has no function for it. `/hi` tells whether it works.

mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "extension" });
}

use bindings::exports::wharf::extension::handlers::Guest;
use bindings::wharf::extension::types::{CommandSpec, Notification, Registration};
use bindings::wharf::extension::ui::{self, NotifyKind};

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
            subscriptions: vec!["session_before_compact".to_owned(), "stream_retry".to_owned()],
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
