//! The generated bindings of the WIT world, and nothing else. No type of this
//! module appears in the crate's API: every module converts at its own edge.

wit_bindgen::generate!({
    path: "../../wit/0.1.1",
    world: "extension",
    pub_export_macro: true,
    additional_derives: [PartialEq, Eq],
    // It holds a body, which is a resource and equal to nothing.
    additional_derives_ignore: ["response"],
    default_bindings_module: "wharf_sdk::bindings",
    runtime_path: "crate::rt",
});
