//! The extension UI sub-protocol: requests that go out, answers that come back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct UiRequest {
    pub id: String,
    #[serde(flatten)]
    pub method: UiMethod,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NotifyKind {
    Info,
    Warning,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WidgetPlacement {
    AboveEditor,
    BelowEditor,
}

/// Dialogs wait for an answer; the rest is shown and forgotten. `timeout` is in
/// milliseconds, `expires_at` in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "method", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum UiMethod {
    Select {
        title: String,
        options: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    Confirm {
        title: String,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    Input {
        title: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        placeholder: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    Editor {
        title: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        prefill: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    Ask {
        title: String,
        question: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        options: Option<Vec<String>>,
        allow_free_text: bool,
        multi_select: bool,
        multiline: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expires_at: Option<u64>,
    },
    Notify {
        message: String,
        notify_type: NotifyKind,
    },
    SetStatus {
        status_key: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        status_text: Option<String>,
    },
    SetWidget {
        widget_key: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        widget_lines: Option<Vec<String>>,
        widget_placement: WidgetPlacement,
    },
    SetTitle {
        title: String,
    },
    #[serde(rename = "set_editor_text")]
    SetEditorText {
        text: String,
    },
}

/// An answer to a dialog, before it is known which dialog it answers.
#[derive(Debug, Clone, PartialEq)]
pub struct UiResponse {
    pub id: String,
    pub fields: Map<String, Value>,
}

/// What a dialog's answer means.
#[derive(Debug, Clone, PartialEq)]
pub enum UiAnswer {
    Cancelled,
    Text(String),
    Confirmed(bool),
    Ask { selected: Vec<String>, custom_text: Option<String> },
}

/// An answer that does not fit its dialog. The dialog stays open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid extension_ui_response for {method} dialog {id}: {problem}")]
pub struct UiAnswerError {
    pub id: String,
    pub method: &'static str,
    pub problem: String,
}

impl UiResponse {
    /// Reads the answer as one to a dialog of this `method`.
    ///
    /// # Errors
    /// Fields of a wrong type, a missing answer, an option that was not offered.
    pub fn answer(&self, method: &UiMethod) -> Result<UiAnswer, UiAnswerError> {
        let fail =
            |problem: String| UiAnswerError { id: self.id.clone(), method: method.name(), problem };
        match self.fields.get("cancelled") {
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::Bool(true)) => return Ok(UiAnswer::Cancelled),
            Some(_) => return Err(fail("cancelled must be a boolean".into())),
        }
        match method {
            UiMethod::Select { options, .. } => {
                let value = self.string("value").map_err(fail)?;
                if !options.iter().any(|option| option == value) {
                    return Err(fail(format!(
                        "value {value:?} is not one of the options {options:?}"
                    )));
                }
                Ok(UiAnswer::Text(value.to_owned()))
            }
            UiMethod::Input { .. } | UiMethod::Editor { .. } => {
                Ok(UiAnswer::Text(self.string("value").map_err(fail)?.to_owned()))
            }
            UiMethod::Confirm { .. } => match self.fields.get("confirmed") {
                Some(Value::Bool(confirmed)) => Ok(UiAnswer::Confirmed(*confirmed)),
                Some(_) => Err(fail("confirmed must be a boolean".into())),
                None => Err(fail("expected confirmed (a boolean) or cancelled: true".into())),
            },
            UiMethod::Ask { options, multi_select, allow_free_text, .. } => self
                .ask_answer(AskRules {
                    options: options.as_deref().unwrap_or_default(),
                    multi_select: *multi_select,
                    allow_free_text: *allow_free_text,
                })
                .map_err(fail),
            UiMethod::Notify { .. }
            | UiMethod::SetStatus { .. }
            | UiMethod::SetWidget { .. }
            | UiMethod::SetTitle { .. }
            | UiMethod::SetEditorText { .. } => Err(fail("expects no answer".into())),
        }
    }

    fn string(&self, field: &str) -> Result<&str, String> {
        match self.fields.get(field) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(format!("{field} must be a string")),
            None => Err(format!("expected {field} (a string) or cancelled: true")),
        }
    }

    fn ask_answer(&self, rules: AskRules<'_>) -> Result<UiAnswer, String> {
        let Some(Value::Array(items)) = self.fields.get("selected") else {
            return Err("expected selected (an array of strings) or cancelled: true".into());
        };
        let mut selected: Vec<String> = Vec::with_capacity(items.len());
        for item in items {
            let Value::String(text) = item else {
                return Err("selected must be an array of strings".into());
            };
            if !rules.options.contains(text) {
                return Err(format!("{text:?} is not one of the options {:?}", rules.options));
            }
            if !selected.contains(text) {
                selected.push(text.clone());
            }
        }
        if selected.len() > 1 && !rules.multi_select {
            return Err("only one option may be selected".into());
        }
        let custom_text = match self.fields.get("customText") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.trim().is_empty() => None,
            Some(Value::String(_)) if !rules.allow_free_text => {
                return Err("this question does not take customText".into());
            }
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err("customText must be a string".into()),
        };
        if selected.is_empty() && custom_text.is_none() {
            return Ok(UiAnswer::Cancelled);
        }
        Ok(UiAnswer::Ask { selected, custom_text })
    }
}

/// What a question allows.
struct AskRules<'a> {
    options: &'a [String],
    multi_select: bool,
    allow_free_text: bool,
}

