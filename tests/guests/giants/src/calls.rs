//! Each import with one argument made large.

use wharf_sdk::bindings::wharf::extension::{
    agent, bus, control, files, http, log, process, progress, replies, session, types, ui,
};
use wharf_sdk::{Error, Result};

const OPTIONS: ui::DialogOptions = ui::DialogOptions { timeout_ms: Some(0) };

/// What an import answered, as text.
pub(crate) async fn call(import: &str, id: &str, kind: &str, size: usize) -> Result<String> {
    let list = || vec![String::new(); size / size_of::<String>()];
    let giant = || match kind {
        "json" => ["\"", &"x".repeat(size - 2), "\""].concat(),
        "numbers" => {
            let mut text = "[0".to_owned();
            text.push_str(&",0".repeat(size / 2 - 2));
            text.push(']');
            text
        }
        _ => "x".repeat(size),
    };
    let bytes = || giant().into_bytes();
    Ok(match (import, kind) {
        ("ui.select", "list") => shown(ui::select("t".into(), list(), OPTIONS).await),
        ("ui.select", _) => shown(ui::select(giant(), vec!["a".into()], OPTIONS).await),
        ("ui.confirm", _) => shown(ui::confirm("t".into(), giant(), OPTIONS).await),
        ("ui.input", _) => shown(ui::input("t".into(), Some(giant()), OPTIONS).await),
        ("ui.editor", _) => shown(ui::editor("t".into(), Some(giant()), OPTIONS).await),
        ("ui.ask", _) => {
            let (options, question) =
                if kind == "list" { (list(), String::new()) } else { (Vec::new(), giant()) };
            let question = ui::Question {
                title: "t".into(),
                question,
                options,
                allow_free_text: true,
                multi_select: false,
                multiline: false,
            };
            shown(ui::ask(question, OPTIONS).await)
        }
        ("ui.notify", _) => quiet(|| ui::notify(&giant(), ui::NotifyKind::Info)),
        ("ui.set-status", _) => quiet(|| ui::set_status("key", Some(&giant()))),
        ("ui.set-status.key", _) => quiet(|| ui::set_status(&giant(), Some("text"))),
        ("ui.set-widget", "list") => {
            quiet(|| ui::set_widget("key", Some(&list()), ui::WidgetPlacement::AboveEditor))
        }
        ("ui.set-widget", _) => {
            quiet(|| ui::set_widget("key", Some(&[giant()]), ui::WidgetPlacement::AboveEditor))
        }
        ("ui.set-title", _) => quiet(|| ui::set_title(&giant())),
        ("ui.set-editor-text", _) => quiet(|| ui::set_editor_text(&giant())),
        ("session.label", _) => shown(session::label(&giant())),
        ("session.append-entry", _) => shown(session::append_entry("giant", Some(&giant()))?),
        ("session.append-entry.type", _) => shown(session::append_entry(&giant(), None)?),
        ("session.set-name", _) => shown(session::set_name(&giant())?),
        ("session.set-label", _) => shown(session::set_label(&giant(), Some("label"))?),
        ("agent.send-user-message", _) => {
            shown(agent::send_user_message(&giant(), &[], agent::Delivery::NextTurn)?)
        }
        ("agent.send-message", _) => {
            let (text, details) = match kind {
                "numbers" => (String::new(), Some(giant())),
                _ => (giant(), None),
            };
            let message = types::CustomMessage {
                custom_type: "giant".into(),
                content: vec![types::Content::Text(text)],
                display: false,
                details,
            };
            shown(agent::send_message(&message, agent::Delivery::NextTurn, false)?)
        }
        ("agent.compact", _) => shown(agent::compact(Some(&giant()))?),
        ("agent.set-active-tools", "list") => shown(agent::set_active_tools(&list())?),
        ("agent.set-active-tools", _) => shown(agent::set_active_tools(&[giant()])?),
        ("agent.register-tool", _) => {
            let parameters = giant();
            shown(agent::register_tool(&types::ToolSpec {
                name: "giant_tool".into(),
                label: "g".into(),
                description: "g".into(),
                parameters,
                prompt_snippet: None,
                prompt_guidelines: Vec::new(),
                sequential: false,
                overrides: false,
            })?)
        }
        ("agent.register-tool.description", _) => {
            let description = giant();
            shown(agent::register_tool(&types::ToolSpec {
                name: "giant_tool".into(),
                label: "g".into(),
                description,
                parameters: r#"{"type":"object"}"#.into(),
                prompt_snippet: None,
                prompt_guidelines: Vec::new(),
                sequential: false,
                overrides: false,
            })?)
        }
        ("agent.unregister-tool", _) => shown(agent::unregister_tool(&giant())),
        ("agent.call-built-in", _) => shown(agent::call_built_in(id.into(), giant()).await?),
        ("agent.find-models", _) => shown(agent::find_models(&giant())),
        ("agent.set-model", _) => shown(agent::set_model("scripted", &giant())?),
        ("agent.set-thinking-level", _) => shown(agent::set_thinking_level(&giant())?),
        ("agent.flag", _) => shown(agent::flag(&giant())),
        ("agent.register-provider", _) => {
            shown(agent::register_provider("giants".into(), giant(), true).await?)
        }
        ("agent.unregister-provider", _) => shown(agent::unregister_provider(&giant())),
        ("control.switch-session", _) => shown(control::switch_session(giant()).await?),
        ("control.new-session-with", _) => {
            let options = control::NewSessionOptions { parent_session: Some(giant()) };
            shown(control::new_session_with(options).await?)
        }
        ("control.fork", _) => shown(control::fork(giant()).await?),
        ("control.navigate-tree", _) => {
            let options = control::NavigateOptions {
                summarize: true,
                custom_instructions: Some(giant()),
                replace_instructions: false,
                label: None,
            };
            shown(control::navigate_tree("none".into(), options).await?)
        }
        ("log.write", _) => quiet(|| log::write(log::Level::Info, &giant())),
        ("progress.update", _) => {
            let content = vec![types::Content::Text(giant())];
            let output = types::ToolOutput { content, details: None, is_error: false };
            quiet(|| progress::update(id, &output))
        }
        ("bus.emit", _) => shown(bus::emit("giants", &giant())?),
        ("bus.emit.topic", _) => shown(bus::emit(&giant(), "null")?),
        ("replies.push", _) => {
            let piece = types::ReplyPiece::Text(giant());
            shown(replies::push("none".into(), piece).await?)
        }
        ("files.read", _) => shown(files::read(giant()).await.map_err(refused)?),
        ("files.stat", _) => shown(files::stat(giant()).await.map_err(refused)?),
        ("files.list-directory", _) => {
            shown(files::list_directory(giant()).await.map_err(refused)?)
        }
        ("files.remove", _) => shown(files::remove(giant()).await.map_err(refused)?),
        ("files.write", _) => {
            shown(files::write("giant.txt".into(), bytes()).await.map_err(refused)?)
        }
        ("http.fetch", _) => {
            let many = |_| (String::new(), String::new());
            let (url, body, headers) = match kind {
                "list" => {
                    let count = size / size_of::<(String, String)>();
                    ("http://127.0.0.1/".into(), None, (0..count).map(many).collect())
                }
                "json" => ("http://127.0.0.1/".into(), Some(bytes()), Vec::new()),
                _ => (giant(), None, Vec::new()),
            };
            let method = "POST".into();
            let request = http::Request { method, url, headers, body, timeout_ms: None };
            shown(http::fetch(request).await.map_err(refused)?.status)
        }
        ("process.exec", _) => {
            let (arguments, stdin) = match kind {
                "list" => (list(), None),
                "json" => (Vec::new(), Some(bytes())),
                _ => (vec![giant()], None),
            };
            let options = process::ExecOptions { cwd: None, timeout_ms: None, stdin };
            let output = process::exec("cat".into(), arguments, options).await;
            shown(output.map_err(refused)?.exit_code)
        }
        ("process.env", _) => shown(process::env(giant()).await.map_err(refused)?),
        (other, _) => return Err(Error::from(format!("there is no import {other}"))),
    })
}

/// The beginning of an answer: it may repeat the giant.
fn shown(answer: impl std::fmt::Debug) -> String {
    let text = format!("{answer:?}");
    text.chars().take(300).collect()
}

fn quiet(call: impl FnOnce()) -> String {
    call();
    "done".to_owned()
}

fn refused(error: types::AccessError) -> Error {
    Error::Access(error.into())
}
