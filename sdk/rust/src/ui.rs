//! Dialogs, and what a front end shows.

use std::time::Duration;

use crate::bindings::wharf::extension::ui as wit;
use crate::time::millis;

/// How a dialog ended. "No" is an answer; that nobody could be asked is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer<T> {
    /// The person answered.
    Answered(T),
    /// The person dismissed the dialog, or it was aborted.
    Cancelled,
    /// The dialog's timeout passed.
    TimedOut,
    /// There was nobody to ask.
    NoUi,
}

impl<T> Answer<T> {
    /// The answer, when there is one.
    pub fn answered(self) -> Option<T> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Cancelled | Self::TimedOut | Self::NoUi => None,
        }
    }

    /// Changes the answer, when there is one.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Answered(answer) => Answer::Answered(change(answer)),
            Self::Cancelled => Answer::Cancelled,
            Self::TimedOut => Answer::TimedOut,
            Self::NoUi => Answer::NoUi,
        }
    }

    /// True when there was nobody to ask.
    pub const fn is_no_ui(&self) -> bool {
        matches!(self, Self::NoUi)
    }
}

impl Answer<bool> {
    /// True when the person answered, and said yes.
    ///
    /// ```
    /// use wharf_sdk::Answer;
    ///
    /// assert!(Answer::Answered(true).is_yes());
    /// assert!(!Answer::Answered(false).is_yes());
    /// assert!(!Answer::NoUi.is_yes());
    /// ```
    #[must_use]
    pub const fn is_yes(self) -> bool {
        matches!(self, Self::Answered(true))
    }
}

/// What a person chose and wrote in [`Ui::ask`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskReply {
    /// The chosen options.
    pub selected: Vec<String>,
    /// Text that the person wrote.
    pub custom_text: Option<String>,
}

/// A question for [`Ui::ask`]. Free text is allowed, one option may be chosen.
///
/// ```
/// use wharf_sdk::Question;
///
/// let question = Question::new("Database", "Which **store** shall it be?")
///     .options(["SQLite", "PostgreSQL"])
///     .multi_select();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    title: String,
    question: String,
    options: Vec<String>,
    allow_free_text: bool,
    multi_select: bool,
    multiline: bool,
}

impl Question {
    /// A title, and the question as Markdown.
    pub fn new(title: impl Into<String>, question: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            question: question.into(),
            options: Vec::new(),
            allow_free_text: true,
            multi_select: false,
            multiline: false,
        }
    }

    /// Two to four options that are not blank.
    #[must_use]
    pub fn options<T: Into<String>>(mut self, options: impl IntoIterator<Item = T>) -> Self {
        self.options = options.into_iter().map(Into::into).collect();
        self
    }

    /// Only the options, no text of the person's own.
    #[must_use]
    pub const fn only_options(mut self) -> Self {
        self.allow_free_text = false;
        self
    }

    /// More than one option may be chosen.
    #[must_use]
    pub const fn multi_select(mut self) -> Self {
        self.multi_select = true;
        self
    }

    /// The free text may have several lines.
    #[must_use]
    pub const fn multiline(mut self) -> Self {
        self.multiline = true;
        self
    }
}

/// How a notification looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NotifyKind {
    /// Plain.
    #[default]
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// Where a widget is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WidgetPlacement {
    /// Above the input editor.
    #[default]
    AboveEditor,
    /// Below the input editor.
    BelowEditor,
}

/// The user interface, from [`Ctx::ui`](crate::Ctx::ui).
///
/// Dialogs wait for a person, and other handlers run meanwhile. Dropping the
/// future of a dialog takes the question back.
#[derive(Debug, Clone, Copy)]
pub struct Ui {
    timeout: Option<Duration>,
}

impl Ui {
    pub(crate) const fn new() -> Self {
        Self { timeout: None }
    }

