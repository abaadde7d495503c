//! Never comes back from its registration.

use std::hint::black_box;

use wharf_sdk::{Extension, Registration};

#[derive(Default)]
struct SpinsRegister;

impl Extension for SpinsRegister {
    fn register() -> Registration<Self> {
        let mut turns = 0_u64;
        loop {
            turns = black_box(turns.wrapping_add(1));
        }
    }
}

wharf_sdk::export!(SpinsRegister);
