//! The derive of `wharf_sdk::Parameters`. All that is known while the extension is
//! compiled becomes JSON text here, so that little is left to do in the component;
//! what that is stands in the SDK's `parameters` module.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use serde_derive_internals::ast::{Container, Data, Field, Style, Variant};
use serde_derive_internals::attr::TagType;
use serde_derive_internals::{Ctxt, Derive};
use serde_json::{Value, json};
use syn::{Attribute, DeriveInput, Error, Expr, ExprLit, Lit, Meta, Result};

/// Derives `wharf_sdk::Parameters`: what a tool's arguments look like, from the type
/// that `serde::Deserialize` makes of them. Serde's attributes are heeded, and doc
/// comments become descriptions.
#[proc_macro_derive(Parameters, attributes(serde))]
pub fn derive_parameters(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let errors = Ctxt::new();
    let container = Container::from_ast(&errors, input, Derive::Deserialize, &format_ident!("_"));
    errors.check()?;
    let Some(container) = container else { return Err(unsupported(input, "this type")) };
    if !container.generics.params.is_empty() {
        return Err(unsupported(container.generics, "a generic type"));
    }
    if container.attrs.type_from().is_some() || container.attrs.type_try_from().is_some() {
        return Err(unsupported(input, "a type that is made from another one"));
    }
    match &container.data {
        Data::Struct(Style::Struct, fields) if !container.attrs.transparent() => {
            object(&container, fields)
        }
        Data::Struct(_, fields) => transparent(&container, fields),
        Data::Enum(variants) => choice(&container, variants),
    }
}

