//! What goes over the wire, and what the server records of it.

use serde_json::{Value, json};

use super::super::{Answer, Api, Chunking, Close, Failure, LlmServer, Outcome, Reply, Stop, Usage};
use super::{Client, Ending, good, headers, target};

fn full() -> Answer {
    Answer::default()
        .thinking("hm, hm", "sig")
        .in_pieces(2)
        .text("h\u{e9}llo")
        .in_pieces(3)
        .call("call_1", "read", &json!({"path": "a"}))
        .in_pieces(4)
        .call("call_2", "ls", &json!({}))
        .usage(Usage { input: 100, output: 50, cache_read: 30, cache_write: 20, reasoning: 7 })
}

/// The texts that these fields of the events add up to.
fn gather(data: &[Value], path: &str) -> String {
    data.iter().filter_map(|event| event.pointer(path)?.as_str()).collect()
}

#[test]
fn an_answer_in_every_api() {
    for api in Api::ALL {
        let server = LlmServer::start();
        server.reply(full());
        let response = Client::new(&server).ask(api);
        assert_eq!((response.status, response.ending), (200, Ending::Complete));
        assert!(response.head.contains("content-type: text/event-stream"), "{}", response.head);
        let data = response.data();
        let last = &data[data.len() - 1];
        match api {
            Api::AnthropicMessages => {
                assert_eq!(data[0]["message"]["usage"]["cache_read_input_tokens"], 30);
                assert_eq!(gather(&data, "/delta/text"), "h\u{e9}llo");
                assert_eq!(gather(&data, "/delta/thinking"), "hm, hm");
                assert_eq!(gather(&data, "/delta/partial_json"), "{\"path\":\"a\"}{}");
                assert_eq!(gather(&data, "/delta/stop_reason"), "tool_use");
                assert_eq!(last["type"], "message_stop");
            }
            Api::OpenaiCompletions => {
                assert_eq!(gather(&data, "/choices/0/delta/content"), "h\u{e9}llo");
                assert_eq!(gather(&data, "/choices/0/finish_reason"), "tool_calls");
                assert_eq!(
                    gather(&data, "/choices/0/delta/tool_calls/0/function/arguments"),
                    "{\"path\":\"a\"}{}"
                );
                assert_eq!(last["usage"]["prompt_tokens"], 150);
                assert!(response.text().ends_with("data: [DONE]\n\n"));
            }
            Api::OpenaiResponses => {
                for (number, event) in data.iter().enumerate() {
                    assert_eq!(event["sequence_number"], number);
                }
                assert_eq!(last["type"], "response.completed");
                assert_eq!(last["response"]["output"][0]["encrypted_content"], "sig");
                assert_eq!(last["response"]["output"][2]["arguments"], "{\"path\":\"a\"}");
                assert_eq!(last["response"]["usage"]["input_tokens_details"]["cached_tokens"], 30);
            }
            Api::GoogleGenerativeAi => {
                assert_eq!(gather(&data, "/candidates/0/content/parts/0/text"), "hm, hmh\u{e9}llo");
                assert_eq!(gather(&data, "/candidates/0/content/parts/0/thoughtSignature"), "sig");
                assert_eq!(gather(&data, "/candidates/0/finishReason"), "STOP");
                assert_eq!(last["usageMetadata"]["thoughtsTokenCount"], 7);
            }
        }
    }
}

#[test]
fn a_stop_reason_of_the_tests_choice() {
    let expect = [
        (Api::AnthropicMessages, "max_tokens", "refusal"),
        (Api::OpenaiCompletions, "length", "content_filter"),
        (Api::OpenaiResponses, "max_output_tokens", "content_filter"),
        (Api::GoogleGenerativeAi, "MAX_TOKENS", "SAFETY"),
    ];
    for (api, length, refusal) in expect {
        for (stop, word) in [(Stop::Length, length), (Stop::Refusal, refusal)] {
            let events = api.events(&Answer::says("x").stop(stop)).concat();
            let text = String::from_utf8(events).unwrap();
            assert!(text.contains(&format!("\"{word}\"")), "{text}");
        }
    }
}

