//! The one wasmtime engine of the process: its configuration, the linker with all
//! that a guest can import, and the ticker. Nothing here knows an extension.

use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use wasmtime::component::Linker;
use wasmtime::{Config, Engine, OptLevel};

use crate::bindings::{
    agent, bus, call, control, files, http, log, process, progress, replies, session, ui,
};
use crate::budget::Ticker;
use crate::limits::MAX_BACKTRACE_FRAMES;
use crate::live::Live;
use crate::state::{Interfaces, State};

/// Part of a compiled component's file name, because wasmtime accepts code of
/// another optimisation level silently.
const OPT_LEVEL: (OptLevel, &str) = (OptLevel::Speed, "speed");

/// What is shared by every extension. Made when the first component is needed, so
/// that a process without extensions pays nothing.
pub(crate) struct Runtime {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<State>,
    pub(crate) ticker: Arc<Ticker>,
    /// How many stores there are.
    pub(crate) live: Arc<Live>,
    /// Names compiled code that this engine can load.
    pub(crate) compatibility: String,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("compatibility", &self.compatibility)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    fn new(live: Arc<Live>) -> wasmtime::Result<Self> {
        let mut config = Config::new();
        config
            .wasm_component_model(true)
            .wasm_component_model_async(true)
            .cranelift_opt_level(OPT_LEVEL.0)
            .epoch_interruption(true)
            .wasm_backtrace_max_frames(NonZeroUsize::new(MAX_BACKTRACE_FRAMES))
            // Functions are named from the component's own names; offsets would say
            // nothing to people, and a map of them makes compiled code larger.
            .generate_address_map(false);
        let engine = Engine::new(&config)?;
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        ui::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        session::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        agent::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        control::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        log::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        progress::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        call::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        bus::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        replies::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        files::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        http::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        process::add_to_linker::<State, Interfaces>(&mut linker, |state| state)?;
        let ticker = Arc::new(Ticker::start(&engine)?);
        let compatibility = compatibility(&engine);
        Ok(Self { engine, linker, ticker, live, compatibility })
    }
}

/// The first 16 hex digits of a hash over all that decides whether this engine
/// can load a piece of compiled code.
fn compatibility(engine: &Engine) -> String {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn finish(&self) -> u64 {
            0
        }
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
    }
    let mut sha = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut sha);
    let digest = sha.0.finalize();
    let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{digits}-{}", OPT_LEVEL.1)
}

/// The runtime, once somebody needs it.
#[derive(Debug)]
pub(crate) struct LazyRuntime {
    live: Arc<Live>,
    runtime: OnceLock<Result<Arc<Runtime>, String>>,
}

impl LazyRuntime {
    pub(crate) const fn new(live: Arc<Live>) -> Self {
        Self { live, runtime: OnceLock::new() }
    }

    /// Takes about a millisecond the first time.
    pub(crate) fn get(&self) -> Result<Arc<Runtime>, String> {
        self.runtime
            .get_or_init(|| {
                Runtime::new(Arc::clone(&self.live))
                    .map(Arc::new)
                    .map_err(|error| format!("the WebAssembly engine cannot start: {error:#}"))
            })
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_starts_and_names_its_code_the_same_way_each_time() {
        let (a, b) = (Runtime::new(Arc::default()), Runtime::new(Arc::default()));
        let (Ok(a), Ok(b)) = (a, b) else { panic!("the engine did not start") };
        assert_eq!(a.compatibility, b.compatibility);
        assert_eq!(a.compatibility.len(), "0123456789abcdef-speed".len());
    }
}
