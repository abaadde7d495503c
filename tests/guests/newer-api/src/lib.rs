//! A component built for `wharf:extension@0.9.0`: the host must say which versions
//! it serves, and not fail with a linker's error.

mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "extension" });
}

use bindings::exports::wharf::extension::handlers::Guest;
use bindings::wharf::extension::types::Registration;
use bindings::wharf::extension::ui;

struct NewerApi;

impl Guest for NewerApi {
    fn register() -> Registration {
        Registration { id: "newer-api".to_owned(), version: "0.1.0".to_owned() }
    }

    async fn run_command(name: String, arguments: String) -> Result<(), String> {
        ui::notify(&format!("{name} {arguments}"));
        Ok(())
    }
}

bindings::export!(NewerApi with_types_in bindings);
