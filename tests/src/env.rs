//! A home, an agent directory and a project of a test's own.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::Wharf;

/// Everything that a run of the binary sees; gone when it is dropped.
#[derive(Debug)]
pub struct Env {
    dir: TempDir,
}

impl Default for Env {
    fn default() -> Self {
        Self::new()
    }
}

impl Env {
    pub fn new() -> Self {
        let env = Self { dir: tempfile::tempdir().unwrap() };
        for dir in [env.home(), env.agent_dir(), env.project()] {
            std::fs::create_dir_all(dir).unwrap();
        }
        env
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    pub fn agent_dir(&self) -> PathBuf {
        self.root().join("agent")
    }

    /// The working directory of the binary.
    pub fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    /// Writes a file of the project, with its folders.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write(&self.project().join(path), content.as_ref())
    }

    /// Writes a file of the agent directory, with its folders.
    pub fn write_agent(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write(&self.agent_dir().join(path), content.as_ref())
    }

    /// Writes replies for the scripted provider; pass the path as `--model`.
    pub fn script(&self, replies: &[Value]) -> String {
        let lines: Vec<String> = replies.iter().map(Value::to_string).collect();
        let path = write(&self.root().join("script.jsonl"), lines.join("\n").as_bytes());
        format!("scripted/{}", path.display())
    }

    /// The binary with this environment and nothing of the tester's own.
    pub fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("WHARF_AGENT_DIR", self.agent_dir())
            .env("TMPDIR", self.root())
            .current_dir(self.project());
        command
    }

    /// Starts RPC mode with these further arguments.
    pub fn rpc(&self, args: &[&str]) -> Wharf {
        let mut command = self.command();
        command.args(["--mode", "rpc"]).args(args);
        Wharf::start(command, self.names())
    }

    /// Starts RPC mode with these guests (`-e` each) and this model.
    pub fn rpc_with(&self, guests: &[&str], model: &str) -> Wharf {
        let paths: Vec<String> =
            guests.iter().map(|name| guest(name).display().to_string()).collect();
        let mut args = vec!["--model", model];
        for path in &paths {
            args.extend(["-e", path]);
        }
        self.rpc(&args)
    }

    /// Grants a component these permissions, as a person does at the shell.
    pub fn grant(&self, guest: &Path, permissions: &[&str]) {
        let mut command = self.command();
        command.args(["extension", "grant"]).arg(guest).args(permissions).arg("--yes");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Grants guests of these names all that they ask for.
    pub fn grant_all(&self, guests: &[&str]) {
        guests.iter().for_each(|name| self.grant(&guest(name), &[]));
    }

    /// How this environment's paths are called in transcripts.
    pub fn names(&self) -> Vec<(String, String)> {
        let mut names = vec![
            (self.agent_dir().display().to_string(), "[AGENT]".to_owned()),
            (self.project().display().to_string(), "[PROJECT]".to_owned()),
            (self.home().display().to_string(), "[HOME]".to_owned()),
            (self.root().display().to_string(), "[ROOT]".to_owned()),
            (guests_dir().display().to_string(), "[GUESTS]".to_owned()),
        ];
        if let Ok(real) = guests_dir().canonicalize() {
            names.push((real.display().to_string(), "[GUESTS]".to_owned()));
        }
        names
    }
}

fn write(path: &Path, content: &[u8]) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    path.to_owned()
}

/// The binary under test.
pub fn binary() -> PathBuf {
    let path = std::env::var_os("WHARF_TEST_BIN").map_or_else(
        // Test binaries are in `target/debug/deps`.
        || std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("wharf"),
        PathBuf::from,
    );
    assert!(path.is_file(), "{} is missing: run `cargo xtask test`", path.display());
    path
}

fn guests_dir() -> PathBuf {
    std::env::var_os("WHARF_TEST_GUESTS").map_or_else(
        || {
            let exe = std::env::current_exe().unwrap();
            let target = exe.ancestors().nth(3).unwrap().to_owned();
            target.join("guests/wasm32-wasip2/release")
        },
        PathBuf::from,
    )
}

/// A component of `example-extensions/` or `tests/guests/`, by its name.
pub fn guest(name: &str) -> PathBuf {
    let path = guests_dir().join(format!("{}.wasm", name.replace('-', "_")));
    assert!(path.is_file(), "{} is missing: run `cargo xtask guests`", path.display());
    path
}
