//! The client against a server that misbehaves.

#[path = "../../http/tests/served/mod.rs"]
mod served;

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use corver_core::{CorpusInfo, Count, CountMode, CountPrecision, Counter, Query};
use corver_corpus::{CnfOptions, Mode};
use corver_counts::wire::count_mode;
use corver_counts::{Remote, RemoteError, RemoteSettings};
use serde_json::{Value, json};

use served::{Request, Response, Sequence, Server};

fn good(count: u64) -> Response {
    Response::Answer(
        200,
        "",
        json!({"count": count, "approx": false, "latency": 0.1, "token_ids": [], "tokens": []})
            .to_string(),
    )
}

/// The reply of a `corver-host` server to a batch.
fn many(counts: &[Option<u64>]) -> Response {
    let counted = |count: &u64| json!({"count": count, "approx": false, "precision": "exact"});
    let counts: Vec<_> = counts.iter().map(|count| count.as_ref().map(counted)).collect();
    Response::Answer(200, "", json!({"counts": counts, "latency": 0.1}).to_string())
}

/// The description of a `corver-host` server.
fn about(index: &str) -> Value {
    json!({
        "index": index, "documents": 3, "tokens": 9, "tokenizer": null, "query_types": ["count", "counts"],
        "modes": ["compatible", "span"], "queries": 4, "body_bytes": 400,
    })
}

/// A server of counts in this process. A GET request reads its description; counts are requested
/// with POST.
struct CountServer {
    /// Address, with a slash at its end.
    url: String,
    server: Server,
}

impl CountServer {
    /// Starts a server like the public API, which does not describe itself. Its responses to
    /// requests for counts come in their order; the last one repeats.
    fn public_api(responses: Vec<Response>) -> Self {
        Self::with_description(vec![Response::Answer(405, "", String::new())], responses)
    }

    /// Starts a server like `corver-host`, with the index `wiki`.
    fn corver(responses: Vec<Response>) -> Self {
        let description = Response::Answer(200, "", about("wiki").to_string());
        Self::with_description(vec![description], responses)
    }

    /// Starts a server that describes itself with these responses.
    fn with_description(descriptions: Vec<Response>, responses: Vec<Response>) -> Self {
        let (descriptions, responses) = (Sequence::new(descriptions), Sequence::new(responses));
        let server = Server::new(move |request| match request.method() {
            "GET" => descriptions.next(),
            _ => responses.next(),
        });
        Self { url: format!("{}/", server.url), server }
    }

    fn remote(&self, settings: &RemoteSettings) -> Remote {
        open(&self.url, Mode::Compatible, settings, None).unwrap()
    }

    /// Returns the requests for counts.
    fn requests(&self) -> Vec<Request> {
        let mut requests = self.server.requests();
        requests.retain(|request| request.method() != "GET");
        requests
    }

    /// Returns the number of requests for counts.
    fn num_requests(&self) -> usize {
        self.requests().len()
    }
}

fn open(
    url: &str,
    mode: Mode,
    settings: &RemoteSettings,
    cache_dir: Option<&Path>,
) -> Result<Remote, RemoteError> {
    Remote::open(url, "wiki", CnfOptions { mode, ..CnfOptions::default() }, settings, cache_dir)
}

/// Settings with one connection and short timeouts.
fn settings() -> RemoteSettings {
    RemoteSettings {
        connections: 1,
        timeout_s: 0.5,
        retry_timeout_s: 20.0,
        ..RemoteSettings::default()
    }
}

fn count(remote: &Remote, query: &str) -> Result<Option<u64>, RemoteError> {
    let all_of = corver_corpus::parse_query(query).unwrap();
    remote.count_words(&all_of).map(|count| count.map(|count| count.count))
}

/// Returns distinct queries.
fn queries(number: usize) -> Vec<Query> {
    (0..number).map(|number| Query::new([["red".to_owned()], [number.to_string()]])).collect()
}

#[test]
fn count_request_matches_public_api() {
    let server = CountServer::public_api(vec![good(7)]);
    assert_eq!(
        count(&server.remote(&settings()), "Levi Stadium AND Denver OR Colorado").unwrap(),
        Some(7)
    );
    assert_eq!(
        server.requests()[0].body,
        json!({
            "index": "wiki", "query_type": "count", "query": "Levi Stadium AND Denver OR Colorado",
            "max_clause_freq": 500_000, "max_diff_tokens": 1_000,
        })
    );
}

