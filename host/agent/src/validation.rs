//! Tool arguments against their schema, strictly: what does not fit does not run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Map, Value};

use crate::tool::ToolSpec;

/// How many problems one message names.
const MAX_PROBLEMS: usize = 5;

/// Compiled schemas by tool name; a schema that changed is compiled anew.
#[derive(Debug, Default)]
pub(crate) struct ArgumentSchemas {
    compiled: Mutex<HashMap<String, (Value, Arc<Validator>)>>,
}

impl ArgumentSchemas {
    /// Checks `args`; an error is the text that the model reads.
    pub(crate) fn check(&self, tool: &ToolSpec, args: &Map<String, Value>) -> Result<(), String> {
        let validator = self.validator(tool)?;
        let instance = Value::Object(args.clone());
        let problems: Vec<String> = validator
            .iter_errors(&instance)
            .take(MAX_PROBLEMS)
            .map(|error| {
                let place = error.instance_path().to_string();
                if place.is_empty() { error.to_string() } else { format!("{place}: {error}") }
            })
            .collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(format!("Invalid arguments for tool {}: {}", tool.name, problems.join("; ")))
    }

    fn validator(&self, tool: &ToolSpec) -> Result<Arc<Validator>, String> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((schema, validator)) = compiled.get(&tool.name)
            && *schema == tool.parameters
        {
            return Ok(Arc::clone(validator));
        }
        let validator = jsonschema::validator_for(&tool.parameters)
            .map_err(|error| format!("The schema of tool {} is not valid: {error}", tool.name))?;
        let validator = Arc::new(validator);
        compiled.insert(tool.name.clone(), (tool.parameters.clone(), Arc::clone(&validator)));
        Ok(validator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_held_to_the_schema() {
        let spec = |parameters: Value| ToolSpec {
            name: "t".into(),
            label: String::new(),
            description: String::new(),
            parameters,
            prompt_snippet: None,
            prompt_guidelines: vec![],
            sequential: false,
        };
        let schemas = ArgumentSchemas::default();
        let check = |schema: &Value, args: Value, expect: Result<(), &str>| {
            let Value::Object(args) = args else { panic!("arguments must be an object") };
            let seen = schemas.check(&spec(schema.clone()), &args);
            match (&seen, expect) {
                (Ok(()), Ok(())) => {}
                (Err(seen), Err(want)) => assert!(seen.contains(want), "{seen}"),
                _ => panic!("{args:?}: {seen:?} instead of {expect:?}"),
            }
        };
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}},
            "required": ["n"], "additionalProperties": false});
        check(&schema, json!({"n": 1}), Ok(()));
        check(
            &schema,
            json!({"n": "1"}),
            Err("Invalid arguments for tool t: /n: \"1\" is not of type \"integer\""),
        );
        check(&schema, json!({}), Err("\"n\" is a required property"));
        check(&schema, json!({"n": 1, "m": 2}), Err("'m' was unexpected"));
        check(&json!({"type": "object"}), json!({"m": 2}), Ok(()));
        check(&json!({"type": 7}), json!({}), Err("The schema of tool t is not valid"));
    }
}
