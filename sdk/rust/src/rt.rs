//! The runtime that the bindings run on: `wit-bindgen`'s, with less code in each
//! export.

pub use wit_bindgen::rt::*;

pub mod async_support {
    //! As in `wit-bindgen`, but for [`start_task`].

    use std::future::Future;
    use std::pin::Pin;

    pub use wit_bindgen::rt::async_support::*;

    /// Begins an export's call. Its own type is forgotten first: what begins a call
    /// would else be compiled anew for each of twenty exports, a quarter of a kilobyte
    /// each time.
    pub fn start_task(task: impl Future<Output = ()> + 'static) -> i32 {
        start(Box::pin(task))
    }

    #[inline(never)]
    fn start(task: Pin<Box<dyn Future<Output = ()>>>) -> i32 {
        wit_bindgen::rt::async_support::start_task(task)
    }
}
