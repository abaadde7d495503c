//! A fake of the servers that serve models: speaks their four APIs over real HTTP on
//! the loopback, plays the replies that a test gives it, and refuses what the real
//! servers would refuse. It shares no code with the binary.
//!
//! ```no_run
//! use wharf_tests::llm::{Answer, Api, LlmServer};
//! let server = LlmServer::start();
//! server.reply(Answer::says("hello").in_pieces(3));
//! let models = server.models_json(Api::AnthropicMessages, &serde_json::json!({}));
//! ```

mod answer;
mod anthropic;
mod api;
mod completions;
mod connection;
mod google;
mod reply;
mod responses;
mod server;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Stop, Usage};
pub use api::{Api, Failure, Strictness};
pub use connection::Recorded;
pub use reply::{Chunking, Close, Gate, Reply};
pub use server::{LlmServer, Outcome};
