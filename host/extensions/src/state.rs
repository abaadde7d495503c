//! The data of one store: what a host function finds when a guest calls it.
//! The host functions themselves are in `host`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use wasmtime::component::{GuestTaskId, HasData, ResourceTable};
use wasmtime::{AsContextMut, Store, StoreContextMut, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wharf_agent::host_api::{HostApi, ReplyPiece};
use wharf_agent::tool::Progress;
use wharf_agent::ui::{NoUi, Ui};

use crate::access::Access;
use crate::ask::Permits;
use crate::budget::{BackgroundBudget, Budget, GuestClock, TICK};
use crate::call::Fail;
use crate::data;
use crate::engine::Runtime;
use crate::extension::Extension;
use crate::extension_host::Loadable;
use crate::limits::{Limits, MAX_HANDLES, MAX_HOST_CALL_BYTES, MAX_WASI_RESOURCES, MemoryLimiter};
use crate::live::Alive;
use crate::log_file::{Level, LogFile};
use crate::output::GuestOutput;
use crate::peers::Peers;
use crate::report::Reporter;

/// What every extension of a host shares.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    pub(crate) ui: Arc<dyn Ui>,
    /// Comes later than the extensions: the agent needs their hooks first.
    pub(crate) api: Arc<OnceLock<Arc<dyn HostApi>>>,
    pub(crate) log: Arc<LogFile>,
    pub(crate) reporter: Arc<dyn Reporter>,
    pub(crate) cwd: PathBuf,
    pub(crate) permits: Arc<Permits>,
    /// Of all extensions, or of one: see [`Self::of`].
    pub(crate) limits: Limits,
    /// Limits of extensions that have their own, by name.
    pub(crate) own_limits: Arc<HashMap<String, Limits>>,
    /// Flags of the command line by name; None: present without a value.
    pub(crate) flags: Arc<HashMap<String, Option<String>>>,
    /// The host. It owns these services.
    pub(crate) peers: Arc<OnceLock<Weak<dyn Peers>>>,
    pub(crate) runtime: tokio::runtime::Handle,
}

impl Services {
    /// The same services under the limits that settings have now.
    pub(crate) fn under(&self, loadable: &Loadable) -> Arc<Self> {
        let own_limits = Arc::new(loadable.own_limits.clone());
        Arc::new(Self { limits: loadable.limits, own_limits, ..self.clone() })
    }

    /// The same services under the limits of the extension of this name.
    pub(crate) fn of(self: &Arc<Self>, name: &str) -> Arc<Self> {
        match self.own_limits.get(name) {
            None => Arc::clone(self),
            Some(limits) => Arc::new(Self { limits: *limits, ..Self::clone(self) }),
        }
    }

    /// None: the host has gone.
    pub(crate) fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.peers.get()?.upgrade()
    }
}

/// Why a call was made; decides what the guest may do meanwhile.
#[derive(Debug)]
pub(crate) enum CallKind {
    Command {
        name: String,
    },
    Tool {
        name: String,
        id: String,
        progress: Progress,
    },
    /// A reply of a model; its pieces go to whoever asked for it.
    Reply {
        id: String,
        pieces: mpsc::Sender<ReplyPiece>,
        /// All pieces so far.
        bytes: usize,
    },
    /// An event of an extension, and which one of a chain it is, from 1.
    Bus {
        hop: u8,
    },
    Event,
    /// An event that start-up waits for, so nobody can be asked yet.
    StartUp,
}

impl CallKind {
    /// `text` with what it is about before it.
    pub(crate) fn about(&self, text: &str) -> String {
        match self {
            Self::Command { name } => format!("/{name}: {text}"),
            Self::Tool { name, .. } => format!("{name}: {text}"),
            Self::Reply { .. } | Self::Bus { .. } | Self::Event | Self::StartUp => text.to_owned(),
        }
    }

    /// Guest time that a call of this kind may use.
    pub(crate) const fn budget(&self, limits: &Limits) -> Budget {
        match self {
            Self::Command { .. } | Self::Tool { .. } | Self::Reply { .. } => {
                Budget::new(limits.call_budget)
            }
            Self::Bus { .. } | Self::Event | Self::StartUp => Budget::new(limits.event_budget),
        }
    }
}

/// A call that the guest has not returned from.
#[derive(Debug)]
pub(crate) struct CallRecord {
    pub(crate) kind: CallKind,
    /// `command`, `tool`, or the event's name.
    pub(crate) event: Cow<'static, str>,
    pub(crate) budget: Budget,
    pub(crate) cancel: CancellationToken,
    pub(crate) reply: Arc<dyn Fail>,
    /// Cancelled with the call, and when the guest has returned from it.
    pub(crate) life: Life,
}

/// How long something may go on that makes sense only while a call is under way.
#[derive(Debug)]
pub(crate) struct Life(
    CancellationToken,
    #[expect(dead_code, reason = "cancels when dropped")] DropGuard,
);

impl Life {
    pub(crate) fn of(cancel: &CancellationToken) -> Self {
        let token = cancel.child_token();
        Self(token.clone(), token.drop_guard())
    }

    pub(crate) fn token(&self) -> CancellationToken {
        self.0.clone()
    }
}

