//! Calls one host function again and again: `/deluge NAME TIMES BYTES`, with texts of
//! that many bytes. It stops at the first refusal, and shows how many calls went well and
//! what the refusal was.

use outcome::{kind, show};
use serde::{Deserialize, Serialize};
use wharf_sdk::{
    CommandCtx, Ctx, CustomMessage, Delivery, Error, Extension, Parameters, Registration, Result,
    ToolSpec,
};

#[derive(Default)]
struct Deluges;

#[derive(Deserialize, Parameters)]
struct Nothing {}

#[derive(Serialize)]
struct Tally {
    done: u32,
    refused: Option<&'static str>,
    message: Option<String>,
}

impl Extension for Deluges {
    fn register() -> Registration<Self> {
        Registration::new("deluges", "0.1.0").command(
            "deluge",
            "Calls a host function many times",
            Self::deluge,
        )
    }
}

impl Deluges {
    async fn deluge(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let mut words = args.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let name = word();
        let mut number = || word().parse::<u32>().map_err(|_| Error::from("no number".to_owned()));
        let (times, bytes) = (number()?, number()?);
        let text = "x".repeat(usize::try_from(bytes).unwrap_or_default());
        let mut tally = Tally { done: 0, refused: None, message: None };
        for at in 0..times {
            match once(ctx, name, at, &text) {
                Ok(()) => tally.done += 1,
                Err(error) => {
                    tally.refused = Some(kind(&error));
                    tally.message = Some(error.to_string());
                    break;
                }
            }
        }
        show(ctx, name, &Ok(tally))
    }
}

fn once(ctx: &Ctx, name: &str, at: u32, text: &str) -> Result<()> {
    match name {
        "status" => ctx.ui().set_status(format!("key {at}"), text),
        "widget" => {
            let place = wharf_sdk::WidgetPlacement::AboveEditor;
            ctx.ui().set_widget(format!("key {at}"), [text], place);
        }
        "title" => ctx.ui().set_title(text),
        "editor-text" => ctx.ui().set_editor_text(text),
        "log" => ctx.log().info(text),
        "entry" => return ctx.session().append_entry("deluge", text).map(drop),
        "name" => return ctx.session().set_name(format!("{at} {text}")),
        "bus" => return ctx.bus().emit("nobody.listens", text),
        "next-turn" => {
            let message = CustomMessage::new("deluge", text);
            return ctx.agent().send_message(message, Delivery::NextTurn, false);
        }
        "tool" => {
            let spec = ToolSpec::new(format!("tool_{at}"), text);
            return ctx.agent().register_tool(spec, async |_, _: Nothing| Ok(String::new()));
        }
        "compact" => return ctx.agent().compact(Some(text)),
        other => return Err(Error::from(format!("there is no call {other}"))),
    }
    Ok(())
}

wharf_sdk::export!(Deluges);
