//! Flags that extensions add to the command line: `--NAME`, `--NAME=VALUE` and, where the
//! flag takes a value, `--NAME VALUE`.
//!
//! Extensions are asked for theirs only where the command line has an option that Wharf
//! does not know, or asks for help; otherwise a start does not wait for them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use clap::{CommandFactory as _, Parser as _};
use wharf_extensions::{ExtensionInfo, ExtensionState, Report, Reporter};

use crate::cli::{Cli, RunArgs};
use crate::loading::{self, Loading};
use crate::plain::one_line;
use crate::wiring;

/// Characters of a flag's description in the help.
const DESCRIPTION_CHARS: usize = 200;

/// The column of the help in which descriptions begin.
const DESCRIPTION_COLUMN: usize = 34;

/// A flag that can be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flag {
    /// Without the hyphens.
    pub(crate) name: String,
    description: String,
    takes_value: bool,
    /// The id of the extension.
    extension: String,
}

/// A flag that cannot be given, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clash {
    pub(crate) extension_path: PathBuf,
    pub(crate) problem: String,
}

#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// In load order.
    pub(crate) flags: Vec<Flag>,
    pub(crate) clashes: Vec<Clash>,
}

/// A command line without the flags of extensions.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// What is Wharf's own; an option that nobody knows is still in it.
    pub(crate) args: Vec<OsString>,
    /// None: present without a value.
    pub(crate) flags: HashMap<String, Option<String>>,
    /// `--no-...` options that nobody knows, left out of `args`.
    pub(crate) ignored: Vec<String>,
    /// What is wrong with a flag.
    pub(crate) problem: Option<String>,
    /// The help's part about extensions.
    pub(crate) help: Option<String>,
}

/// Takes the flags of extensions out of a command line.
pub(crate) fn given(args: impl IntoIterator<Item = OsString>) -> Given {
    let args: Vec<OsString> = args.into_iter().collect();
    let asks_for_help = options(&args).any(|(_, option)| option == "--help" || option == "-h");
    let has_unknown = options(&args).any(|(_, option)| is_unknown(option));
    if is_command(&args) || !(asks_for_help || has_unknown) {
        return Given { args, ..Given::default() };
    }
    let registered = registrations(&args).unwrap_or_default();
    let mut given = taken(&args, &registered.flags);
    if asks_for_help && !registered.flags.is_empty() {
        given.help = Some(help(&registered.flags));
    }
    given
}

/// Options before a bare `--`, with their positions. What starts with a hyphen is never
/// the value of another option.
fn options(args: &[OsString]) -> impl Iterator<Item = (usize, &str)> {
    args.iter()
        .enumerate()
        .skip(1)
        .take_while(|(_, arg)| *arg != "--")
        .filter_map(|(at, arg)| Some((at, arg.to_str()?)))
        .filter(|(_, arg)| arg.starts_with('-'))
}

fn is_command(args: &[OsString]) -> bool {
    let first = args.get(1).and_then(|arg| arg.to_str());
    first.is_some_and(|first| first == "help" || Cli::command().find_subcommand(first).is_some())
}

fn long_name(option: &str) -> Option<&str> {
    let name = option.strip_prefix("--")?;
    Some(name.split_once('=').map_or(name, |(name, _)| name))
}

fn is_unknown(option: &str) -> bool {
    long_name(option).is_some_and(|name| !is_built_in(name))
}

fn is_built_in(name: &str) -> bool {
    static OPTIONS: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let own = ["help", "version"].map(str::to_owned);
        let command = Cli::command();
        command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .map(str::to_owned)
            .chain(own)
            .collect()
    });
    OPTIONS.contains(name)
}

/// What the extensions of such a run registered. None where the rest of the command line
/// is wrong: that is told by whoever parses it.
fn registrations(args: &[OsString]) -> Option<Registered> {
    let mut known = args.to_vec();
    // From the end: positions stay right.
    let at: Vec<usize> = options(args)
        .filter(|(_, option)| is_unknown(option) || matches!(*option, "--help" | "-h"))
        .map(|(at, _)| at)
        .collect();
    for at in at.into_iter().rev() {
        known.remove(at);
    }
    let run = Cli::try_parse_from(known).ok()?.run;
    let infos = infos(&run).ok()?;
    Some(registered(&infos))
}

fn infos(run: &RunArgs) -> anyhow::Result<Vec<ExtensionInfo>> {
    let agent_dir = wiring::agent_dir(run.place.agent_dir.as_deref())?;
    let cwd = std::env::current_dir()?;
    let trusted = run.trust_project || loading::is_trusted(&agent_dir, &cwd).unwrap_or(false);
    let loading = Arc::new(Loading::of_run(run, agent_dir, cwd, trusted));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let infos = runtime.block_on(wiring::registered(loading, Arc::new(ToNobody)));
    runtime.shutdown_timeout(crate::SHUTDOWN_LIMIT);
    Ok(infos)
}

