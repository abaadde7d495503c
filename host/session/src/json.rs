//! JSON text handled without interpreting it: fields in their order and with
//! their values verbatim, so that rewriting loses nothing.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use serde_json::value::RawValue;

/// The fields of one object.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Fields<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The value as JSON text; of a repeated field the last, as JavaScript takes it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rfind(|(key, _)| key == name).map(|(_, value)| value.as_ref())
    }

    /// The value of a field that holds a JSON string.
    pub(crate) fn get_str(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// Replaces the value (JSON text), or inserts it at `index`.
    pub(crate) fn set(&mut self, index: usize, name: &'static str, value: String) {
        match self.0.iter_mut().rfind(|(key, _)| key == name) {
            Some((_, old)) => *old = value.into(),
            None => {
                self.0.insert(index.min(self.0.len()), (name.into(), value.into()));
            }
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(key, _)| key != name);
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::from("{");
        for (index, (key, value)) in self.0.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&quote(key));
            text.push(':');
            text.push_str(value);
        }
        text.push('}');
        text
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    fields.push((Cow::Owned(key), Cow::Borrowed(value.get())));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// JSON text that is serialised as it stands, without being read again: tens of megabytes
/// take as long as copying them. What is no JSON makes the output none; line feeds in it
/// stay. Only for `serde_json`.
#[derive(Debug, Clone, Copy)]
pub struct Verbatim<'a>(pub &'a str);

impl Serialize for Verbatim<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // How a `RawValue` serialises itself. One cannot be had without checking the text
        // again. A test here fails should `serde_json` ever use another name.
        const RAW_VALUE: &str = "$serde_json::private::RawValue";
        let mut raw = serializer.serialize_struct(RAW_VALUE, 1)?;
        raw.serialize_field(RAW_VALUE, self.0)?;
        raw.end()
    }
}

/// `text` as a JSON string.
pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn fields_are_verbatim() {
        let text = r#"{"a":0.000009,"b\n":{"x":[1.0, 2]},"c":123456789012345678901}"#;
        let mut fields = Fields::parse(text).unwrap();
        assert_eq!(fields.to_text(), text);
        fields.set(0, "a", "1".to_owned());
        fields.set(1, "id", quote("x\"y"));
        fields.remove("c");
        assert_eq!(fields.to_text(), r#"{"a":1,"id":"x\"y","b\n":{"x":[1.0, 2]}}"#);
        assert!(Fields::parse("[1]").is_none());
    }

    #[test]
    fn verbatim_text_is_not_touched() {
        let text = r#"{"b":1.50,"a":[ "\ud83d" ]}"#;
        let list = vec![Verbatim(text), Verbatim("7")];
        assert_eq!(serde_json::to_string(&list).unwrap(), format!("[{text},7]"));
        let raw = serde_json::value::to_raw_value(&Verbatim(text)).unwrap();
        assert_eq!(raw.get(), text);
        assert_eq!(serde_json::to_value(Verbatim("[1]")).unwrap(), serde_json::json!([1]));
    }
}
