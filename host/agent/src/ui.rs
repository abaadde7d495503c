//! How extensions and tools ask and show: the trait that a front end implements.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
pub use wharf_protocol::ui::{NotifyKind, WidgetPlacement};

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialogKind {
    Select { title: String, options: Vec<String> },
    Confirm { title: String, message: String },
    Input { title: String, placeholder: Option<String> },
    Editor { title: String, prefill: Option<String> },
    Ask(Question),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub title: String,
    /// Markdown.
    pub question: String,
    /// None, or two to four that are not blank.
    pub options: Vec<String>,
    pub allow_free_text: bool,
    pub multi_select: bool,
    pub multiline: bool,
}

#[derive(Debug, Clone)]
pub struct Dialog {
    pub kind: DialogKind,
    /// The front end answers [`DialogOutcome::TimedOut`] when it has passed.
    pub timeout: Option<Duration>,
    /// Cancelled when the run or the extension that asked is gone.
    pub cancel: CancellationToken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialogAnswer {
    /// Answers of `select`, `input` and `editor`.
    Text(String),
    Confirmed(bool),
    Ask {
        selected: Vec<String>,
        custom_text: Option<String>,
    },
}

/// How a dialog settled: exactly once, whichever came first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialogOutcome {
    Answered(DialogAnswer),
    /// Dismissed, aborted, or the input ended.
    Cancelled,
    TimedOut,
    /// Nobody could be asked. This is not a "no".
    NoUi,
}

/// Something to show; nobody answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UiUpdate {
    Notify { message: String, kind: NotifyKind },
    Status { key: String, text: Option<String> },
    Widget { key: String, lines: Option<Vec<String>>, placement: WidgetPlacement },
    Title { title: String },
    EditorText { text: String },
}

/// A front end, as extensions and tools see it.
pub trait Ui: Send + Sync + fmt::Debug {
    /// True while dialogs can be answered.
    fn has_ui(&self) -> bool;

    /// Dropping the future settles the dialog as cancelled.
    fn dialog(&self, dialog: Dialog) -> BoxFuture<'_, DialogOutcome>;

    /// Waits only while the front end's queue is full, so that whoever floods it
    /// slows down and nothing is lost.
    fn show(&self, update: UiUpdate) -> BoxFuture<'_, ()>;
}

/// The front end of modes in which nobody can be asked.
#[derive(Debug, Clone, Copy)]
pub struct NoUi;

impl Ui for NoUi {
    fn has_ui(&self) -> bool {
        false
    }

    fn dialog(&self, _dialog: Dialog) -> BoxFuture<'_, DialogOutcome> {
        Box::pin(std::future::ready(DialogOutcome::NoUi))
    }

    fn show(&self, _update: UiUpdate) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
