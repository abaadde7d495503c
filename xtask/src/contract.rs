//! The extension contract as a page for people, `docs/api.md`, and the check that a
//! newer version of it only adds: both read the WIT files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use wit_parser::{
    Docs, Function, FunctionKind, Handle, Interface, InterfaceId, Resolve, Type, TypeDefKind,
    TypeId, TypeOwner,
};

use crate::{Workspace, say};

/// The newest version, which host and SDK are made from.
const NEWEST: &str = "0.1.1";
const PAGE: &str = "docs/api.md";

/// Writes the page, of a contract that breaks nothing.
pub(crate) fn write_docs(workspace: &Workspace) -> Result<()> {
    check_versions(&workspace.root)?;
    let page = workspace.root.join(PAGE);
    std::fs::write(&page, self::page(&workspace.root)?)
        .with_context(|| format!("failed to write {}", page.display()))?;
    say(format_args!("wrote {}", page.display()));
    Ok(())
}

/// One version of the contract.
struct Contract {
    resolve: Resolve,
    interfaces: Vec<InterfaceId>,
    docs: Docs,
}

impl Contract {
    fn read(root: &Path, version: &str) -> Result<Self> {
        let folder: PathBuf = root.join("wit").join(version);
        let mut resolve = Resolve::default();
        let (package, _) = resolve
            .push_dir(&folder)
            .with_context(|| format!("failed to read {}", folder.display()))?;
        let package = &resolve.packages[package];
        let interfaces = package.interfaces.values().copied().collect();
        let docs = package.docs.clone();
        Ok(Self { resolve, interfaces, docs })
    }

    fn interface(&self, id: InterfaceId) -> &Interface {
        &self.resolve.interfaces[id]
    }

    fn named(&self, name: &str) -> Option<&Interface> {
        let ids = self.interfaces.iter().map(|id| self.interface(*id));
        ids.into_iter().find(|interface| interface.name.as_deref() == Some(name))
    }

    /// A type where it is used.
    fn used(&self, ty: &Type) -> String {
        let Type::Id(id) = ty else { return primitive(ty).to_owned() };
        let def = &self.resolve.types[*id];
        match &def.name {
            Some(name) => name.clone(),
            None => self.built(*id),
        }
    }

    /// A type without a name, or what a name stands for.
    fn built(&self, id: TypeId) -> String {
        let one =
            |ty: &Option<Type>| ty.as_ref().map_or_else(|| "_".to_owned(), |ty| self.used(ty));
        match &self.resolve.types[id].kind {
            TypeDefKind::Option(ty) => format!("option<{}>", self.used(ty)),
            TypeDefKind::List(ty) => format!("list<{}>", self.used(ty)),
            TypeDefKind::Tuple(tuple) => {
                let types: Vec<_> = tuple.types.iter().map(|ty| self.used(ty)).collect();
                format!("tuple<{}>", types.join(", "))
            }
            TypeDefKind::Result(result) => match (&result.ok, &result.err) {
                (None, None) => "result".to_owned(),
                (ok, None) => format!("result<{}>", one(ok)),
                (ok, err) => format!("result<{}, {}>", one(ok), one(err)),
            },
            TypeDefKind::Handle(Handle::Own(id)) => self.used(&Type::Id(*id)),
            TypeDefKind::Handle(Handle::Borrow(id)) => {
                format!("borrow<{}>", self.used(&Type::Id(*id)))
            }
            TypeDefKind::Type(ty) => self.used(ty),
            other => other.as_str().to_owned(),
        }
    }

