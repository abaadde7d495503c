//! Reads `models.json`. A broken part costs itself only: each problem is named with its
//! place, and the rest is used.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::config::{ModelConfig, Problems, ProviderConfig, ServedBy, checked, without_value};

/// A provider's entry before its models are read: each may be broken on its own.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawProvider {
    base_url: Option<String>,
    api: Option<String>,
    api_key: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    auth_header: Option<bool>,
    compat: Option<Value>,
    #[serde(default)]
    models: Vec<Value>,
    #[serde(default)]
    model_overrides: Map<String, Value>,
}

#[derive(Deserialize)]
struct RawId {
    id: String,
}

/// The usable entries in the file's order, and what is wrong. A file that is not there
/// has none.
pub(super) fn read(path: &Path) -> (Vec<(String, ProviderConfig)>, Vec<String>) {
    match crate::read_file(path) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Default::default(),
        Err(error) => (Vec::new(), vec![format!("failed to read it: {error}")]),
    }
}

fn parse(text: &str) -> (Vec<(String, ProviderConfig)>, Vec<String>) {
    let mut problems = Problems::default();
    let mut entries = Vec::new();
    match providers(text.trim_start_matches('\u{feff}')) {
        Err(problem) => problems.0.push(problem),
        Ok(providers) => {
            for (name, value) in providers {
                let place = format!("providers.{name}");
                let entry = entry((&name, &place), value, ServedBy::Url, &mut problems);
                entries.extend(entry.map(|config| (name, config)));
            }
        }
    }
    (entries, problems.0)
}

fn providers(text: &str) -> Result<Map<String, Value>, String> {
    // A file that is still to be filled is none to complain of.
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Value::Object(mut file) = value else {
        return Err("it must be an object with \"providers\"".to_owned());
    };
    match file.remove("providers") {
        None => Ok(Map::new()),
        Some(Value::Object(providers)) => Ok(providers),
        Some(_) => Err("providers: it must be an object".to_owned()),
    }
}

/// Reads one provider; `place` is what problems of it begin with.
pub(super) fn entry(
    (name, place): (&str, &str),
    value: Value,
    served: ServedBy,
    problems: &mut Problems,
) -> Option<ProviderConfig> {
    if name.trim().is_empty() || name.contains(char::is_whitespace) {
        problems.add(place, "a provider's name is one word");
        return None;
    }
    let raw: RawProvider = placed(place, value, problems)?;
    let mut models = Vec::new();
    let mut indices = Vec::new();
    for (index, value) in raw.models.into_iter().enumerate() {
        let place = format!("{place}.models[{index}]");
        let Some(RawId { id }) = placed(&place, value.clone(), problems) else { continue };
        let Some(settings) = placed(&place, value, problems) else { continue };
        models.push(ModelConfig { id, settings });
        indices.push(index);
    }
    let mut model_overrides = BTreeMap::new();
    for (id, value) in raw.model_overrides {
        let place = format!("{place}.modelOverrides.{id}");
        if let Some(settings) = placed(&place, value, problems) {
            model_overrides.insert(id, settings);
        }
    }
    let mut config = ProviderConfig {
        base_url: raw.base_url,
        api: raw.api,
        api_key: raw.api_key,
        headers: raw.headers,
        auth_header: raw.auth_header,
        compat: raw.compat,
        models,
        model_overrides,
    };
    if served == ServedBy::Extension {
        config.forget_server();
    }
    checked((name, place), config, (&indices, served), problems)
}

