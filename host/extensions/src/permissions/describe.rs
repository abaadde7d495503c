//! Permissions in plain words, for the person who decides.

use super::files::Base;
use super::hosts::HostPattern;
use crate::registration::Permission;

/// Programs that run whatever their arguments say.
const INTERPRETERS: [&str; 27] = [
    "ash",
    "awk",
    "bash",
    "bun",
    "busybox",
    "csh",
    "dash",
    "deno",
    "doas",
    "env",
    "fish",
    "ksh",
    "lua",
    "make",
    "node",
    "npx",
    "perl",
    "php",
    "powershell",
    "pwsh",
    "python",
    "python3",
    "ruby",
    "sh",
    "sudo",
    "xargs",
    "zsh",
];

/// One line without control characters; says so when the permission is a wide one.
pub(crate) fn describe(permission: &Permission) -> String {
    let (text, wide) = match permission {
        Permission::FsRead(pattern) => {
            (format!("read files {}", place(pattern)), every_file(pattern))
        }
        Permission::FsWrite(pattern) => {
            (format!("make, change and remove files {}", place(pattern)), every_file(pattern))
        }
        Permission::Net(pattern) => match HostPattern::parse(pattern) {
            Ok(parsed) if parsed.is_wide() => (
                format!("connect to {pattern}"),
                Some("WIDE: any host, also this computer and its network"),
            ),
            _ => (format!("connect to {pattern}"), None),
        },
        Permission::Exec(words) => program(permission, words),
        Permission::Env(name) => (format!("read the environment variable {name}"), None),
    };
    let text: String = text.chars().filter(|c| !super::is_deceptive(*c)).collect();
    match wide {
        Some(wide) => format!("{text} ({wide})"),
        None => text,
    }
}

fn place(pattern: &str) -> String {
    match Base::split(pattern).0 {
        Base::Project => format!("{pattern} in the project"),
        Base::Home => format!("{pattern} in your home"),
        Base::AgentDir => format!("{pattern} in Wharf's own directory"),
    }
}

/// A pattern that begins with a wildcard leaves nothing of its base out.
fn every_file(pattern: &str) -> Option<&'static str> {
    let (base, rest) = Base::split(pattern);
    rest.starts_with("**").then_some(match base {
        Base::Project => "WIDE: anywhere in the project",
        Base::Home => "WIDE: anywhere in your home, other programs' keys among it",
        Base::AgentDir => "WIDE: anywhere in it",
    })
}

fn program(permission: &Permission, words: &[String]) -> (String, Option<&'static str>) {
    let written = permission.to_string();
    let line = written.strip_prefix("exec:").unwrap_or(&written);
    let name = words.first().map_or("", |program| program.rsplit('/').next().unwrap_or(program));
    // `python3.12` is a python.
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_interpreter = INTERPRETERS.contains(&name) || INTERPRETERS.contains(&stem);
    let (text, is_open) = match words {
        [_] => (format!("run {line} without arguments"), false),
        [_, last] if last == "**" => (format!("run {name} with any arguments"), true),
        [.., last] if last == "**" => {
            let line = line.strip_suffix(" **").unwrap_or(line);
            (format!("run {line} with any further arguments"), true)
        }
        words => (format!("run {line}"), words.iter().skip(1).any(|word| word.contains('*'))),
    };
    let wide = match (is_interpreter, is_open) {
        (true, true) => Some("WIDE: it can run anything, with all your rights"),
        (false, true) if words.len() == 2 => Some("WIDE: all that this program can do"),
        _ => None,
    };
    (text, wide)
}
