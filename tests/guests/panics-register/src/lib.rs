//! Panics while it registers.

use wharf_sdk::{Extension, Registration};

#[derive(Default)]
struct PanicsRegister;

impl Extension for PanicsRegister {
    fn register() -> Registration<Self> {
        panic!("boom on purpose")
    }
}

wharf_sdk::export!(PanicsRegister);