/// Where an instance runs.
#[derive(Debug)]
pub(crate) enum Mode {
    /// `register`: data only, so there is nobody to talk to.
    Registering,
    Serving(Arc<Extension>),
}

pub(crate) struct State {
    pub(crate) extension: Arc<str>,
    pub(crate) mode: Mode,
    pub(crate) services: Arc<Services>,
    pub(crate) calls: HashMap<GuestTaskId, CallRecord>,
    /// Every open dialog holds a clone.
    pub(crate) open_dialogs: Arc<()>,
    background: BackgroundBudget,
    /// For dialogs that belong to no call. Cancelled with the store.
    pub(crate) background_cancel: CancellationToken,
    clock: Arc<GuestClock>,
    /// The clock when somebody was charged last.
    charged: Duration,
    limiter: MemoryLimiter,
    wasi: WasiCtx,
    table: ResourceTable,
    stderr: GuestOutput,
    _alive: Alive,
}

/// Stands for [`State`] in the generated linker functions.
pub(crate) struct Interfaces;

impl HasData for Interfaces {
    type Data<'a> = &'a mut State;
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl State {
    /// A store for one instance. No variable and no socket is in its WASI context, and no
    /// directory but its own; clocks and random numbers are.
    pub(crate) fn store(
        runtime: &Runtime,
        services: Arc<Services>,
        extension: Arc<str>,
        mode: Mode,
        clock: Arc<GuestClock>,
    ) -> Store<Self> {
        let output =
            |level| GuestOutput::new(Arc::clone(&services.log), Arc::clone(&extension), level);
        let stderr = output(Level::Stderr);
        let mut wasi = WasiCtx::builder();
        wasi.stdout(output(Level::Stdout)).stderr(stderr.clone()).allow_tcp(false).allow_udp(false);
        if let Mode::Serving(own) = &mode
            && let Some(access) = own.access()
            && let Err(error) = data::preopen(&mut wasi, &data::directory(&own.found, access))
        {
            let text = format!("it has no {}: {error}", data::GUEST_PATH);
            services.log.write(&extension, Level::Error, &text);
        }
        let wasi = wasi.build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_WASI_RESOURCES);
        let limits = services.limits;
        let state = Self {
            mode,
            calls: HashMap::new(),
            open_dialogs: Arc::default(),
            background: BackgroundBudget::new(limits.event_budget, Instant::now()),
            background_cancel: CancellationToken::new(),
            charged: clock.total(),
            clock,
            limiter: MemoryLimiter::new(limits.memory_bytes),
            wasi,
            table,
            stderr,
            services,
            extension,
            _alive: runtime.live.store(),
        };
        let mut store = Store::new(&runtime.engine, state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(MAX_HOST_CALL_BYTES);
        store.set_max_component_handles(MAX_HANDLES);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| {
            let task = root_task(&mut store);
            store.data_mut().charge(task)?;
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// Charges the guest time since the last charge to whoever runs now, at most one
    /// tick: a call that comes back from a long wait pays for nobody else's time.
    fn charge(&mut self, task: Option<GuestTaskId>) -> wasmtime::Result<()> {
        let now = self.clock.total();
        let time = now.saturating_sub(self.charged).min(TICK);
        self.charged = now;
        let charged = match task.and_then(|task| self.calls.get_mut(&task)) {
            Some(call) => call.budget.charge(time),
            None => self.background.charge(time, Instant::now()),
        };
        charged.map_err(wasmtime::Error::new)
    }

    /// Resources that a guest holds.
    pub(crate) fn table_mut(&mut self) -> &mut ResourceTable {
        &mut self.table
    }

    /// The end of the guest's stderr.
    pub(crate) fn stderr_tail(&self) -> String {
        self.stderr.tail()
    }

    /// The agent, unless the guest runs before there is one.
    pub(crate) fn api(&self) -> Option<&Arc<dyn HostApi>> {
        match self.mode {
            Mode::Registering => None,
            Mode::Serving(_) => self.services.api.get(),
        }
    }

    /// None while it registers.
    pub(crate) fn access(&self) -> Option<&Arc<Access>> {
        match &self.mode {
            Mode::Registering => None,
            Mode::Serving(extension) => extension.access(),
        }
    }

    pub(crate) fn ui(&self) -> Arc<dyn Ui> {
        match self.mode {
            Mode::Registering => Arc::new(NoUi),
            Mode::Serving(_) => Arc::clone(&self.services.ui),
        }
    }

    /// The extension whose instance this is, unless it is only asked what it offers.
    pub(crate) fn own(&self) -> Option<&Arc<Extension>> {
        match &self.mode {
            Mode::Registering => None,
            Mode::Serving(extension) => Some(extension),
        }
    }

    /// A text of several lines, which stay together.
    pub(crate) fn log_block(&self, level: Level, text: &str) {
        self.services.log.write_block(&self.extension, level, text);
    }

    pub(crate) fn log(&self, level: Level, text: &str) {
        self.services.log.write(&self.extension, level, text);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.background_cancel.cancel();
    }
}

/// The export call that the running guest code, or the import that it has just
/// called, belongs to. Only meaningful before a host function's first wait.
pub(crate) fn root_task(store: &mut StoreContextMut<'_, State>) -> Option<GuestTaskId> {
    store.as_context_mut().async_call_stack().ok()?.last()
}
