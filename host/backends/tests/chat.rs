//! The client against an endpoint that misbehaves.

#[path = "../../http/tests/served/mod.rs"]
mod served;

use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corver_backends::chat::{ChatClient, ChatError, ChatPrices, ChatSettings, LengthField};
use corver_core::{ChatModel, ChatPrompt, ChatReply, ChatRole, Message, Usage};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use served::{Request, Response, Server};

fn says(content: &str) -> Response {
    Response::Answer(200, "", completion(content))
}

fn completion(content: &str) -> String {
    json!({
        "id": "x",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": content},
            "finish_reason": "stop",
        }],
        "usage": {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102},
    })
    .to_string()
}

/// An answer that comes after a wait.
fn late(wait: Duration) -> Response {
    Response::LateAnswer(wait, completion("CORRECT"))
}

/// An endpoint in this process.
struct Endpoint(Server);

impl Endpoint {
    /// Starts an endpoint that gives these responses in their order; the last one repeats.
    fn new(responses: Vec<Response>) -> Self {
        Self(Server::with_responses(responses))
    }

    fn settings(&self) -> ChatSettings {
        ChatSettings {
            endpoint: Some(format!("{}/v1/", self.0.url)),
            model: Some("judge".into()),
            connections: 1,
            timeout_s: 0.5,
            retry_timeout_s: 20.0,
            ..ChatSettings::default()
        }
    }

    fn num_requests(&self) -> usize {
        self.0.num_requests()
    }
}

fn prompt(content: &str) -> ChatPrompt {
    let messages = vec![Message { role: ChatRole::User, content: content.into() }];
    ChatPrompt { messages, temperature: 0.0, top_p: 1.0, max_tokens: 16, seed: None }
}

fn prompts(number: usize) -> Vec<ChatPrompt> {
    (0..number).map(|n| prompt(&format!("Is {n} even?"))).collect()
}

fn words(replies: Vec<ChatReply>) -> Vec<String> {
    replies.into_iter().map(|reply| reply.content).collect()
}

fn request(chat: &ChatClient, number: usize) -> Result<Vec<String>, ChatError> {
    chat.reply_all(&prompts(number), |reply| reply == "CORRECT", |_| ()).map(words)
}

fn open(settings: ChatSettings, folder: &Path) -> ChatClient {
    ChatClient::open(settings, "backends.chat", &folder.join("replies.jsonl")).unwrap()
}

#[test]
fn request_matches_openai_api_and_carries_key() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![says("CORRECT")]);
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, "sk-0123456789abcdef\n").unwrap();
    let chat =
        open(ChatSettings { key_file: Some(key_file), ..endpoint.settings() }, folder.path());
    assert_eq!(request(&chat, 1).unwrap(), ["CORRECT"]);
    let Request { head, body, .. } = endpoint.0.requests().remove(0);
    assert!(head.starts_with("POST /v1/chat/completions "), "{head}");
    assert!(
        head.to_ascii_lowercase().contains("authorization: bearer sk-0123456789abcdef"),
        "{head}"
    );
    let messages = json!([{"role": "user", "content": "Is 0 even?"}]);
    assert_eq!(
        body,
        json!({"model": "judge", "messages": messages, "temperature": 0.0, "max_tokens": 16})
    );
    let cached = std::fs::read_to_string(folder.path().join("replies.jsonl")).unwrap();
    assert!(!format!("{chat:?}{cached}").contains("sk-0123"), "the key is shown");
}

#[test]
fn prompt_sampling_parameters_reach_request() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![says("yes")]);
    let mut chat = open(endpoint.settings(), folder.path());
    let seeded = |seed| ChatPrompt {
        temperature: 0.25,
        top_p: 0.5,
        max_tokens: 4096,
        seed,
        ..prompt("Is it?")
    };
    // Other parameters and other seeds are other requests.
    chat.reply(&[
        seeded(Some(7)),
        seeded(Some(8)),
        seeded(None),
        prompt("Is it?"),
        seeded(Some(7)),
    ])
    .unwrap();
    assert_eq!(endpoint.num_requests(), 4);
    let got = endpoint.0.requests().remove(0).body;
    let messages = json!([{"role": "user", "content": "Is it?"}]);
    let mut expected =
        json!({"model": "judge", "messages": messages, "max_tokens": 4096, "seed": 7});
    (expected["temperature"], expected["top_p"]) = (0.25.into(), 0.5.into());
    assert_eq!(got, expected);

    for (wrong, part) in [
        (ChatPrompt { messages: Vec::new(), ..prompt("") }, "messages"),
        (ChatPrompt { temperature: f32::INFINITY, ..prompt("a") }, "temperature"),
        (ChatPrompt { top_p: 0.0, ..prompt("a") }, "top_p"),
        (ChatPrompt { max_tokens: 0, ..prompt("a") }, "max_tokens"),
    ] {
        let error = chat.reply_all(&[prompt("b"), wrong], |_| true, |_| ()).unwrap_err();
        assert!(error.to_string().starts_with(&format!("a prompt's {part} must be ")), "{error}");
    }
    assert_eq!(endpoint.num_requests(), 4, "reported before the first request");
}

