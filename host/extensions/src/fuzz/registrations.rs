//! Arbitrary registrations, from the check of what a guest gave to the cache and to the
//! registry of all extensions.

use serde_json::json;
use wharf_agent::tool::Tool as _;

use super::cases::fuzz;
use super::data::{Data, quoted};
use super::{extension, services};
use crate::bindings::types as wit;
use crate::cache::{Cache, Key};
use crate::limits::{MAX_ERROR_BYTES, one_line};
use crate::registration::Registration;
use crate::registry::Registry;

const CASES: u64 = 600;

/// Schemas that are fine, and some that would have a validator loop, fetch or give up.
const SCHEMAS: [&str; 16] = [
    r##"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"##,
    r##"{"type":"object","$ref":"#"}"##,
    r##"{"type":"object","allOf":[{"$ref":"#"}]}"##,
    r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##,
    r##"{"type":"object","$ref":"#/$defs/none"}"##,
    r##"{"type":"object","$ref":"https://example.invalid/schema.json"}"##,
    r##"{"type":"object","$ref":"file:///etc/passwd"}"##,
    r##"{"type":"object","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
    r##"{"type":"object","$schema":"https://example.invalid/own"}"##,
    r##"{"type":"object","$schema":"http://json-schema.org/draft-04/schema#","id":"x"}"##,
    r##"{"type":"object","$id":"not a uri%%"}"##,
    r##"{"type":"object","properties":{"a":{"pattern":"("}}}"##,
    r##"{"type":"object","properties":{"a":{"pattern":"^(a+)+$"}}}"##,
    r##"{"type":"object","properties":{"a":{"pattern":"(?:a{1000}){1000}"}}}"##,
    r##"{"type":"object","$dynamicRef":"#x","$dynamicAnchor":"x"}"##,
    r##"{"type":"object","properties":{"a":{"multipleOf":1e-320,"minLength":18446744073709551615}}}"##,
];

fn schema(data: &mut Data) -> String {
    match data.0.u8(..10) {
        0..3 => r#"{"type":"object"}"#.to_owned(),
        3..7 => SCHEMAS[data.0.usize(..SCHEMAS.len())].to_owned(),
        7 => {
            let default = if data.bool() { data.nested() } else { data.object(3) };
            format!(r#"{{"type":"object","default":{default}}}"#)
        }
        8 => format!(r#"{{"type":"object","properties":{}}}"#, data.object(3)),
        _ => data.json(),
    }
}

fn registration(data: &mut Data) -> wit::Registration {
    wit::Registration {
        id: data.name(),
        version: data.text(),
        description: data.text(),
        commands: data.list(|data| wit::CommandSpec {
            name: data.name(),
            description: data.text(),
            argument_hint: data.option(Data::text),
        }),
        tools: data.list(|data| wit::ToolSpec {
            name: data.name(),
            label: data.text(),
            description: data.text(),
            parameters: schema(data),
            prompt_snippet: data.option(Data::text),
            prompt_guidelines: data.list(Data::text),
            sequential: data.bool(),
            overrides: data.bool(),
        }),
        subscriptions: data.list(Data::text),
        flags: data.list(|data| wit::FlagSpec {
            name: data.name(),
            description: data.text(),
            takes_value: data.bool(),
        }),
        shortcuts: data.list(|data| wit::ShortcutSpec {
            key: data.name(),
            description: data.text(),
            command: data.name(),
        }),
        permissions: data.list(|data| match data.0.u8(..5) {
            0 => wit::PermissionRequest::FsRead(data.text()),
            1 => wit::PermissionRequest::FsWrite(data.text()),
            2 => wit::PermissionRequest::Net(data.text()),
            3 => wit::PermissionRequest::Exec(data.list(Data::text)),
            _ => wit::PermissionRequest::Env(data.text()),
        }),
    }
}

#[test]
fn registrations() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path().join("cache"));
    let key = Key::new(b"", "fuzz");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _guard = runtime.enter();
    let mut accepted = 0;
    fuzz(CASES, |rng| {
        let mut data = Data(rng);
        let mut all = Vec::new();
        for _ in 0..3 {
            match Registration::from_guest(registration(&mut data)) {
                Ok(registration) => {
                    check_cached(&cache, &key, &registration, &mut data);
                    accepted += 1;
                    all.push(registration);
                }
                Err(error) => assert!(one_line(&error.to_string()).len() <= MAX_ERROR_BYTES),
            }
        }
        check_registry(all);
    });
    // Most cases must get past the check to be worth anything.
    assert!(accepted > CASES / 10 || std::env::var_os("WHARF_FUZZ_SEED").is_some(), "{accepted}");
}

/// What is kept reads back as it was; what was damaged is refused.
fn check_cached(cache: &Cache, key: &Key, registration: &Registration, data: &mut Data) {
    cache.store_registration(key, registration).unwrap();
    assert_eq!(cache.registration(key).as_ref(), Some(registration));
    let mut text = serde_json::to_vec(registration).unwrap();
    for _ in 0..data.0.usize(1..4) {
        let at = data.0.usize(..text.len());
        text[at] = data.0.choice(*b"\0\"{}[]:,09-e\xff").unwrap_or_default();
    }
    // Any answer will do.
    drop(serde_json::from_slice::<Registration>(&text));
}

fn check_registry(all: Vec<Registration>) {
    let (services, _) = services();
    let mut extensions = Vec::new();
    let mut mailboxes = Vec::new();
    for (number, registration) in all.into_iter().enumerate() {
        let (extension, mailbox) = extension(number, registration, &services);
        extensions.push(extension);
        mailboxes.push(mailbox);
    }
    let registry = Registry::build(&extensions, &["read".to_owned(), "a".to_owned()]);
    for command in &registry.commands {
        let found = registry.command(&command.public.name).unwrap();
        assert!(std::ptr::eq(found, command), "two commands are called {}", command.public.name);
    }
    let mut names: Vec<_> = registry.tools.iter().map(|tool| tool.name()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "two tools have the same name");
    for clash in &registry.clashes {
        assert!(one_line(&clash.problem).len() <= MAX_ERROR_BYTES);
    }
    // What the agent does with the schema of a tool when the model calls it.
    for tool in &registry.tools {
        let schema = &tool.spec().parameters;
        let validator = jsonschema::validator_for(schema).unwrap_or_else(|error| {
            panic!(
                "a schema that was accepted cannot be used: {error}: {}",
                quoted(&schema.to_string())
            )
        });
        let long = "a".repeat(40) + "b";
        for arguments in [json!({}), json!({"a": 1}), json!({"a": long}), json!({"a": {"a": {}}})] {
            std::hint::black_box(validator.iter_errors(&arguments).count());
        }
    }
}