/// The run that follows tells the same problems.
#[derive(Debug)]
struct ToNobody;

impl Reporter for ToNobody {
    fn report(&self, _report: Report) {}
}

/// The flags of extensions in load order; of two with one name the first wins, and
/// Wharf's own options always do.
pub(crate) fn registered(extensions: &[ExtensionInfo]) -> Registered {
    let mut registered = Registered::default();
    for info in extensions {
        let Some(registration) = &info.registration else { continue };
        // The latter's flags are those of another one of the same id.
        if matches!(info.state, ExtensionState::Disabled | ExtensionState::Shadowed) {
            continue;
        }
        for flag in &registration.flags {
            let first = registered.flags.iter().find(|other| other.name == flag.name);
            let problem = if !is_flag_name(&flag.name) {
                Some(format!(
                    "its flag {:?} cannot be given: a name is made of a-z, A-Z, 0-9, - and _",
                    flag.name
                ))
            } else if is_built_in(&flag.name) {
                Some(format!("its flag --{} cannot be given: it is an option of Wharf", flag.name))
            } else {
                first.map(|first| {
                    format!(
                        "its flag --{} cannot be given: the extension {} has one of that name",
                        flag.name, first.extension
                    )
                })
            };
            if let Some(problem) = problem {
                registered.clashes.push(Clash { extension_path: info.path.clone(), problem });
                continue;
            }
            registered.flags.push(Flag {
                name: flag.name.clone(),
                description: flag.description.clone(),
                takes_value: flag.takes_value,
                extension: registration.id.clone(),
            });
        }
    }
    registered
}

fn is_flag_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_allowed)
}

/// Splits a command line into Wharf's own part and the flags of extensions.
fn taken(args: &[OsString], flags: &[Flag]) -> Given {
    let mut given = Given::default();
    let options: HashMap<usize, &str> = options(args).collect();
    let mut args = args.iter().enumerate().peekable();
    while let Some((at, arg)) = args.next() {
        let Some(option) = options.get(&at).copied().filter(|option| is_unknown(option)) else {
            given.args.push(arg.clone());
            continue;
        };
        let name = long_name(option).unwrap_or_default();
        let value = option.split_once('=').map(|(_, value)| value.to_owned());
        match flags.iter().find(|flag| flag.name == name) {
            Some(flag) => {
                let next = args.peek().filter(|(_, next)| {
                    flag.takes_value
                        && value.is_none()
                        && !next.as_encoded_bytes().starts_with(b"-")
                });
                let next = next.and_then(|(_, next)| next.to_str()).map(str::to_owned);
                if next.is_some() {
                    args.next();
                }
                let value = value.or(next);
                given.problem = given.problem.or_else(|| wrong(flag, value.as_deref()));
                given.flags.insert(flag.name.clone(), value);
            }
            // Clients pass flags that they think every agent has; what they want switched
            // off is not there to begin with.
            None if name.starts_with("no-") => given.ignored.push(option.to_owned()),
            None => given.args.push(arg.clone()),
        }
    }
    given
}

fn wrong(flag: &Flag, value: Option<&str>) -> Option<String> {
    let Flag { name, extension, .. } = flag;
    match (flag.takes_value, value) {
        (true, None) => {
            Some(format!("--{name} (of the extension {extension}) needs a value: --{name}=VALUE"))
        }
        (false, Some(_)) => Some(format!("--{name} (of the extension {extension}) takes no value")),
        _ => None,
    }
}

