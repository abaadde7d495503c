//! What is known of a component without running its handlers.

use std::fs;

use sha2::{Digest, Sha256};
use wharf_extensions::inspect;

use crate::support::guest;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_and_a_folder_say_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let folder = root.join("beats");
    fs::create_dir(&folder).unwrap();
    fs::copy(guest("heartbeat"), folder.join("extension.wasm")).unwrap();
    let content = fs::read(guest("heartbeat")).unwrap();
    let digest = Sha256::digest(&content);
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    // The second time from the cache.
    for path in [folder.clone(), folder.join("extension.wasm")] {
        let said = inspect(&path, &root.join("cache")).await.unwrap();
        assert_eq!(said.path, folder.join("extension.wasm"));
        assert_eq!(said.name, "beats");
        assert_eq!(said.size, content.len() as u64);
        assert_eq!(said.content_hash, format!("sha256:{hash}"));
        assert!(said.api_version.starts_with("0.1."), "{}", said.api_version);
        assert_eq!(
            (said.registration.id.as_str(), said.registration.version.as_str()),
            ("heartbeat", "0.1.0")
        );
        assert_eq!(said.registration.commands[0].name, "beat");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_is_the_one_that_it_was_built_for() {
    let directory = tempfile::tempdir().unwrap();
    let said = inspect(&guest("older-api"), directory.path()).await.unwrap();
    assert_eq!(said.api_version, "0.1.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_as_at_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text.wasm");
    fs::write(&text, "hello").unwrap();
    let none = directory.path().join("none");
    for (path, expected) in [
        (none, "there is no extension at "),
        (directory.path().to_owned(), "there is no extension.wasm in the folder "),
        (text, "is no WebAssembly file"),
        (guest("newer-api"), "is built for wharf:extension@0.9.0"),
        (guest("panics-register"), "register failed: "),
    ] {
        let error = inspect(&path, &directory.path().join("cache")).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
