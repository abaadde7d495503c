//! Who answers the dialogs: the person at the terminal or, where there is none,
//! the demo itself.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::line::printable;
use super::screen::Screen;
use crate::say;

/// How long a person may think. After that the demo answers, so that it ends also
/// where a terminal has nobody in front of it.
const PATIENCE: Duration = Duration::from_secs(180);

pub(super) struct Person {
    screen: Screen,
    /// Lines from the terminal; none where standard input is no terminal.
    lines: Option<Receiver<String>>,
}

impl Person {
    /// Whoever is at standard input.
    pub(super) fn here(screen: Screen) -> Self {
        if !std::io::stdin().is_terminal() {
            screen
                .text("Standard input is no terminal, so the demo answers the dialogs by itself.");
            return Self { screen, lines: None };
        }
        let (sender, lines) = channel();
        // Blocks in a read for as long as the process lives.
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                if line.is_err() || line.is_ok_and(|line| sender.send(line).is_err()) {
                    return;
                }
            }
        });
        Self { screen, lines: Some(lines) }
    }

    /// The fields of the dialog's answer.
    pub(super) fn answer(&self, dialog: &Value, by_itself: Value) -> Result<Value> {
        let Some(lines) = &self.lines else {
            self.screen.text("The demo answers:");
            return Ok(by_itself);
        };
        self.show(dialog);
        loop {
            prompt(hint(dialog)?);
            let line = match lines.recv_timeout(PATIENCE) {
                Ok(line) => Some(line),
                // End of input: Ctrl+D, which leaves the cursor where it was.
                Err(RecvTimeoutError::Disconnected) => {
                    say("");
                    None
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.screen.text("\nNobody answers, so the demo does:");
                    return Ok(by_itself);
                }
            };
            match read(dialog, line.as_deref()) {
                Some(answer) => return Ok(answer),
                None => self.screen.text("That is none of the answers."),
            }
        }
    }

    fn show(&self, dialog: &Value) {
        for field in ["title", "message"] {
            for line in dialog[field].as_str().unwrap_or_default().lines() {
                self.screen.text(&format!("  | {line}"));
            }
        }
        for (index, option) in options(dialog).enumerate() {
            self.screen.text(&format!("  |   {}) {option}", index + 1));
        }
    }
}

fn options(dialog: &Value) -> impl Iterator<Item = &str> {
    dialog["options"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// How to answer.
fn hint(dialog: &Value) -> Result<&'static str> {
    Ok(match dialog["method"].as_str() {
        Some("select") => "number or text of your choice; empty dismisses the dialog",
        Some("confirm") => "y or n; empty dismisses the dialog",
        Some("input") => "your text; empty dismisses the dialog",
        _ => bail!("this demo has no dialog like {dialog}"),
    })
}

fn prompt(hint: &str) {
    let mut out = std::io::stdout();
    // A terminal that has gone is noticed by the read that follows.
    let _ = write!(out, "     [{}] ", printable(hint)).and_then(|()| out.flush());
}

/// What a typed line means; none: nothing that the dialog offers.
fn read(dialog: &Value, line: Option<&str>) -> Option<Value> {
    let text = line.unwrap_or_default().trim();
    if text.is_empty() {
        return Some(json!({"cancelled": true}));
    }
    match dialog["method"].as_str() {
        Some("confirm") => match text.to_lowercase().as_str() {
            "y" | "yes" => Some(json!({"confirmed": true})),
            "n" | "no" => Some(json!({"confirmed": false})),
            _ => None,
        },
        Some("select") => {
            let chosen = match text.parse::<usize>() {
                Ok(number) => options(dialog).nth(number.checked_sub(1)?),
                Err(_) => options(dialog).find(|option| option.eq_ignore_ascii_case(text)),
            };
            chosen.map(|option| json!({"value": option}))
        }
        _ => Some(json!({"value": text})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_lines_become_the_fields_of_an_answer() {
        let select = json!({"method": "select", "options": ["Yes", "No"]});
        let confirm = json!({"method": "confirm"});
        let input = json!({"method": "input"});
        for (dialog, line, expect) in [
            (&select, Some("1"), Some(json!({"value": "Yes"}))),
            (&select, Some(" no "), Some(json!({"value": "No"}))),
            (&select, Some("0"), None),
            (&select, Some("3"), None),
            (&select, Some("maybe"), None),
            (&select, Some(""), Some(json!({"cancelled": true}))),
            (&confirm, Some("y"), Some(json!({"confirmed": true}))),
            (&confirm, Some("No"), Some(json!({"confirmed": false}))),
            (&confirm, Some("1"), None),
            (&confirm, None, Some(json!({"cancelled": true}))),
            (&input, Some("Ada "), Some(json!({"value": "Ada"}))),
        ] {
            assert_eq!(read(dialog, line), expect, "{dialog} {line:?}");
        }
    }
}
