//! Traps in the code that runs when an instance is made, before any function is called.

use wharf_sdk::{Extension, Registration};

#[derive(Default)]
struct TrapsStart;

impl Extension for TrapsStart {
    fn register() -> Registration<Self> {
        Registration::new("traps-start", "0.1.0")
    }
}

/// What a constructor of a C++ object of static storage comes to.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    std::process::abort();
}

wharf_sdk::export!(TrapsStart);