#[test]
fn reply_usage_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![says("yes")]);
    let used = Usage { prompt_tokens: 100, completion_tokens: 2 };
    let zero = Usage::default();
    let usage = |chat: &mut ChatClient, texts: &[&str]| -> Vec<Usage> {
        let prompts: Vec<ChatPrompt> = texts.iter().map(|text| prompt(text)).collect();
        chat.reply(&prompts).unwrap().iter().map(|reply| reply.usage).collect()
    };
    let mut chat = open(endpoint.settings(), folder.path());
    assert_eq!(usage(&mut chat, &["a", "b", "a"]), [used, used, zero]);
    assert_eq!(usage(&mut chat, &["b", "c"]), [zero, used]);
    // Cached replies cost this run what they would cost without the cache.
    let mut again = open(endpoint.settings(), folder.path());
    assert_eq!(usage(&mut again, &["c", "c", "a"]), [used, zero, used]);
    assert_eq!(endpoint.num_requests(), 3);
}

#[test]
fn raised_cost_ceiling_resumes_run() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![says("yes")]);
    // A reply costs 0.002.
    let prices = ChatPrices { prompt: 10.0, completion: 500.0 };
    let settings =
        |max_cost| ChatSettings { prices, max_cost: Some(max_cost), ..endpoint.settings() };
    let mut chat = open(settings(0.008), folder.path());
    chat.reply(&prompts(3)).unwrap();
    let error = chat.reply(&prompts(8)[2..]).unwrap_err().to_string();
    assert!(error.contains("0.0080 is spent of at most 0.008 (backends.chat.max_cost)"), "{error}");
    assert!(error.contains("--resume"), "{error}");
    assert_eq!(endpoint.num_requests(), 4);
    // The first three replies belong to steps that are not repeated.
    let three = Usage { prompt_tokens: 300, completion_tokens: 6 };
    let mut same = open(settings(0.008), folder.path());
    same.add_prior_usage(three);
    assert!(same.reply(&prompts(8)[2..]).is_err());
    assert_eq!(endpoint.num_requests(), 4, "the same ceiling stops immediately");
    let mut higher = open(settings(0.016), folder.path());
    higher.add_prior_usage(three);
    assert!(higher.reply(&prompts(8)[3..]).is_ok());
    assert_eq!(endpoint.num_requests(), 8, "no request is sent twice");
    assert!((higher.spending().cost(prices) - 0.016).abs() < 1e-9);
}

#[test]
fn transient_failures_are_retried() {
    let busy = Response::Answer(
        429,
        "Retry-After: 0\r\n",
        r#"{"error":{"message":"slow down","code":"rate_limit"}}"#.into(),
    );
    for failure in [
        busy,
        Response::Answer(500, "", String::new()),
        Response::Answer(503, "", "down for a moment".into()),
        Response::Answer(200, "", "<html>a proxy's page</html>".into()),
        Response::Answer(200, "", r#"{"choices": []}"#.into()),
        Response::CloseMidAnswer("{\"choices\":"),
        late(Duration::from_secs(2)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::new(vec![failure, says("CORRECT")]);
        assert_eq!(request(&open(endpoint.settings(), folder.path()), 1).unwrap(), ["CORRECT"]);
        assert_eq!(endpoint.num_requests(), 2);
    }
}

#[test]
fn retry_after_header_delays_retry() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![
        Response::Answer(429, "Retry-After: 2\r\n", String::new()),
        says("CORRECT"),
    ]);
    request(&open(endpoint.settings(), folder.path()), 1).unwrap();
    let requests = endpoint.0.requests();
    assert!(requests[1].arrived - requests[0].arrived >= Duration::from_secs(2));
}

