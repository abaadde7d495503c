//! From a file to a registration, and later to code. Reading, hashing and
//! compiling happen on blocking threads; nothing is compiled that the cache has.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use wasmtime::component::Component;
use wharf_agent::resources::{TextFileError, read_regular};

use crate::budget::{GuestClock, metered};
use crate::cache::{Cache, Key};
use crate::code::Code;
use crate::discovery::Found;
use crate::engine::{LazyRuntime, Runtime};
use crate::fault::{backtrace, describe};
use crate::limits::MAX_COMPONENT_BYTES;
use crate::live::Live;
use crate::log_file::Level;
use crate::registration::{Registration, RegistrationError};
use crate::state::{Mode, Services, State};
use crate::version::{self, VersionError};

/// Wall time that `register` may take: it cannot wait for anything that it may call,
/// but it can sleep.
const REGISTER_WALL_TIME: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("failed to read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has more than {limit} bytes, the most that a component may have", .path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{} is no WebAssembly file", .0.display())]
    NotWasm(PathBuf),
    #[error(
        "{} is a core WebAssembly module, not a component: build it for the target wasm32-wasip2",
        .0.display()
    )]
    CoreModule(PathBuf),
    #[error("{} is no valid component, perhaps truncated: {problem}", .path.display())]
    Invalid { path: PathBuf, problem: String },
    #[error("{} cannot be loaded: {source}", .path.display())]
    Version { path: PathBuf, source: VersionError },
    #[error("{} does not fit this host: {problem}", .path.display())]
    Link { path: PathBuf, problem: String },
    #[error("{} has changed since it was loaded; reload to use the new version", .0.display())]
    Changed(PathBuf),
    #[error(
        "{} differs from the pinned hash {pinned}, it is {actual}; run wharf extension update {name}, or install it again",
        .path.display()
    )]
    Pinned { path: PathBuf, name: String, pinned: String, actual: String },
    #[error("{0}")]
    Engine(String),
    /// `register` trapped, ran over its budget, or gave something unacceptable.
    #[error("register failed: {0}")]
    Register(String),
    #[error("its registration is not acceptable: {0}")]
    Registration(#[from] RegistrationError),
}

impl LoadError {
    /// The event of the report.
    pub(crate) const fn event(&self) -> &'static str {
        match self {
            Self::Register(_) | Self::Registration(_) => "register",
            _ => "load",
        }
    }
}

/// What a loaded extension came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// `sha256:` and 64 hex digits.
    pub(crate) content_hash: String,
    /// Bytes of the component.
    pub(crate) size: u64,
}

/// What loading leaves behind: what is offered, and how to get the code when it is
/// needed.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) registration: Registration,
    pub(crate) origin: Origin,
    key: Key,
    /// Kept only where the cache does not have it.
    code: Option<Arc<Code>>,
}

#[derive(Debug)]
pub(crate) struct Loader {
    pub(crate) runtime: LazyRuntime,
    pub(crate) live: Arc<Live>,
    cache: Cache,
    services: Arc<Services>,
    /// As many threads read or compile as there are cores.
    permits: Semaphore,
    /// One lock per content: nothing is compiled twice at once.
    compiling: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

/// A file's content and its place in the cache.
struct Content {
    bytes: Vec<u8>,
    key: Key,
}

impl Content {
    fn origin(&self) -> Origin {
        Origin { content_hash: self.key.content_hash(), size: self.bytes.len() as u64 }
    }
}

impl Loader {
    pub(crate) fn new(cache_dir: PathBuf, services: Arc<Services>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let live = Arc::<Live>::default();
        Self {
            runtime: LazyRuntime::new(Arc::clone(&live)),
            live,
            cache: Cache::new(cache_dir),
            services,
            permits: Semaphore::new(cores),
            compiling: Mutex::default(),
        }
    }

    /// Runs `work` on a blocking thread, when one of the permitted few is free.
    async fn blocking<R: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<R, LoadError> + Send + 'static,
    ) -> Result<R, LoadError> {
        let permit = self.permits.acquire().await;
        let this = Arc::clone(self);
        let result = spawn_blocking(move || work(&this)).await;
        drop(permit);
        result.unwrap_or_else(|error| Err(LoadError::Engine(error.to_string())))
    }

    /// What the extension offers: from the cache, else by compiling and asking it.
    /// `services` say under which limits it is asked.
    pub(crate) async fn load(
        self: &Arc<Self>,
        found: &Found,
        services: &Arc<Services>,
    ) -> Result<Loaded, LoadError> {
        let of = found.clone();
        let (content, cached) = self
            .blocking(move |this| {
                let runtime = this.runtime.get().map_err(LoadError::Engine)?;
                let content = read(&of.path, &runtime)?;
                check_pin(&of, &content.key)?;
                let cached = this.cache.registration(&content.key);
                Ok((content, cached))
            })
            .await?;
        let origin = content.origin();
        if let Some(registration) = cached {
            return Ok(Loaded { registration, origin, key: content.key, code: None });
        }
        let lock = self.lock(&content.key);
        let _guard = lock.lock().await;
        // The same content under another path may have been loaded meanwhile.
        if let Some(registration) = self.cache.registration(&content.key) {
            return Ok(Loaded { registration, origin, key: content.key, code: None });
        }
        let key = content.key.clone();
        let (code, is_cached) = self.compiled(found, content).await?;
        let registration = self.register(found, services, &code).await?;
        if let Err(error) = self.cache.store_registration(&key, &registration) {
            self.log_cache_error(&found.name, &error);
        }
        Ok(Loaded { registration, origin, key, code: (!is_cached).then_some(code) })
    }