#[test]
fn transient_failures_are_retried() {
    let unavailable = |status| Response::Answer(status, "", "down for a moment".into());
    let busy = Response::Answer(429, "Retry-After: 0\r\n", r#"{"error":"slow down"}"#.into());
    for failure in [
        unavailable(500),
        unavailable(503),
        busy,
        Response::Answer(200, "", "<html>a proxy's page</html>".into()),
        Response::Answer(200, "", "{}".into()),
        Response::CloseWithoutAnswer,
        Response::CloseMidAnswer("{\"count\":"),
        Response::LateAnswer(
            Duration::from_secs(2),
            json!({"count": 1, "approx": false}).to_string(),
        ),
    ] {
        let server = CountServer::public_api(vec![failure, good(7)]);
        assert_eq!(count(&server.remote(&settings()), "red AND fox").unwrap(), Some(7));
        assert_eq!(server.num_requests(), 2);
    }
}

#[test]
fn refusal_is_not_retried_and_names_reason() {
    let error = json!({"error": "Please enter at most 4 disjunctive clauses!"}).to_string();
    for (status, body, says) in
        [(200, error.clone(), "at most 4"), (400, error, "at most 4"), (404, "gone".into(), "gone")]
    {
        let server = CountServer::public_api(vec![Response::Answer(status, "", body)]);
        let error = count(&server.remote(&settings()), "red AND fox").unwrap_err();
        assert!(
            matches!(&error, RemoteError::Refused(message) if message.contains(says)),
            "{error}"
        );
        assert!(error.to_string().contains("red AND fox"), "{error}");
        assert_eq!(server.num_requests(), 1);
    }
    // A redirect would turn the POST into a GET.
    let server = CountServer::public_api(vec![Response::Answer(
        302,
        "Location: http://127.0.0.1:1/\r\n",
        String::new(),
    )]);
    assert!(matches!(count(&server.remote(&settings()), "red"), Err(RemoteError::Refused(_))));
}

#[test]
fn retry_after_delays_retry_within_patience() {
    let server = CountServer::public_api(vec![
        Response::Answer(429, "Retry-After: 2\r\n", String::new()),
        good(7),
    ]);
    assert_eq!(count(&server.remote(&settings()), "red AND fox").unwrap(), Some(7));
    let requests = server.requests();
    assert!(requests[1].arrived - requests[0].arrived >= Duration::from_secs(2));

    // Later than patience lasts: an immediate error.
    let server = CountServer::public_api(vec![Response::Answer(
        429,
        "Retry-After: 86400\r\n",
        String::new(),
    )]);
    let start = Instant::now();
    assert!(matches!(
        count(&server.remote(&settings()), "red AND fox"),
        Err(RemoteError::Unavailable(message)) if message.contains("(attempts: 1)")
    ));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn unreachable_server_exhausts_patience() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/", listener.local_addr().unwrap()) // closed again: connections are refused
    };
    let server = CountServer::public_api(vec![Response::Answer(
        503,
        "",
        r#"{"error":"no memory left"}"#.into(),
    )]);
    for (url, last) in [(&nobody, "refused"), (&server.url, "no memory left")] {
        let patient = RemoteSettings { retry_timeout_s: 2.0, ..settings() };
        let error = open(url, Mode::Compatible, &patient, None)
            .and_then(|remote| count(&remote, "red AND fox"))
            .unwrap_err();
        let RemoteError::Unavailable(message) = &error else { panic!("{error}") };
        assert!(!message.contains("(attempts: 1)") && message.contains("(attempts: "), "{error}");
        assert!(message.rsplit("; last error: ").next().unwrap().contains(last), "{error}");
        assert!(error.to_string().contains(url) && error.to_string().contains("wiki"), "{error}");
    }
}

