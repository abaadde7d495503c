//! Whether a tool's JSON Schema can be used: it describes an object, and checking a
//! value against it comes to an end soon. Checking happens outside of every budget.

use std::collections::HashMap;

use serde_json::Value;

/// Subschemas that may apply to one place of a value, references followed. Each
/// reference that stands twice doubles what is behind it, so a small schema can ask for
/// 2^40 checks.
const MAX_CHECKS: u64 = 10_000;

/// Levels: with what they stand in, in the cache and in requests to providers, they stay
/// below the 128 that the JSON parser reads. Fixed by the WIT contract.
const MAX_DEPTH: usize = 64;

/// Keywords whose subschemas apply to the same place, one schema or a list of them.
const IN_PLACE: [&str; 8] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref"];
/// The same, by property.
const BY_NAME: [&str; 1] = ["dependentSchemas"];
/// References that are resolved while a value is checked; what they cost is not known.
const DYNAMIC: [&str; 2] = ["$dynamicRef", "$recursiveRef"];

/// Reads a schema.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn object_schema(text: &str) -> Result<Value, String> {
    let schema = crate::convert::parse(text)?;
    if schema.get("type") != Some(&Value::from("object")) {
        return Err("its root must have \"type\": \"object\"".to_owned());
    }
    if depth(&schema) > MAX_DEPTH {
        return Err(format!("they are more than {MAX_DEPTH} levels deep"));
    }
    check_all(&schema, &mut Costs { root: &schema, known: HashMap::new() })?;
    // As every call of the tool will.
    jsonschema::validator_for(&schema).map_err(|error| error.to_string())?;
    Ok(schema)
}

/// Levels of arrays and objects.
fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        _ => return 0,
    };
    1 + below.unwrap_or_default()
}

/// Every part of a schema is looked at as if it were a schema: what is none costs
/// nothing.
fn check_all<'a>(part: &'a Value, costs: &mut Costs<'a>) -> Result<(), String> {
    let inner: Box<dyn Iterator<Item = &'a Value>> = match part {
        Value::Object(map) => {
            if costs.of(part)? > MAX_CHECKS {
                return Err(format!(
                    "more than {MAX_CHECKS} of its parts may apply to one value, references followed"
                ));
            }
            Box::new(map.values())
        }
        Value::Array(items) => Box::new(items.iter()),
        _ => return Ok(()),
    };
    for part in inner {
        check_all(part, costs)?;
    }
    Ok(())
}

/// What a part costs; none: it is being counted.
struct Costs<'a> {
    root: &'a Value,
    known: HashMap<*const Value, Option<u64>>,
}

impl<'a> Costs<'a> {
    fn of(&mut self, schema: &'a Value) -> Result<u64, String> {
        let Value::Object(map) = schema else { return Ok(1) };
        match self.known.get(&std::ptr::from_ref(schema)) {
            Some(Some(cost)) => return Ok(*cost),
            Some(None) => return Err("it refers to itself without an end".to_owned()),
            None => {}
        }
        self.known.insert(schema, None);
        if let Some(keyword) = DYNAMIC.iter().find(|keyword| map.contains_key(**keyword)) {
            return Err(format!("{keyword} is not supported; use $ref"));
        }
        let mut cost = 1_u64;
        for keyword in IN_PLACE {
            cost = match map.get(keyword) {
                None => continue,
                Some(Value::Array(parts)) => {
                    parts.iter().try_fold(cost, |sum, part| Ok(sum.saturating_add(self.of(part)?)))
                }
                Some(Value::String(reference)) if keyword == "$ref" => {
                    let target = self.resolve(reference)?;
                    Ok::<_, String>(cost.saturating_add(self.of(target)?))
                }
                Some(part) => Ok(cost.saturating_add(self.of(part)?)),
            }?;
        }
        for keyword in BY_NAME {
            for part in map.get(keyword).and_then(Value::as_object).into_iter().flatten() {
                cost = cost.saturating_add(self.of(part.1)?);
            }
        }
        self.known.insert(schema, Some(cost));
        Ok(cost)
    }

    fn resolve(&self, reference: &str) -> Result<&'a Value, String> {
        let pointer = reference.strip_prefix('#').filter(|at| at.is_empty() || at.starts_with('/'));
        let target = pointer.and_then(|pointer| self.root.pointer(pointer));
        target.ok_or_else(|| {
            format!("$ref {reference:?} leads nowhere; only parts of the schema itself (#/...) can be referred to")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `$defs` that each apply the next one twice.
    fn doubling(levels: usize) -> Value {
        let mut defs = serde_json::Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
            defs.insert(format!("l{level}"), json!({"allOf": [next, next]}));
        }
        defs.insert(format!("l{levels}"), json!({"type": "object"}));
        json!({"type": "object", "$defs": defs, "allOf": [{"$ref": "#/$defs/l0"}]})
    }

    #[test]
    fn schemas_whose_check_would_not_end_are_refused() {
        let check = |schema: Value, expect: Result<(), &str>| {
            let seen = object_schema(&schema.to_string()).map(drop);
            match (&seen, expect) {
                (Ok(()), Ok(())) => {}
                (Err(problem), Err(part)) => assert!(problem.contains(part), "{problem}"),
                _ => panic!("{schema}: {seen:?}"),
            }
        };
        check(json!({"type": "object"}), Ok(()));
        check(json!({"type": "string"}), Err("its root must have"));
        check(json!({"type": "object", "properties": {"a": {"type": 7}}}), Err("7"));
        check(doubling(8), Ok(()));
        check(doubling(40), Err("may apply to one value"));
        // A tree: it ends with the value.
        check(
            json!({"type": "object", "properties": {"next": {"$ref": "#"}, "$ref": {"type": "string"}}}),
            Ok(()),
        );
        check(json!({"type": "object", "anyOf": [{"$ref": "#"}]}), Err("refers to itself"));
        check(json!({"type": "object", "$ref": "#/$defs/none"}), Err("leads nowhere"));
        check(json!({"type": "object", "$ref": "https://example.org/a"}), Err("leads nowhere"));
        check(json!({"type": "object", "$dynamicRef": "#a"}), Err("$dynamicRef"));
    }
}
