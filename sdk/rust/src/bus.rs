//! Events from one extension to the others.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::wharf::extension::bus;
use crate::fields::Fields;
use crate::{Json, Notification, Result};

/// Events to other extensions, from [`Ctx::bus`](crate::Ctx::bus). They are received
/// with [`Registration::on_bus`](crate::Registration::on_bus).
///
/// ```
/// # use wharf_sdk::{Ctx, Result};
/// fn tell(ctx: &Ctx, wind: u32) -> Result<()> {
///     ctx.bus().emit("weather.wind", &serde_json::json!({ "knots": wind }))
/// }
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Bus;

impl Bus {
    /// Sends an event to every other extension that subscribes to the topic, and to
    /// this one where it does. Does not wait. A topic has 1 to 64 characters of
    /// `a-z A-Z 0-9 _ - .`; the data has at most 1 MiB as JSON.
    ///
    /// # Errors
    /// `Json` when the data cannot be written as JSON, `Invalid` for the topic or the
    /// size, and `NotAllowed` from the 16th event on that was sent by a handler of an
    /// event that was sent by a handler, and so on.
    pub fn emit<T: Serialize + ?Sized>(self, topic: impl AsRef<str>, data: &T) -> Result<()> {
        let data = Json::of(data)?;
        Ok(bus::emit(topic.as_ref(), data.as_str())?)
    }
}

/// An event that an extension has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusEvent {
    /// What it is about.
    pub topic: String,
    /// The id of the extension that sent it.
    pub source: String,
    /// What it says, any JSON value.
    pub data: Json,
}

impl BusEvent {
    /// The data as a `T`.
    ///
    /// # Errors
    /// When the data does not have the shape of `T`.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        self.data.parse()
    }

    /// The name of the notification that carries a topic.
    pub(crate) fn name(topic: &str) -> String {
        ["bus:", topic].concat()
    }

    pub(crate) fn read(notification: &Notification) -> Result<Self> {
        let Notification::Other { fields, .. } = notification else {
            return Err("not an event of an extension".into());
        };
        let fields = Fields::new(fields.as_str())?;
        Ok(Self {
            topic: fields.required("topic")?,
            source: fields.required("source")?,
            // Not `required`: here `null` is a value.
            data: fields.optional("data")?.unwrap_or_else(|| Json::from_host("null".to_owned())),
        })
    }
}
