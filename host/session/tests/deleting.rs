//! Deleting with the real trash of a home of its own.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use wharf_session::{DeleteMethod, delete};

/// The directory of the test that runs itself again as a child.
const CHILD: &str = "WHARF_TEST_DELETING";

#[test]
fn a_session_goes_to_the_trash() {
    // The place of the trash is taken from the environment, which tests share: so this
    // test goes on in a process of its own.
    if let Some(dir) = std::env::var_os(CHILD) {
        let dir = Path::new(&dir);
        let session = dir.join("s.jsonl");
        fs::write(&session, "the session").unwrap();
        assert_eq!(delete(&session).unwrap(), DeleteMethod::Trash);
        assert!(!session.exists());

        let link = dir.join("link.jsonl");
        fs::write(dir.join("target.jsonl"), "stays").unwrap();
        std::os::unix::fs::symlink("target.jsonl", &link).unwrap();
        delete(&link).unwrap();
        assert!(fs::symlink_metadata(&link).is_err());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_session_goes_to_the_trash"])
        .env(CHILD, dir.path())
        .env("HOME", &home)
        .env("XDG_DATA_HOME", home.join("data"))
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let kept = fs::read_to_string(home.join("data/Trash/files/s.jsonl")).unwrap();
    assert_eq!(kept, "the session");
    assert_eq!(fs::read_to_string(dir.path().join("target.jsonl")).unwrap(), "stays");
}