    /// The same user interface, whose dialogs end as [`Answer::TimedOut`] after
    /// `timeout` (in whole milliseconds, at most 49 days).
    #[must_use]
    pub const fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout) }
    }

    /// True when a person or a program can answer dialogs.
    #[must_use]
    pub fn has_ui(self) -> bool {
        wit::has_ui()
    }

    /// Asks for one of several options.
    pub async fn select<T: Into<String>>(
        self,
        title: impl Into<String>,
        options: impl IntoIterator<Item = T>,
    ) -> Answer<String> {
        let options = options.into_iter().map(Into::into).collect();
        wit::select(title.into(), options, self.settings()).await.into()
    }

    /// Asks a yes-or-no question.
    pub async fn confirm(
        self,
        title: impl Into<String>,
        message: impl Into<String>,
    ) -> Answer<bool> {
        match wit::confirm(title.into(), message.into(), self.settings()).await {
            wit::ConfirmAnswer::Answered(yes) => Answer::Answered(yes),
            wit::ConfirmAnswer::Cancelled => Answer::Cancelled,
            wit::ConfirmAnswer::TimedOut => Answer::TimedOut,
            wit::ConfirmAnswer::NoUi => Answer::NoUi,
        }
    }

    /// Asks for a line of text. The placeholder is shown while the field is empty.
    pub async fn input(
        self,
        title: impl Into<String>,
        placeholder: Option<&str>,
    ) -> Answer<String> {
        let placeholder = placeholder.map(str::to_owned);
        wit::input(title.into(), placeholder, self.settings()).await.into()
    }

    /// Asks for text in a multi-line editor that starts with `prefill`.
    pub async fn editor(self, title: impl Into<String>, prefill: Option<&str>) -> Answer<String> {
        let prefill = prefill.map(str::to_owned);
        wit::editor(title.into(), prefill, self.settings()).await.into()
    }

    /// Asks a question with options and free text. When it is cancelled or times
    /// out, the agent's current turn stops too.
    pub async fn ask(self, question: Question) -> Answer<AskReply> {
        let question = wit::Question {
            title: question.title,
            question: question.question,
            options: question.options,
            allow_free_text: question.allow_free_text,
            multi_select: question.multi_select,
            multiline: question.multiline,
        };
        match wit::ask(question, self.settings()).await {
            wit::AskAnswer::Answered(reply) => Answer::Answered(AskReply {
                selected: reply.selected,
                custom_text: reply.custom_text,
            }),
            wit::AskAnswer::Cancelled => Answer::Cancelled,
            wit::AskAnswer::TimedOut => Answer::TimedOut,
            wit::AskAnswer::NoUi => Answer::NoUi,
        }
    }

    /// Shows a message.
    pub fn notify(self, message: impl AsRef<str>) {
        self.notify_as(NotifyKind::Info, message);
    }

    /// Shows a message as a warning or an error.
    pub fn notify_as(self, kind: NotifyKind, message: impl AsRef<str>) {
        let kind = match kind {
            NotifyKind::Info => wit::NotifyKind::Info,
            NotifyKind::Warning => wit::NotifyKind::Warning,
            NotifyKind::Error => wit::NotifyKind::Error,
        };
        wit::notify(message.as_ref(), kind);
    }

    /// Shows a status entry under `key`, in place of the one before.
    pub fn set_status(self, key: impl AsRef<str>, text: impl AsRef<str>) {
        wit::set_status(key.as_ref(), Some(text.as_ref()));
    }

    /// Takes the status entry of `key` away.
    pub fn clear_status(self, key: impl AsRef<str>) {
        wit::set_status(key.as_ref(), None);
    }

    /// Shows lines of text under `key`, in place of the ones before.
    pub fn set_widget<T: Into<String>>(
        self,
        key: impl AsRef<str>,
        lines: impl IntoIterator<Item = T>,
        placement: WidgetPlacement,
    ) {
        let lines: Vec<String> = lines.into_iter().map(Into::into).collect();
        let placement = match placement {
            WidgetPlacement::AboveEditor => wit::WidgetPlacement::AboveEditor,
            WidgetPlacement::BelowEditor => wit::WidgetPlacement::BelowEditor,
        };
        wit::set_widget(key.as_ref(), Some(&lines), placement);
    }

    /// Takes the widget of `key` away.
    pub fn clear_widget(self, key: impl AsRef<str>) {
        wit::set_widget(key.as_ref(), None, wit::WidgetPlacement::AboveEditor);
    }

    /// Sets the title of the window or tab.
    pub fn set_title(self, title: impl AsRef<str>) {
        wit::set_title(title.as_ref());
    }

    /// Puts text into the input editor.
    pub fn set_editor_text(self, text: impl AsRef<str>) {
        wit::set_editor_text(text.as_ref());
    }

    fn settings(self) -> wit::DialogOptions {
        wit::DialogOptions { timeout_ms: self.timeout.map(millis) }
    }
}

impl From<wit::TextAnswer> for Answer<String> {
    fn from(answer: wit::TextAnswer) -> Self {
        match answer {
            wit::TextAnswer::Answered(text) => Self::Answered(text),
            wit::TextAnswer::Cancelled => Self::Cancelled,
            wit::TextAnswer::TimedOut => Self::TimedOut,
            wit::TextAnswer::NoUi => Self::NoUi,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_of_true_is_yes() {
        let all = [
            (Answer::Answered(true), true, Some(true)),
            (Answer::Answered(false), false, Some(false)),
            (Answer::Cancelled, false, None),
            (Answer::TimedOut, false, None),
            (Answer::NoUi, false, None),
        ];
        for (answer, yes, answered) in all {
            assert_eq!(answer.is_yes(), yes, "{answer:?}");
            assert_eq!(answer.answered(), answered, "{answer:?}");
        }
    }

    #[test]
    fn a_timeout_is_whole_milliseconds_and_never_wraps() {
        let ui = Ui::new();
        assert_eq!(ui.settings().timeout_ms, None);
        assert_eq!(ui.with_timeout(Duration::from_micros(1_999)).settings().timeout_ms, Some(1));
        assert_eq!(ui.with_timeout(Duration::MAX).settings().timeout_ms, Some(u32::MAX));
    }
}