#[test]
fn refusal_is_not_retried_and_names_reason() {
    let no_money = r#"{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}"#;
    let no_key = r#"{"error":{"message":"Incorrect API key"}}"#;
    for (status, body, why) in
        [(429, no_money, "exceeded"), (401, no_key, "Incorrect"), (404, "no such model", "no such")]
    {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::new(vec![Response::Answer(status, "", body.into())]);
        let error = request(&open(endpoint.settings(), folder.path()), 1).unwrap_err();
        assert!(matches!(&error, ChatError::NoReply(message) if message.contains(why)), "{error}");
        assert_eq!(endpoint.num_requests(), 1);
    }
}

#[test]
fn unaccepted_reply_is_requested_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![says("Well,"), says("CORRECT"), says("Hm"), says("Perhaps")]);
    let chat = open(endpoint.settings(), folder.path());
    let replies = request(&chat, 2).unwrap();
    assert_eq!(replies, ["CORRECT", "Perhaps"]);
    assert_eq!((endpoint.num_requests(), chat.spending().requested.replies), (4, 4));
    // Both attempts are cached.
    assert_eq!(request(&open(endpoint.settings(), folder.path()), 2).unwrap(), replies);
    assert_eq!(endpoint.num_requests(), 4);
}

#[test]
fn interrupted_batch_resumes_from_stored_replies() {
    let folder = tempfile::tempdir().unwrap();
    let mut responses = vec![says("CORRECT"); 5];
    responses.push(Response::Answer(400, "", "broken".into()));
    responses.push(says("CORRECT"));
    let endpoint = Endpoint::new(responses);
    assert!(request(&open(endpoint.settings(), folder.path()), 8).is_err());
    assert_eq!(endpoint.num_requests(), 6);
    // As a killed process leaves it.
    let path = folder.path().join("replies.jsonl");
    let mut cached = std::fs::read(&path).unwrap();
    cached.extend(b"{\"key\": \"torn");
    std::fs::write(&path, cached).unwrap();
    let chat = open(endpoint.settings(), folder.path());
    assert_eq!(request(&chat, 8).unwrap().len(), 8);
    assert_eq!(
        (
            chat.spending().cached.replies,
            chat.spending().requested.replies,
            endpoint.num_requests()
        ),
        (5, 3, 9)
    );
    // Another model has its own replies.
    let other =
        open(ChatSettings { model: Some("other".into()), ..endpoint.settings() }, folder.path());
    request(&other, 1).unwrap();
    assert_eq!(other.spending().cached.replies, 0);
}

#[test]
fn cost_ceiling_stops_requests() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![says("CORRECT")]);
    // A reply costs 100 × 10 + 2 × 500 millionths: 0.002.
    let prices = ChatPrices { prompt: 10.0, completion: 500.0 };
    let settings =
        |max_cost| ChatSettings { prices, max_cost: Some(max_cost), ..endpoint.settings() };
    let error = request(&open(settings(0.005), folder.path()), 10).unwrap_err();
    assert!(
        matches!(error, ChatError::CostCeiling { cost, .. } if (cost - 0.006).abs() < 1e-9),
        "{error}"
    );
    assert_eq!(endpoint.num_requests(), 3);
    // Replies that another process paid for count, wherever they are among the prompts.
    let backwards: Vec<_> = prompts(10).into_iter().rev().collect();
    let again = open(settings(0.005), folder.path());
    let error = again.reply_all(&backwards, |_| true, |_| ()).unwrap_err();
    assert!(
        matches!(error, ChatError::CostCeiling { cost, .. } if (cost - 0.006).abs() < 1e-9),
        "{error}"
    );
    assert_eq!((again.spending().requested.replies, endpoint.num_requests()), (0, 3));
    // Cached replies are returned whatever their cost, and a higher ceiling resumes.
    assert_eq!(request(&open(settings(0.005), folder.path()), 3).unwrap().len(), 3);
    let chat = open(settings(1.0), folder.path());
    assert_eq!(request(&chat, 10).unwrap().len(), 10);
    assert_eq!((chat.spending().cached.replies, chat.spending().requested.prompt_tokens), (3, 700));
    assert!((chat.spending().requested.cost(prices) - 0.014).abs() < 1e-9);
    assert!((chat.spending().cost(prices) - 0.02).abs() < 1e-9);
    // Each reply counts once, however often its prompt is repeated.
    request(&chat, 10).unwrap();
    assert_eq!((chat.spending().cached.replies, chat.spending().requested.replies), (3, 7));

    let uncounted = Endpoint::new(vec![Response::Answer(
        200,
        "",
        r#"{"choices": [{"message": {"content": "CORRECT"}}]}"#.into(),
    )]);
    let folder = tempfile::tempdir().unwrap();
    let blind = ChatSettings { prices, max_cost: Some(1.0), ..uncounted.settings() };
    for _ in 0..2 {
        let error = request(&open(blind.clone(), folder.path()), 1).unwrap_err().to_string();
        assert!(error.contains(" does not say how many tokens it used"), "{error}");
    }
    let priced = ChatSettings { prices, ..uncounted.settings() };
    let error = request(&open(priced, folder.path()), 1).unwrap_err().to_string();
    assert!(error.contains(" does not say how many tokens it used"), "{error}");
    assert_eq!(uncounted.num_requests(), 1);
    assert_eq!(request(&open(uncounted.settings(), folder.path()), 1).unwrap().len(), 1);
}

