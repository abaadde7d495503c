//! Follows `message_update` and does nothing with it, for benches.

use wharf_sdk::{Ctx, Event, Extension, Notification, Registration, Result};

#[derive(Default)]
struct Follower;

impl Extension for Follower {
    fn register() -> Registration<Self> {
        Registration::new("follower-000", "0.1.0")
            .on_notification([Event::MessageUpdate], Self::update)
    }
}

impl Follower {
    async fn update(&self, _ctx: &Ctx, _update: Notification) -> Result<()> {
        Ok(())
    }
}

wharf_sdk::export!(Follower);
