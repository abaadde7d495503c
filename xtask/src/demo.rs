//! `cargo xtask demo`: builds Wharf and the examples, then shows a real run with the
//! scripted model, every protocol line of it. What happens in the run is in `story`.

mod client;
mod line;
mod person;
mod screen;
mod story;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::guests::{self, EXAMPLES};
use crate::{Workspace, run as run_command, say};

use client::Client;
use person::Person;
use screen::Screen;

/// The extensions of the run, by file name.
const EXTENSIONS: [&str; 3] = ["rpc_demo", "permission_gate", "confirm_switch"];

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Show this binary instead of building one
    #[arg(long, hide = true, requires = "guests")]
    wharf: Option<PathBuf>,
    /// The folder with the examples' components, instead of building them
    #[arg(long, hide = true, requires = "wharf")]
    guests: Option<PathBuf>,
}

pub(crate) fn run(workspace: &Workspace, args: &DemoArgs) -> Result<()> {
    let (binary, guests) = match (&args.wharf, &args.guests) {
        (Some(binary), Some(guests)) => (absolute(binary)?, absolute(guests)?),
        _ => build(workspace)?,
    };
    let screen = Screen::of_stdout();
    let stage = Stage::set().context("failed to make a folder for the demo")?;
    let extensions: Vec<PathBuf> =
        EXTENSIONS.iter().map(|name| guests.join(format!("{name}.wasm"))).collect();
    if let Some(missing) = extensions.iter().find(|path| !path.is_file()) {
        bail!("{} is missing; run `cargo xtask guests`", missing.display());
    }
    let mut wharf = Command::new(&binary);
    wharf.args(["--mode", "rpc", "--model", "scripted/demo"]);
    for path in &extensions {
        wharf.arg("-e").arg(path);
    }
    // Nothing of the person's own takes part: no settings, skills or sessions.
    wharf
        .arg("--agent-dir")
        .arg(stage.agent_dir())
        .env("HOME", stage.dir.path())
        .current_dir(stage.project());
    screen.caption("The run");
    screen.text(&format!("$ {}", crate::shown(&wharf)));
    screen.text(&format!("in the project folder {}", stage.project().display()));
    let person = Person::here(screen);
    let client = Client::start(wharf, screen)?;
    story::play(client, person, &stage)?;
    screen.caption("That was all of it");
    screen.text(&format!("The binary is {}; --help lists its options.", binary.display()));
    screen.text("README.md goes on: a first extension in five minutes, and a client in Python.");
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("failed to find {}", path.display()))
}

/// Builds the host and the examples; gives the binary and the components' folder.
fn build(workspace: &Workspace) -> Result<(PathBuf, PathBuf)> {
    check_c_compiler()?;
    guests::install_target(workspace)?;
    say("Building Wharf as a debug build, which is quicker to make; the first time takes minutes.");
    run_command(workspace.cargo().args(["build", "--package", "wharf"]))?;
    say("Building the example extensions.");
    let guests = guests::build(workspace, &[EXAMPLES])?;
    Ok((workspace.target.join("debug/wharf"), guests))
}

/// The linker and one dependency need it; without it their own messages come late
/// and say little.
fn check_c_compiler() -> Result<()> {
    let name = std::env::var("CC").ok().filter(|name| !name.is_empty()).unwrap_or("cc".to_owned());
    // `CC` may hold arguments: `ccache cc`.
    let mut words = name.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    let status =
        command.args(words).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if status.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    bail!(
        "there is no C compiler ({name}); install one: `apt install build-essential` (Debian, Ubuntu), `dnf install gcc` (Fedora), `xcode-select --install` (macOS)"
    )
}

/// A project and an agent directory of the demo's own, gone at the end.
struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn set() -> Result<Self> {
        let stage = Self { dir: tempfile::Builder::new().prefix("wharf-demo-").tempdir()? };
        std::fs::create_dir_all(stage.agent_dir())?;
        std::fs::create_dir_all(stage.build_folder())?;
        std::fs::write(stage.project().join("main.c"), "int main(void) { return 0; }\n")?;
        std::fs::write(stage.build_folder().join("main.o"), "object code\n")?;
        Ok(stage)
    }

    fn agent_dir(&self) -> PathBuf {
        self.dir.path().join("agent")
    }

    fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    /// What the model wants to remove.
    fn build_folder(&self) -> PathBuf {
        self.project().join("build")
    }
}
