//! How long to wait before a request is sent again, and whether at all.

use std::time::Duration;

use wharf_provider::ProviderError;

use crate::resources::settings::RetrySettings;

/// How often a torn stream is begun again in a row. The first time is at once: a
/// connection that was cut is usually back.
pub(crate) const MAX_STREAM_RETRIES: u32 = 3;

/// How much longer than planned a wait may be, as a part of it: many clients that were
/// refused at the same moment must not come back at the same moment.
const JITTER: f64 = 0.25;

/// The wait before retry number `attempt` (from 1).
///
/// # Errors
/// The server wants a longer one than settings allow.
pub(crate) fn delay(
    settings: &RetrySettings,
    attempt: u32,
    error: &ProviderError,
) -> Result<Duration, String> {
    let longest = Duration::from_millis(settings.max_delay_ms);
    if let Some(wanted) = error.retry_after
        && wanted > longest
    {
        return Err(format!(
            "{error} (the server wants to be left alone for {} s, more than retry.maxDelayMs of settings.json allows; try again later)",
            wanted.as_secs_f64().ceil()
        ));
    }
    let planned = planned(settings, attempt).mul_f64(JITTER.mul_add(fastrand::f64(), 1.0));
    Ok(planned.min(longest).max(error.retry_after.unwrap_or_default()))
}

/// The same for a torn stream, which has no server to ask.
pub(crate) fn stream_delay(settings: &RetrySettings, attempt: u32) -> Duration {
    match attempt {
        0 | 1 => Duration::ZERO,
        later => planned(settings, later - 1).mul_f64(JITTER.mul_add(fastrand::f64(), 1.0)),
    }
}

fn planned(settings: &RetrySettings, attempt: u32) -> Duration {
    let doubled = 2u64.saturating_pow(attempt.saturating_sub(1));
    Duration::from_millis(settings.base_delay_ms.saturating_mul(doubled).min(settings.max_delay_ms))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use wharf_provider::ErrorKind;

    use super::*;

    fn settings() -> RetrySettings {
        RetrySettings { enabled: true, max_retries: 3, base_delay_ms: 2000, max_delay_ms: 10_000 }
    }

    #[test]
    fn waits_double_up_to_the_longest_and_honour_the_server() {
        let mut error = ProviderError::new(ErrorKind::RateLimit, "429 slow down");
        for (attempt, least) in [(1, 2000), (2, 4000), (3, 8000), (4, 10_000), (99, 10_000)] {
            for _ in 0..50 {
                let wait = delay(&settings(), attempt, &error).unwrap().as_millis();
                assert!((least..=(least * 5 / 4).min(10_000)).contains(&wait), "{attempt}: {wait}");
            }
        }
        error.retry_after = Some(Duration::from_millis(9_999));
        assert_eq!(delay(&settings(), 1, &error), Ok(Duration::from_millis(9_999)));
        error.retry_after = Some(Duration::from_millis(10_001));
        let refused = delay(&settings(), 1, &error).unwrap_err();
        assert!(
            refused.starts_with("429 slow down (the server wants to be left alone for 11 s"),
            "{refused}"
        );
        assert_eq!(stream_delay(&settings(), 1), Duration::ZERO);
        assert!(stream_delay(&settings(), 2) >= Duration::from_secs(2));
    }
}