fn help(flags: &[Flag]) -> String {
    let mut text = "Extension flags:\n".to_owned();
    for flag in flags {
        let value = if flag.takes_value { "=<VALUE>" } else { "" };
        let head = format!("      --{}{value}", flag.name);
        let description = one_line(&flag.description, DESCRIPTION_CHARS);
        let space = if description.is_empty() { "" } else { " " };
        text.push_str(&format!(
            "{head:<DESCRIPTION_COLUMN$} {description}{space}[{}]\n",
            flag.extension
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;
    use wharf_extensions::{Limits, Registration};

    use super::*;

    fn flag(name: &str, takes_value: bool) -> Flag {
        Flag {
            name: name.to_owned(),
            description: format!("Does {name}"),
            takes_value,
            extension: "plan".to_owned(),
        }
    }

    fn line(args: &[&str]) -> Vec<OsString> {
        std::iter::once(&"wharf").chain(args).map(OsString::from).collect()
    }

    #[test]
    fn flags_are_taken_out_and_everything_else_stays() {
        let flags = [flag("plan", false), flag("depth", true), flag("no-color", false)];
        let present = |name: &str| (name.to_owned(), None);
        let valued = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        for (args, rest, expect, ignored) in [
            (&["--plan", "-p", "go"][..], &["-p", "go"][..], vec![present("plan")], &[][..]),
            (&["--depth=3", "x"], &["x"], vec![valued("depth", "3")], &[]),
            (&["--depth", "3", "x"], &["x"], vec![valued("depth", "3")], &[]),
            (&["--depth=", "x"], &["x"], vec![valued("depth", "")], &[]),
            (&["--depth=a=b"], &[], vec![valued("depth", "a=b")], &[]),
            (&["--plan", "x"], &["x"], vec![present("plan")], &[]),
            (&["--no-color", "--no-themes"], &[], vec![present("no-color")], &["--no-themes"]),
            (&["--other", "x"], &["--other", "x"], vec![], &[]),
            (&["--", "--plan"], &["--", "--plan"], vec![], &[]),
            (&["--no-session", "-p"], &["--no-session", "-p"], vec![], &[]),
            (&["--model=x", "--plan"], &["--model=x"], vec![present("plan")], &[]),
        ] {
            let given = taken(&line(args), &flags);
            assert_eq!(given.args, line(rest), "{args:?}");
            assert_eq!(given.flags, expect.into_iter().collect(), "{args:?}");
            assert_eq!(given.ignored, ignored, "{args:?}");
            assert_eq!(given.problem, None, "{args:?}");
        }
    }

    #[test]
    fn a_flag_has_a_value_when_it_takes_one() {
        let flags = [flag("plan", false), flag("depth", true)];
        for (args, expect) in [
            (&["--plan=1"][..], "--plan (of the extension plan) takes no value"),
            (&["--depth"], "--depth (of the extension plan) needs a value: --depth=VALUE"),
            (&["--depth", "-p"], "--depth (of the extension plan) needs a value: --depth=VALUE"),
        ] {
            assert_eq!(taken(&line(args), &flags).problem.as_deref(), Some(expect), "{args:?}");
        }
    }

    #[test]
    fn only_what_nobody_knows_makes_extensions_be_asked() {
        for (args, expect) in [
            (&["-p", "go"][..], false),
            (&["--mode", "rpc", "--model=x"], false),
            (&["--no-session"], false),
            (&["--", "--plan"], false),
            (&["--plan"], true),
            (&["-p", "--plan=3"], true),
            (&["--no-themes"], true),
            (&["--version"], false),
        ] {
            let args = line(args);
            assert_eq!(options(&args).any(|(_, option)| is_unknown(option)), expect, "{args:?}");
        }
        assert!(is_command(&line(&["trust", "--plan"])));
        assert!(!is_command(&line(&["--plan", "trust"])));
    }

    fn info(id: &str, flags: &[&str]) -> ExtensionInfo {
        let registration: Registration = serde_json::from_value(json!({
            "id": id, "version": "1", "description": "", "commands": [], "tools": [],
            "subscriptions": [], "shortcuts": [], "permissions": [],
            "flags": flags.iter().map(|name| json!({
                "name": name, "description": "", "takes_value": false,
            })).collect::<Vec<_>>(),
        }))
        .unwrap();
        ExtensionInfo {
            path: format!("/{id}.wasm").into(),
            name: id.to_owned(),
            state: ExtensionState::Registered,
            registration: Some(Arc::new(registration)),
            content_hash: None,
            size: None,
            limits: Limits::default(),
        }
    }

    #[test]
    fn the_first_flag_of_a_name_wins_and_wharf_s_own_always() {
        let mut infos = [
            info("a", &["plan", "model", "help"]),
            info("b", &["plan", "x y", "-z"]),
            info("a", &["again"]),
        ];
        infos[2].state = ExtensionState::Shadowed;
        let Registered { flags, clashes } = registered(&infos);
        let names: Vec<_> = flags.iter().map(|f| (f.name.as_str(), f.extension.as_str())).collect();
        assert_eq!(names, [("plan", "a")]);
        let problems: Vec<_> = clashes
            .iter()
            .map(|clash| format!("{} {}", clash.extension_path.display(), clash.problem))
            .collect();
        assert_eq!(
            problems,
            [
                "/a.wasm its flag --model cannot be given: it is an option of Wharf",
                "/a.wasm its flag --help cannot be given: it is an option of Wharf",
                "/b.wasm its flag --plan cannot be given: the extension a has one of that name",
                "/b.wasm its flag \"x y\" cannot be given: a name is made of a-z, A-Z, 0-9, - and _",
                "/b.wasm its flag \"-z\" cannot be given: a name is made of a-z, A-Z, 0-9, - and _",
            ]
        );
    }

    #[test]
    fn the_help_names_the_extension_and_obeys_no_escape() {
        let mut colourful = flag("depth", true);
        colourful.description = "How \u{1b}[31mdeep\n it goes".to_owned();
        assert_eq!(
            help(&[flag("plan", false), colourful]),
            "Extension flags:\n      \
             --plan                       Does plan [plan]\n      \
             --depth=<VALUE>              How [31mdeep it goes [plan]\n"
        );
    }
}
