//! Notes that outlive sessions: `/note TEXT` keeps one, `/notes` shows them, and the
//! model reads and adds notes with two tools.
//!
//! No permissions: they are in `/data`, the directory that every extension has for
//! itself.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};

use serde::Deserialize;
use wharf_sdk::{
    CommandCtx, CommandSpec, Error, Extension, Parameters, Registration, Result, ToolCtx,
};

const FILE: &str = "/data/notes.md";

#[derive(Deserialize, Parameters)]
struct AddNote {
    /// One line.
    text: String,
}

#[derive(Deserialize, Parameters)]
struct ReadNotes {}

#[derive(Default)]
struct Notes;

impl Extension for Notes {
    fn register() -> Registration<Self> {
        Registration::new("notes", env!("CARGO_PKG_VERSION"))
            .description("Notes that outlive sessions.")
            .command_with(CommandSpec::new("note", "Keeps a note").hint("TEXT"), Self::note)
            .command("notes", "Shows the notes", Self::show)
            .tool("add_note", "Keeps a note for later sessions.", Self::add)
            .tool("read_notes", "Reads the notes of earlier sessions.", Self::read)
    }
}

impl Notes {
    async fn note(&self, ctx: &CommandCtx, text: &str) -> Result<()> {
        keep(text)?;
        ctx.ui().notify("Noted");
        Ok(())
    }

    async fn show(&self, ctx: &CommandCtx, _: &str) -> Result<()> {
        ctx.ui().notify(all()?);
        Ok(())
    }

    async fn add(&self, _: &ToolCtx, note: AddNote) -> Result<String> {
        keep(&note.text)?;
        Ok("noted".to_owned())
    }

    async fn read(&self, _: &ToolCtx, _: ReadNotes) -> Result<String> {
        all()
    }
}

fn keep(text: &str) -> Result<()> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return Err(Error::from("a note says something"));
    }
    let file = OpenOptions::new().create(true).append(true).open(FILE);
    file.and_then(|mut file| writeln!(file, "- {line}")).map_err(|error| failed(&error))
}

fn all() -> Result<String> {
    match fs::read_to_string(FILE) {
        Ok(notes) if !notes.is_empty() => Ok(notes),
        Ok(_) => Ok("There are no notes".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok("There are no notes".to_owned()),
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &std::io::Error) -> Error {
    Error::from(format!("the notes cannot be used: {error}"))
}

wharf_sdk::export!(Notes);
