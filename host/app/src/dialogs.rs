//! Dialogs of the RPC mode: who waits for which answer. A dialog settles exactly
//! once, by whoever takes it out of the table first: an answer, a cancel, its
//! timeout, an abort, or the end of the input.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::oneshot;
use uuid::Uuid;
use wharf_agent::output::{AgentOutput, Outlet, deliver};
use wharf_agent::ui::{Dialog, DialogAnswer, DialogKind, DialogOutcome, Ui, UiUpdate};
use wharf_protocol::Event;
use wharf_protocol::ui::{UiAnswer, UiAnswerError, UiMethod, UiRequest, UiResponse};
use wharf_session::Timestamp;

#[derive(Debug)]
pub(crate) struct Dialogs {
    table: Mutex<Table>,
    outlet: Arc<dyn Outlet>,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<String, Open>,
    /// The input has ended: nobody can answer any more.
    closed: bool,
}

#[derive(Debug)]
struct Open {
    method: UiMethod,
    reply: oneshot::Sender<DialogOutcome>,
}

impl Dialogs {
    pub(crate) fn new(outlet: Arc<dyn Outlet>) -> Self {
        Self { table: Mutex::default(), outlet }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a client's answer. Gives the event that tells that the dialog has
    /// settled; none for an answer that comes late, twice, or for no dialog at all.
    ///
    /// # Errors
    /// The answer does not fit its dialog, which stays open.
    pub(crate) fn answer(&self, response: &UiResponse) -> Result<Option<Event>, UiAnswerError> {
        let mut table = self.table();
        let Some(open) = table.open.get(&response.id) else { return Ok(None) };
        let outcome = match response.answer(&open.method)? {
            UiAnswer::Cancelled => DialogOutcome::Cancelled,
            UiAnswer::Text(text) => DialogOutcome::Answered(DialogAnswer::Text(text)),
            UiAnswer::Confirmed(yes) => DialogOutcome::Answered(DialogAnswer::Confirmed(yes)),
            UiAnswer::Ask { selected, custom_text } => {
                DialogOutcome::Answered(DialogAnswer::Ask { selected, custom_text })
            }
        };
        Ok(settle(&mut table, &response.id, outcome))
    }

    /// Cancels every open dialog; gives the events that tell of it.
    pub(crate) fn cancel_all(&self) -> Vec<Event> {
        let mut table = self.table();
        let mut ids: Vec<String> = table.open.keys().cloned().collect();
        // The table has no order; clients and tests like one.
        ids.sort_unstable();
        ids.iter().filter_map(|id| settle(&mut table, id, DialogOutcome::Cancelled)).collect()
    }

    /// Cancels every open dialog, and opens no more.
    pub(crate) fn close(&self) -> Vec<Event> {
        self.table().closed = true;
        self.cancel_all()
    }

    async fn open(&self, dialog: Dialog) -> DialogOutcome {
        let id = Uuid::new_v4().to_string();
        let method = method(dialog.kind, dialog.timeout);
        let (reply, mut answered) = oneshot::channel();
        {
            let mut table = self.table();
            if table.closed {
                return DialogOutcome::NoUi;
            }
            table.open.insert(id.clone(), Open { method: method.clone(), reply });
        }
        let guard = Guard { dialogs: self, id: &id };
        let request = Event::ExtensionUiRequest(UiRequest { id: id.clone(), method });
        deliver(&*self.outlet, AgentOutput::Event(Arc::new(request))).await;
        let timeout = async {
            match dialog.timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = &mut answered => {
                drop(guard);
                return outcome.unwrap_or(DialogOutcome::Cancelled);
            }
            () = dialog.cancel.cancelled() => DialogOutcome::Cancelled,
            () = timeout => DialogOutcome::TimedOut,
        };
        let handled = settle(&mut self.table(), &id, outcome);
        if let Some(handled) = handled {
            deliver(&*self.outlet, AgentOutput::Event(Arc::new(handled))).await;
        }
        // Whoever settled it, the outcome is in the channel.
        answered.await.unwrap_or(DialogOutcome::Cancelled)
    }
}

/// Settles a dialog whose asker has gone away.
struct Guard<'a> {
    dialogs: &'a Dialogs,
    id: &'a str,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let handled = settle(&mut self.dialogs.table(), self.id, DialogOutcome::Cancelled);
        if let Some(handled) = handled {
            let output = AgentOutput::Event(Arc::new(handled));
            if let Err(output) = self.dialogs.outlet.try_send(output) {
                let outlet = Arc::clone(&self.dialogs.outlet);
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { outlet.send(*output).await });
                }
            }
        }
    }
}

fn settle(table: &mut Table, id: &str, outcome: DialogOutcome) -> Option<Event> {
    let open = table.open.remove(id)?;
    // The asker may have gone away; the dialog has settled all the same.
    let _ = open.reply.send(outcome);
    Some(Event::ExtensionUiResponseHandled { id: id.to_owned() })
}

fn method(kind: DialogKind, timeout: Option<Duration>) -> UiMethod {
    let millis = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    match kind {
        DialogKind::Select { title, options } => {
            UiMethod::Select { title, options, timeout: millis }
        }
        DialogKind::Confirm { title, message } => {
            UiMethod::Confirm { title, message, timeout: millis }
        }
        DialogKind::Input { title, placeholder } => {
            UiMethod::Input { title, placeholder, timeout: millis }
        }
        DialogKind::Editor { title, prefill } => {
            UiMethod::Editor { title, prefill, timeout: millis }
        }
        DialogKind::Ask(question) => UiMethod::Ask {
            title: question.title,
            question: question.question,
            options: (!question.options.is_empty()).then_some(question.options),
            allow_free_text: question.allow_free_text,
            multi_select: question.multi_select,
            multiline: question.multiline,
            timeout: millis,
            expires_at: millis.map(|millis| Timestamp::now().unix_millis().saturating_add(millis)),
        },
    }
}

impl Ui for Dialogs {
    fn has_ui(&self) -> bool {
        !self.table().closed
    }

    fn dialog(&self, dialog: Dialog) -> BoxFuture<'_, DialogOutcome> {
        Box::pin(self.open(dialog))
    }

    fn show(&self, update: UiUpdate) -> BoxFuture<'_, ()> {
        let method = match update {
            UiUpdate::Notify { message, kind } => UiMethod::Notify { message, notify_type: kind },
            UiUpdate::Status { key, text } => {
                UiMethod::SetStatus { status_key: key, status_text: text }
            }
            UiUpdate::Widget { key, lines, placement } => UiMethod::SetWidget {
                widget_key: key,
                widget_lines: lines,
                widget_placement: placement,
            },
            UiUpdate::Title { title } => UiMethod::SetTitle { title },
            UiUpdate::EditorText { text } => UiMethod::SetEditorText { text },
        };
        let request = UiRequest { id: Uuid::new_v4().to_string(), method };
        let output = AgentOutput::Event(Arc::new(Event::ExtensionUiRequest(request)));
        match self.outlet.try_send(output) {
            Ok(()) => Box::pin(std::future::ready(())),
            Err(output) => self.outlet.send(*output),
        }
    }
}
