//! Rewards over HTTP: the two protocols to the letter, errors, batches, a full queue, the end.

mod http;

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use corver_core::{
    Backends, BoxError, Completion, Credit, Extractor, ExtractorInput, GivenTriplets, Graders,
    Question, RewardSettings, Rollout, Scored, Scorers, SentenceScorer, SentenceVerdict, StepError,
    Triplet,
};
use corver_serve::{
    Health, HttpError, HttpServer, Metrics, Queue, QueueLimits, ServerLimits, reward_route,
    score_route, unbatched_route,
};
use http::{Answer, Running, post, read_answer};
use serde_json::{Value, json};

/// Pays a sentence half a point for the word “true”, and labels one with the word “right”. It fails
/// at “poison”, panics at “bomb”, and at “wait” says that it has begun and waits for a word from
/// the test.
struct Words {
    begin: mpsc::Sender<()>,
    words: Arc<Mutex<mpsc::Receiver<()>>>,
}

struct Nothing;

impl Extractor for Nothing {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        Ok(vec![Vec::new(); inputs.len()])
    }
}

impl SentenceScorer for Words {
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        _: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        let of_sentence = |text: &str| {
            if text.contains("poison") {
                return Err("a sentence is poisoned".into());
            }
            assert!(!text.contains("bomb"), "a bug, on purpose");
            if text.contains("wait") {
                self.begin.send(()).unwrap();
                self.words.lock().unwrap().recv_timeout(Duration::from_secs(20)).unwrap();
            }
            if text.contains("right") {
                return Ok(SentenceVerdict {
                    reward: Some(1.0),
                    credit: Credit::AdvantageSign,
                    ..SentenceVerdict::default()
                });
            }
            Ok(SentenceVerdict {
                reward: text.contains("true").then_some(0.5),
                ..SentenceVerdict::default()
            })
        };
        completions
            .iter()
            .map(|one| one.sentences.iter().map(|sentence| of_sentence(&sentence.text)).collect())
            .collect()
    }
}

fn score_words(
    words: &mut Words,
    rollouts: &[Rollout],
    questions: &[Question],
    given: Option<&GivenTriplets>,
) -> Result<Scored, StepError> {
    let mut graders = Graders::default();
    let mut backends = Backends::default();
    let mut extractor: Box<dyn Extractor> = match given {
        Some(triplets) => Box::new(triplets.clone()),
        None => Box::new(Nothing),
    };
    let mut scorers = Scorers {
        extractor: extractor.as_mut(),
        backends: &mut backends,
        sentence_scorer: words,
        graders: &mut graders,
    };
    corver_core::score(rollouts, questions, &mut scorers, &RewardSettings::default())
}

struct Rewarding {
    server: Running,
    queue: Arc<Queue<Words>>,
    begun: mpsc::Receiver<()>,
    word: mpsc::Sender<()>,
}

fn serve(strict: bool, of_queue: QueueLimits, limits: ServerLimits) -> Rewarding {
    let (begin, begun) = mpsc::channel();
    let (word, words) = mpsc::channel();
    let words = Words { begin, words: Arc::new(Mutex::new(words)) };
    let mut metrics = Metrics::default();
    let queue = Queue::start(words, score_words, RewardSettings::default(), of_queue, &mut metrics)
        .unwrap();
    let mut server =
        HttpServer::bind("127.0.0.1:0".parse().unwrap(), limits, None, metrics).unwrap();
    server.add_routes([reward_route(&queue, strict), score_route(&queue)]);
    let reply = queue.clone();
    server.set_health(move || reply.health());
    Rewarding { server: Running::new(server), queue, begun, word }
}

fn lenient() -> Rewarding {
    serve(false, QueueLimits::default(), ServerLimits::default())
}

const PROMPT: &str = "<|im_start|>user\nWho wrote it?<|im_end|>\n<|im_start|>assistant\n";

/// What OpenRLHF's client posts for a finished rollout.
fn rollout(response: &str, label: &Value) -> Value {
    json!({"query": [format!("{PROMPT}{response}<|im_end|>")], "prompts": [PROMPT], "labels": [label]})
}

