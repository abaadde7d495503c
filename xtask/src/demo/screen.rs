//! What the person sees: captions, protocol lines, colours. Only how it looks;
//! which part of a line is left out is decided in `line`.

use std::io::IsTerminal as _;

use super::line::{Shown, printable, shortened};
use crate::say;

/// Bytes of a protocol line that are shown at most, about.
const LINE_BYTES: usize = 220;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    FromClient,
    FromWharf,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    colours: bool,
}

impl Screen {
    /// Colours only on a terminal, and not where somebody has said so
    /// (<https://no-color.org>).
    pub(super) fn of_stdout() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { colours: std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The beginning of a step.
    pub(super) fn caption(self, text: &str) {
        say(format_args!("\n{}", self.paint("1", &format!("== {text}"))));
    }

    /// What a step shows, in a sentence.
    pub(super) fn text(self, text: &str) {
        say(format_args!("   {}", printable(text)));
    }

    /// A line of the protocol.
    pub(super) fn line(self, direction: Direction, line: &str) {
        let arrow = match direction {
            Direction::FromClient => self.paint("36", "client → wharf"),
            Direction::FromWharf => self.paint("32", "wharf → client"),
        };
        let Shown { text, left_out } = shortened(line, LINE_BYTES);
        let size = if left_out {
            self.paint("2", &format!("  ({} bytes)", line.len()))
        } else {
            String::new()
        };
        say(format_args!("{arrow}  {text}{size}"));
    }

    /// A line that wharf wrote for people, on standard error.
    pub(super) fn error_line(self, line: &str) {
        let whose = self.paint("33", "wharf, stderr ");
        say(format_args!("{whose}  {}", printable(line)));
    }
}
