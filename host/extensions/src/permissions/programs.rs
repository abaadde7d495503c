//! Patterns of programs and their arguments. Finding the program's file is
//! `host::process`'.

use globset::GlobMatcher;

use super::wildcard;

#[derive(Debug)]
pub(super) struct ProgramPattern {
    program: String,
    arguments: Vec<Argument>,
    /// It ends with `**`: more arguments may follow.
    any_more: bool,
}

#[derive(Debug)]
enum Argument {
    Literal(String),
    Glob(GlobMatcher),
}

impl ProgramPattern {
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let (program, patterns) = words.split_first().ok_or("it names no program")?;
        check_program(program)?;
        let (patterns, any_more) = match patterns.split_last() {
            Some((last, rest)) if last == "**" => (rest, true),
            _ => (patterns, false),
        };
        let arguments = patterns.iter().map(|pattern| match pattern.as_str() {
            "**" => Err("`**` stands last only".to_owned()),
            text if text.contains(['*', '?']) => wildcard(text).map(Argument::Glob),
            text => Ok(Argument::Literal(text.to_owned())),
        });
        let arguments = arguments.collect::<Result<_, _>>()?;
        Ok(Self { program: program.clone(), arguments, any_more })
    }

    pub(super) fn matches(&self, program: &str, arguments: &[String]) -> bool {
        let enough = if self.any_more {
            arguments.len() >= self.arguments.len()
        } else {
            arguments.len() == self.arguments.len()
        };
        enough
            && self.program == program
            && self.arguments.iter().zip(arguments).all(|(pattern, argument)| match pattern {
                Argument::Literal(text) => text == argument,
                Argument::Glob(glob) => glob.is_match(argument),
            })
    }
}

/// A plain name or an absolute path, in its shortest spelling. Guests' own go through
/// this too.
pub(crate) fn check_program(program: &str) -> Result<(), String> {
    if program.contains(['*', '?']) {
        return Err("the program is named, not a pattern".to_owned());
    }
    if program.contains('\0') {
        return Err("the program's name holds a NUL".to_owned());
    }
    let parts = match program.strip_prefix('/') {
        Some(rest) => rest,
        None if program.contains('/') => {
            return Err("the program is a name, or an absolute path".to_owned());
        }
        None => program,
    };
    if parts.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!("{program:?} names no program"));
    }
    Ok(())
}
