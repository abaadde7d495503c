//! Server-sent events out of bytes (the event stream format of the HTML standard): the
//! same events however the bytes were cut.

use serde::de::DeserializeOwned;
use serde_json::Value;
use wharf_protocol::surrogates::replace_lone_surrogates;

use crate::{ErrorKind, ProviderError};

/// Bytes that one event may have: a provider sends far less, and a server gone wild must
/// not fill the memory.
pub(crate) const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// One event: the fields that the APIs use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Empty where the server names none.
    pub(crate) event: String,
    /// The `data` lines, joined by line feeds.
    pub(crate) data: String,
}

impl SseEvent {
    /// The data as JSON. Some servers cut a text inside a character; the halves of its
    /// escape become replacement characters. JSON inside of a string is not touched.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        let data = self.data.trim();
        serde_json::from_str(data).or_else(|problem| match replace_lone_surrogates(data) {
            Some(mended) => serde_json::from_str(&mended),
            None => Err(problem),
        })
    }

    /// The data as a JSON object.
    ///
    /// # Errors
    /// It is none: a fault of the server, or the body has ended inside of it.
    pub(crate) fn json_object(&self) -> Result<Value, ProviderError> {
        let protocol = |message: String| ProviderError::new(ErrorKind::Protocol, message);
        match self.json::<Value>() {
            Ok(json) if json.is_object() => Ok(json),
            Ok(_) => Err(protocol("the server sent an event that is not a JSON object".to_owned())),
            Err(error) if error.is_eof() => Err(ProviderError::dropped("")),
            Err(error) => {
                Err(protocol(format!("the server sent an event that is not valid JSON: {error}")))
            }
        }
    }
}

/// An event over [`MAX_EVENT_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server sent an event of more than {MAX_EVENT_BYTES} bytes")]
pub(crate) struct EventTooLong;

#[derive(Debug, Default)]
pub(crate) struct SseParser {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    /// A line has ended before: only the first one may begin with a byte order mark.
    begun: bool,
    event: SseEvent,
    has_data: bool,
}

