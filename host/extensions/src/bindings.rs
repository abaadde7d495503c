//! What `bindgen!` makes of the WIT world. Only this crate sees these types: the
//! hooks speak the agent's own, and `convert` stands between the two.

wasmtime::component::bindgen!({
    path: "../../wit/0.1.1",
    world: "extension",
    imports: {
        // Plain functions for the guest. Their host side may wait while the front
        // end's queue is full, which pauses the one extension that floods it.
        "wharf:extension/ui.notify": async,
        "wharf:extension/ui.set-status": async,
        "wharf:extension/ui.set-widget": async,
        "wharf:extension/ui.set-title": async,
        "wharf:extension/ui.set-editor-text": async,
        // They ask which call they belong to.
        "wharf:extension/call.is-cancelled": store,
        "wharf:extension/bus.emit": store,
    },
    with: {
        "wharf:extension/http.body": crate::host::http::Body,
    },
});

pub(crate) use wharf::extension::{
    agent, bus, call, control, files, http, log, process, progress, replies, session, types, ui,
};

/// The interface that an extension exports, without its version.
pub(crate) const HANDLERS: &str = "wharf:extension/handlers";
