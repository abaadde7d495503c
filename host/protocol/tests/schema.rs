//! `schema.json` is what the types say.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::{Value, json};
use wharf_protocol::{AgentMessage, Event, Model, RpcCommand};

#[test]
fn the_checked_in_schema_is_current() {
    let schema = json!({
        "$comment": "Generated from the types of wharf-protocol; see tests/schema.rs.",
        "commands": RpcCommand::schemas(),
        "event": Value::from(schemars::schema_for!(Event)),
        "message": Value::from(schemars::schema_for!(AgentMessage)),
        "model": Value::from(schemars::schema_for!(Model)),
    });
    let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == text,
        "host/protocol/schema.json is not what the types say; refresh it with\n\
         UPDATE_SCHEMA=1 cargo test -p wharf-protocol --test schema"
    );
}