impl SseParser {
    /// Takes the next bytes of the body; gives the events that they complete.
    ///
    /// # Errors
    /// An event is too long. The parser is of no use after that.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        events: &mut Vec<SseEvent>,
    ) -> Result<(), EventTooLong> {
        while let Some((&first, rest)) = bytes.split_first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = rest;
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.event.data.len() + part.len() > MAX_EVENT_BYTES {
                return Err(EventTooLong);
            }
            let Some(end) = end else {
                self.line.extend_from_slice(part);
                return Ok(());
            };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if self.line.is_empty() {
                self.line_ended(part, events);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(part);
                self.line_ended(&line, events);
                line.clear();
                self.line = line;
            }
        }
        Ok(())
    }

    /// The body has ended. Some servers leave out the empty line after the last event,
    /// or even its line's end: what is complete as an event still counts.
    pub(crate) fn finish(&mut self, events: &mut Vec<SseEvent>) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.line_ended(&line, events);
        }
        self.dispatch(events);
    }

    fn line_ended(&mut self, line: &[u8], events: &mut Vec<SseEvent>) {
        let line = match line {
            [0xef, 0xbb, 0xbf, rest @ ..] if !self.begun => rest,
            line => line,
        };
        self.begun = true;
        if line.is_empty() {
            self.dispatch(events);
            return;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(&String::from_utf8_lossy(value));
                self.has_data = true;
            }
            b"event" => self.event.event = String::from_utf8_lossy(value).into_owned(),
            // A comment (its field is empty), `id`, `retry`: nothing here needs them.
            _ => {}
        }
    }

    fn dispatch(&mut self, events: &mut Vec<SseEvent>) {
        let event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) {
            events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;

    use super::*;
    use crate::anthropic::AnthropicMessages;
    use crate::api::Api;
    use crate::conformance;
    use crate::google::GoogleGenerativeAi;
    use crate::openai_completions::OpenAiCompletions;
    use crate::openai_responses::OpenAiResponses;

    fn parse<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        for chunk in chunks {
            parser.push(chunk, &mut events).unwrap();
        }
        parser.finish(&mut events);
        events.into_iter().map(|event| (event.event, event.data)).collect()
    }

    fn check(text: &str, expect: &[(&str, &str)]) {
        let seen = parse([text.as_bytes()]);
        let seen: Vec<_> = seen.iter().map(|(e, d)| (e.as_str(), d.as_str())).collect();
        assert_eq!(seen, expect, "{text:?}");
    }

    #[test]
    fn lines_fields_and_ends() {
        check("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check("event: x\r\ndata:a\r\n\r\n", &[("x", "a")]);
        check("event:x\rdata: a\r\rdata: b\r\r", &[("x", "a"), ("", "b")]);
        check("data: a\ndata:  b\ndata\n\n", &[("", "a\n b\n")]);
        check(": comment\n\nretry: 5\nid: 3\n\nevent: none\n\ndata: a\n\n", &[("", "a")]);
        check("data: no empty line\n", &[("", "no empty line")]);
        check("data: no line end", &[("", "no line end")]);
        check("\u{feff}data: a\n\n\u{feff}data: b\n\n", &[("", "a")]);
        check("data: {\"a\":\"b: c\"}\n\n", &[("", "{\"a\":\"b: c\"}")]);
        check("", &[]);
        check("\n\n\n", &[]);
    }

    #[test]
    fn half_a_character_costs_no_more_than_itself() {
        let event = |data: &str| SseEvent { data: data.to_owned(), ..SseEvent::default() };
        for (data, expect) in [
            (r#"{"text":"\ud83d"}"#, "\u{fffd}"),
            (r#"{"text":"a\ude00b\ud83d\ude00\ud83dc"}"#, "a\u{fffd}b\u{1f600}\u{fffd}c"),
            // The text of an escape is no escape.
            (r#"{"text":"\\ud83d"}"#, "\\ud83d"),
            (r#"{"text":"\\ud83d","other":"\ud83d"}"#, "\\ud83d"),
        ] {
            let json = event(data).json_object().unwrap();
            assert_eq!(json["text"], expect, "{data}");
        }
        // What else is wrong with the data is not hidden.
        for (data, kind) in [
            (r#"{"text":"\ud83d""#, ErrorKind::Dropped),
            (r#"{"text":"\ud83d"#, ErrorKind::Dropped),
            (r#"{"text":"\ud83d"]"#, ErrorKind::Protocol),
            (r#"{"text":"\ud8"}"#, ErrorKind::Protocol),
            (r#"["\ud83d"]"#, ErrorKind::Protocol),
        ] {
            assert_eq!(event(data).json_object().map_err(|error| error.kind), Err(kind), "{data}");
        }
    }

    /// A text of every API; in a call's arguments, JSON inside of a string is read
    /// strictly.
    #[test]
    fn half_a_character_does_not_end_a_reply() {
        let model = crate::registry::testing::model("p", "m");
        let request = conformance::request(model, vec![conformance::user("hi")]);
        let check = |api: &dyn Api, body: &str, problem: bool| {
            let (events, error) = conformance::decode(api, &request, [body.as_bytes()]);
            assert_eq!(error, None, "{body}");
            let content = conformance::content(&events);
            assert_eq!(content[0]["text"], "a\u{fffd}", "{body}");
            assert_eq!(conformance::problems(&events).len(), usize::from(problem), "{body}");
        };
        check(
            &AnthropicMessages,
            r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ud83d"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"read","input":{}}}

data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":\"\\ud83d\"}"}}

data: {"type":"content_block_stop","index":1}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}

data: {"type":"message_stop"}

"#,
            true,
        );
        check(
            &OpenAiCompletions,
            r#"data: {"choices":[{"index":0,"delta":{"content":"a\ud83d"}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"read","arguments":"{\"a\":\"\\ud83d\"}"}}]},"finish_reason":"tool_calls"}]}

data: [DONE]

"#,
            true,
        );
        check(
            &OpenAiResponses,
            r#"data: {"type":"response.output_text.delta","item_id":"m","output_index":0,"delta":"a\ud83d"}

data: {"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"f","call_id":"t","name":"read","arguments":"{\"a\":\"\\ud83d\"}"}}

data: {"type":"response.completed","response":{}}

"#,
            true,
        );
        // Here the arguments are no text.
        check(
            &GoogleGenerativeAi,
            r#"data: {"candidates":[{"content":{"parts":[{"text":"a\ud83d"},{"functionCall":{"name":"read","args":{"a":"\ud83d"}}}]},"finishReason":"STOP"}]}

"#,
            false,
        );
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        let chunk = vec![b'x'; 1 << 20];
        let mut result = Ok(());
        for _ in 0..=64 {
            result = parser.push(&chunk, &mut events);
            if result.is_err() {
                break;
            }
        }
        assert_eq!(result, Err(EventTooLong));
    }

    const STREAM: &str = "\u{feff}event: message_start\r\ndata: {\"text\":\"h\u{e9}llo \u{1f600}\"}\r\n\r\n: ping\n\ndata:one\rdata: two\r\rdata: a\u{2028}b\n\nevent: last\ndata: end";

    #[test]
    fn every_split_point_gives_the_same_events() {
        let bytes = STREAM.as_bytes();
        let whole = parse([bytes]);
        assert_eq!(whole.len(), 4);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let chunks = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(parse(chunks), whole, "{first} {second}");
            }
        }
        assert_eq!(parse(bytes.chunks(1)), whole);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_chunks(
            parts in prop::collection::vec(prop_oneof![
                Just("data:".to_owned()), Just("data: ".to_owned()), Just("event: ".to_owned()),
                Just("\r".to_owned()), Just("\n".to_owned()), Just("\r\n".to_owned()),
                Just(":".to_owned()), Just("\u{feff}".to_owned()), ".{0,4}",
            ], 0..40),
            sizes in prop::collection::vec(1usize..7, 1..40),
        ) {
            let text = parts.concat();
            let bytes = text.as_bytes();
            let mut chunks = Vec::new();
            let (mut at, mut turn) = (0, 0);
            while at < bytes.len() {
                let end = (at + sizes[turn % sizes.len()]).min(bytes.len());
                chunks.push(&bytes[at..end]);
                (at, turn) = (end, turn + 1);
            }
            prop_assert_eq!(parse(chunks), parse([bytes]));
        }
    }
}
