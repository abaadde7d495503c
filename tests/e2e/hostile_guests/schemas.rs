//! Schemas of tools that ask the host for more than to check arguments.

use std::sync::atomic::Ordering::SeqCst;

use serde_json::{Value, json};
use wharf_tests::Env;
use wharf_tests::script::{call, says};

use super::net::trap;
use super::{HOST_MIB, assert_ends, assert_memory, assert_served, outcome, with_limits};

/// Offers the tool, and has the model call it. The answer is what came of the offer.
fn offered(env: &Env, schema: &Value, args: &Value) -> Value {
    let model = env.script(&[call("odd", args), says("done")]);
    let mut wharf = env.rpc_with(&["schemas", "hello"], &model);
    let offer = outcome(&mut wharf, &format!("/schema {schema}"));
    wharf.run("go");
    assert_eq!(wharf.data(json!({"type": "get_last_assistant_text"}))["text"], "done");
    assert_served(&mut wharf, "Ann");
    assert_memory(&wharf, HOST_MIB);
    let lines = assert_ends(wharf);
    for secret in ["root:", "nobody may"] {
        assert!(!lines.iter().any(|line| line.to_string().contains(secret)), "{schema}");
    }
    offer
}

fn with(a: Value) -> Value {
    json!({"type": "object", "properties": {"a": a}})
}

/// What refers to itself without getting any deeper never comes to an end.
#[test]
fn schemas_without_end_do_not_take_the_host_along() {
    let env = with_limits(&json!({}));
    for schema in [
        json!({"type": "object", "$ref": "#"}),
        json!({"type": "object", "allOf": [{"$ref": "#"}]}),
        json!({"type": "object", "anyOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"type": "object", "not": {"$ref": "#"}}),
        json!({"type": "object", "if": {"$ref": "#"}, "then": {"$ref": "#"}}),
        json!({"type": "object", "$dynamicRef": "#"}),
        json!({
            "type": "object",
            "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}},
            "allOf": [{"$ref": "#/$defs/x"}],
        }),
        json!({"type": "object", "additionalProperties": {"$ref": "#"}, "unevaluatedProperties": {"$ref": "#"}}),
    ] {
        offered(&env, &schema, &json!({"a": {"a": {}}}));
    }
}

/// Every level doubles the work, where it is done anew for each way that leads there.
#[test]
fn schemas_that_multiply_end() {
    let env = with_limits(&json!({}));
    let mut levels = serde_json::Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        levels.insert(format!("l{level}"), json!({"allOf": [next, next]}));
    }
    levels.insert("l40".to_owned(), json!({"type": "string"}));
    let schema = json!({
        "type": "object", "$defs": levels, "properties": {"a": {"$ref": "#/$defs/l0"}},
    });
    offered(&env, &schema, &json!({"a": "text"}));
}

#[test]
fn schemas_fetch_nothing() {
    let env = with_limits(&json!({}));
    let (port, connections) = trap("127.0.0.1");
    env.write("secret.json", r#"{"type": "string", "const": "nobody may read this"}"#);
    let file = format!("file://{}", env.project().join("secret.json").display());
    for uri in [&*file, "file:///etc/passwd", "secret.json", &format!("http://127.0.0.1:{port}/")] {
        for schema in [
            with(json!({"$ref": uri})),
            json!({"type": "object", "$schema": uri}),
            json!({"type": "object", "$id": uri, "properties": {"a": {"$ref": "x"}}}),
        ] {
            offered(&env, &schema, &json!({"a": "text"}));
        }
    }
    assert_eq!(connections.load(SeqCst), 0);
}

#[test]
fn patterns_do_not_hold_the_host() {
    let env = with_limits(&json!({}));
    let text = format!("{}!", "a".repeat(5_000));
    for pattern in
        ["^(a+)+$", "^(a|aa)+$", "^(?=(a+)+$)", "(a*)*\\1b", "((((a{100}){100}){100}){100})", "["]
    {
        let schema = with(json!({"type": "string", "pattern": pattern}));
        offered(&env, &schema, &json!({"a": text}));
    }
    let mut properties = serde_json::Map::new();
    for at in 0..2_000 {
        properties
            .insert(format!("p{at}"), json!({"pattern": format!("(x{{1,900}}){at}\\w{{50}}")}));
    }
    let schema = json!({"type": "object", "properties": properties});
    offered(&env, &schema, &json!({"p1": "x"}));
}
