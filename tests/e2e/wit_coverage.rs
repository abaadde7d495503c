//! The contract in `wit/` has nothing that nobody uses: every function of the host, every
//! handler and every event has at least one user among the example extensions and the
//! guests of the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use wharf_tests::{Env, guest};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Interface, Resolve, TypeDefKind, WorldId, WorldItem};

/// The version that host, SDK, examples and guests are built with.
const VERSION: &str = "0.1.1";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The contract as it is written.
pub(crate) struct Contract {
    resolve: Resolve,
    world: WorldId,
}

impl Contract {
    pub(crate) fn read() -> Self {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(root().join("wit").join(VERSION)).unwrap();
        let world = resolve.select_world(&[package], Some("extension")).unwrap();
        Self { resolve, world }
    }

    fn interface(&self, name: &str) -> &Interface {
        let world = &self.resolve.worlds[self.world];
        let items = world.imports.values().chain(world.exports.values());
        let interfaces = items.filter_map(|item| match item {
            WorldItem::Interface { id, .. } => Some(&self.resolve.interfaces[*id]),
            _ => None,
        });
        interfaces.into_iter().find(|one| one.name.as_deref() == Some(name)).unwrap()
    }

    /// What a component exports, as `on-tool-call`.
    fn handlers(&self) -> Vec<&str> {
        self.interface("handlers").functions.keys().map(String::as_str).collect()
    }

    /// Names of events that have an answer, as on the wire.
    pub(crate) fn answered_events(&self) -> Vec<String> {
        let events = self.handlers().into_iter().filter_map(|name| name.strip_prefix("on-"));
        events.filter(|event| *event != "notification").map(on_the_wire).collect()
    }

    /// Names of events that have none. Those that came after `notification` was made are
    /// told as the case `other`, whose documentation has a list of them.
    pub(crate) fn notifications(&self) -> Vec<String> {
        let types = self.interface("types");
        let notification = &self.resolve.types[types.types["notification"]];
        let TypeDefKind::Variant(notification) = &notification.kind else {
            panic!("notification is no variant");
        };
        let cases = notification.cases.iter().filter(|case| case.name != "other");
        let mut names: Vec<String> = cases.map(|case| on_the_wire(&case.name)).collect();
        let other = &self.resolve.types[types.types["other-note"]];
        let listed = other.docs.contents.as_ref().unwrap().lines();
        names.extend(listed.filter_map(|line| {
            let (name, _) = line.trim().strip_prefix("- `")?.split_once('`')?;
            Some(name).filter(|name| !name.starts_with("bus:")).map(str::to_owned)
        }));
        names
    }
}

fn on_the_wire(name: &str) -> String {
    name.replace('-', "_")
}

/// The functions that a world imports of this version's interfaces, as `agent.tools`.
fn imports(resolve: &Resolve, world: WorldId) -> BTreeSet<String> {
    let mut functions = BTreeSet::new();
    for item in resolve.worlds[world].imports.values() {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = &resolve.interfaces[*id];
        let package = &resolve.packages[interface.package.unwrap()].name;
        if package.to_string() == format!("wharf:extension@{VERSION}") {
            let name = interface.name.as_deref().unwrap();
            functions.extend(interface.functions.keys().map(|one| format!("{name}.{one}")));
        }
    }
    functions
}

/// The components of both workspaces of guests, by their names.
fn components() -> BTreeMap<String, PathBuf> {
    let folders = ["example-extensions", "tests/guests"];
    let entries = folders.into_iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let crates = entries.map(|entry| entry.unwrap().path());
    // Not what they share.
    let is_component = |folder: &PathBuf| {
        fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| text.contains("cdylib"))
    };
    let crates = crates.filter(is_component);
    crates
        .map(|folder| {
            let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
            let component = guest(&name);
            (name, component)
        })
        .collect()
}

/// What the host says that a component offers; None where it refuses the component.
fn inspect(env: &Env, component: &Path) -> Option<Value> {
    let mut command = env.command();
    let output = command.args(["extension", "inspect", "--json"]).arg(component).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

#[track_caller]
fn assert_none(unused: &[String], what: &str) {
    assert!(
        unused.is_empty(),
        "wit/{VERSION} has {what} that no example extension and no guest of the tests uses: {}. \
         Use each in an example (example-extensions/) or, where it fits none, in a guest \
         (tests/guests/), with a test",
        unused.join(", ")
    );
}

/// A component imports only the functions that its code can reach.
#[test]
fn every_function_of_the_host_is_used() {
    let contract = Contract::read();
    let offered = imports(&contract.resolve, contract.world);
    assert!(offered.len() > 50, "{offered:?}");
    let mut used = BTreeSet::new();
    for (name, component) in components() {
        let decoded = decode(&fs::read(&component).unwrap()).unwrap();
        let DecodedWasm::Component(resolve, world) = decoded else {
            panic!("{name} is no component");
        };
        let of_it = imports(&resolve, world);
        // Else a component that was built long ago would hide what is gone.
        let unknown: Vec<_> = of_it.difference(&offered).collect();
        assert!(unknown.is_empty(), "{name} imports {unknown:?}: run `cargo xtask guests`");
        used.extend(of_it);
    }
    let unused: Vec<String> = offered.difference(&used).cloned().collect();
    assert_none(&unused, "functions");
}

#[test]
fn every_event_and_handler_is_used() {
    let contract = Contract::read();
    let env = Env::new();
    let mut subscribed = BTreeSet::new();
    let mut offers = BTreeSet::new();
    let mut inspected = 0;
    for component in components().values() {
        // There are guests that no host can load; that is what they are for.
        let Some(registration) = inspect(&env, component) else { continue };
        inspected += 1;
        let list = |field: &str| registration[field].as_array().unwrap().clone();
        subscribed.extend(list("subscriptions").iter().map(|it| it.as_str().unwrap().to_owned()));
        for (field, handlers) in
            [("commands", &["run-command", "complete-argument"][..]), ("tools", &["execute-tool"])]
        {
            if !list(field).is_empty() {
                offers.extend(handlers.iter().map(|name| (*name).to_owned()));
            }
        }
    }
    assert!(inspected > 20, "{inspected}");
    let events = [contract.answered_events(), contract.notifications()].concat();
    let unused: Vec<String> =
        events.iter().filter(|event| !subscribed.contains(*event)).cloned().collect();
    assert_none(&unused, "events");
    assert!(subscribed.iter().any(|name| name.starts_with("bus:")), "{subscribed:?}");

    // Handlers of no event. `register` runs whenever a component is loaded, and
    // `stream-reply` has its own functions, of `replies`.
    offers.extend(["register", "stream-reply", "on-notification"].map(str::to_owned));
    offers.extend(events.iter().map(|event| format!("on-{}", event.replace('_', "-"))));
    let handlers = contract.handlers().into_iter().map(str::to_owned);
    let unused: Vec<String> = handlers.filter(|name| !offers.contains(name)).collect();
    assert_none(&unused, "handlers");
}