#[test]
fn concurrent_requests_stay_within_connections() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![late(Duration::from_millis(40))]);
    let settings = ChatSettings { connections: 3, timeout_s: 20.0, ..endpoint.settings() };
    let finished = Mutex::new(0);
    let chat = open(settings, folder.path());
    let done = |done| *finished.lock().unwrap() = done;
    chat.reply_all(&prompts(18), |_| true, done).unwrap();
    assert_eq!((endpoint.0.max_in_flight(), *finished.lock().unwrap()), (3, 18));
}

#[test]
fn equal_prompts_share_single_request() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![late(Duration::from_millis(40))]);
    let chat = open(
        ChatSettings { connections: 8, timeout_s: 20.0, ..endpoint.settings() },
        folder.path(),
    );
    let samples: Vec<_> = prompts(3).into_iter().flat_map(|prompt| vec![prompt; 4]).collect();
    let finished = Mutex::new(0);
    let replies =
        chat.reply_all(&samples, |_| true, |done| *finished.lock().unwrap() = done).unwrap();
    assert_eq!((replies.len(), *finished.lock().unwrap()), (12, 12));
    assert_eq!((endpoint.num_requests(), chat.spending().requested.replies), (3, 3));
}

#[test]
fn replies_follow_prompt_order() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![says("a"), says("b")]);
    let [one, other] = prompts(2).try_into().unwrap();
    let chat = open(endpoint.settings(), folder.path());
    let replies = chat.reply_all(&[one.clone(), other, one], |_| true, |_| ()).unwrap();
    assert_eq!(words(replies), ["a", "b", "a"]);
}

#[test]
fn api_key_requires_encrypted_or_local_endpoint() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, "EMPTY").unwrap(); // as local servers want it
    let open = |endpoint: &str, settings: ChatSettings| {
        let settings =
            ChatSettings { endpoint: Some(endpoint.into()), model: Some("m".into()), ..settings };
        ChatClient::open(settings, "chat", &folder.path().join("replies.jsonl")).map(drop)
    };
    let in_file = ChatSettings { key_file: Some(key_file), ..ChatSettings::default() };
    // A variable that every test has; its value is no secret.
    let in_variable =
        ChatSettings { key_variable: Some("CARGO_PKG_NAME".into()), ..ChatSettings::default() };
    for keyed in [in_file, in_variable] {
        for good in [
            "https://host/v1",
            "http://localhost:8000/v1",
            "http://127.0.0.1/v1",
            "http://[::1]:8000/v1",
        ] {
            open(good, keyed.clone()).unwrap();
        }
        for bad in ["http://host/v1", "http://api.openai.com/v1", "http://localhost.host/v1"] {
            let error = open(bad, keyed.clone()).unwrap_err().to_string();
            assert!(error.contains(&format!(" would go to {bad} unencrypted: ")), "{error}");
        }
    }
    open("http://host/v1", ChatSettings::default()).unwrap();
}