    /// A type's parts, one a line: name, type, documentation.
    fn parts(&self, id: TypeId) -> Vec<(String, Option<String>, &Docs)> {
        match &self.resolve.types[id].kind {
            TypeDefKind::Record(record) => {
                let part = |f: &'_ wit_parser::Field| (f.name.clone(), Some(self.used(&f.ty)));
                record.fields.iter().map(|f| (part(f).0, part(f).1, &f.docs)).collect()
            }
            TypeDefKind::Variant(variant) => variant
                .cases
                .iter()
                .map(|case| {
                    (case.name.clone(), case.ty.as_ref().map(|ty| self.used(ty)), &case.docs)
                })
                .collect(),
            TypeDefKind::Enum(cases) => {
                cases.cases.iter().map(|case| (case.name.clone(), None, &case.docs)).collect()
            }
            TypeDefKind::Flags(flags) => {
                flags.flags.iter().map(|flag| (flag.name.clone(), None, &flag.docs)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// `name: async func(a: type) -> type`
    fn signature(&self, function: &Function) -> String {
        let is_method =
            matches!(function.kind, FunctionKind::Method(_) | FunctionKind::AsyncMethod(_));
        let params: Vec<_> = function
            .params
            .iter()
            .skip(usize::from(is_method))
            .map(|param| format!("{}: {}", param.name, self.used(&param.ty)))
            .collect();
        let result = function.result.as_ref().map(|ty| format!(" -> {}", self.used(ty)));
        let keyword = if function.kind.is_async() { "async func" } else { "func" };
        let name = function.name.rsplit('.').next().unwrap_or_default();
        let name = name.rsplit(']').next().unwrap_or_default();
        format!("{name}: {keyword}({}){}", params.join(", "), result.unwrap_or_default())
    }

    /// Types that are defined in an interface, not only used there.
    fn own_types(&self, id: InterfaceId) -> impl Iterator<Item = (&String, TypeId)> {
        self.interface(id).types.iter().map(|(name, ty)| (name, *ty)).filter(move |(_, ty)| {
            let def = &self.resolve.types[*ty];
            let is_use = matches!(def.kind, TypeDefKind::Type(Type::Id(other))
                if self.resolve.types[other].name == def.name);
            def.owner == TypeOwner::Interface(id) && !is_use
        })
    }
}

const fn primitive(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "bool",
        Type::U8 => "u8",
        Type::U16 => "u16",
        Type::U32 => "u32",
        Type::U64 => "u64",
        Type::S8 => "s8",
        Type::S16 => "s16",
        Type::S32 => "s32",
        Type::S64 => "s64",
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::Char => "char",
        Type::String => "string",
        Type::ErrorContext => "error-context",
        Type::Id(_) => "",
    }
}

fn page(root: &Path) -> Result<String> {
    let contract = Contract::read(root, NEWEST)?;
    let mut page = format!(
        "# The API: `wharf:extension@{NEWEST}`\n\n\
         Made from `wit/{NEWEST}/world.wit` by `cargo xtask docs`; a test compares. An `async func` may wait, and\n\
         other calls of the same instance go on meanwhile. What Rust makes of it is in the documentation of\n\
         `sdk/rust`.\n\n"
    );
    text(&mut page, &contract.docs, "");
    page.push_str("\n## Contents\n\n");
    for id in &contract.interfaces {
        let name = contract.interface(*id).name.as_deref().unwrap_or_default();
        writeln!(page, "- [{name}](#{name})")?;
    }
    for id in &contract.interfaces {
        interface(&mut page, &contract, *id)?;
    }
    Ok(page)
}

fn interface(page: &mut String, contract: &Contract, id: InterfaceId) -> Result<()> {
    let interface = contract.interface(id);
    let name = interface.name.as_deref().unwrap_or_default();
    writeln!(page, "\n## {name}\n")?;
    text(page, &interface.docs, "");
    let free = |f: &&Function| {
        matches!(f.kind, FunctionKind::Freestanding | FunctionKind::AsyncFreestanding)
    };
    for function in interface.functions.values().filter(free) {
        write!(page, "\n### `{}`\n\n", contract.signature(function))?;
        text(page, &function.docs, "");
    }
    for (name, ty) in contract.own_types(id) {
        let def = &contract.resolve.types[ty];
        let kind = def.kind.as_str();
        match &def.kind {
            TypeDefKind::Type(_) => {
                write!(page, "\n### type `{name}` = `{}`\n\n", contract.built(ty))?;
            }
            _ => write!(page, "\n### {kind} `{name}`\n\n")?,
        }
        text(page, &def.docs, "");
        if !contract.parts(ty).is_empty() && !page.ends_with("\n\n") {
            page.push('\n');
        }
        for (part, of, docs) in contract.parts(ty) {
            match of {
                Some(of) => write!(page, "- `{part}`: `{of}`")?,
                None => write!(page, "- `{part}`")?,
            }
            match docs.contents.as_deref().map(str::trim) {
                Some(docs) if !docs.is_empty() => {
                    writeln!(page, " - {}", docs.replace('\n', "\n  "))?;
                }
                _ => page.push('\n'),
            }
        }
        let of_resource = |f: &&Function| f.kind.resource() == Some(ty);
        for method in interface.functions.values().filter(of_resource) {
            write!(page, "\n- `{}`", contract.signature(method))?;
            match method.docs.contents.as_deref().map(str::trim) {
                Some(docs) => writeln!(page, " - {}", docs.replace('\n', "\n  "))?,
                None => page.push('\n'),
            }
        }
    }
    Ok(())
}

fn text(page: &mut String, docs: &Docs, indent: &str) {
    for line in docs.contents.as_deref().unwrap_or_default().trim().lines() {
        page.push_str(indent);
        page.push_str(line.trim_end());
        page.push('\n');
    }
}

/// What `newer` lacks of `older`, or has in another shape.
fn breaks(older: &Contract, newer: &Contract) -> Vec<String> {
    let mut breaks = Vec::new();
    for id in &older.interfaces {
        let interface = older.interface(*id);
        let name = interface.name.as_deref().unwrap_or_default();
        let Some(now) = newer.named(name) else {
            breaks.push(format!("{name} is gone"));
            continue;
        };
        for (function, was) in &interface.functions {
            let was = older.signature(was);
            match now.functions.get(function).map(|now| newer.signature(now)) {
                None => breaks.push(format!("{name}.{function} is gone")),
                Some(now) if now != was => breaks.push(format!("{name}: {was} has become {now}")),
                Some(_) => {}
            }
        }
        for (ty, was) in older.own_types(*id) {
            let shape = |contract: &Contract, id: TypeId| {
                let kind = contract.resolve.types[id].kind.as_str();
                let parts = contract.parts(id).into_iter().map(|(part, of, _)| (part, of));
                (kind, parts.collect::<Vec<_>>())
            };
            match now.types.get(ty) {
                None => breaks.push(format!("{name}.{ty} is gone")),
                Some(now) if shape(newer, *now) != shape(older, was) => {
                    breaks.push(format!("{name}.{ty} has another shape"));
                }
                Some(_) => {}
            }
        }
    }
    breaks
}

/// Every patch version only adds to the one before it.
fn check_versions(root: &Path) -> Result<()> {
    let mut versions: Vec<String> = std::fs::read_dir(root.join("wit"))
        .context("failed to list wit/")?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    versions.sort();
    ensure!(versions.last().is_some_and(|last| last == NEWEST), "NEWEST is not the last of wit/");
    for pair in versions.windows(2) {
        let [older, newer] = pair else { continue };
        let breaks = breaks(&Contract::read(root, older)?, &Contract::read(root, newer)?);
        ensure!(
            breaks.is_empty(),
            "wharf:extension@{newer} breaks components built for {older}:\n  {}",
            breaks.join("\n  ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn the_page_of_the_api_is_that_of_the_contract() {
        let written = std::fs::read_to_string(root().join(PAGE)).unwrap_or_default();
        assert!(
            written == page(root()).unwrap(),
            "{PAGE} is not what the WIT says; refresh it with `cargo xtask docs`"
        );
    }

    #[test]
    fn a_newer_patch_version_only_adds() {
        check_versions(root()).unwrap();
    }

    #[test]
    fn a_change_of_a_type_or_a_function_is_seen() {
        let contract = |text: &str| {
            let mut resolve = Resolve::default();
            let package = resolve.push_str("world.wit", text).unwrap();
            let package = &resolve.packages[package];
            let interfaces = package.interfaces.values().copied().collect();
            Contract { docs: package.docs.clone(), interfaces, resolve }
        };
        let with = |body: &str| contract(&format!("package a:b@0.1.0; interface i {{ {body} }}"));
        let older = with("record r { a: u8 } f: func(a: r) -> string; g: func();");
        let check = |body: &str, expect: &[&str]| assert_eq!(breaks(&older, &with(body)), expect);
        check("record r { a: u8 } f: func(a: r) -> string; g: func(); h: func();", &[]);
        check("record r { a: u8 } f: func(a: r) -> string;", &["i.g is gone"]);
        check(
            "record r { a: u8, b: u8 } f: func(a: r) -> string; g: func();",
            &["i.r has another shape"],
        );
        check(
            "record r { a: u8 } f: func(a: r) -> option<string>; g: async func();",
            &[
                "i: f: func(a: r) -> string has become f: func(a: r) -> option<string>",
                "i: g: func() has become g: async func()",
            ],
        );
    }
}
