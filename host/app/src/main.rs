//! The binary: command line, wiring, one module per mode, and the funnel that
//! turns errors into exit codes.
//!
//! Exit codes: 0 done; 1 the run or the start failed; 2 the command line is wrong;
//! 128 + N ended by signal N.

mod cli;
mod dialogs;
mod export;
mod extension;
mod flags;
mod front;
mod list_models;
mod loading;
mod modes;
mod plain;
mod prompt_files;
mod report;
mod sessions;
mod signals;
mod stdin;
mod stdout;
mod trust;
mod updates;
mod wiring;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::cli::{Cli, Command, Mode};

/// Its small allocations are what a run is made of.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What tasks get to end at the exit.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let given = flags::given(std::env::args_os());
    let command = match given.help {
        Some(help) => Cli::command().after_help(help),
        None => Cli::command(),
    };
    let matches = command.get_matches_from(given.args);
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Some(problem) = given.problem {
        report::error(problem);
        return ExitCode::from(2);
    }
    cli.run.flags = given.flags;
    for flag in given.ignored {
        report::warning(format_args!("unknown option {flag} is ignored"));
    }
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            report::failure(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Some(name) = cli.misplaced_command() {
        report::error(format_args!(
            "'{name}' comes after options and would be taken for a prompt: put the command first, \
             e.g. wharf {name} DIR --agent-dir A; a prompt of that one word can be written as \" {name}\", with a blank"
        ));
        return Ok(ExitCode::from(2));
    }
    let args = match cli.command {
        Some(Command::Trust(args)) => return trust::trust(&args),
        Some(Command::Untrust(args)) => return trust::untrust(&args),
        Some(Command::Extension(command)) => return extension::run(command),
        Some(Command::Import(args)) => return sessions::import(&args),
        None => cli.run,
    };
    if let Some(search) = &args.list_models {
        return list_models::run(&args, search);
    }
    if let Some(code) = sessions::run(&args)? {
        return Ok(code);
    }
    let mode = match args.mode {
        Some(mode) => mode,
        None if args.print || !args.messages.is_empty() => Mode::Text,
        None => {
            report::error(
                "nothing to do: give a prompt (wharf -p \"...\"), or --mode rpc to drive wharf from a program; see --help",
            );
            return Ok(ExitCode::from(2));
        }
    };
    if args.watch && mode != Mode::Rpc {
        report::error(
            "--watch needs --mode rpc: a run of one prompt is over before a file changes",
        );
        return Ok(ExitCode::from(2));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads())
        .enable_all()
        .build()?;
    // On a worker, not on this thread: what an extension or the agent sends then wakes
    // the loop without a change of threads.
    let run = runtime.spawn(async move {
        match mode {
            Mode::Rpc => modes::rpc::run(args).await,
            Mode::Json => modes::once::json(args).await,
            Mode::Text => modes::once::text(args).await,
        }
    });
    let code = runtime.block_on(run)?;
    // Drops what still runs, and with it child processes; a guest that loops or a
    // compile under way must not hold the exit.
    runtime.shutdown_timeout(SHUTDOWN_LIMIT);
    code
}

/// At least two, so that a guest which loops never holds the only worker.
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8)
}