#[test]
fn invalid_settings_are_rejected_on_open() {
    let folder = tempfile::tempdir().unwrap();
    let open = |settings| {
        ChatClient::open(settings, "chat", &folder.path().join("replies.jsonl")).map(drop)
    };
    let good = ChatSettings {
        endpoint: Some("http://host/v1".into()),
        model: Some("m".into()),
        ..ChatSettings::default()
    };
    open(good.clone()).unwrap();
    for (wrong, name) in [
        (ChatSettings { model: None, ..good.clone() }, "model"),
        (ChatSettings { endpoint: Some(String::new()), ..good.clone() }, "endpoint"),
        (ChatSettings { connections: 0, ..good.clone() }, "connections"),
        (ChatSettings { retry_timeout_s: f64::NAN, ..good.clone() }, "retry_timeout_s"),
        (ChatSettings { max_cost: Some(1.0), ..good.clone() }, "prices"),
    ] {
        assert!(
            matches!(
                open(wrong),
                Err(ChatError::Setting(problem)) if problem.key == format!("chat.{name}")
            ),
            "{name}"
        );
    }
    let no_scheme = ChatSettings { endpoint: Some("host".into()), ..good.clone() };
    assert!(matches!(open(no_scheme), Err(ChatError::InvalidArgument(_))));
    let with_password = ChatSettings { endpoint: Some("https://me:hidden@host/v1".into()), ..good };
    let error = open(with_password).unwrap_err().to_string();
    assert!(
        error.contains("must not hold a user or password") && !error.contains("hidden"),
        "{error}"
    );
}

/// A completion of a thinking model that ends for `reason`.
fn thinks(content: &str, reason: &str) -> Response {
    let mut body: serde_json::Value = serde_json::from_str(&completion(content)).unwrap();
    body["choices"][0]["finish_reason"] = reason.into();
    Response::Answer(200, "", body.to_string())
}

#[test]
fn reasoning_before_answer_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint =
        Endpoint::new(vec![thinks("<think>Is it? INCORRECT.</think>\n\nCORRECT", "stop")]);
    let settings = ChatSettings { reasoning_tokens: 1_000, ..endpoint.settings() };
    assert_eq!(request(&open(settings, folder.path()), 1).unwrap(), ["CORRECT"]);
    assert_eq!(endpoint.num_requests(), 1);
    assert_eq!(endpoint.0.requests().remove(0).body["max_tokens"], 1_016);
}

#[test]
fn cut_reply_is_not_requested_twice() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![thinks("<think>Well, let me see", "length")]);
    let chat = open(endpoint.settings(), folder.path());
    assert_eq!(request(&chat, 3).unwrap(), ["", "", ""]);
    assert_eq!(endpoint.num_requests(), 3);
    // From the cache, too.
    let again = open(endpoint.settings(), folder.path());
    assert_eq!(request(&again, 3).unwrap(), ["", "", ""]);
    assert_eq!(endpoint.num_requests(), 3);
}

#[test]
fn broken_off_reply_is_retried_and_not_cached() {
    for reason in ["error", "abort"] {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::new(vec![thinks("CORR", reason), says("CORRECT")]);
        // A rule accepts every reply.
        let replies = open(endpoint.settings(), folder.path()).reply(&prompts(1)).unwrap();
        assert_eq!(words(replies), ["CORRECT"], "{reason}");
        assert_eq!(endpoint.num_requests(), 2);
        let cached = std::fs::read_to_string(folder.path().join("replies.jsonl")).unwrap();
        assert_eq!(cached.lines().count(), 1, "{cached}");
    }
}

/// Mistral's models send their reasoning as a part of its own.
#[test]
fn text_of_content_parts_is_the_reply() {
    let mut body: serde_json::Value = serde_json::from_str(&completion("")).unwrap();
    body["choices"][0]["message"]["content"] = json!([
        {"type": "thinking", "thinking": [{"type": "text", "text": "Is it? INCORRECT."}]},
        {"type": "text", "text": "COR"},
        {"type": "text", "text": "RECT"},
    ]);
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![Response::Answer(200, "", body.to_string())]);
    assert_eq!(request(&open(endpoint.settings(), folder.path()), 1).unwrap(), ["CORRECT"]);
    assert_eq!(endpoint.num_requests(), 1);
}

