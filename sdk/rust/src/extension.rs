//! The one trait that an extension implements.

use crate::Registration;

/// An extension: a value that lives as long as its instance, and a
/// [`Registration`] that says what it offers.
///
/// [`Default`] makes the value when the first handler is about to run; it may
/// call host functions that do not wait.
pub trait Extension: Default + 'static {
    /// What the extension offers, and which method serves each offer.
    ///
    /// The host may keep the data of one component and not ask again, so it must
    /// depend on nothing but the component's own code. It cannot call the host.
    fn register() -> Registration<Self>;
}