#[test]
fn failures_in_the_words_of_each_api() {
    for api in Api::ALL {
        let server = LlmServer::start();
        let mut client = Client::new(&server);
        let failures = [
            (Failure::RateLimit, vec![429]),
            (Failure::Overloaded, vec![503, 529]),
            (Failure::Internal, vec![500]),
            (Failure::Authentication, vec![401, 400]),
            (Failure::Overflow, vec![400]),
            (Failure::Quota, vec![400, 429]),
        ];
        for (failure, statuses) in failures {
            server.reply(Reply::from(failure).header("retry-after", "3"));
            let response = client.ask(api);
            assert!(statuses.contains(&response.status), "{api:?} {failure:?}");
            assert!(response.head.contains("retry-after: 3"), "{}", response.head);
            let body: Value = serde_json::from_str(&response.text()).unwrap();
            assert!(body["error"]["message"].is_string(), "{body}");
        }
        server.reply(Reply::from(Answer::says("x")).fail_after(1, Failure::Overloaded));
        let response = client.ask(api);
        assert_eq!((response.status, response.ending), (200, Ending::Complete));
        assert_eq!(response.data().len(), 2, "{}", response.text());
        assert!(response.text().contains("overloaded"), "{}", response.text());
        server.reply(Reply::status(418, "a pot").header("Content-Type", "text/plain"));
        let response = client.ask(api);
        assert_eq!((response.status, response.text().as_str()), (418, "a pot"));
        assert!(!response.head.contains("application/json"), "{}", response.head);
    }
}

#[test]
fn however_it_is_chunked_it_is_the_same_stream() {
    let api = Api::AnthropicMessages;
    let events = api.events(&full());
    let server = LlmServer::start();
    let mut client = Client::new(&server);
    let mut ask = |chunking| {
        server.reply(Reply::events(events.clone()).chunking(chunking));
        let response = client.ask(api);
        assert_eq!(response.ending, Ending::Complete);
        assert_eq!(response.body(), events.concat(), "{chunking:?}");
        response.chunks
    };
    assert_eq!(ask(Chunking::Events), events);
    assert_eq!(ask(Chunking::Whole).len(), 1);
    assert!(ask(Chunking::Bytes).iter().all(|chunk| chunk.len() == 1));
    let chunks = ask(Chunking::InsideCharacters);
    assert_eq!(chunks.len(), 2);
    assert!(chunks.iter().all(|chunk| std::str::from_utf8(chunk).is_err()));
}

#[test]
fn a_connection_is_dropped_where_the_test_says() {
    let api = Api::OpenaiCompletions;
    let events = api.events(&Answer::says("abc").in_pieces(3));
    let server = LlmServer::start();
    for (number, close) in [Close::Clean, Close::Reset].into_iter().enumerate() {
        let ending = if close == Close::Clean { Ending::Closed } else { Ending::Reset };
        server.reply(Reply::events(events.clone()).drop_after(2, close));
        let response = Client::new(&server).ask(api);
        assert_eq!(response.body(), events[..2].concat());
        assert_eq!(response.ending, ending);
        assert_eq!(server.wait_outcome(2 * number), Outcome::Cut);

        server.reply(Reply::events(events.clone()).drop_after_bytes(10, close));
        let response = Client::new(&server).ask(api);
        assert_eq!(response.body(), events.concat()[..10]);
        assert_eq!(response.ending, ending);
    }
    // Also before the first byte of the body, and in a body that has a length.
    server.reply(Reply::events(events.clone()).drop_after(0, Close::Clean));
    let response = Client::new(&server).ask(api);
    assert_eq!((response.body().len(), response.ending), (0, Ending::Closed));
    server.reply(Reply::status(500, "0123456789").drop_after_bytes(5, Close::Clean));
    assert_eq!(Client::new(&server).ask(api).ending, Ending::Closed);
}

#[test]
fn a_gate_holds_a_reply_until_it_is_opened() {
    let api = Api::OpenaiCompletions;
    let events = api.events(&Answer::says("abc").in_pieces(3));
    let server = LlmServer::start();
    let (head, second, last) = (server.gate(), server.gate(), server.gate());
    server.reply(
        Reply::events(events.clone())
            .hold(&head)
            .hold_after(2, &second)
            .hold_after(usize::MAX, &last),
    );
    let mut client = Client::new(&server);
    client.post_good(api);
    head.wait_reached();
    head.open();
    assert_eq!(client.head().0, 200);
    for event in &events[..2] {
        assert_eq!(client.chunk().unwrap().as_ref(), Some(event));
    }
    second.wait_reached();
    second.open();
    for event in &events[2..] {
        assert_eq!(client.chunk().unwrap().as_ref(), Some(event));
    }
    last.wait_reached();
    last.open();
    assert_eq!(client.chunk(), Ok(None));
    assert_eq!(server.wait_outcome(0), Outcome::Sent);
}

