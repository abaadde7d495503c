//! Every method of the user interface, one command each, to try a front end or an
//! RPC client with. A dialog's outcome is shown by notify, for example
//! `confirm: answered true`, `confirm: cancelled`, `confirm: timed out` or
//! `confirm: no UI`.
//!
//! The dialog commands take `timeout=MS`.

use std::fmt::Display;
use std::time::Duration;

use wharf_sdk::{
    Answer, CommandCtx, CommandSpec, Error, Extension, NotifyKind, Question, Registration, Result,
    Ui, WidgetPlacement, join,
};

const KEY: &str = "rpc-demo";

#[derive(Default)]
struct RpcDemo;

impl Extension for RpcDemo {
    fn register() -> Registration<Self> {
        let dialog = |name: &str, description: &str| {
            CommandSpec::new(name, description).hint("[timeout=MS]")
        };
        Registration::new("rpc-demo", env!("CARGO_PKG_VERSION"))
            .description("Shows every method of the user interface.")
            .command_with(dialog("rpc-input", "Asks for a line of text"), Self::input)
            .command_with(dialog("rpc-editor", "Asks for text in an editor"), Self::editor)
            .command_with(dialog("rpc-select", "Asks for one of three options"), Self::select)
            .command_with(dialog("rpc-confirm", "Asks a yes-or-no question"), Self::confirm)
            .command_with(dialog("rpc-ask", "Asks a question with options"), Self::ask)
            .command_with(dialog("rpc-two", "Opens two dialogs at once"), Self::two)
            .command_with(
                CommandSpec::new("rpc-prefill", "Puts text into the editor").hint("[text]"),
                Self::prefill,
            )
            .command_with(
                CommandSpec::new("rpc-title", "Sets the title").hint("[text]"),
                Self::title,
            )
            .command_with(
                CommandSpec::new("rpc-status", "Sets the status, or clears it").hint("[text]"),
                Self::status,
            )
            .command_with(
                CommandSpec::new("rpc-widget", "Shows a widget, or clears it")
                    .hint("[below] [line | line ...]"),
                Self::widget,
            )
            .command_with(
                CommandSpec::new("rpc-notify", "Shows a message")
                    .hint("[info|warning|error] [text]"),
                Self::notify,
            )
    }
}

impl RpcDemo {
    async fn input(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let answer = dialogs(ctx, args)?.input("Enter a value", Some("type something...")).await;
        report(ctx, "input", answer);
        Ok(())
    }

    async fn editor(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let prefill = "Line 1\nLine 2\nLine 3";
        let answer = dialogs(ctx, args)?.editor("Edit some text", Some(prefill)).await;
        report(ctx, "editor", answer);
        Ok(())
    }

    async fn select(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let answer = dialogs(ctx, args)?.select("Pick one", ["Alpha", "Beta", "Gamma"]).await;
        report(ctx, "select", answer);
        Ok(())
    }

    async fn confirm(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let answer = dialogs(ctx, args)?.confirm("Are you sure?", "This is only a demo.").await;
        report(ctx, "confirm", answer);
        Ok(())
    }

    async fn ask(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let question = Question::new("Choose a database", "Which **persistence** shall it be?")
            .options(["SQLite", "PostgreSQL", "Keep the JSON file"]);
        let answer = dialogs(ctx, args)?.ask(question).await;
        let answer = answer.map(|reply| match reply.custom_text {
            Some(text) => format!("[{}] {text}", reply.selected.join(", ")),
            None => format!("[{}]", reply.selected.join(", ")),
        });
        report(ctx, "ask", answer);
        Ok(())
    }

    async fn two(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let ui = dialogs(ctx, args)?;
        let first = async { report(ctx, "first", ui.confirm("First?", "One of two.").await) };
        let second = async { report(ctx, "second", ui.confirm("Second?", "Two of two.").await) };
        join(first, second).await;
        Ok(())
    }

    async fn prefill(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        ctx.ui().set_editor_text(or(args, "This text was set by rpc-demo."));
        Ok(())
    }

    async fn title(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        ctx.ui().set_title(or(args, "wharf - rpc-demo"));
        Ok(())
    }

    async fn status(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        if args.is_empty() {
            ctx.ui().clear_status(KEY);
        } else {
            ctx.ui().set_status(KEY, args);
        }
        Ok(())
    }

    async fn widget(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let (placement, lines) = match args.split_once(' ').unwrap_or((args, "")) {
            ("below", rest) => (WidgetPlacement::BelowEditor, rest),
            _ => (WidgetPlacement::AboveEditor, args),
        };
        if lines.is_empty() {
            ctx.ui().clear_widget(KEY);
        } else {
            ctx.ui().set_widget(KEY, lines.split('|').map(str::trim), placement);
        }
        Ok(())
    }

    async fn notify(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let (word, rest) = args.split_once(' ').unwrap_or((args, ""));
        let (kind, text) = match word {
            "info" => (NotifyKind::Info, rest),
            "warning" => (NotifyKind::Warning, rest),
            "error" => (NotifyKind::Error, rest),
            _ => (NotifyKind::Info, args),
        };
        ctx.ui().notify_as(kind, or(text, "A message from rpc-demo."));
        Ok(())
    }
}

/// The user interface with the timeout that the arguments name, if any.
fn dialogs(ctx: &CommandCtx, args: &str) -> Result<Ui> {
    let Some(timeout) = args.split_whitespace().find_map(|word| word.strip_prefix("timeout="))
    else {
        return Ok(ctx.ui());
    };
    let millis = timeout
        .parse()
        .map_err(|_| Error::from(format!("timeout={timeout} is no number of milliseconds")))?;
    Ok(ctx.ui().with_timeout(Duration::from_millis(millis)))
}

fn report<T: Display>(ctx: &CommandCtx, dialog: &str, answer: Answer<T>) {
    ctx.ui().notify(match answer {
        Answer::Answered(answer) => format!("{dialog}: answered {answer}"),
        Answer::Cancelled => format!("{dialog}: cancelled"),
        Answer::TimedOut => format!("{dialog}: timed out"),
        Answer::NoUi => format!("{dialog}: no UI"),
    });
}

fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

wharf_sdk::export!(RpcDemo);
