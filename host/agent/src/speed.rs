//! The agent's side of the performance log: what is recorded, and what is told of it.

use std::sync::Arc;
use std::time::Duration;

use wharf_protocol::{Model, StopReason};
use wharf_session::Timestamp;

use crate::agent::Agent;
use crate::performance::{ModelPerformance, PerformanceEntry};

impl Agent {
    /// Records how fast a reply was. Nothing waits for it, and a failure is only told.
    pub(crate) fn log_performance(
        &self,
        model: &Model,
        stop_reason: StopReason,
        output_tokens: u64,
        duration: Duration,
    ) {
        let Some(log) = self.inner.performance.clone() else { return };
        let entry = PerformanceEntry {
            timestamp: Timestamp::now(),
            session_id: self.session().id().to_owned(),
            provider: model.provider.clone(),
            model_id: model.id.clone(),
            stop_reason,
            output_tokens,
            duration,
        };
        let (agent, file) = (self.clone(), log.path().to_owned());
        // Begun before anything waits, so that the exit of a one-shot run does not lose it.
        let recording = tokio::task::spawn_blocking(move || log.record(entry));
        tokio::spawn(async move {
            if let Ok(Err(error)) = recording.await {
                agent.tell(&file, error.to_string()).await;
            }
        });
    }

    /// What `get_performance_stats` tells.
    ///
    /// # Errors
    /// The log cannot be read; the text names it.
    pub async fn performance_stats(&self) -> Result<Vec<ModelPerformance>, String> {
        let Some(log) = self.inner.performance.as_ref().map(Arc::clone) else {
            return Ok(Vec::new());
        };
        let read = tokio::task::spawn_blocking(move || log.stats()).await;
        read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}
