//! Counts of tokens as servers send them, read the same way for all APIs: a count of a
//! shape that nobody expects must not cost the reply, nor the counts beside it. Which
//! field counts what is the APIs' own affair.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use wharf_protocol::Usage;

/// The count, rounded where it is a float. None: the server says nothing, or what is no
/// count (a text, a negative number); that is 0 unless it has said better before.
pub(crate) fn count(value: &Value) -> Option<u64> {
    // Above 2^53, a float is not exact.
    value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|number| *number >= 0.0)?;
        // Also what is above `u64::MAX` is a count: the cast gives the nearest one.
        Some(number.round() as u64)
    })
}

/// [`count`] for a field.
pub(crate) fn lenient<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    Ok(count(&Value::deserialize(input)?))
}

/// An object of counts; none where it is anything else. A list must not pass for one:
/// serde takes its elements for the fields in their order.
pub(crate) fn lenient_object<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    input: D,
) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(input)?;
    Ok(if value.is_object() { T::deserialize(value).ok() } else { None })
}

/// The usage with the sum of its parts. What servers give as the total counts other
/// things with each, or is not there.
pub(crate) fn with_total(usage: Usage) -> Usage {
    let parts = [usage.input, usage.output, usage.cache_read, usage.cache_write];
    Usage { total_tokens: parts.into_iter().fold(0, u64::saturating_add), ..usage }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::anthropic::AnthropicMessages;
    use crate::api::Api;
    use crate::conformance::{decode, ended, request, user};
    use crate::google::GoogleGenerativeAi;
    use crate::openai_completions::OpenAiCompletions;
    use crate::openai_responses::OpenAiResponses;
    use crate::registry::testing::model;

    /// As JSON, and what it counts.
    const COUNTS: [(&str, u64); 16] = [
        ("7", 7),
        ("5.0", 5),
        ("10.4", 10),
        ("10.5", 11),
        ("1e2", 100),
        ("0", 0),
        ("-0.0", 0),
        ("-1", 0),
        ("-2.5", 0),
        ("18446744073709551615", u64::MAX),
        ("18446744073709551616", u64::MAX),
        ("1e300", u64::MAX),
        ("null", 0),
        ("\"7\"", 0),
        ("[7]", 0),
        ("{\"a\":7}", 0),
    ];

    #[test]
    fn counts_of_every_shape() {
        #[derive(Deserialize)]
        struct Counts {
            #[serde(default, deserialize_with = "lenient")]
            tokens: Option<u64>,
        }
        for (text, expect) in COUNTS {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(count(&value).unwrap_or_default(), expect, "{text}");
            let counts: Counts = serde_json::from_str(&format!("{{\"tokens\":{text}}}")).unwrap();
            assert_eq!(counts.tokens, count(&value), "{text}");
        }
        assert_eq!(serde_json::from_str::<Counts>("{}").unwrap().tokens, None);
    }

    /// The usage of a reply in which the server says `usage` of it.
    fn usage_of(api: &dyn Api, body: &str, usage: &str) -> Usage {
        let request = request(model("p", "m"), vec![user("hi")]);
        let body = body.replace("USAGE", usage);
        let (events, error) = decode(api, &request, [body.as_bytes()]);
        assert_eq!(error, None, "{body}");
        ended(&events).unwrap().1
    }

    /// The APIs, a reply of each, and how its usage writes a prompt and an output.
    fn apis() -> [(&'static dyn Api, &'static str, &'static str); 4] {
        [
            (
                &AnthropicMessages,
                "data: {\"type\":\"message_start\",\"message\":{\"usage\":USAGE}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":USAGE}\n\ndata: {\"type\":\"message_stop\"}\n\n",
                "{\"input_tokens\":IN,\"output_tokens\":OUT}",
            ),
            (
                &OpenAiCompletions,
                "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}],\"usage\":USAGE}\n\ndata: [DONE]\n\n",
                "{\"prompt_tokens\":IN,\"completion_tokens\":OUT,\"total_tokens\":1}",
            ),
            (
                &OpenAiResponses,
                "data: {\"type\":\"response.completed\",\"response\":{\"usage\":USAGE}}\n\n",
                "{\"input_tokens\":IN,\"output_tokens\":OUT,\"total_tokens\":1}",
            ),
            (
                &GoogleGenerativeAi,
                "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":USAGE}\n\n",
                "{\"promptTokenCount\":IN,\"candidatesTokenCount\":OUT,\"totalTokenCount\":1}",
            ),
        ]
    }

    #[test]
    fn every_api_counts_the_same() {
        for (api, body, template) in apis() {
            for (text, expect) in COUNTS {
                // What is wrong with one count costs the other nothing.
                for (input, output) in [(text, "3"), ("3", text), (text, text)] {
                    let usage = template.replace("IN", input).replace("OUT", output);
                    let seen = usage_of(api, body, &usage);
                    let of = |shown: &str| if shown == "3" { 3 } else { expect };
                    assert_eq!((seen.input, seen.output), (of(input), of(output)), "{usage}");
                    assert_eq!(seen.total_tokens, of(input).saturating_add(of(output)), "{usage}");
                }
            }
            for usage in ["null", "[1]", "[1,2,3]", "5", "\"many\"", "true", "{}"] {
                assert_eq!(usage_of(api, body, usage), Usage::default(), "{api:?} {usage}");
            }
        }
    }
}