/// A type with named fields, the only one that may be all of a tool's arguments.
fn object(container: &Container<'_>, fields: &[Field<'_>]) -> Result<TokenStream> {
    let mut described = TokenStream::new();
    for field in fields.iter().filter(|field| !field.attrs.skip_deserializing()) {
        check(field)?;
        let name = literal(&field.attrs.name().deserialize_name().value);
        let doc = doc(&field.original.attrs);
        let ty = field.ty;
        let has_default = !field.attrs.default().is_none() || !container.attrs.default().is_none();
        described.extend(quote!(.field::<#ty>(#name, #doc, #has_default)));
    }
    let is_closed = container.attrs.deny_unknown_fields();
    let described = describe(
        container,
        &quote! {
            ::wharf_sdk::__private::Object::new(schema, nullable)#described.end(#is_closed);
        },
    );
    let ident = &container.ident;
    Ok(quote! {
        #described

        impl ::wharf_sdk::Parameters for #ident {
            fn schema() -> ::wharf_sdk::Json {
                ::wharf_sdk::__private::schema_of::<Self>()
            }
        }
    })
}

/// A type that looks like its only field.
fn transparent(container: &Container<'_>, fields: &[Field<'_>]) -> Result<TokenStream> {
    let mut read = fields.iter().filter(|field| !field.attrs.skip_deserializing());
    let (Some(field), None) = (read.next(), read.next()) else {
        return Err(unsupported(container.original, "a tuple or a unit"));
    };
    check(field)?;
    let ty = field.ty;
    let inner = quote!(<#ty as ::wharf_sdk::__private::Describe>);
    let doc = match doc(&container.original.attrs) {
        doc if doc.is_empty() => quote!(#inner::DOC),
        doc => quote!(#doc),
    };
    let ident = &container.ident;
    Ok(quote! {
        impl ::wharf_sdk::__private::Describe for #ident {
            const IS_OPTIONAL: bool = #inner::IS_OPTIONAL;
            const DOC: &'static str = #doc;

            fn describe(schema: &mut ::std::string::String, nullable: bool) {
                #inner::describe(schema, nullable);
            }
        }
    })
}

/// One of several texts.
fn choice(container: &Container<'_>, variants: &[Variant<'_>]) -> Result<TokenStream> {
    if !matches!(container.attrs.tag(), TagType::External) {
        return Err(unsupported(container.original, "an enum with a tag of its own"));
    }
    let mut choices = Vec::new();
    for variant in variants.iter().filter(|variant| !variant.attrs.skip_deserializing()) {
        if !matches!(variant.style, Style::Unit) || variant.attrs.untagged() {
            return Err(unsupported(variant.original, "a variant with data"));
        }
        // `other` stands for all texts that are not named.
        if !variant.attrs.other() {
            let name = variant.attrs.name().deserialize_name().value.clone();
            choices.push((name, doc_text(&variant.original.attrs)));
        }
    }
    let (once, or_null) = (choices_schema(&choices, false), choices_schema(&choices, true));
    Ok(describe(
        container,
        &quote! {
            schema.push_str(if nullable { #or_null } else { #once });
        },
    ))
}

/// The members of a choice's schema, without the braces.
fn choices_schema(choices: &[(String, String)], nullable: bool) -> String {
    let kind = if nullable { json!(["string", "null"]) } else { json!("string") };
    let null = nullable.then_some(Value::Null);
    if choices.iter().all(|(_, doc)| doc.is_empty()) {
        let names = choices.iter().map(|(name, _)| json!(name));
        let names: Value = names.chain(null).collect();
        return format!(r#""type":{kind},"enum":{names}"#);
    }
    let described = choices.iter().map(|(name, doc)| match doc.as_str() {
        "" => json!({ "const": name }),
        doc => json!({ "const": name, "description": doc }),
    });
    let described: Value = described.chain(null.map(|_| json!({ "const": null }))).collect();
    format!(r#""type":{kind},"oneOf":{described}"#)
}

fn describe(container: &Container<'_>, body: &TokenStream) -> TokenStream {
    let ident = &container.ident;
    let doc = doc(&container.original.attrs);
    quote! {
        impl ::wharf_sdk::__private::Describe for #ident {
            const DOC: &'static str = #doc;

            fn describe(schema: &mut ::std::string::String, nullable: bool) {
                #body
            }
        }
    }
}

fn check(field: &Field<'_>) -> Result<()> {
    if field.attrs.flatten() {
        return Err(unsupported(field.original, "a flattened field"));
    }
    if field.attrs.deserialize_with().is_some() {
        return Err(unsupported(field.original, "a field that is read in its own way"));
    }
    Ok(())
}

fn unsupported(tokens: impl quote::ToTokens, what: &str) -> Error {
    Error::new_spanned(
        tokens,
        format!("Parameters cannot describe {what}; derive schemars' JsonSchema instead"),
    )
}

/// A doc comment as JSON text; empty when there is none.
fn doc(attributes: &[Attribute]) -> String {
    match doc_text(attributes) {
        text if text.is_empty() => text,
        text => literal(&text),
    }
}

/// The lines of a doc comment. Each begins with the blank after `///`.
fn doc_text(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) => Some(line.value()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> =
        lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    lines.join("\n").trim().to_owned()
}

fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_described_is_an_error_that_says_what_to_do() {
        for (source, what) in [
            ("struct P<T> { a: T }", "a generic type"),
            ("struct P(u8, u8);", "a tuple or a unit"),
            ("struct P { #[serde(flatten)] a: Q }", "a flattened field"),
            (r#"struct P { #[serde(deserialize_with = "f")] a: u8 }"#, "read in its own way"),
            (r#"#[serde(try_from = "String")] struct P { a: u8 }"#, "made from another one"),
            ("enum P { A(u8) }", "a variant with data"),
            (r#"#[serde(tag = "t")] enum P { A }"#, "a tag of its own"),
        ] {
            let error = expand(&syn::parse_str(source).unwrap()).unwrap_err().to_string();
            assert!(error.contains(what), "{source}: {error}");
            assert!(error.contains("JsonSchema instead"), "{error}");
        }
    }

    #[test]
    fn an_attribute_that_serde_does_not_know_is_an_error() {
        let input = syn::parse_str("struct P { #[serde(renamed)] a: u8 }").unwrap();
        assert!(expand(&input).unwrap_err().to_string().contains("renamed"));
    }

    #[test]
    fn lines_of_a_doc_comment_are_joined() {
        let input: DeriveInput =
            syn::parse_str("/// Says \"hi\".\n///\n/// Twice.\nstruct P {}").unwrap();
        assert_eq!(doc(&input.attrs), r#""Says \"hi\".\n\nTwice.""#);
        assert_eq!(doc(&[]), "");
    }
}
