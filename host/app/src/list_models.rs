//! `wharf --list-models [SEARCH]`: a table for people, on standard output.

use std::process::ExitCode;

use anyhow::ensure;
use wharf_protocol::Model;

use crate::cli::RunArgs;
use crate::modes::FLUSH_GRACE;
use crate::stdout::Stdout;
use crate::{report, wiring};

/// A column's head, and its cell for a model.
type Column = (&'static str, fn(&Row) -> String);

struct Row {
    model: Model,
    has_key: bool,
}

const COLUMNS: [Column; 7] = [
    ("provider", |row| row.model.provider.clone()),
    ("model", |row| row.model.id.clone()),
    ("context", |row| tokens(row.model.context_window)),
    ("max output", |row| tokens(row.model.max_tokens)),
    ("thinking", |row| yes(row.model.reasoning)),
    ("images", |row| yes(row.model.input.iter().any(|kind| kind == "image"))),
    ("key", |row| yes(row.has_key)),
];

pub(crate) fn run(args: &RunArgs, search: &str) -> anyhow::Result<ExitCode> {
    let agent_dir = wiring::agent_dir(args.place.agent_dir.as_deref())?;
    let (registry, problems) = wiring::registry(&agent_dir);
    for problem in problems {
        report::warning(problem);
    }
    let rows: Vec<Row> = registry
        .list(Some(search).filter(|search| !search.trim().is_empty()))
        .into_iter()
        .filter(|model| {
            let wanted = args.provider.as_ref();
            wanted.is_none_or(|name| name.eq_ignore_ascii_case(&model.provider))
        })
        .map(|model| Row { has_key: registry.has_credentials(&model), model })
        .collect();
    ensure!(
        !rows.is_empty(),
        "no model{} matches {search:?}; --list-models alone lists all",
        args.provider.as_ref().map(|name| format!(" of provider {name}")).unwrap_or_default()
    );
    let out = Stdout::start()?;
    out.raw(table(&rows).into_bytes());
    out.finish(FLUSH_GRACE);
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[Row]) -> String {
    let cells: Vec<Vec<String>> =
        std::iter::once(COLUMNS.iter().map(|(head, _)| (*head).to_owned()).collect())
            .chain(rows.iter().map(|row| COLUMNS.iter().map(|(_, cell)| cell(row)).collect()))
            .collect();
    let width = |column: usize| {
        cells.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut text = String::new();
    for line in &cells {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// `200K`, `1M`; nothing where it is not known.
fn tokens(count: u64) -> String {
    match count {
        0 => String::new(),
        1_000_000.. => {
            let tenths = (count + 50_000) / 100_000;
            if tenths.is_multiple_of(10) {
                format!("{}M", tenths / 10)
            } else {
                format!("{}.{}M", tenths / 10, tenths % 10)
            }
        }
        1000.. => format!("{}K", (count + 500) / 1000),
        few => few.to_string(),
    }
}

fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn counts_are_short() {
        for (count, expect) in [
            (0, ""),
            (500, "500"),
            (8192, "8K"),
            (200_000, "200K"),
            (1_000_000, "1M"),
            (1_048_576, "1M"),
            (1_500_000, "1.5M"),
        ] {
            assert_eq!(tokens(count), expect);
        }
    }
}