#[test]
fn a_client_that_goes_is_noticed() {
    let api = Api::AnthropicMessages;
    let server = LlmServer::start();
    let gates = [server.gate(), server.gate(), server.gate()];
    for (number, reply) in [
        Reply::from(full()).hold(&gates[0]),
        Reply::from(full()).hold_after(0, &gates[1]),
        Reply::from(full()).hold_after(3, &gates[2]).chunking(Chunking::Whole),
    ]
    .into_iter()
    .enumerate()
    {
        server.reply(reply);
        let mut client = Client::new(&server);
        client.post_good(api);
        gates[number].wait_reached();
        client.close();
        assert_eq!(server.wait_outcome(number), Outcome::ClientClosed);
    }
}

#[test]
fn a_server_that_is_dropped_ends_what_stalls() {
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(Reply::from(full()).hold_after(1, &gate));
    let mut client = Client::new(&server);
    client.post_good(Api::AnthropicMessages);
    gate.wait_reached();
    drop(server);
    assert_ne!(client.response().ending, Ending::Complete);
}

#[test]
fn a_connection_serves_request_after_request() {
    let server = LlmServer::start();
    server.default_reply(Answer::says("x"));
    let mut client = Client::new(&server);
    for api in Api::ALL {
        assert_eq!(client.ask(api).ending, Ending::Complete);
    }
    let api = Api::OpenaiCompletions;
    // A body in chunks, cut inside of everything, with an extension and upper case.
    let body = good(api).to_string();
    let mut request =
        format!("POST {} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", target(api)).into_bytes();
    for chunk in body.as_bytes().chunks(11) {
        request.extend_from_slice(format!("{:X};ext=1\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    for part in request.chunks(7) {
        client.send(part);
    }
    assert_eq!(client.response().status, 200);
    assert_eq!(Client::new(&server).ask(api).status, 200);
    let requests = server.requests();
    let connections: Vec<usize> = requests.iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 0, 0, 0, 1]);
    assert_eq!(requests[4].body, good(api));
}

#[test]
fn a_request_is_recorded() {
    let server = LlmServer::start();
    server.reply(Answer::says("x"));
    let api = Api::GoogleGenerativeAi;
    Client::new(&server).ask(api);
    let request = server.wait_for_requests(1).remove(0);
    assert_eq!((request.method.as_str(), request.api), ("POST", Some(api)));
    assert_eq!(request.path, "/v1beta/models/fake-1:streamGenerateContent");
    assert_eq!(request.query.as_deref(), Some("alt=sse"));
    assert_eq!(request.header("x-goog-api-key"), Some("k"));
    assert_eq!(request.header("absent"), None);
    assert_eq!(request.body, good(api));
}

#[test]
fn background_requests_have_replies_of_their_own() {
    let api = Api::OpenaiCompletions;
    let mut background = good(api);
    background.as_object_mut().unwrap().remove("tools");
    let ask = |server: &LlmServer, body: &Value| {
        let mut client = Client::new(server);
        client.post(target(api), headers(api), body);
        gather(&client.response().data(), "/choices/0/delta/content")
    };
    let server = LlmServer::start();
    server.reply(Answer::says("first"));
    assert_eq!(ask(&server, &background), "first", "no script of their own: as all others");
    server.on_summary(Answer::says("title"));
    server.default_summary(Answer::says("summary"));
    server.reply(Answer::says("second"));
    server.default_reply(Answer::says("default"));
    assert_eq!(ask(&server, &background), "title");
    assert_eq!(ask(&server, &good(api)), "second");
    assert_eq!(ask(&server, &background), "summary");
    assert_eq!(ask(&server, &good(api)), "default");
    server.summaries_are(|body| body["model"] == "small");
    assert_eq!(ask(&server, &background), "default");
    background["model"] = json!("small");
    assert_eq!(ask(&server, &background), "summary");
}

#[test]
fn a_models_file_for_each_api() {
    let server = LlmServer::start();
    for (api, path) in Api::ALL.into_iter().zip(["", "/v1", "/v1", "/v1beta"]) {
        let extra = json!({"reasoning": true, "contextWindow": 1000, "authHeader": true});
        let file: Value = serde_json::from_str(&server.models_json(api, &extra)).unwrap();
        assert_eq!(
            file,
            json!({"providers": {"fake": {
                "baseUrl": format!("{}{path}", server.base_url()), "api": api.name(),
                "apiKey": "fake-key", "authHeader": true,
                "models": [{"id": "fake-1", "reasoning": true, "contextWindow": 1000}],
            }}})
        );
    }
}
