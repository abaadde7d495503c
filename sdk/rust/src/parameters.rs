//! What a tool's arguments look like, as a JSON Schema. The derive has put as much of
//! the text together as it could; here is what is left for the component.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

use crate::Json;

/// The arguments of a tool: a type with named fields, whose JSON Schema the model
/// reads.
///
/// `#[derive(Parameters)]` describes what `#[derive(serde::Deserialize)]` reads, by
/// serde's own attributes; doc comments become descriptions. A field may be left out
/// when its type is an `Option` or serde has a `default` for it. The types of fields
/// derive it too: structs, and enums without data.
///
/// ```
/// use wharf_sdk::{Json, Parameters};
///
/// #[derive(serde::Deserialize, Parameters)]
/// struct Greet {
///     /// Who is greeted.
///     name: String,
///     language: Option<Language>,
/// }
///
/// #[derive(serde::Deserialize, Parameters)]
/// #[serde(rename_all = "lowercase")]
/// enum Language {
///     English,
///     Welsh,
/// }
///
/// # fn main() -> wharf_sdk::Result<()> {
/// let expected = serde_json::json!({
///     "type": "object",
///     "properties": {
///         "name": {"type": "string", "description": "Who is greeted."},
///         "language": {"type": ["string", "null"], "enum": ["english", "welsh", null]},
///     },
///     "required": ["name"],
/// });
/// assert_eq!(Greet::schema().value()?, expected);
/// # Ok(())
/// # }
/// ```
///
/// A type with schemars' `JsonSchema` has it as well, with all that schemars can
/// describe: enums with data, types that contain themselves, ranges. That takes 20 to
/// 50 kB more of the component.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not describe a tool's arguments",
    note = "derive `wharf_sdk::Parameters` for it, or schemars' `JsonSchema`; it is a struct with \
            named fields"
)]
pub trait Parameters {
    /// The JSON Schema; its root describes an object.
    fn schema() -> Json;
}

impl<T: JsonSchema> Parameters for T {
    /// Types in place, since not every model follows references, and neither `$schema`
    /// nor the Rust type's name. Made without schemars' root schema, whose work on
    /// references would take 10 kB of each guest.
    fn schema() -> Json {
        let settings =
            SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let mut generator = settings.into_generator();
        let mut schema = T::json_schema(&mut generator);
        // Only a type that contains itself is still referred to.
        let definitions = generator.take_definitions(true);
        if !definitions.is_empty() {
            schema.insert("$defs".to_owned(), definitions.into());
        }
        schema.to_value().into()
    }
}

/// A type that a parameter can have. Not part of the API; implemented by the derive.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be described as a part of a tool's arguments",
    note = "derive `wharf_sdk::Parameters` for it, or schemars' `JsonSchema` for the whole"
)]
pub trait Describe {
    /// Whether a field of this type may be left out.
    const IS_OPTIONAL: bool = false;
    /// What the type is for, as JSON text; empty when it does not say.
    const DOC: &'static str = "";

    /// Writes the members of the schema, without the braces.
    fn describe(schema: &mut String, nullable: bool);
}

/// The schema of a type that stands for itself.
#[must_use]
pub fn schema_of<T: Describe>() -> Json {
    let mut schema = String::new();
    braced(&mut schema, T::DOC, T::describe, false);
    Json::from_host(schema)
}

fn braced(schema: &mut String, doc: &str, describe: fn(&mut String, bool), nullable: bool) {
    schema.push('{');
    describe(schema, nullable);
    if !doc.is_empty() {
        if !schema.ends_with('{') {
            schema.push(',');
        }
        schema.push_str("\"description\":");
        schema.push_str(doc);
    }
    schema.push('}');
}

/// Writes the type, in quotes, and whether `null` will do.
fn push_type(schema: &mut String, kind: &str, nullable: bool) {
    schema.push_str("\"type\":");
    if nullable {
        schema.push('[');
    }
    schema.push_str(kind);
    if nullable {
        schema.push_str(",\"null\"]");
    }
}

/// Describes a type with named fields. Not part of the API.
#[derive(Debug)]
pub struct Object<'a> {
    schema: &'a mut String,
    required: String,
}

impl<'a> Object<'a> {
    /// Begins the schema.
    pub fn new(schema: &'a mut String, nullable: bool) -> Self {
        push_type(schema, "\"object\"", nullable);
        schema.push_str(",\"properties\":{");
        Self { schema, required: String::new() }
    }

    /// Adds a field; its name and its description are JSON text.
    #[must_use]
    pub fn field<T: Describe>(self, name: &str, doc: &str, has_default: bool) -> Self {
        let doc = if doc.is_empty() { T::DOC } else { doc };
        self.described(name, doc, has_default || T::IS_OPTIONAL, T::describe)
    }

    /// Not generic, since the code of each field counts.
    fn described(
        mut self,
        name: &str,
        doc: &str,
        is_optional: bool,
        describe: fn(&mut String, bool),
    ) -> Self {
        if !self.schema.ends_with('{') {
            self.schema.push(',');
        }
        self.schema.push_str(name);
        self.schema.push(':');
        braced(self.schema, doc, describe, false);
        if !is_optional {
            if !self.required.is_empty() {
                self.required.push(',');
            }
            self.required.push_str(name);
        }
        self
    }

    /// Ends the schema; a closed one allows no other fields.
    pub fn end(self, is_closed: bool) {
        self.schema.push('}');
        if !self.required.is_empty() {
            self.schema.push_str(",\"required\":[");
            self.schema.push_str(&self.required);
            self.schema.push(']');
        }
        if is_closed {
            self.schema.push_str(",\"additionalProperties\":false");
        }
    }
}

