//! How large the example extensions are, as their workspace's release profile makes them.

use std::path::Path;

use wharf_tests::guest;

/// Bytes. What an extension weighs is mostly the SDK and the standard library, so an
/// example beyond this means that every extension has grown.
const LIMIT: u64 = 200_000;

#[test]
fn every_example_is_smaller_than_the_limit() {
    let examples =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("example-extensions");
    let mut names: Vec<String> = std::fs::read_dir(examples)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert!(names.iter().any(|name| name == "hello"), "where are the examples? {names:?}");

    let too_large: Vec<String> = names
        .iter()
        .map(|name| (name, guest(name).metadata().unwrap().len()))
        .filter(|(_, bytes)| *bytes >= LIMIT)
        .map(|(name, bytes)| format!("{name} has {bytes} bytes"))
        .collect();
    assert!(too_large.is_empty(), "{LIMIT} bytes are the limit: {}", too_large.join(", "));
}