impl Rewarding {
    fn post_reward(&self, request: &Value) -> Answer {
        self.server.post("/get_reward", &request.to_string())
    }

    fn score(&self, request: &Value) -> Answer {
        self.server.post("/v1/score", &request.to_string())
    }

    /// Sends a request, and does not wait for its answer.
    fn send(&self, path: &str, request: &Value) -> TcpStream {
        let mut stream = self.server.connect();
        stream.write_all(post(path, &request.to_string()).as_bytes()).unwrap();
        stream
    }

    /// Until the server's metrics say so.
    fn wait_for(&self, line: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.server.get("/metrics").body.lines().any(|one| one == line) {
            assert!(
                Instant::now() < deadline,
                "{line} is not in {}",
                self.server.get("/metrics").body
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn completions(texts: &[&str]) -> Value {
    let one =
        |text: &&str| json!({"question": "Who wrote it?", "answers": ["Ada"], "completion": text});
    json!({"completions": texts.iter().map(one).collect::<Vec<_>>()})
}

/// A bare number.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn openrlhf_single_query_gets_scalar_answer() {
    let server = lenient();
    let thought = "It is true that she did, all of it.";
    let answer = server.post_reward(&rollout(
        &format!("<think>{thought}</think><answer>Ada</answer>"),
        &json!("Ada; A. L."),
    ));
    assert_eq!(answer.status, 200, "{answer:?}");
    let reply = answer.json();
    // Judge +2, format +1, and half a point for the characters of a true sentence.
    let sentences = number(&reply["extra_logs"]["corver/sentences"]);
    assert!((0.1..0.5).contains(&sentences), "{reply}");
    assert!((number(&reply["rewards"]) - (3.0 + sentences)).abs() < 1e-9, "{reply}");
    assert_eq!(number(&reply["scores"]), 1.0);
    let logs = reply["extra_logs"].as_object().unwrap();
    let expected = json!({"corver/judge": 2.0, "corver/format": 1.0, "corver/sentences": sentences, "corver/num_sentences": 2.0,
        "corver/num_counted": 0.0, "corver/error": 0.0});
    assert_eq!(Value::Object(logs.clone()), expected);
    assert_eq!(reply.as_object().unwrap().len(), 3);
}

#[test]
fn openrlhf_several_queries_get_lists() {
    let prompts = [PROMPT, PROMPT];
    let query = [format!("{PROMPT}<answer>Ada</answer>"), format!("{PROMPT}<answer>Bob</answer>")];
    let answer = lenient().post_reward(
        &json!({"query": query, "prompts": prompts, "labels": [["Ada"], {"answers": ["Ada"]}]}),
    );
    let reply = answer.json();
    assert_eq!(reply["scores"], json!([1.0, 0.0]), "{reply}");
    assert_eq!(reply["rewards"], json!([1.0, -2.0]), "{reply}");
    assert!(
        reply["extra_logs"].as_object().unwrap().values().all(|list| list
            .as_array()
            .unwrap()
            .len()
            == 2),
        "{reply}"
    );
}

#[test]
fn response_is_located_after_prompt_or_header() {
    let server = lenient();
    let ask = |query: String, prompt: Option<&str>| {
        let prompts = prompt.map(|prompt| vec![prompt]);
        let reply = server
            .post_reward(&json!({"query": [query], "prompts": prompts, "labels": ["Ada"]}))
            .json();
        (number(&reply["scores"]), number(&reply["extra_logs"]["corver/error"]))
    };
    let right = "<answer>Ada</answer><|im_end|><|endoftext|>";
    assert_eq!(ask(format!("{PROMPT}{right}"), Some(PROMPT)), (1.0, 0.0));
    assert_eq!(
        ask(format!("{}{right}", &PROMPT[20..]), Some(PROMPT)),
        (1.0, 0.0),
        "cut on its left"
    );
    assert_eq!(ask(format!("{PROMPT}{right}"), None), (1.0, 0.0));
    assert_eq!(ask("Who? <answer>Ada".into(), Some("Who?")), (1.0, 0.0), "a base model's prompt");
    // An answer in the prompt is none.
    let prompt = format!("<answer>Ada</answer>? {PROMPT}");
    assert_eq!(ask(format!("{prompt}<answer>Eve</answer><|im_end|>"), Some(&prompt)), (0.0, 0.0));
    assert_eq!(
        ask("ho? Ada".into(), Some("Who?")),
        (0.0, 1.0),
        "nobody can say where the answer begins"
    );

    let strict = serve(true, QueueLimits::default(), ServerLimits::default());
    let refused =
        strict.post_reward(&json!({"query": ["ho? Ada"], "prompts": ["Who?"], "labels": ["Ada"]}));
    assert_eq!(refused.status, 400);
    assert!(refused.error().contains("query[0]: it neither begins with its prompt"), "{refused:?}");
}

#[test]
fn openrlhf_query_may_lack_golds() {
    let server = lenient();
    for label in [json!(null), json!(""), json!([])] {
        let reply = server.post_reward(&rollout("<answer>Ada</answer>", &label)).json();
        assert_eq!(
            (number(&reply["extra_logs"]["corver/judge"]), number(&reply["scores"])),
            (0.0, 0.0),
            "{reply}"
        );
    }
    let reply = server.post_reward(&json!({"query": [format!("{PROMPT}Ada")]})).json();
    assert_eq!(
        number(&reply["extra_logs"]["corver/error"]),
        0.0,
        "only `query` is needed: {reply}"
    );
}

#[test]
fn unscorable_completion_is_neutral_or_error_when_strict() {
    let poisoned = rollout("This is poison. It is.", &json!("Ada"));
    let server = lenient();
    let answer = server.post_reward(&poisoned);
    let reply = answer.json();
    assert_eq!(answer.status, 200);
    assert_eq!((&reply["rewards"], &reply["scores"]), (&json!(0.0), &json!(0.0)));
    assert_eq!(reply["extra_logs"]["corver/error"], 1.0);
    assert_eq!(reply["extra_logs"].as_object().unwrap().len(), 6, "the same figures as ever");
    server.wait_for("corver_score_failures_total 1");

    let strict = serve(true, QueueLimits::default(), ServerLimits::default());
    let refused = strict.post_reward(&poisoned);
    assert_eq!(
        (refused.status, refused.error().as_str()),
        (500, "scoring sentences: a sentence is poisoned")
    );
    assert_eq!(strict.score(&completions(&["This is poison. It is."])).status, 500);
}

#[test]
fn native_protocol_returns_full_trace() {
    let server = lenient();
    let text = "<think>It is true that she did, all of it.</think><answer>Ada</answer>";
    let whole = text.chars().count();
    let mut request = completions(&[text, "Nothing."]);
    // The tokens: one before the sentence, one inside of it, a special one.
    request["completions"][0]["tokens"] = json!([[0, 7], [8, 20], null]);
    let reply = server.score(&request).json();
    let [with, without] = reply["completions"].as_array().unwrap().as_slice() else {
        panic!("{reply}")
    };
    assert_eq!(with["returns"], json!([3.0, 3.5, 3.0]));
    assert!((number(&with["mean_return"]) - 9.5 / 3.0).abs() < 1e-9, "{with}");
    assert_eq!((&with["question"], &with["completion"]), (&json!("Who wrote it?"), &json!(text)));
    assert_eq!(with["sentences"][0]["verdict"]["reward"], 0.5);
    assert_eq!(with["sentences"][0]["tokens"], json!({"start": 1, "end": 2}));
    assert_eq!(with["response"]["judge"]["label"], "GOOD");
    assert_eq!(with["return_parts"]["judge"], 2.0);
    assert_eq!(without.get("returns"), None, "characters are no tokens");
    assert_eq!(without["response"]["judge"]["label"], "NOT_ATTEMPTED");

    let with_tokens = |tokens: Value| {
        let mut request = completions(&[text]);
        request["completions"][0]["tokens"] = tokens;
        server.score(&request)
    };
    assert_eq!(with_tokens(json!([[0, whole]])).status, 200);
    assert_eq!(with_tokens(json!([])).status, 200);
    for (tokens, says) in [
        (json!([[0, whole + 1]]), "tokens[0] is [0, 71]"),
        (json!([null, [3, 2]]), "tokens[1] is [3, 2]"),
    ] {
        let refused = with_tokens(tokens);
        assert!(refused.status == 400 && refused.error().contains(says), "{refused:?}");
    }
}

#[test]
fn sign_labels_are_returned_or_rejected() {
    let text = "It is right. It is true.";
    let mut request = completions(&[text]);
    request["completions"][0]["tokens"] = json!([[0, 12], [13, 24], null]);
    let answer = |strict| {
        let server = serve(strict, QueueLimits::default(), ServerLimits::default());
        let reply = server.score(&request).json();
        let [completion] = reply["completions"].as_array().unwrap().as_slice() else {
            panic!("{reply}")
        };
        assert_eq!(completion["advantage_signs"], json!([1, 0, 0]));
        assert_eq!(completion["sentences"][0]["verdict"]["credit"], "advantage_sign");
        let returns: Vec<f64> =
            completion["returns"].as_array().unwrap().iter().map(number).collect();
        assert!(
            returns[0] == returns[2] && (returns[1] - returns[0] - 0.5).abs() < 1e-9,
            "a label pays nothing: {returns:?}"
        );
        let unlabelled = server.score(&completions(&["It is true."])).json();
        assert_eq!(unlabelled["completions"][0].get("advantage_signs"), None);
        server.post_reward(&rollout(text, &json!("Ada")))
    };
    for strict in [false, true] {
        let refused = answer(strict);
        assert_eq!(refused.status, 500);
        assert!(refused.error().contains("the rule sets signs of advantages"), "{refused:?}");
    }
}

#[test]
fn bad_request_is_rejected_before_scoring() {
    let of_queue = QueueLimits {
        batch: 3,
        completion_bytes: 100,
        body_bytes: 5_000,
        ..QueueLimits::default()
    };
    let server = serve(false, of_queue, ServerLimits::default());
    let deep = format!("{}1{}", "[".repeat(2_000), "]".repeat(2_000));
    for (path, body, status, says) in [
        ("/get_reward", "[]".to_owned(), 400, "Invalid request"),
        ("/get_reward", "{}".to_owned(), 400, "missing field `query`"),
        ("/get_reward", "{\"query\": \"text\"}".to_owned(), 400, "expected a sequence"),
        ("/get_reward", "{\"query\": []}".to_owned(), 400, "no query"),
        ("/get_reward", "{\"query\": [\"a\"], \"prompts\": []}".to_owned(), 400, "1 entries in query and 0 in prompts"),
        ("/get_reward", "{\"query\": [\"a\"], \"prompts\": [\"\"], \"labels\": [1, 2]}".to_owned(), 400, "2 in labels"),
        (
            "/get_reward",
            json!({"query": ["a", "a", "a", "a"], "prompts": ["", "", "", ""]}).to_string(),
            413,
            "at most 3",
        ),
        ("/get_reward", deep.clone(), 400, "Invalid request"),
        ("/get_reward", format!("{{\"query\": [\"a\"], \"labels\": [{deep}]}}"), 400, "recursion limit"),
        ("/get_reward", "{\"query\": [\"\\ud800\"]}".to_owned(), 400, "Invalid request"),
        ("/v1/score", "{\"completions\": []}".to_owned(), 400, "no completion"),
        ("/v1/score", "{\"completions\": [{\"completion\": \"x\"}]}".to_owned(), 400, "missing field `answers`"),
        (
            "/v1/score",
            "{\"completions\": [{\"completion\": \"x\", \"answers\": []}], \"n\": 1}".to_owned(),
            400,
            "unknown field `n`",
        ),
        (
            "/v1/score",
            "{\"completions\": [{\"completion\": \"x\", \"answers\": [], \"tokens\": [[-1, 1e999]]}]}".to_owned(),
            400,
            "Invalid",
        ),
        (
            "/v1/score",
            "{\"completions\": [{\"completion\": \"x\", \"answers\": [[\"y\"]]}]}".to_owned(),
            400,
            "`an item of answers` is [\"y\"], not a text",
        ),
        ("/v1/score", completions(&["x"; 4]).to_string(), 413, "4 completions; at most 3"),
        ("/v1/score", completions(&["x".repeat(101).as_str()]).to_string(), 413, "101 bytes; at most 100"),
        ("/v1/score", "x".repeat(5_001), 413, "5000 bytes"),
        ("/v1/score", "\u{0}".to_owned(), 400, "Invalid request"),
    ] {
        let refused = server.server.post(path, &body);
        assert!(refused.status == status && refused.error().contains(says), "{path} {body}: {refused:?}");
    }
    assert_eq!(server.server.get("/get_reward").status, 405);
    assert!(server.server.get("/metrics").body.contains("corver_completions_total 0"));
    // A completion that is too long is one of a training run's, whose client cannot go on after an
    // error.
    let reply = server.post_reward(&rollout(&"x".repeat(101), &json!("Ada"))).json();
    assert_eq!(reply["extra_logs"]["corver/error"], 1.0);
    assert_eq!(server.score(&completions(&["It is true."])).status, 200, "it goes on");
}

#[test]
fn sentences_are_limited_as_they_are_scored() {
    let server = lenient();
    let tags = completions(&["x<think>".repeat(16_000).as_str()]);
    let refused = server.score(&tags);
    assert_eq!(refused.status, 413);
    assert!(refused.error().contains("15999 sentences; at most 512"), "{refused:?}");
}

/// 2.7 million queries fit into a body of 8 MiB.
#[test]
fn number_of_queries_is_checked_before_they_are_read() {
    let server = lenient();
    let body = format!("{{\"query\": [{}\"\"]}}", "\"\",".repeat(2_700_000));
    let start = Instant::now();
    let refused = server.server.post("/get_reward", &body);
    assert_eq!(refused.status, 413);
    assert!(refused.error().contains("2700001 completions; at most 512"), "{refused:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(refused.body.len() < 1_000);
}

#[test]
fn damaged_requests_are_answered() {
    let server = lenient();
    let mut spans = completions(&["It is true. \u{e9}\u{1f600}"]);
    spans["completions"][0]["tokens"] = json!([[0, 5], [5, 14], null]);
    let mut stream = server.server.connect();
    for (path, good) in
        [("/get_reward", rollout("It is true.", &json!("Ada; A. L."))), ("/v1/score", spans)]
    {
        let good = good.to_string().into_bytes();
        for at in 0..good.len() {
            for damage in [0, b'"', b'9', b'-', b'[', b'\\', 0xff] {
                let mut body = good.clone();
                body[at] = damage;
                let length = body.len();
                let head =
                    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
                stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
                let answer = read_answer(&mut stream);
                let shown = String::from_utf8_lossy(&body);
                assert!(matches!(answer.status, 200 | 400), "{shown}: {answer:?}");
                assert!(answer.json().is_object(), "{shown}: {answer:?}");
            }
        }
    }
    assert_eq!(server.queue.health(), Health::Ready);
}

#[test]
fn queued_completions_batch_and_only_culprit_fails() {
    let server =
        serve(true, QueueLimits { batch: 8, ..QueueLimits::default() }, ServerLimits::default());
    let first = server.send("/v1/score", &completions(&["Please wait."]));
    server.begun.recv().unwrap();
    let queued: Vec<_> = ["It is true.", "This is poison.", "It is true.", "So it is."]
        .iter()
        .zip(1..)
        .map(|(text, waiting)| {
            let sent = server.send("/get_reward", &rollout(text, &json!("Ada")));
            server.wait_for(&format!("corver_queue_completions {waiting}"));
            sent
        })
        .collect();
    let larger = server.send("/v1/score", &completions(&["One."; 6]));
    server.wait_for("corver_queue_completions 10");
    server.word.send(()).unwrap();
    let statuses: Vec<u16> =
        queued.into_iter().map(|mut stream| read_answer(&mut stream).status).collect();
    assert_eq!(statuses, [200, 500, 200, 200]);
    for mut stream in [first, larger] {
        assert_eq!(read_answer(&mut stream).status, 200);
    }
    // One alone, three of the four that were queued together one by one, and six: with the four
    // they would be more than eight.
    let metrics = server.server.get("/metrics").body;
    for line in [
        "corver_batch_completions_count 5",
        "corver_completions_total 10",
        "corver_score_failures_total 1",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line} is not in {metrics}");
    }
    assert!(metrics.contains(r#"corver_stage_seconds_total{stage="reward"}"#), "{metrics}");
}

#[test]
fn full_queue_rejects_retryable_requests() {
    let of_queue = QueueLimits { batch: 2, completions: 2, ..QueueLimits::default() };
    let server = serve(false, of_queue, ServerLimits::default());
    let mut first = server.send("/v1/score", &completions(&["Please wait.", "Or not."]));
    server.begun.recv().unwrap();
    let refused = server.score(&completions(&["One."]));
    assert_eq!((refused.status, refused.error().as_str()), (503, "the queue is full"));
    assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
    assert_eq!(
        (server.server.get("/ready").status, server.server.get("/health").status),
        (503, 200)
    );
    // A training run is not sent back: its client gives up after five attempts.
    let mut waits = server.send("/get_reward", &rollout("It is true.", &json!("Ada")));
    server.wait_for("corver_requests_in_flight 3");
    server.word.send(()).unwrap();
    assert_eq!((read_answer(&mut first).status, read_answer(&mut waits).status), (200, 200));
    assert_eq!(server.server.get("/ready").status, 200);

    let strict = serve(true, of_queue, ServerLimits::default());
    let _first = strict.send("/v1/score", &completions(&["Please wait.", "Or not."]));
    strict.begun.recv().unwrap();
    assert_eq!(strict.post_reward(&rollout("One.", &json!("Ada"))).status, 503);
    strict.word.send(()).unwrap();
}

#[test]
fn timed_out_request_is_abandoned() {
    let of_queue = QueueLimits { time: Duration::from_millis(300), ..QueueLimits::default() };
    let server = serve(false, of_queue, ServerLimits::default());
    let reply = server.post_reward(&rollout("Please wait.", &json!("Ada")));
    assert_eq!((reply.status, &reply.json()["extra_logs"]["corver/error"]), (200, &json!(1.0)));
    let late = server.score(&completions(&["It is true."]));
    assert!(late.status == 503 && late.error().contains("no answer within 0.3 s"), "{late:?}");
    server.word.send(()).unwrap();
    // Nobody waits for the second one any more: it is not scored.
    assert_eq!(server.score(&completions(&["So it is."])).status, 200);
    assert!(server.server.get("/metrics").body.contains("corver_completions_total 2"));
}

#[test]
fn panic_marks_server_broken() {
    let server = lenient();
    assert_eq!(
        server.post_reward(&rollout("This is a bomb.", &json!("Ada"))).status,
        500,
        "neutral for ever is worse"
    );
    assert_eq!(server.post_reward(&rollout("It is true.", &json!("Ada"))).status, 500);
    assert_eq!(server.score(&completions(&["It is true."])).status, 500);
    assert_eq!(
        (server.server.get("/health").status, server.server.get("/ready").status),
        (500, 500)
    );
    assert!(matches!(server.queue.health(), Health::Broken(_)));
}

#[test]
fn given_triplets_replace_the_extractor() {
    let server = lenient();
    let sentence = "It is true.";
    let given = json!({
        "answers": [], "completion": sentence, "triplets": [[sentence, [["It", "is", "true"]]]],
    });
    let scored = server.score(&json!({"completions": [given]})).json();
    let triplets = &scored["completions"][0]["sentences"][0]["triplets"];
    assert_eq!(*triplets, json!([{"head": "It", "relation": "is", "tail": "true"}]));

    let without = json!({"answers": [], "completion": sentence});
    let mixed = server.score(&json!({"completions": [given, without]}));
    assert_eq!(mixed.status, 400);
    let missing = json!({"answers": [], "completion": "It is false.", "triplets": []});
    let refused = server.score(&json!({"completions": [missing]}));
    assert_eq!(refused.status, 400);
    assert!(refused.error().contains("no triplets are given"), "{}", refused.error());
}

#[test]
fn other_work_is_done_between_batches() {
    let (begin, begun) = mpsc::channel();
    let words = Words { begin, words: Arc::new(Mutex::new(mpsc::channel().1)) };
    let mut metrics = Metrics::default();
    let queue = Queue::start(
        words,
        score_words,
        RewardSettings::default(),
        QueueLimits::default(),
        &mut metrics,
    )
    .unwrap();
    let mut server =
        HttpServer::bind("127.0.0.1:0".parse().unwrap(), ServerLimits::default(), None, metrics)
            .unwrap();
    let length = |words: &mut Words, text: String| {
        words.begin.send(()).unwrap();
        if text == "bad" { Err(HttpError::bad_request("as asked")) } else { Ok(text.len()) }
    };
    server.add_routes([unbatched_route(&queue, "/v1/length", 100, "a text", length)]);
    let server = Running::new(server);
    assert_eq!(server.post("/v1/length", "\"four\"").json(), 4);
    assert_eq!(server.post("/v1/length", "\"bad\"").error(), "as asked");
    assert!(server.post("/v1/length", "4").error().ends_with("it is a text"));
    assert_eq!(begun.try_iter().count(), 2);
}

#[test]
fn shutdown_answers_accepted_requests() {
    let mut server = lenient();
    let mut first = server.send("/v1/score", &completions(&["Please wait."]));
    server.begun.recv().unwrap();
    let queued: Vec<_> = (0..40)
        .map(|_| server.send("/get_reward", &rollout("It is true.", &json!("Ada"))))
        .collect();
    server.wait_for("corver_queue_completions 40");
    server.server.tell_to_stop();
    std::thread::sleep(Duration::from_millis(400)); // past the last call
    server.word.send(()).unwrap();
    assert_eq!(read_answer(&mut first).status, 200);
    for mut stream in queued {
        let answer = read_answer(&mut stream);
        assert_eq!(answer.status, 200);
        assert!(
            answer.head.contains("connection: close")
                && answer.json()["extra_logs"]["corver/error"] == 0.0
        );
    }
}

#[test]
fn shutdown_waits_for_abandoned_batch() {
    let server = lenient();
    let left = server.send("/v1/score", &completions(&["Please wait."]));
    server.begun.recv().unwrap();
    drop(left);
    let (word, queue) = (server.word.clone(), server.queue.clone());
    let start = Instant::now();
    server.queue.end(Duration::from_millis(50)); // it is not done by then
    assert!(
        start.elapsed() < Duration::from_secs(5) && !matches!(queue.health(), Health::Broken(_))
    );
    word.send(()).unwrap();
    queue.end(Duration::from_secs(20));
    assert!(
        matches!(queue.health(), Health::Broken(_)) && start.elapsed() < Duration::from_secs(10)
    );
}

#[test]
fn impossible_queue_limits_are_rejected() {
    let start = |batch, completions| {
        let words =
            Words { begin: mpsc::channel().0, words: Arc::new(Mutex::new(mpsc::channel().1)) };
        let of_queue = QueueLimits { batch, completions, ..QueueLimits::default() };
        let started = Queue::start(
            words,
            score_words,
            RewardSettings::default(),
            of_queue,
            &mut Metrics::default(),
        );
        started.err().map(|error| error.to_string())
    };
    assert_eq!(start(0, 4).unwrap(), "batch is 0; it must be at least 1");
    assert!(start(5, 4).unwrap().contains("room for 4 completions, and a batch may have 5"));
    assert_eq!(start(4, 4), None);
}
