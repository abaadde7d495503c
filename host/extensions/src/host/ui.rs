//! Dialogs, and what a front end shows. Dialogs wait; the rest returns at once
//! unless the front end's queue is full.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use wasmtime::AsContextMut;
use wasmtime::component::Accessor;
use wharf_agent::ui::{
    Dialog, DialogAnswer, DialogKind, DialogOutcome, NotifyKind, Question, Ui, UiUpdate,
    WidgetPlacement,
};

use crate::bindings::ui::{
    AskAnswer, AskReply, ConfirmAnswer, DialogOptions, Host, HostWithStore,
    NotifyKind as WitNotifyKind, Question as WitQuestion, TextAnswer,
    WidgetPlacement as WitPlacement,
};
use crate::limits::{
    ASK_OPTIONS, MAX_DIALOG_OPTIONS, MAX_NAME_BYTES, MAX_UI_TEXT_BYTES, MAX_WIDGET_LINES, truncated,
};
use crate::log_file::Level;
use crate::state::{CallKind, CallRecord, Interfaces, State, root_task};

impl HostWithStore<State> for Interfaces {
    async fn select(
        accessor: &Accessor<State, Self>,
        title: String,
        options: Vec<String>,
        settings: DialogOptions,
    ) -> TextAnswer {
        if options.len() > MAX_DIALOG_OPTIONS {
            let problem = format!("{} options; the limit is {MAX_DIALOG_OPTIONS}", options.len());
            refuse(accessor, "select", &problem);
            return TextAnswer::Cancelled;
        }
        let options = options.into_iter().map(text).collect();
        text_answer(
            open(accessor, DialogKind::Select { title: text(title), options }, settings).await,
        )
    }

    async fn confirm(
        accessor: &Accessor<State, Self>,
        title: String,
        message: String,
        settings: DialogOptions,
    ) -> ConfirmAnswer {
        let kind = DialogKind::Confirm { title: text(title), message: text(message) };
        match open(accessor, kind, settings).await {
            DialogOutcome::Answered(DialogAnswer::Confirmed(yes)) => ConfirmAnswer::Answered(yes),
            DialogOutcome::Answered(_) | DialogOutcome::Cancelled => ConfirmAnswer::Cancelled,
            DialogOutcome::TimedOut => ConfirmAnswer::TimedOut,
            DialogOutcome::NoUi => ConfirmAnswer::NoUi,
        }
    }

    async fn input(
        accessor: &Accessor<State, Self>,
        title: String,
        placeholder: Option<String>,
        settings: DialogOptions,
    ) -> TextAnswer {
        let kind = DialogKind::Input { title: text(title), placeholder: placeholder.map(text) };
        text_answer(open(accessor, kind, settings).await)
    }

    async fn editor(
        accessor: &Accessor<State, Self>,
        title: String,
        prefill: Option<String>,
        settings: DialogOptions,
    ) -> TextAnswer {
        let kind = DialogKind::Editor { title: text(title), prefill: prefill.map(text) };
        text_answer(open(accessor, kind, settings).await)
    }

    async fn ask(
        accessor: &Accessor<State, Self>,
        what: WitQuestion,
        settings: DialogOptions,
    ) -> AskAnswer {
        let question = match question(what) {
            Ok(question) => question,
            Err(problem) => {
                refuse(accessor, "ask", &problem);
                return AskAnswer::Cancelled;
            }
        };
        let outcome = open(accessor, DialogKind::Ask(question), settings).await;
        let stops_turn = matches!(outcome, DialogOutcome::Cancelled | DialogOutcome::TimedOut);
        if stops_turn && let Some(api) = accessor.with(|mut access| access.get().api().cloned()) {
            // As the protocol has it: going on without an answer would be a guess.
            api.abort();
        }
        match outcome {
            DialogOutcome::Answered(DialogAnswer::Ask { selected, custom_text }) => {
                AskAnswer::Answered(AskReply { selected, custom_text })
            }
            DialogOutcome::Answered(_) | DialogOutcome::Cancelled => AskAnswer::Cancelled,
            DialogOutcome::TimedOut => AskAnswer::TimedOut,
            DialogOutcome::NoUi => AskAnswer::NoUi,
        }
    }
}

impl Host for State {
    fn has_ui(&mut self) -> bool {
        self.ui().has_ui()
    }

    async fn notify(&mut self, message: String, kind: WitNotifyKind) {
        let kind = match kind {
            WitNotifyKind::Info => NotifyKind::Info,
            WitNotifyKind::Warning => NotifyKind::Warning,
            WitNotifyKind::Error => NotifyKind::Error,
        };
        self.ui().show(UiUpdate::Notify { message: text(message), kind }).await;
    }

    async fn set_status(&mut self, key: String, status: Option<String>) {
        self.ui().show(UiUpdate::Status { key: name(key), text: status.map(text) }).await;
    }

    async fn set_widget(
        &mut self,
        key: String,
        lines: Option<Vec<String>>,
        placement: WitPlacement,
    ) {
        let placement = match placement {
            WitPlacement::AboveEditor => WidgetPlacement::AboveEditor,
            WitPlacement::BelowEditor => WidgetPlacement::BelowEditor,
        };
        let lines = lines.map(widget_lines);
        self.ui().show(UiUpdate::Widget { key: name(key), lines, placement }).await;
    }

    async fn set_title(&mut self, title: String) {
        self.ui().show(UiUpdate::Title { title: name(title) }).await;
    }