#[test]
fn first_refusal_ends_batch() {
    let server = CountServer::public_api(vec![Response::Answer(
        400,
        "",
        r#"{"error":"no such index"}"#.into(),
    )]);
    let mut remote = server.remote(&RemoteSettings { connections: 4, ..settings() });
    assert!(remote.count(&queries(500)).is_err());
    assert!(server.num_requests() < 100, "{}", server.num_requests());

    // It wakes connections that wait to try again.
    let mut responses = vec![Response::Answer(503, "Retry-After: 15\r\n", String::new()); 3];
    responses.push(Response::Answer(400, "", r#"{"error":"no such index"}"#.into()));
    let server = CountServer::public_api(responses);
    let mut remote = server.remote(&RemoteSettings { connections: 4, ..settings() });
    let start = Instant::now();
    assert!(remote.count(&queries(500)).is_err());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn retries_back_off_while_server_fails() {
    let server = CountServer::public_api(vec![Response::Answer(500, "", String::new())]);
    let mut remote =
        server.remote(&RemoteSettings { connections: 8, retry_timeout_s: 4.0, ..settings() });
    assert!(remote.count(&queries(40)).is_err());
    // Each connection tries one query: immediately, and after at least 0.25 s, 0.5 s, 1 s, 2 s.
    let requests = server.num_requests();
    assert!((8..=8 * 5).contains(&requests), "{requests}");
}

#[test]
fn batch_completes_after_server_recovers() {
    let mut responses = vec![Response::Answer(500, "", String::new()); 12];
    responses.push(good(3));
    let server = CountServer::public_api(responses);
    let mut remote = server.remote(&RemoteSettings { connections: 8, ..settings() });
    assert_eq!(remote.count(&queries(40)).unwrap(), [Count::exact(Some(3)); 40]);
    assert_eq!(server.num_requests(), 12 + 40);
}

#[test]
fn request_rate_limit_is_respected() {
    let server = CountServer::public_api(vec![good(1)]);
    let mut remote = server.remote(&RemoteSettings {
        connections: 4,
        requests_per_second: Some(20.0),
        ..settings()
    });
    let start = Instant::now();
    remote.count(&queries(11)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
}

#[test]
fn rate_limit_wait_does_not_consume_patience() {
    // The last of the queries has its first turn after 2 s, and is then refused for a moment.
    let mut responses = vec![good(1); 8];
    responses.push(Response::Answer(503, "", String::new()));
    responses.push(good(1));
    let server = CountServer::public_api(responses);
    let settings = RemoteSettings {
        connections: 9,
        requests_per_second: Some(4.0),
        retry_timeout_s: 1.0,
        ..settings()
    };
    server.remote(&settings).count(&queries(9)).unwrap();
    assert_eq!(server.num_requests(), 10);
}

#[test]
fn cached_counts_are_not_requested_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = CountServer::corver([7, 8, 9].map(|count| many(&[Some(count)])).to_vec());
    let ask = |mode, settings| {
        count(&open(&server.url, mode, &settings, Some(folder.path())).unwrap(), "red AND fox")
            .unwrap()
    };
    let counts = [Mode::Compatible, Mode::Compatible, Mode::Span, Mode::Span]
        .map(|mode| ask(mode, settings()));
    assert_eq!(counts, [7, 7, 8, 8].map(Some));
    assert_eq!(server.num_requests(), 2);
    assert_eq!(ask(Mode::Compatible, RemoteSettings { cache: false, ..settings() }), Some(9));
}

#[test]
fn rebuilt_index_is_counted_again() {
    let part = json!({"index": "a fingerprint", "of": 2, "shards": {"start": 0, "end": 1}});
    let changes = [
        ("documents", json!(4)),
        ("tokens", json!(10)),
        ("tokenizer", json!("a hash")),
        ("part", part),
    ];
    let mut described = vec![about("wiki")];
    for (field, value) in changes {
        let mut description = about("wiki");
        description[field] = value;
        described.push(description);
    }
    let mut other_limits = about("wiki");
    other_limits["queries"] = json!(8);
    described.push(other_limits);
    let answer = |description: &Value| Response::Answer(200, "", description.to_string());
    let server = CountServer::with_description(
        described.iter().map(answer).collect(),
        (1..=6).map(|number| many(&[Some(number)])).collect(),
    );
    let folder = tempfile::tempdir().unwrap();
    let mut counts = Vec::new();
    for _ in &described {
        let remote = open(&server.url, Mode::Compatible, &settings(), Some(folder.path())).unwrap();
        counts.push(count(&remote, "red AND fox").unwrap());
    }
    // The last one is the first index again, under other limits.
    assert_eq!(counts, [1, 2, 3, 4, 5, 1].map(Some));
}

/// Returns what is known of the corpus of a server that does not describe itself.
fn undescribed(mode: CountMode) -> CorpusInfo {
    let window = Some(CnfOptions::default().max_diff_tokens);
    CorpusInfo { window, mode: Some(mode), ..CorpusInfo::default() }
}

#[test]
fn count_mode_requires_server_support() {
    let says = |about: Response, mode| {
        let server = CountServer::with_description(vec![about], vec![good(7)]);
        let remote = open(&server.url, mode, &settings(), None).map(|remote| remote.info());
        assert_eq!(server.num_requests(), 0);
        remote
    };
    let ours = |index| Response::Answer(200, "", about(index).to_string());
    for mode in [Mode::Compatible, Mode::Span] {
        assert_eq!(
            says(ours("wiki"), mode).unwrap(),
            CorpusInfo { tokens: Some(9), documents: Some(3), ..undescribed(count_mode(mode)) }
        );
    }
    let error = says(ours("wiki"), Mode::Exact).unwrap_err();
    assert!(
        error.to_string().contains(" does not report support for the mode `exact`, "),
        "{error}"
    );
    let error = says(ours("wiki-0-3"), Mode::Compatible).unwrap_err();
    assert!(error.to_string().contains("has the index wiki-0-3, not wiki"), "{error}");
    let status = |status| Response::Answer(status, "", String::new());
    for other in [status(502), status(503)] {
        assert_eq!(says(other, Mode::Compatible).unwrap(), undescribed(CountMode::Compatible));
    }
    for other in [Response::Answer(200, "", "<html>".into()), good(7), status(405)] {
        assert_eq!(
            says(other.clone(), Mode::Compatible).unwrap(),
            undescribed(CountMode::Compatible)
        );
        for mode in [Mode::Exact, Mode::Span] {
            let error = says(other.clone(), mode).unwrap_err();
            assert!(
                error.to_string().contains(" does not report support for the mode "),
                "{error}"
            );
        }
    }
    // A `corver-host` server that is busy at first.
    let busy = Response::Answer(503, "Retry-After: 1\r\n", r#"{"error":"busy"}"#.into());
    for (first, mode) in
        [(busy.clone(), Mode::Compatible), (busy, Mode::Span), (status(502), Mode::Span)]
    {
        let server = CountServer::with_description(vec![first, ours("wiki")], vec![good(7)]);
        let info = open(&server.url, mode, &settings(), None).unwrap().info();
        assert_ne!(info, undescribed(count_mode(mode)));
    }
}

#[test]
fn corver_server_receives_batched_queries() {
    let server = CountServer::corver(vec![
        many(&[Some(3); 4]),
        many(&[Some(3), None, Some(3), Some(3)]),
        many(&[Some(3)]),
    ]);
    let counts = server.remote(&settings()).count(&queries(9)).unwrap();
    let occurrences: Vec<_> = counts.iter().map(|count| count.occurrences).collect();
    assert_eq!(occurrences.iter().filter(|&&count| count == Some(3)).count(), 8);
    assert_eq!(occurrences[5], None);
    assert!(counts.iter().all(Count::is_exact));
    let requests = server.requests();
    assert_eq!(
        requests[0].body,
        json!({
            "index": "wiki", "query_type": "counts", "queries": ["red AND 0", "red AND 1", "red AND 2", "red AND 3"],
            "max_clause_freq": 500_000, "max_diff_tokens": 1_000,
        })
    );
    assert_eq!(requests[2].body["queries"], json!(["red AND 8"]));
}

#[test]
fn queries_are_split_across_connections() {
    let server = CountServer::corver(vec![many(&[Some(3); 2])]);
    let mut remote = server.remote(&RemoteSettings { connections: 3, ..settings() });
    assert_eq!(remote.count(&queries(6)).unwrap(), [Count::exact(Some(3)); 6]);
    let requests = server.requests();
    assert_eq!(
        requests
            .iter()
            .map(|one| one.body["queries"].as_array().unwrap().len())
            .collect::<Vec<_>>(),
        [2; 3]
    );
}

#[test]
fn request_size_respects_server_limit() {
    let server = CountServer::corver(vec![many(&[Some(3)])]);
    let queries: Vec<Query> =
        (0..3).map(|number| Query::new([[number.to_string().repeat(150)]])).collect();
    server.remote(&settings()).count(&queries).unwrap();
    assert_eq!(server.num_requests(), 3, "two would have more than 400 bytes");
}

#[test]
fn too_large_batch_is_halved_and_retried() {
    let too_large = || Response::Answer(413, "", r#"{"error":"ask fewer at once"}"#.into());
    let one = many(&[Some(3)]);
    let two = many(&[Some(3); 2]);
    let server = CountServer::corver(vec![too_large(), two, too_large(), one.clone(), one]);
    let counts = server.remote(&settings()).count(&queries(4)).unwrap();
    assert_eq!(counts, [Count::exact(Some(3)); 4]);
    let requests = server.requests();
    let lengths = requests.iter().map(|one| one.body["queries"].as_array().unwrap().len());
    assert_eq!(lengths.collect::<Vec<_>>(), [4, 2, 2, 1, 1]);

    let server = CountServer::corver(vec![too_large()]);
    let error = server.remote(&settings()).count(&queries(4)).unwrap_err().to_string();
    assert!(error.contains(r#"refuses the query "red AND 0" on its index wiki"#), "{error}");
    assert_eq!(server.num_requests(), 3);
}

#[test]
fn malformed_server_answer_is_rejected_and_retried() {
    for hostile in [
        many(&[Some(3)]),
        many(&[Some(3); 3]),
        many(&[]),
        good(7),
        Response::Answer(200, "", "[3, 3]".into()),
        Response::Answer(
            200,
            "",
            r#"{"counts": [{"count": -1, "approx": false, "precision": "exact"}, null]}"#.into(),
        ),
        Response::Answer(200, "", "\u{0}".repeat(3 << 20)),
    ] {
        let server = CountServer::corver(vec![hostile.clone()]);
        let impatient = RemoteSettings { retry_timeout_s: 0.1, ..settings() };
        let error = server.remote(&impatient).count(&queries(2)).unwrap_err().to_string();
        assert!(error.contains("did not answer 2 queries on its index wiki"), "{error}");
        // The request is retried, as after any response that was damaged on the way.
        let server = CountServer::corver(vec![hostile, many(&[Some(3); 2])]);
        assert!(server.remote(&settings()).count(&queries(2)).is_ok());
    }
    let server = CountServer::corver(vec![many(&[Some(3)]), many(&[Some(1), Some(2), Some(3)])]);
    let impatient = RemoteSettings { retry_timeout_s: 0.1, ..settings() };
    let error = server.remote(&impatient).count(&queries(2)).unwrap_err().to_string();
    assert!(error.contains("1 counts for 2 queries"), "{error}");
}

#[test]
fn limit_is_sent_only_to_corver_server() {
    let batch =
        || vec![Query::new([["fox"], ["den"]]).with_limit(Some(2)), Query::new([["fox"], ["hen"]])];
    let server = CountServer::public_api(vec![good(7)]);
    assert_eq!(server.remote(&settings()).count(&batch()).unwrap(), [Count::exact(Some(7)); 2]);
    assert!(server.requests().iter().all(|request| request.body.get("limit").is_none()));

    let folder = tempfile::tempdir().unwrap();
    let stopped =
        json!({"counts": [{"count": 2, "approx": false, "precision": "at_least"}]}).to_string();
    let server = CountServer::corver(vec![many(&[Some(7)]), Response::Answer(200, "", stopped)]);
    for _ in 0..2 {
        let mut remote =
            open(&server.url, Mode::Compatible, &settings(), Some(folder.path())).unwrap();
        let counts = remote.count(&batch()).unwrap();
        let stopped = Count { occurrences: Some(2), precision: CountPrecision::AtLeast };
        assert_eq!(counts, [stopped, Count::exact(Some(7))]);
    }
    let requests = server.requests();
    assert_eq!(
        requests.iter().map(|one| one.body.get("limit")).collect::<Vec<_>>(),
        [None, Some(&json!(2))]
    );
}

#[test]
fn unrepresentable_query_has_no_count() {
    let server = CountServer::public_api(vec![good(7)]);
    let queries = [Query::new([["this AND that"], ["fox"]]), Query::new([["red"]])];
    let counts = server.remote(&settings()).count(&queries).unwrap();
    assert_eq!(counts.iter().map(|count| count.occurrences).collect::<Vec<_>>(), [None, Some(7)]);
    assert_eq!(server.num_requests(), 1);
}

#[test]
fn invalid_url_and_settings_are_rejected_on_open() {
    let open = |url: &str, settings: &RemoteSettings| {
        open(url, Mode::Compatible, settings, None).map(drop)
    };
    assert!(matches!(open("api.infini-gram.io", &settings()), Err(RemoteError::Url { .. })));
    for (wrong, name) in [
        (RemoteSettings { connections: 0, ..settings() }, "connections"),
        (RemoteSettings { timeout_s: -1.0, ..settings() }, "timeout_s"),
        (RemoteSettings { retry_timeout_s: f64::NAN, ..settings() }, "retry_timeout_s"),
        (
            RemoteSettings { requests_per_second: Some(f64::INFINITY), ..settings() },
            "requests_per_second",
        ),
    ] {
        assert!(
            matches!(open("http://host/", &wrong), Err(RemoteError::Setting(problem)) if problem.key.ends_with(name))
        );
    }
}
