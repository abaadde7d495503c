//! Files that change where extensions are looked for.

use std::fs;
use std::path::Path;

use tokio::sync::mpsc;

use crate::support::{Fixture, Setup, guest, patiently};

type Step<'a> = Box<dyn Fn() + 'a>;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_replaced_or_removed_is_seen_and_the_rest_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let (user, named) = (root.join("agent/extensions"), root.join("named"));
    fs::create_dir_all(&named).unwrap();
    fs::copy(guest("heartbeat"), named.join("x.wasm")).unwrap();
    // The folder of the user's extensions is not there yet.
    let setup = Setup { user_dir: Some(user.clone()), ..Setup::default() };
    let fixture = Fixture::start(vec![named.join("x.wasm")], setup);
    let (sender, mut changes) = mpsc::unbounded_channel();
    let on_change = move || {
        let _ = sender.send(());
    };
    patiently(fixture.host.watch(on_change)).await.unwrap();

    let replace = |path: &Path, content: &[u8]| {
        let temporary = path.with_extension("tmp");
        fs::write(&temporary, content).unwrap();
        fs::rename(&temporary, path).unwrap();
    };
    let steps: [(&str, Step<'_>); 8] = [
        ("rename over", Box::new(|| replace(&named.join("x.wasm"), b"other"))),
        ("write", Box::new(|| fs::write(named.join("x.wasm"), b"another").unwrap())),
        (
            "create with folders",
            Box::new(|| {
                fs::create_dir_all(user.join("y")).unwrap();
                fs::write(user.join("y/extension.wasm"), b"new").unwrap();
            }),
        ),
        ("rename over in a folder", Box::new(|| replace(&user.join("y/extension.wasm"), b"newer"))),
        ("create a file", Box::new(|| fs::write(user.join("z.wasm"), b"new").unwrap())),
        (
            "replace a folder",
            Box::new(|| {
                fs::create_dir(root.join("next")).unwrap();
                fs::write(root.join("next/extension.wasm"), b"next").unwrap();
                fs::rename(user.join("y"), root.join("old")).unwrap();
                fs::rename(root.join("next"), user.join("y")).unwrap();
            }),
        ),
        (
            "write in the new folder",
            Box::new(|| fs::write(user.join("y/extension.wasm"), b"yet newer").unwrap()),
        ),
        ("delete", Box::new(|| fs::remove_file(user.join("z.wasm")).unwrap())),
    ];
    for (what, step) in steps {
        step();
        assert_eq!(patiently(changes.recv()).await, Some(()), "{what}");
    }
    // Told once each, and not for what is no extension: the next word is of the last step.
    fs::write(user.join("notes.txt"), b"x").unwrap();
    fs::write(named.join("beside.wasm"), b"x").unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(changes.try_recv().is_err());
    fs::remove_file(named.join("x.wasm")).unwrap();
    assert_eq!(patiently(changes.recv()).await, Some(()));
}
