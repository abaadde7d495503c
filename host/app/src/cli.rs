//! The command line.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use wharf_protocol::ThinkingLevel;

use crate::extension::ExtensionCommand;

/// A coding agent whose extensions are sandboxed WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "wharf", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

impl Cli {
    /// A command that stands after options, where it would be taken for a prompt.
    pub(crate) fn misplaced_command(&self) -> Option<&str> {
        let first = self.run.messages.first()?;
        Self::command().find_subcommand(first).is_some().then_some(first)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Trust a project directory: its extensions, skills, prompts and settings take effect
    Trust(ProjectArgs),
    /// Take that trust back
    Untrust(ProjectArgs),
    /// Make, look at, install and permit extensions
    #[command(subcommand)]
    Extension(ExtensionCommand),
    /// Copy a session file that was made elsewhere into the sessions of this directory
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProjectArgs {
    /// The project's directory
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Where settings, sessions, extensions and trust are kept [default: ~/.wharf/agent]
    #[arg(long, value_name = "DIR")]
    pub(crate) agent_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The session file
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) loaded: LoadArgs,
    #[command(flatten)]
    pub(crate) place: StoreArgs,
}

/// The extensions of a run.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// Load this extension too: a .wasm file, or a folder with extension.wasm (repeatable)
    #[arg(short = 'e', long = "extension", value_name = "PATH")]
    pub(crate) extensions: Vec<PathBuf>,
    /// Load no extension but those of -e
    #[arg(long)]
    pub(crate) no_extensions: bool,
}

/// Where sessions are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    /// Keep session files directly in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) session_dir: Option<PathBuf>,
    /// Where settings, sessions, extensions and trust are kept [default: ~/.wharf/agent]
    #[arg(long, value_name = "DIR")]
    pub(crate) agent_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// JSONL commands on stdin, responses and events on stdout
    Rpc,
    /// One prompt, its events as JSON lines
    Json,
    /// One prompt, the answer as text
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UiForm {
    /// Updates without the whole message in each
    Dashboard,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// How to talk to whoever started wharf
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Answer one prompt as text and exit
    #[arg(short = 'p', long)]
    pub(crate) print: bool,
    /// Provider of the model
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Model, as [provider/]pattern[:thinking]; scripted/demo needs no key
    #[arg(long, value_name = "PATTERN")]
    pub(crate) model: Option<String>,
    /// The models to cycle through, as patterns separated by commas
    #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) models: Option<Vec<String>>,
    /// List the known models and exit; with SEARCH those that contain its words
    #[arg(long, value_name = "SEARCH", num_args = 0..=1, default_missing_value = "")]
    pub(crate) list_models: Option<String>,
    /// Key for the provider of the chosen model, for this run only
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// off, minimal, low, medium, high or xhigh
    #[arg(long, value_name = "LEVEL")]
    pub(crate) thinking: Option<ThinkingLevel>,
    /// Keep no session file
    #[arg(long)]
    pub(crate) no_session: bool,
    /// Reopen a session: a file, or a session's id or the beginning of one
    #[arg(long, value_name = "FILE|ID", group = "reopen", conflicts_with = "no_session")]
    pub(crate) session: Option<PathBuf>,
    /// Reopen the last session of this directory
    #[arg(short = 'c', long = "continue", group = "reopen", conflicts_with = "no_session")]
    pub(crate) continue_last: bool,
    /// List the sessions of this directory; with a MESSAGE, at a terminal, choose one to reopen
    #[arg(short = 'r', long, group = "reopen", conflicts_with = "no_session")]
    pub(crate) resume: bool,
    /// Begin with a copy of a session, also of another directory or one that is in use
    #[arg(long, value_name = "FILE|ID", group = "reopen", conflicts_with = "no_session")]
    pub(crate) fork: Option<PathBuf>,
    /// Write a session (a file, or an id) as one HTML page and exit; MESSAGE is the page's file
    #[arg(long, value_name = "FILE|ID", group = "reopen")]
    pub(crate) export: Option<PathBuf>,
    /// Header field of a new session: the file it came from
    #[arg(long, value_name = "FILE")]
    pub(crate) parent_session: Option<String>,
    /// Header field of a new session: the kind of agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent_type: Option<String>,
    #[command(flatten)]
    pub(crate) loaded: LoadArgs,
    /// Load this skill too (repeatable)
    #[arg(long = "skill", value_name = "PATH")]
    pub(crate) skills: Vec<PathBuf>,
    /// Load no skill but those of --skill
    #[arg(long)]
    pub(crate) no_skills: bool,
    /// Load this prompt template too (repeatable)
    #[arg(long = "prompt-template", value_name = "PATH")]
    pub(crate) prompt_templates: Vec<PathBuf>,
    /// Load no prompt template but those of --prompt-template
    #[arg(long)]
    pub(crate) no_prompt_templates: bool,
    /// The built-in tools to offer, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "no_tools")]
    pub(crate) tools: Option<Vec<String>>,
    /// Offer no built-in tool
    #[arg(long)]
    pub(crate) no_tools: bool,
    /// Replace the system prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Add to the system prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) append_system_prompt: Option<String>,
    /// Trust this project directory for this run only
    #[arg(long)]
    pub(crate) trust_project: bool,
    /// dashboard: message updates without the whole message in each
    #[arg(long, value_enum)]
    pub(crate) ui: Option<UiForm>,
    #[command(flatten)]
    pub(crate) place: StoreArgs,
    /// Load extensions anew whenever their files change (only with --mode rpc)
    #[arg(long)]
    pub(crate) watch: bool,
    /// Flags of extensions by name; None: present without a value.
    #[arg(skip)]
    pub(crate) flags: HashMap<String, Option<String>>,
    /// The prompts, one after the other; @FILE puts a file into the first
    #[arg(value_name = "MESSAGE")]
    pub(crate) messages: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_after_options_is_misplaced() {
        for (args, expect) in [
            (&["--agent-dir", "a", "untrust", "dir"][..], Some("untrust")),
            (&["-p", "trust"], Some("trust")),
            (&["--mode", "rpc", "--", "trust"], Some("trust")),
            (&["untrust", "dir", "--agent-dir", "a"], None),
            (&["-p", " trust"], None),
            (&["-p", "trust me"], None),
            (&["-p", "go", "trust"], None),
            (&["--list-models", "trust"], None),
            (&["-p", "help"], None),
            (&[], None),
        ] {
            let cli = Cli::parse_from(["wharf"].iter().chain(args));
            assert_eq!(cli.misplaced_command(), expect, "{args:?}");
        }
    }
}