/// Reads `value`; what is wrong is named by `place` and the field inside it.
fn placed<T: DeserializeOwned>(place: &str, value: Value, problems: &mut Problems) -> Option<T> {
    if !value.is_object() {
        problems.add(place, "it must be an object");
        return None;
    }
    serde_path_to_error::deserialize(value)
        .map_err(|error| {
            let field = error.path().to_string();
            let place = if field == "." { place.to_owned() } else { format!("{place}.{field}") };
            problems.add(&place, without_value(error.inner()));
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever a field holds, the entry beside it is read.
        #[test]
        fn a_broken_entry_costs_itself_only(
            field in "baseUrl|api|apiKey|headers|authHeader|compat|models|modelOverrides",
            value in "null|true|3|\"text\"|\\[\\]|\\[1\\]|\\{\\}|\\{\"a\":1\\}|\\[\\{\"id\":\"a\",\"cost\":1\\}\\]",
        ) {
            let text = format!(r#"{{"providers":{{"groq":{{"{field}":{value}}},"xai":{{}}}}}}"#);
            let (entries, problems) = parse(&text);
            prop_assert!(entries.iter().any(|(name, _)| name == "xai"));
            let place = format!("providers.groq.{field}");
            prop_assert!(problems.iter().all(|problem| problem.starts_with(&place)), "{problems:?}");
        }
    }

    fn check(text: &str, entries: &[&str], problems: &[&str]) {
        let (found, seen) = parse(text);
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, entries, "{text}");
        assert_eq!(seen.len(), problems.len(), "{text}: {seen:#?}");
        for (seen, expect) in seen.iter().zip(problems) {
            assert!(seen.starts_with(expect), "{text}: {seen:?} instead of {expect:?}");
        }
    }

    #[test]
    fn whole_files_may_be_wrong() {
        check("", &[], &[]);
        check("{}", &[], &[]);
        check("\u{feff}{\"other\":1}", &[], &[]);
        check("{\"providers\":{}", &[], &["EOF while parsing an object at line 1 column 15"]);
        check("[]", &[], &["it must be an object with \"providers\""]);
        check("{\"providers\":[]}", &[], &["providers: it must be an object"]);
        check(
            "{\"providers\":{\"a b\":{},\"c\":3}}",
            &[],
            &["providers.a b: a provider's name is one word", "providers.c: it must be an object"],
        );
    }

    #[test]
    fn each_problem_has_its_place_and_the_rest_stays() {
        let entry = |rest: &str| {
            format!(
                r#"{{"providers":{{"x":{{"baseUrl":"http://h/v1","api":"openai-completions",{rest}}},"openai":{{}}}}}}"#
            )
        };
        let checked = |rest: &str, stays: bool, problems: &[&str]| {
            let names: &[&str] = if stays { &["x", "openai"] } else { &["openai"] };
            check(&entry(rest), names, problems);
        };
        checked(r#""models":[{"id":"a"}]"#, true, &[]);
        checked(r#""models":[]"#, false, &["providers.x.models: no model"]);
        checked(r#""models":3"#, false, &["providers.x.models: invalid type: integer `3`"]);
        checked(
            r#""headers":{"a b":"c"},"models":[{"id":"a"}]"#,
            false,
            &["providers.x.headers.a b: this is no name"],
        );
        checked(
            r#""headers":{"h":5},"models":[{"id":"a"}]"#,
            false,
            &["providers.x.headers.h: invalid type: integer `5`"],
        );
        checked(r#""apiKey":"! ","models":[{"id":"a"}]"#, false, &["providers.x.apiKey: it is"]);
        checked(
            r#""authHeader":"yes","models":[{"id":"a"}]"#,
            false,
            &["providers.x.authHeader: invalid type: string"],
        );
        checked(r#""compat":[],"models":[{"id":"a"}]"#, false, &["providers.x.compat: it must be"]);
        checked(
            r#""models":[{"id":"a"},7,{"id":"c","contextWindow":"big"},{"id":""},{"name":"n"},
                {"id":"f","maxTokens":0,"input":["text","smell"],"cost":{"input":-1}},
                {"id":"g","api":"smoke"},{"id":"h","api":"scripted"},{"id":"i","compat":1},{"id":"j","cost":{"cacheRead":"x"}}]"#,
            true,
            &[
                "providers.x.models[1]: it must be an object",
                "providers.x.models[2].contextWindow: invalid type: string, expected u64",
                "providers.x.models[4]: missing field `id`",
                "providers.x.models[9].cost.cacheRead: invalid type: string",
                "providers.x.models[3].id: it is empty",
                "providers.x.models[5].maxTokens: it must be above 0",
                "providers.x.models[5].input: unknown kind \"smell\"",
                "providers.x.models[5].cost.input: it must be 0 or above",
                "providers.x.models[6].api: unknown API \"smoke\"",
                "providers.x.models[7].api: \"scripted\" is an API of whole providers",
                "providers.x.models[8].compat: it must be an object",
            ],
        );
        checked(
            r#""modelOverrides":{"m":{"reasoning":1}},"models":[{"id":"a"}]"#,
            true,
            &["providers.x.modelOverrides.m.reasoning: invalid type: integer `1`"],
        );
    }

    #[test]
    fn providers_need_an_address_and_an_api() {
        check(
            r#"{"providers":{
                "a":{"api":"anthropic-messages","models":[{"id":"m"}]},
                "b":{"baseUrl":"ftp://h","api":"anthropic-messages","models":[{"id":"m"}]},
                "c":{"baseUrl":"h:1/v1","api":"anthropic-messages","models":[{"id":"m"}]},
                "d":{"baseUrl":"http://h","api":"soap","models":[{"id":"m"}]},
                "e":{"baseUrl":"http://h","models":[{"id":"m"},{"id":"n","api":"openai-responses"}]},
                "f":{"api":"scripted","models":[{"id":"m"}]},
                "google":{"models":[{"id":"m"}]}}}"#,
            &["e", "google"],
            &[
                "providers.a.baseUrl: missing",
                "providers.b.baseUrl: \"ftp://h\" must begin with http",
                "providers.c.baseUrl: \"h:1/v1\" must begin with http",
                "providers.d.api: unknown API \"soap\"; there are anthropic-messages, ",
                "providers.e.models[0].api: missing here",
                "providers.f.baseUrl: missing; it is the path",
            ],
        );
    }
}
