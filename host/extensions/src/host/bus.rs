//! Events between extensions.

use std::sync::Arc;

use wasmtime::AsContextMut;
use wasmtime::component::Access;

use super::{no_agent, parse_json};
use crate::bindings::bus::{Host, HostWithStore};
use crate::bindings::types::{HostError, Notification, OtherNote};
use crate::convert;
use crate::extension::{BusEvent, NoteKind};
use crate::limits::{MAX_BUS_DATA_BYTES, MAX_BUS_HOPS, cut};
use crate::registration::is_topic;
use crate::state::{CallKind, Interfaces, State, root_task};

impl Host for State {}

impl HostWithStore<State> for Interfaces {
    fn emit(
        mut access: Access<'_, State, Self>,
        topic: String,
        data: String,
    ) -> Result<(), HostError> {
        let task = root_task(&mut access.as_context_mut());
        let state = access.get();
        let hop = match task.and_then(|task| state.calls.get(&task)).map(|call| &call.kind) {
            Some(CallKind::Bus { hop }) => hop + 1,
            _ => 1,
        };
        state.emit(&topic, &data, hop)
    }
}

impl State {
    fn emit(&self, topic: &str, data: &str, hop: u8) -> Result<(), HostError> {
        let source = self.own().ok_or_else(no_agent)?;
        if !is_topic(topic) {
            return Err(HostError::Invalid(format!(
                "topic {:?} must be 1 to 64 characters of a-z, A-Z, 0-9, _, - and .",
                cut(topic, 100)
            )));
        }
        // Whoever reads it gets the text itself.
        parse_json("data", data, MAX_BUS_DATA_BYTES)?;
        if hop >= MAX_BUS_HOPS {
            return Err(HostError::NotAllowed(format!(
                "this would be event {hop} of a chain in which each was sent by a handler of the one before; at most {} may follow each other",
                MAX_BUS_HOPS - 1
            )));
        }
        let Some(peers) = self.services.peers() else { return Ok(()) };
        let targets = peers.bus_targets(topic);
        if targets.is_empty() {
            return Ok(());
        }
        let fields = format!(
            r#"{{"topic":{},"source":{},"data":{}}}"#,
            convert::to_json(&topic),
            convert::to_json(&source.name()),
            data.trim()
        );
        let name = format!("bus:{topic}");
        let kind =
            NoteKind::Bus(Arc::new(BusEvent { name: name.clone(), hop, bytes: fields.len() }));
        let note = Arc::new(Notification::Other(OtherNote { name, fields }));
        for extension in targets {
            extension.notify(kind.clone(), Arc::clone(&note));
        }
        Ok(())
    }
}
