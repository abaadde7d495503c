//! Handlers of events about what is sent to the model, about resources, about the
//! person's shell commands and of other extensions; and of models that the extension
//! answers for.

use super::Registration;
use crate::bindings::wharf::extension::types as wit;
use crate::handlers::{
    BeforeProviderRequest, Context, Follower, Reply, ResourcesDiscover, UserBash, tell_followers,
};
use crate::reply::begin;
use crate::{
    BusEvent, ContextEvent, Ctx, Extension, Json, ProviderRequestEvent, ReplyEnd, ReplyFailure,
    ReplyRequest, ReplyWriter, Resources, ResourcesDiscoverEvent, Result, UserBashDecision,
    UserBashEvent,
};

impl<E: Extension> Registration<E> {
    /// Changes the messages that are sent to the model; none: they stay. The session is
    /// not touched. Each extension sees what the one before it left.
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{ContextEvent, Extension, Json, Message, Registration, Result};
    ///
    /// /// The model does not see what the person ran.
    /// #[derive(Default)]
    /// struct Discreet;
    ///
    /// impl Extension for Discreet {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("discreet", "0.1.0").on_context(Self::context)
    ///     }
    /// }
    ///
    /// impl Discreet {
    ///     async fn context(&self, _ctx: &Ctx, event: ContextEvent) -> Result<Option<Json>> {
    ///         event.retain(|message| !matches!(message, Message::BashExecution { .. }))
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_context<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, ContextEvent) -> Result<Option<Json>> + 'static,
    {
        self.answer_with::<Context, _, _, _, _>("context", handler, json_text)
    }

    /// Looks at or changes the body of each request to a provider; none: it stays. Each
    /// extension sees what the one before it left.
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{Extension, Json, ProviderRequestEvent, Registration, Result};
    ///
    /// /// Asks for the same answer each time.
    /// #[derive(Default)]
    /// struct Steady;
    ///
    /// impl Extension for Steady {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("steady", "0.1.0").on_before_provider_request(Self::request)
    ///     }
    /// }
    ///
    /// impl Steady {
    ///     async fn request(&self, _ctx: &Ctx, event: ProviderRequestEvent) -> Result<Option<Json>> {
    ///         let mut payload = event.payload.value()?;
    ///         payload["temperature"] = 0.into();
    ///         Ok(Some(payload.into()))
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_before_provider_request<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, ProviderRequestEvent) -> Result<Option<Json>> + 'static,
    {
        self.answer_with::<BeforeProviderRequest, _, _, _, _>(
            "before_provider_request",
            handler,
            json_text,
        )
    }

    /// Adds skills and prompt templates, behind the ones that files and settings name.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_resources_discover<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, ResourcesDiscoverEvent) -> Result<Resources> + 'static,
    {
        self.answer::<ResourcesDiscover, _, _, _>("resources_discover", handler)
    }

    /// Wraps or takes over the shell commands of the person.
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{Extension, Registration, Result, UserBashDecision, UserBashEvent};
    ///
    /// /// Commands run on another machine.
    /// #[derive(Default)]
    /// struct Remote;
    ///
    /// impl Extension for Remote {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("remote", "0.1.0").on_user_bash(Self::bash)
    ///     }
    /// }
    ///
    /// impl Remote {
    ///     async fn bash(&self, _ctx: &Ctx, event: UserBashEvent) -> Result<UserBashDecision> {
    ///         let quoted = event.command.replace('\'', r"'\''");
    ///         Ok(UserBashDecision::wrap(format!("ssh build.example.org '{quoted}'")))
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_user_bash<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, UserBashEvent) -> Result<UserBashDecision> + 'static,
    {
        self.answer::<UserBash, _, _, _>("user_bash", handler)
    }

    /// Follows the events of a topic that extensions send each other with
    /// [`Bus::emit`](crate::Bus::emit). They come in the order of all notifications.
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{BusEvent, Extension, Registration, Result};
    ///
    /// #[derive(Default)]
    /// struct Sails;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Wind {
    ///     knots: u32,
    /// }
    ///
    /// impl Extension for Sails {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("sails", "0.1.0").on_bus("weather.wind", Self::wind)
    ///     }
    /// }
    ///
    /// impl Sails {
    ///     async fn wind(&self, ctx: &Ctx, event: BusEvent) -> Result<()> {
    ///         let wind: Wind = event.data()?;
    ///         ctx.ui().notify(format!("{} says {} knots", event.source, wind.knots));
    ///         Ok(())
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn on_bus<F>(mut self, topic: &str, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, BusEvent) -> Result<()> + 'static,
    {
        let name = BusEvent::name(topic);
        super::subscribe(&mut self.data, &name);
        self.installs.push(Box::new(|_| tell_followers()));
        self.serve::<Follower, _, _>(vec![name], handler, |method, event| async move {
            let event = BusEvent::read(&event).map_err(super::text)?;
            let done = (method.handler)(method.extension(), &Ctx::new(), event).await;
            done.map_err(super::text)
        })
    }

    /// Answers for the models of the providers that the extension adds with
    /// [`Agent::register_streaming_provider`](crate::Agent::register_streaming_provider).
    /// When the run is aborted, [`Ctx::is_cancelled`] becomes true and
    /// [`Ctx::cancelled`] ends.
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{
    ///     Extension, Registration, ReplyEnd, ReplyFailure, ReplyRequest, ReplyWriter,
    /// };
    ///
    /// #[derive(Default)]
    /// struct Parrot;
    ///
    /// impl Extension for Parrot {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("parrot", "0.1.0").reply_source(Self::reply)
    ///     }
    /// }
    ///
    /// impl Parrot {
    ///     async fn reply(
    ///         &self,
    ///         _ctx: &Ctx,
    ///         _request: ReplyRequest,
    ///         reply: ReplyWriter,
    ///     ) -> Result<ReplyEnd, ReplyFailure> {
    ///         reply.text("Pieces ").await?;
    ///         reply.text("of eight!").await?;
    ///         Ok(ReplyEnd::stop())
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn reply_source<F>(mut self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, ReplyRequest, ReplyWriter) -> Result<ReplyEnd, ReplyFailure> + 'static,
    {
        assert!(!self.has_reply_source, "replies have two handlers");
        self.has_reply_source = true;
        self.serve::<Reply, _, _>(vec![String::new()], handler, |method, request| async move {
            let (request, reply) = begin(request);
            let end = (method.handler)(method.extension(), &Ctx::new(), request, reply).await;
            Ok(end.map(wit::ReplyEnd::from).map_err(wit::ReplyFailure::from))
        })
    }
}

fn json_text(json: Option<Json>) -> Option<String> {
    json.map(Json::into_string)
}