    /// The code of an extension that has registered. About 0.1 ms with a warm cache.
    pub(crate) async fn code(
        self: &Arc<Self>,
        found: &Found,
        loaded: &Loaded,
    ) -> Result<Arc<Code>, LoadError> {
        if let Some(code) = &loaded.code {
            return Ok(Arc::clone(code));
        }
        let runtime = self.runtime.get().map_err(LoadError::Engine)?;
        if let Some(component) = self.cache.code(&loaded.key, &runtime.engine) {
            return link(&runtime, &component, found);
        }
        let lock = self.lock(&loaded.key);
        let _guard = lock.lock().await;
        let path = found.path.clone();
        let key = loaded.key.clone();
        let content = self
            .blocking(move |this| {
                let runtime = this.runtime.get().map_err(LoadError::Engine)?;
                let content = read(&path, &runtime)?;
                if content.key == key { Ok(content) } else { Err(LoadError::Changed(path)) }
            })
            .await?;
        Ok(self.compiled(found, content).await?.0)
    }

    fn lock(&self, key: &Key) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(key.clone()).or_default())
    }

    /// The code of `content`, and whether the cache has it.
    async fn compiled(
        self: &Arc<Self>,
        found: &Found,
        content: Content,
    ) -> Result<(Arc<Code>, bool), LoadError> {
        let found = found.clone();
        self.blocking(move |this| {
            let runtime = this.runtime.get().map_err(LoadError::Engine)?;
            if let Some(component) = this.cache.code(&content.key, &runtime.engine) {
                return Ok((link(&runtime, &component, &found)?, true));
            }
            let component = Component::new(&runtime.engine, &content.bytes).map_err(|error| {
                LoadError::Invalid { path: found.path.clone(), problem: format!("{error:#}") }
            })?;
            let code = link(&runtime, &component, &found)?;
            let stored = this.cache.store_code(&content.key, &component);
            if let Err(error) = &stored {
                this.log_cache_error(&found.name, error);
            }
            Ok((code, stored.is_ok()))
        })
        .await
    }

    /// Asks an instance of its own, which is thrown away, so that an extension starts
    /// from the same state whether or not the cache knew it.
    async fn register(
        &self,
        found: &Found,
        services: &Arc<Services>,
        code: &Code,
    ) -> Result<Registration, LoadError> {
        let runtime = self.runtime.get().map_err(LoadError::Engine)?;
        let clock = GuestClock::new();
        let mut store = State::store(
            &runtime,
            services.of(&found.name),
            found.name.as_str().into(),
            Mode::Registering,
            Arc::clone(&clock),
        );
        let run = async {
            let exports = code.instantiate(&mut store).await?;
            let register = exports
                .register
                .ok_or_else(|| wasmtime::Error::msg("the component does not export it"))?;
            let call = async |accessor: &wasmtime::component::Accessor<State>| {
                register.call_concurrent(accessor, ()).await
            };
            store.run_concurrent(call).await?
        };
        let run = metered(clock, Arc::clone(&runtime.ticker), run);
        let result = tokio::time::timeout(REGISTER_WALL_TIME, run).await;
        match result {
            Ok(Ok((registration,))) => Ok(Registration::from_guest(registration)?),
            Ok(Err(error)) => {
                let state = store.data();
                state.log_block(Level::Error, &backtrace("register", &error, state));
                Err(LoadError::Register(describe(&error, state)))
            }
            Err(_) => Err(LoadError::Register(format!(
                "it did not return within {} s",
                REGISTER_WALL_TIME.as_secs()
            ))),
        }
    }

    fn log_cache_error(&self, extension: &str, error: &io::Error) {
        let text = format!("its compiled code is not kept: {error}");
        self.services.log.write(extension, Level::Warn, &text);
    }
}

fn link(runtime: &Runtime, component: &Component, found: &Found) -> Result<Arc<Code>, LoadError> {
    let (handlers, built_for) = version::check(&runtime.engine, component, &found.name)
        .map_err(|source| LoadError::Version { path: found.path.clone(), source })?;
    let code = Code::link(runtime, component, &handlers, built_for).map_err(|error| {
        LoadError::Link { path: found.path.clone(), problem: format!("{error:#}") }
    })?;
    Ok(Arc::new(code))
}

/// Holds an installed component to the content that was installed.
fn check_pin(found: &Found, key: &Key) -> Result<(), LoadError> {
    let actual = key.content_hash();
    match &found.pinned {
        Some(pinned) if *pinned != actual => Err(LoadError::Pinned {
            path: found.path.clone(),
            name: found.name.clone(),
            pinned: pinned.clone(),
            actual,
        }),
        _ => Ok(()),
    }
}

fn read(path: &Path, runtime: &Runtime) -> Result<Content, LoadError> {
    let bytes = read_regular(path, MAX_COMPONENT_BYTES).map_err(|error| match error {
        TextFileError::TooLarge { limit } => LoadError::TooLarge { path: path.to_owned(), limit },
        TextFileError::Io(source) => LoadError::Read { path: path.to_owned(), source },
        other @ TextFileError::NotAFile => {
            LoadError::Read { path: path.to_owned(), source: io::Error::other(other.to_string()) }
        }
    })?;
    match bytes.get(..8) {
        // Component layer, and core layer, of the binary format's preamble.
        Some(b"\0asm\x0d\0\x01\0") => {}
        Some(b"\0asm\x01\0\0\0") => return Err(LoadError::CoreModule(path.to_owned())),
        _ => return Err(LoadError::NotWasm(path.to_owned())),
    }
    let key = Key::new(&bytes, &runtime.compatibility);
    Ok(Content { bytes, key })
}