impl UiMethod {
    /// The method's name on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Select { .. } => "select",
            Self::Confirm { .. } => "confirm",
            Self::Input { .. } => "input",
            Self::Editor { .. } => "editor",
            Self::Ask { .. } => "ask",
            Self::Notify { .. } => "notify",
            Self::SetStatus { .. } => "setStatus",
            Self::SetWidget { .. } => "setWidget",
            Self::SetTitle { .. } => "setTitle",
            Self::SetEditorText { .. } => "set_editor_text",
        }
    }

    /// True for the methods that wait for an answer.
    pub const fn is_dialog(&self) -> bool {
        matches!(
            self,
            Self::Select { .. }
                | Self::Confirm { .. }
                | Self::Input { .. }
                | Self::Editor { .. }
                | Self::Ask { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    fn check(method: &UiMethod, fields: Value, expect: Result<UiAnswer, &str>) {
        let Value::Object(fields) = fields else { panic!("fields must be an object") };
        let answer = UiResponse { id: "d".into(), fields }.answer(method);
        assert_eq!(answer.map_err(|e| e.problem), expect.map_err(str::to_owned));
    }

    #[test]
    fn every_method_names_itself_as_on_the_wire() {
        let methods = [
            UiMethod::Select { title: String::new(), options: vec![], timeout: None },
            UiMethod::Confirm { title: String::new(), message: String::new(), timeout: None },
            UiMethod::Input { title: String::new(), placeholder: None, timeout: None },
            UiMethod::Editor { title: String::new(), prefill: None, timeout: None },
            ask(None, false, true),
            UiMethod::Notify { message: String::new(), notify_type: NotifyKind::Info },
            UiMethod::SetStatus { status_key: String::new(), status_text: None },
            UiMethod::SetWidget {
                widget_key: String::new(),
                widget_lines: None,
                widget_placement: WidgetPlacement::AboveEditor,
            },
            UiMethod::SetTitle { title: String::new() },
            UiMethod::SetEditorText { text: String::new() },
        ];
        for method in methods {
            let json =
                serde_json::to_value(UiRequest { id: "i".into(), method: method.clone() }).unwrap();
            assert_eq!(json["method"], method.name());
            assert_eq!(json["id"], "i");
        }
    }

    fn ask(options: Option<Vec<String>>, multi_select: bool, allow_free_text: bool) -> UiMethod {
        UiMethod::Ask {
            title: String::new(),
            question: String::new(),
            options,
            allow_free_text,
            multi_select,
            multiline: false,
            timeout: None,
            expires_at: None,
        }
    }

    #[test]
    fn answers_are_held_to_their_dialog() {
        let select = UiMethod::Select {
            title: "t".into(),
            options: vec!["A".into(), "B".into()],
            timeout: None,
        };
        check(&select, json!({"value": "A"}), Ok(UiAnswer::Text("A".into())));
        check(
            &select,
            json!({"value": "C"}),
            Err("value \"C\" is not one of the options [\"A\", \"B\"]"),
        );
        check(&select, json!({"value": 3}), Err("value must be a string"));
        check(&select, json!({}), Err("expected value (a string) or cancelled: true"));
        check(&select, json!({"cancelled": true}), Ok(UiAnswer::Cancelled));
        check(&select, json!({"cancelled": "yes"}), Err("cancelled must be a boolean"));
        let confirm = UiMethod::Confirm { title: "t".into(), message: "m".into(), timeout: None };
        check(&confirm, json!({"confirmed": false}), Ok(UiAnswer::Confirmed(false)));
        check(&confirm, json!({"confirmed": 1}), Err("confirmed must be a boolean"));
        check(
            &confirm,
            json!({"value": "yes"}),
            Err("expected confirmed (a boolean) or cancelled: true"),
        );
        let question = ask(Some(vec!["A".into(), "B".into()]), false, true);
        check(
            &question,
            json!({"selected": ["A"], "customText": "x"}),
            Ok(UiAnswer::Ask { selected: vec!["A".into()], custom_text: Some("x".into()) }),
        );
        check(&question, json!({"selected": [], "customText": " "}), Ok(UiAnswer::Cancelled));
        check(&question, json!({"selected": ["A", "B"]}), Err("only one option may be selected"));
        check(
            &question,
            json!({"selected": "A"}),
            Err("expected selected (an array of strings) or cancelled: true"),
        );
        check(
            &ask(None, false, false),
            json!({"selected": [], "customText": "x"}),
            Err("this question does not take customText"),
        );
    }
}