#[test]
fn only_leading_reasoning_is_skipped() {
    let answer = "B. The part after `</think>` is a fine sentence";
    let in_block = format!("<think>A or B?</think>\n\n{answer}");
    let in_open_block = format!("A or B?</think>\n\n{answer}");
    let cases = [(answer, 0), (in_block.as_str(), 0), (in_open_block.as_str(), 1_000)];
    for (content, reasoning_tokens) in cases {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::new(vec![thinks(content, "stop")]);
        let settings = ChatSettings { reasoning_tokens, ..endpoint.settings() };
        let replies = open(settings, folder.path()).reply(&prompts(1)).unwrap();
        assert_eq!(words(replies), [answer], "{content}");
    }
}

#[test]
fn cut_reasoning_is_no_answer() {
    let reasoning = "Well, if CORRECT means";
    for (reasoning_tokens, reason, expected) in [
        (1_000, "length", ""),
        (1_000, "model_length", ""),
        (1_000, "stop", reasoning),
        (0, "length", reasoning),
    ] {
        let folder = tempfile::tempdir().unwrap();
        // Of a model whose chat template opens the block.
        let endpoint = Endpoint::new(vec![thinks(reasoning, reason)]);
        let settings = ChatSettings { reasoning_tokens, ..endpoint.settings() };
        let replies = open(settings, folder.path()).reply(&prompts(1)).unwrap();
        assert_eq!(words(replies), [expected], "{reasoning_tokens} {reason}");
    }
}

/// Messages that this thread logs.
#[derive(Clone, Default)]
struct ThreadLog(Arc<Mutex<String>>);

impl Subscriber for ThreadLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for ThreadLog {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push_str(&format!("{value:?}\n"));
    }
}

/// A rule accepts every reply, also an empty one.
#[test]
fn empty_cut_replies_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![thinks("", "length"), thinks("CORRECT", "length")]);
    let mut chat = open(endpoint.settings(), folder.path());
    let log = ThreadLog::default();
    let replies = tracing::subscriber::with_default(log.clone(), || chat.reply(&prompts(2)));
    assert_eq!(words(replies.unwrap()), ["", "CORRECT"]);
    let logged = log.0.lock().unwrap().clone();
    assert!(logged.contains("1 of 2 replies of judge were cut off"), "{logged}");
    assert!(logged.contains("raise backends.chat.reasoning_tokens, now 0"), "{logged}");
}

#[test]
fn extra_fields_are_in_each_request() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![says("CORRECT")]);
    let extra = json!({"temperature": 1, "reasoning_effort": "low", "top_k": 5});
    let settings = ChatSettings {
        length_field: LengthField::MaxCompletionTokens,
        extra: extra.as_object().unwrap().clone(),
        ..endpoint.settings()
    };
    request(&open(settings, folder.path()), 1).unwrap();
    let messages = json!([{"role": "user", "content": "Is 0 even?"}]);
    let expected = json!({
        "model": "judge", "messages": messages, "temperature": 1, "max_completion_tokens": 16,
        "reasoning_effort": "low", "top_k": 5,
    });
    assert_eq!(endpoint.0.requests().remove(0).body, expected);
    let extra = json!({"max_tokens": 5}).as_object().unwrap().clone();
    let settings = ChatSettings { extra, ..endpoint.settings() };
    let cache = folder.path().join("other.jsonl");
    let error = ChatClient::open(settings, "backends.chat", &cache).unwrap_err().to_string();
    assert!(error.contains("backends.chat.extra.max_tokens"), "{error}");
}

#[test]
fn any_reported_usage_counts_towards_ceiling() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(vec![says("CORRECT")]);
    let prices = ChatPrices { prompt: 1.0, completion: 1.0 };
    let settings = ChatSettings { prices, max_cost: Some(1.0), ..endpoint.settings() };
    let mut chat = open(settings, folder.path());
    chat.add_prior_usage(Usage { prompt_tokens: u64::MAX, completion_tokens: u64::MAX });
    assert!(matches!(request(&chat, 1).unwrap_err(), ChatError::CostCeiling { .. }));
    chat.add_prior_usage(Usage { prompt_tokens: 1, completion_tokens: 1 });
    assert!(matches!(request(&chat, 1).unwrap_err(), ChatError::CostCeiling { .. }));
    assert_eq!(endpoint.num_requests(), 0);
}