macro_rules! describe {
    ($($ty:ty: $kind:literal $(, $limits:literal)?;)*) => {$(
        impl Describe for $ty {
            fn describe(schema: &mut String, nullable: bool) {
                push_type(schema, concat!('"', $kind, '"'), nullable);
                $(schema.push_str($limits);)?
            }
        }
    )*};
}

describe! {
    String: "string";
    bool: "boolean";
    f32: "number";
    f64: "number";
    i8: "integer", r#","minimum":-128,"maximum":127"#;
    i16: "integer", r#","minimum":-32768,"maximum":32767"#;
    i32: "integer", r#","minimum":-2147483648,"maximum":2147483647"#;
    i64: "integer";
    u8: "integer", r#","minimum":0,"maximum":255"#;
    u16: "integer", r#","minimum":0,"maximum":65535"#;
    u32: "integer", r#","minimum":0,"maximum":4294967295"#;
    u64: "integer", r#","minimum":0"#;
    usize: "integer", r#","minimum":0"#;
}

/// Anything.
impl Describe for serde_json::Value {
    fn describe(_schema: &mut String, _nullable: bool) {}
}

impl<T: Describe> Describe for Option<T> {
    const IS_OPTIONAL: bool = true;
    const DOC: &'static str = T::DOC;

    fn describe(schema: &mut String, _nullable: bool) {
        T::describe(schema, true);
    }
}

impl<T: Describe> Describe for Box<T> {
    const IS_OPTIONAL: bool = T::IS_OPTIONAL;
    const DOC: &'static str = T::DOC;

    fn describe(schema: &mut String, nullable: bool) {
        T::describe(schema, nullable);
    }
}

impl<T: Describe> Describe for Vec<T> {
    fn describe(schema: &mut String, nullable: bool) {
        push_type(schema, "\"array\"", nullable);
        schema.push_str(",\"items\":");
        braced(schema, T::DOC, T::describe, false);
    }
}

fn describe_map<T: Describe>(schema: &mut String, nullable: bool) {
    push_type(schema, "\"object\"", nullable);
    schema.push_str(",\"additionalProperties\":");
    braced(schema, T::DOC, T::describe, false);
}

impl<T: Describe> Describe for BTreeMap<String, T> {
    fn describe(schema: &mut String, nullable: bool) {
        describe_map::<T>(schema, nullable);
    }
}

impl<T: Describe, S> Describe for HashMap<String, T, S> {
    fn describe(schema: &mut String, nullable: bool) {
        describe_map::<T>(schema, nullable);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
#[expect(dead_code, reason = "the types are only described")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn schema<P: Parameters>() -> Value {
        P::schema().value().unwrap()
    }

    /// How "loud" it is.
    #[derive(serde::Deserialize, crate::Parameters)]
    #[serde(rename_all = "kebab-case")]
    enum Volume {
        /// Nobody hears it.
        VeryLow,
        High,
        #[serde(other)]
        Unknown,
    }

    #[derive(serde::Deserialize, crate::Parameters)]
    struct Id(u8);

    /// A place.
    #[derive(serde::Deserialize, crate::Parameters)]
    #[serde(deny_unknown_fields)]
    struct Place {
        x: f64,
    }

    #[derive(serde::Deserialize, crate::Parameters)]
    #[serde(rename_all = "camelCase")]
    struct Call {
        volume: Volume,
        maybe_volume: Option<Volume>,
        /// The "places".
        place_list: Vec<Place>,
        #[serde(rename = "ID")]
        id: Option<Box<Id>>,
        #[serde(default)]
        by_name: BTreeMap<String, Vec<i64>>,
        /// Whatever.
        any: Value,
        #[serde(skip)]
        cache: Vec<u64>,
    }

    #[test]
    fn the_derive_describes_what_serde_reads() {
        let choices = [
            json!({"const": "very-low", "description": "Nobody hears it."}),
            json!({"const": "high"}),
        ];
        let [low, high] = &choices;
        assert_eq!(
            schema::<Call>(),
            json!({
                "type": "object",
                "properties": {
                    "volume": {
                        "type": "string",
                        "oneOf": choices,
                        "description": "How \"loud\" it is.",
                    },
                    "maybeVolume": {
                        "type": ["string", "null"],
                        "oneOf": [low, high, {"const": null}],
                        "description": "How \"loud\" it is.",
                    },
                    "placeList": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"x": {"type": "number"}},
                            "required": ["x"],
                            "additionalProperties": false,
                            "description": "A place.",
                        },
                        "description": "The \"places\".",
                    },
                    "ID": {"type": ["integer", "null"], "minimum": 0, "maximum": 255},
                    "byName": {
                        "type": "object",
                        "additionalProperties": {"type": "array", "items": {"type": "integer"}},
                    },
                    "any": {"description": "Whatever."},
                },
                "required": ["volume", "placeList", "any"],
            })
        );
    }

    #[test]
    fn a_type_without_parameters_is_an_empty_object() {
        #[derive(serde::Deserialize, crate::Parameters)]
        struct Nothing {}

        assert_eq!(schema::<Nothing>(), json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn schemars_describes_what_the_derive_cannot() {
        #[derive(serde::Deserialize, schemars::JsonSchema)]
        struct Tree {
            children: Vec<Tree>,
        }

        let schema = schema::<Tree>();
        let child = &schema["properties"]["children"]["items"];
        let reference = child["properties"]["children"]["items"]["$ref"].as_str().unwrap();
        let target = schema.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        assert_eq!(target["required"], json!(["children"]));
    }
}