    async fn set_editor_text(&mut self, content: String) {
        self.ui().show(UiUpdate::EditorText { text: text(content) }).await;
    }
}

fn text(text: String) -> String {
    truncated(text, MAX_UI_TEXT_BYTES)
}

fn name(name: String) -> String {
    truncated(name, MAX_NAME_BYTES)
}

/// At most so many lines, of at most so many bytes together.
fn widget_lines(mut lines: Vec<String>) -> Vec<String> {
    let dropped = lines.len().saturating_sub(MAX_WIDGET_LINES);
    lines.truncate(MAX_WIDGET_LINES);
    let mut room = MAX_UI_TEXT_BYTES;
    for line in &mut lines {
        *line = truncated(std::mem::take(line), room);
        room = room.saturating_sub(line.len());
    }
    if dropped > 0 {
        lines.push(format!("[... {dropped} lines over the limit of {MAX_WIDGET_LINES} dropped]"));
    }
    lines
}

/// Options are none, or two to four that are not blank; the host asks nothing else.
fn question(what: WitQuestion) -> Result<Question, String> {
    let options = what.options;
    if !options.is_empty() && !ASK_OPTIONS.contains(&options.len()) {
        return Err(format!("{} options; there may be none, or 2 to 4", options.len()));
    }
    if options.iter().any(|option| option.trim().is_empty()) {
        return Err("an option is blank".to_owned());
    }
    Ok(Question {
        title: text(what.title),
        question: text(what.question),
        options: options.into_iter().map(text).collect(),
        allow_free_text: what.allow_free_text,
        multi_select: what.multi_select,
        multiline: what.multiline,
    })
}

fn text_answer(outcome: DialogOutcome) -> TextAnswer {
    match outcome {
        DialogOutcome::Answered(DialogAnswer::Text(text)) => TextAnswer::Answered(text),
        DialogOutcome::Answered(_) | DialogOutcome::Cancelled => TextAnswer::Cancelled,
        DialogOutcome::TimedOut => TextAnswer::TimedOut,
        DialogOutcome::NoUi => TextAnswer::NoUi,
    }
}

/// A dialog that the host does not open: the guest sees it as cancelled.
fn refuse(accessor: &Accessor<State, Interfaces>, dialog: &str, problem: &str) {
    accessor.with(|mut access| {
        access.get().log(Level::Warn, &format!("{dialog} was not shown: {problem}"));
    });
}

/// What an open dialog holds.
struct Opened {
    ui: Arc<dyn Ui>,
    cancel: CancellationToken,
    /// Counts it, also when the guest drops its future.
    _open: Arc<()>,
}

/// Opens a dialog for the call that asks, and settles it with that call.
async fn open(
    accessor: &Accessor<State, Interfaces>,
    kind: DialogKind,
    settings: DialogOptions,
) -> DialogOutcome {
    let opened: Result<Opened, String> = accessor.with(|mut access| {
        let task = root_task(&mut access.as_context_mut());
        let state = access.get();
        let most = state.services.limits.open_dialogs;
        if Arc::strong_count(&state.open_dialogs) > most {
            return Err(format!("{most} dialogs are open already"));
        }
        let cancel = match task.and_then(|task| state.calls.get(&task)) {
            Some(CallRecord { kind: CallKind::StartUp, event, .. }) => {
                return Err(format!("start-up waits for {event}"));
            }
            Some(call) => call.cancel.clone(),
            None => state.background_cancel.clone(),
        };
        Ok(Opened { ui: state.ui(), cancel, _open: Arc::clone(&state.open_dialogs) })
    });
    let Opened { ui, cancel, _open } = match opened {
        Ok(opened) => opened,
        Err(problem) => {
            refuse(accessor, "a dialog", &problem);
            // Nobody was asked, so nobody has declined.
            return DialogOutcome::NoUi;
        }
    };
    let timeout = settings.timeout_ms.map(|ms| Duration::from_millis(ms.into()));
    let dialog = ui.dialog(Dialog { kind, timeout, cancel: cancel.clone() });
    tokio::select! {
        biased;
        () = cancel.cancelled() => DialogOutcome::Cancelled,
        outcome = dialog => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(options: &[&str]) -> Result<usize, String> {
        question(WitQuestion {
            title: String::new(),
            question: String::new(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            allow_free_text: true,
            multi_select: false,
            multiline: false,
        })
        .map(|question| question.options.len())
    }

    #[test]
    fn an_ask_has_no_option_or_two_to_four() {
        assert_eq!(ask(&[]), Ok(0));
        assert_eq!(ask(&["a", "b"]), Ok(2));
        assert_eq!(ask(&["a", "b", "c", "d"]), Ok(4));
        assert_eq!(ask(&["a"]), Err("1 options; there may be none, or 2 to 4".into()));
        assert!(ask(&["a", "b", "c", "d", "e"]).is_err());
        assert_eq!(ask(&["a", " "]), Err("an option is blank".into()));
    }

    #[test]
    fn a_widget_is_capped_in_lines_and_in_bytes() {
        let lines = widget_lines(vec!["x".into(); MAX_WIDGET_LINES + 5]);
        assert_eq!(lines.len(), MAX_WIDGET_LINES + 1);
        let lines = widget_lines(vec!["x".repeat(MAX_UI_TEXT_BYTES); 3]);
        assert!(lines.iter().map(String::len).sum::<usize>() < MAX_UI_TEXT_BYTES + 1_000);
    }
}
