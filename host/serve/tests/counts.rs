//! Counts over HTTP: as the public API answers, asked by our client and by hand.

mod http;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use corver_core::{Counter, Query};
use corver_corpus::{
    BuildOptions, CnfOptions, Mode, OpenOptions, TextIndex, Tokenizer, build_from_documents,
};
use corver_counts::{Local, Remote, RemoteError, RemoteSettings, Sum, Token};
use corver_serve::{CountLimits, HttpServer, Metrics, ServerLimits, count_routes};
use http::{Answer, Running, read_answer};
use serde_json::{Value, json};

const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3,"hen":4},"unk_token":"[UNK]"}}"#;

fn corpus(folder: &Path) -> TextIndex {
    let path = folder.join("index");
    if !path.exists() {
        let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
        let documents = ["red fox", "fox den", "red fox and a red den", "hen hen hen hen"];
        build_from_documents(documents, &tokenizer, &path, &BuildOptions::with_shards(2)).unwrap();
    }
    TextIndex::open(path).unwrap()
}

/// A server of counts, with its index.
struct Counting {
    server: Running,
    folder: tempfile::TempDir,
}

impl Counting {
    fn new(limits: ServerLimits) -> Self {
        Self::guarded(limits, CountLimits::default(), None)
    }

    fn guarded(limits: ServerLimits, of_counts: CountLimits, token: Option<Token>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server =
            HttpServer::bind("127.0.0.1:0".parse().unwrap(), limits, token, Metrics::default())
                .unwrap();
        server.add_routes(count_routes(corpus(folder.path()), "wiki", of_counts));
        Self { server: Running::new(server), folder }
    }

    fn post(&self, body: &str) -> (u16, Value) {
        reply(&self.server.post("/", body))
    }
}

fn reply(answer: &Answer) -> (u16, Value) {
    (answer.status, answer.json())
}

#[test]
fn count_answers_match_public_api() {
    let server = Counting::new(ServerLimits::default());
    let (status, mut answer) =
        server.post(r#"{"index": "wiki", "query_type": "count", "query": "red fox"}"#);
    assert!(answer["latency"].as_f64().unwrap() >= 0.0);
    answer.as_object_mut().unwrap().remove("latency");
    let expected = json!({"count": 2, "approx": false, "precision": "exact", "token_ids": [1, 2], "tokens": ["red", "fox"]});
    assert_eq!((status, answer), (200, expected));

    let cnf = r#"{"index": "wiki", "query_type": "count", "query": "red AND den OR hen", "max_diff_tokens": 10}"#;
    let (status, answer) = server.post(cnf);
    assert_eq!((status, &answer["token_ids"]), (200, &json!([[[1]], [[3], [4]]])));
    assert_eq!(answer["tokens"], json!([[["red"]], [["den"], ["hen"]]]));

    // The same query in ids; the older name of the index; fields that clients send along.
    let ids = r#"{"corpus": "wiki", "query_type": "count", "query_ids": [[[1]], [[3], [4]]], "max_diff_tokens": 10,
        "source": "x", "engine": null, "timestamp": 1}"#;
    assert_eq!(server.post(ids).1["count"], answer["count"]);
    let count = |rest: &str| {
        server.post(&format!(r#"{{"index":"wiki","query_type":"count",{rest}}}"#)).1["count"]
            .clone()
    };
    assert_eq!(count(r#""query":"""#), corpus(server.folder.path()).index().info().tokens);
    assert_eq!(count(r#""query_ids":[4,4]"#), 3);
    // Above the cap: an estimate, which one may refuse.
    let capped = |mode| {
        let rest = format!(
            r#"{{"index":"wiki","query_type":"count","query":"hen OR den","max_clause_freq":2,"mode":"{mode}"}}"#
        );
        let answer = server.post(&rest).1;
        (answer["count"].clone(), answer["precision"].clone())
    };
    assert_eq!(
        [capped("exact"), capped("span")],
        [(json!(6), json!("exact")), (json!(6), json!("exact"))]
    );
    assert_eq!(capped("compatible").1, json!("estimate"));
    let limited = r#"{"index":"wiki","query_type":"count","query":"red AND fox","max_diff_tokens":10,"mode":"span","limit":1}"#;
    assert_eq!(server.post(limited).1["precision"], "at_least");
}

#[test]
fn many_queries_are_answered_in_one_request() {
    let server = Counting::new(ServerLimits::default());
    let queries = ["red AND fox", "hen", "", "fox AND den OR hen", "red fox"];
    for rest in [r#""max_diff_tokens":10"#, r#""mode":"exact""#, r#""mode":"span","limit":2"#] {
        let ask = |what: &str| server.post(&format!(r#"{{"index":"wiki",{what},{rest}}}"#));
        let (status, answer) =
            ask(&format!(r#""query_type":"counts","queries":{}"#, json!(queries)));
        assert!(answer["latency"].as_f64().unwrap() >= 0.0);
        let alone = queries.map(|query| {
            let answer = ask(&format!(r#""query_type":"count","query":"{query}""#)).1;
            json!({"count": answer["count"], "approx": answer["approx"], "precision": answer["precision"]})
        });
        assert_eq!((status, &answer["counts"]), (200, &json!(alone)), "{rest}");
    }
}

#[test]
fn bad_count_requests_get_api_errors() {
    let of_counts = CountLimits {
        body_bytes: 4_096,
        queries: 2,
        query_bytes: 1_000,
        terms: 3,
        terms_per_clause: 2,
        tokens: 7,
        ..CountLimits::default()
    };
    let server = Counting::guarded(ServerLimits::default(), of_counts, None);
    let request = |rest: &str| format!(r#"{{"index":"wiki","query_type":"count",{rest}}}"#);
    let many = |rest: &str| format!(r#"{{"index":"wiki","query_type":"counts",{rest}}}"#);
    for (body, status, says) in [
        (
            r#"{"index":"wiki","query_type":"find","query":"red"}"#.to_owned(),
            400,
            "Invalid query_type: find",
        ),
        (
            r#"{"index":"pile","query_type":"count","query":"red"}"#.to_owned(),
            400,
            "Invalid index: pile",
        ),
        (r#"{"index":"wiki","query":"red"}"#.to_owned(), 400, "query_type"),
        (request(r#""querry":"red""#), 400, "querry"),
        (request(r#""max_diff_tokens":5"#), 400, "Exactly one of query and query_ids"),
        (request(r#""query":"red","query_ids":[1]"#), 400, "Exactly one of query and query_ids"),
        (request(r#""query":"red","queries":["red"]"#), 400, "Exactly one of query and query_ids"),
        (request(r#""query":"red","mode":"often""#), 400, "unknown variant `often`"),
        (request(r#""query":"red","exact":true"#), 400, "unknown field `exact`"),
        (many(r#""query":"red""#), 400, "queries must be present"),
        (many(r#""queries":["red"],"query_ids":[1]"#), 400, "queries must be present, and neither"),
        (many(r#""queries":["red","fox","den"]"#), 400, "3 queries; at most 2"),
        (
            many(r#""queries":["red","red AND fox AND den AND hen"]"#),
            400,
            r#""red AND fox AND den AND hen": 4 terms;"#,
        ),
        (many(r#""queries":["red AND "]"#), 400, r#""red AND ": an empty term"#),
        (many(&format!(r#""queries":["{}"]"#, "r".repeat(1_001))), 400, "1001 bytes"),
        (many(&format!(r#""queries":["{}"]"#, "r".repeat(5_000))), 413, "4096 bytes"),
        (request(r#""query":"red","max_diff_tokens":0"#), 400, "max_diff_tokens is 0"),
        (request(r#""query":"red","max_clause_freq":true"#), 400, "invalid type"),
        (request(r#""query":"red AND ""#), 400, "empty term"),
        (request(r#""query_ids":[[[1],[]]]"#), 400, "empty term"),
        (request(r#""query_ids":[70000]"#), 400, "70000"),
        (request(r#""query_ids":[[1]]"#), 400, "Invalid request"),
        (request(r#""query":"red AND fox AND den AND hen""#), 400, "4 terms;"),
        (request(r#""query":"red OR fox OR den""#), 400, "3 terms in a clause"),
        (request(r#""query":"red red red red red red red red""#), 400, "8 tokens"),
        (request(&format!(r#""query":"{}""#, "r".repeat(1_001))), 400, "1001 bytes"),
        (request(&format!(r#""query":"{}""#, "r".repeat(5_000))), 413, "4096 bytes"),
        ("red".to_owned(), 400, "Invalid request"),
        (String::new(), 400, "Invalid request"),
    ] {
        let (got, answer) = server.post(&body);
        let error = answer["error"].as_str().unwrap_or_else(|| panic!("{body}: {answer}"));
        assert!(got == status && error.contains(says), "{body}: {got} {error}");
    }
    let get =
        |path: &str, method: &str| {
            reply(&server.server.exchange(&format!(
                "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
            )))
        };
    let about = get("/", "GET").1;
    assert_eq!(
        (&about["index"], &about["queries"], &about["body_bytes"]),
        (&json!("wiki"), &json!(2), &json!(4_096))
    );
    assert_eq!((get("/", "PUT").0, get("/wiki", "POST").0), (405, 404));
}

/// Some queries of every kind.
fn queries() -> Vec<Query> {
    let words = ["red", "fox", "den", "hen", "red fox", "weasel"];
    let mut texts: Vec<String> = words.map(str::to_owned).to_vec();
    for one in words {
        for other in words {
            texts.push(format!("{one} AND {other}"));
            texts.push(format!("{one} OR {other}"));
            texts.push(format!("hen OR {one} AND {other} OR den AND red"));
        }
    }
    let mut queries: Vec<Query> =
        texts.iter().map(|text| Query::new(corver_corpus::parse_query(text).unwrap())).collect();
    queries.push(Query::new([["red"], [" "]])); // it has no words
    queries
}

#[test]
fn remote_counts_equal_local_counts() {
    // A batch of these takes several requests.
    let of_counts = CountLimits { queries: 7, body_bytes: 300, ..CountLimits::default() };
    let server = Counting::guarded(ServerLimits::default(), of_counts, None);
    for mode in [Mode::Compatible, Mode::Exact, Mode::ExactFirst, Mode::Span] {
        for (max_clause_freq, enough) in [(1, None), (2, None), (500_000, None), (500_000, Some(2))]
        {
            let options = CnfOptions { mode, max_clause_freq, max_diff_tokens: 3 };
            let mut remote = Remote::open(
                &server.server.url(),
                "wiki",
                options,
                &RemoteSettings::default(),
                None,
            )
            .unwrap();
            let mut local = Local::new(corpus(server.folder.path()), options);
            let asked: Vec<Query> =
                queries().into_iter().map(|query| query.with_limit(enough)).collect();
            assert_eq!(
                remote.count(&asked).unwrap(),
                local.count(&asked).unwrap(),
                "{options:?} {enough:?}"
            );
            assert_eq!(remote.info(), local.info());
        }
    }
}

#[test]
fn distributed_shards_count_like_one_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let texts: Vec<String> = (0..60)
        .map(|number: usize| {
            let words = ["red", "fox", "den", "hen", "and", "a"];
            (0..3 + number % 7)
                .map(|at| words[(number * 5 + at * at) % 6])
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
    let shards = BuildOptions::with_shards(3);
    build_from_documents(texts.iter().map(String::as_str), &tokenizer, &path, &shards).unwrap();
    let mut servers: Vec<Running> = (0..3)
        .map(|shard| {
            let part = OpenOptions { shards: Some(shard..=shard), ..OpenOptions::default() };
            let address = "127.0.0.1:0".parse().unwrap();
            let mut server =
                HttpServer::bind(address, ServerLimits::default(), None, Metrics::default())
                    .unwrap();
            let corpus = TextIndex::open_with(&path, part).unwrap();
            server.add_routes(count_routes(
                corpus,
                &format!("wiki-{shard}"),
                CountLimits::default(),
            ));
            Running::new(server)
        })
        .collect();
    let sum = |options: CnfOptions, retry_timeout_s| {
        let of_members = CnfOptions { mode: Sum::member_mode(options.mode), ..options };
        let settings = RemoteSettings { retry_timeout_s, ..RemoteSettings::default() };
        let remote = |(shard, server): (usize, &Running)| {
            let remote =
                Remote::open(&server.url(), &format!("wiki-{shard}"), of_members, &settings, None)
                    .unwrap();
            Box::new(remote) as Box<dyn Counter>
        };
        Sum::new(servers.iter().enumerate().map(remote).collect(), options.mode)
    };
    for mode in [Mode::Exact, Mode::Span] {
        for max_diff_tokens in [1, 2, 5, 1_000] {
            let options = CnfOptions { mode, max_diff_tokens, ..CnfOptions::default() };
            let mut whole = Local::new(TextIndex::open(&path).unwrap(), options);
            let mut parts = sum(options, 20.0);
            let counts = parts.count(&queries()).unwrap();
            assert_eq!(counts, whole.count(&queries()).unwrap(), "{options:?}");
            assert_eq!(parts.info(), whole.info());
            // What is enough is found, or all is counted.
            let enough: Vec<Query> =
                queries().into_iter().map(|query| query.with_limit(Some(4))).collect();
            for (count, whole) in parts.count(&enough).unwrap().iter().zip(&counts) {
                assert!(
                    count.occurrences.min(Some(4)) == whole.occurrences.min(Some(4)),
                    "{count:?} {whole:?}"
                );
                assert!(!count.is_exact() || count == whole, "{count:?} {whole:?}");
            }
        }
    }

    // Two are gone: both are named, and neither is waited for after the other.
    let mut parts = sum(CnfOptions::default(), 2.0);
    servers.drain(1..).for_each(drop);
    let start = Instant::now();
    let error = parts.count(&queries()).unwrap_err().to_string();
    assert!(
        error.contains("on its index wiki-1") && error.contains("on its index wiki-2"),
        "{error}"
    );
    assert!(!error.contains("wiki-0"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn count_request_times_out() {
    let of_counts = CountLimits { time: Duration::ZERO, ..CountLimits::default() };
    let server = Counting::guarded(ServerLimits::default(), of_counts, None);
    let body = r#"{"index":"wiki","query_type":"counts","queries":["red AND fox"]}"#;
    assert_eq!(server.post(body).0, 503);
}

#[test]
fn connection_serves_several_requests() {
    let server = Counting::new(ServerLimits::default());
    let mut stream = TcpStream::connect(server.server.address).unwrap();
    let body = r#"{"index":"wiki","query_type":"count","query":"hen"}"#;
    for _ in 0..3 {
        write!(
            stream,
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        assert_eq!(read_answer(&mut stream).json()["count"], 4);
    }
}

#[test]
fn slow_clients_do_not_block_others() {
    let limits = ServerLimits {
        time: Duration::from_millis(300),
        connections: 2,
        ..ServerLimits::default()
    };
    let server = Counting::new(limits);
    // One says nothing, one begins a head, one begins a body: with two places, no other client
    // would ever get one.
    let mut silent = TcpStream::connect(server.server.address).unwrap();
    let mut head = TcpStream::connect(server.server.address).unwrap();
    head.write_all(b"POST / HTTP/1.1\r\nHost:").unwrap();
    let mut body = TcpStream::connect(server.server.address).unwrap();
    body.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{").unwrap();
    assert_eq!(server.post(r#"{"index":"wiki","query_type":"count","query":"hen"}"#).1["count"], 4);
    assert_eq!(read_answer(&mut body).status, 408);
    for stream in [&mut silent, &mut head] {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // Closed; abruptly where the server had not read all of it.
        match stream.read_to_end(&mut Vec::new()) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            Ok(read) => assert_eq!(read, 0),
        }
    }
}

#[test]
fn server_stops_despite_open_connections() {
    let server = Counting::new(ServerLimits::default());
    let address = server.server.address;
    let _idle = TcpStream::connect(address).unwrap();
    let mut kept_alive = TcpStream::connect(address).unwrap();
    let body = r#"{"index":"wiki","query_type":"count","query":"hen"}"#;
    write!(
        kept_alive,
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    read_answer(&mut kept_alive);
    let start = Instant::now();
    drop(server);
    assert!(
        start.elapsed() < Duration::from_secs(9),
        "open connections are not waited for: {:?}",
        start.elapsed()
    );
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn client_not_reading_answers_is_disconnected() {
    let server = Counting::new(ServerLimits {
        write_time: Duration::from_millis(300),
        ..ServerLimits::default()
    });
    let body = r#"{"index":"wiki","query_type":"count","query":"hen"}"#;
    let request =
        format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    for reads_a_little in [false, true] {
        let mut stream = TcpStream::connect(server.server.address).unwrap();
        stream.set_nonblocking(true).unwrap();
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < Duration::from_secs(20), "the server waits for ever");
            match stream.write(request.repeat(100).as_bytes()) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if reads_a_little {
                        let _ = stream.read(&mut [0]);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => {
                    assert!(
                        [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()),
                        "{error}"
                    );
                    break;
                }
            }
        }
    }
    assert_eq!(server.post(body).1["count"], 4);
}

#[test]
fn server_requires_matching_token() {
    let folder = tempfile::tempdir().unwrap();
    let token = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (ours, others) =
        (token("ours", "0123456789abcdef\n"), token("others", "0123456789abcdeg\n"));
    let server = Counting::guarded(
        ServerLimits::default(),
        CountLimits::default(),
        Token::load(Some(&ours), None).unwrap(),
    );
    let ask = |token_file: Option<&Path>| {
        let settings = RemoteSettings {
            token_file: token_file.map(Path::to_owned),
            ..RemoteSettings::default()
        };
        let remote =
            Remote::open(&server.server.url(), "wiki", CnfOptions::default(), &settings, None)?;
        remote.count_words(&[vec!["hen".to_owned()]]).map(|count| count.unwrap().count)
    };
    assert_eq!(ask(Some(&ours)).unwrap(), 4);
    for (shown, says) in [
        (None, "requires a bearer token"),
        (Some(&*others), "bearer token is not the one of this server"),
    ] {
        let error = ask(shown).unwrap_err();
        assert!(
            matches!(&error, RemoteError::Refused(message) if message.contains(says)),
            "{error}"
        );
        assert!(!error.to_string().contains("0123456789"), "{error}");
    }
    assert_eq!(server.post(r#"{"index":"wiki","query_type":"count","query":"hen"}"#).0, 401);
}

#[test]
fn server_accepts_largest_allowed_query() {
    let server = Counting::new(ServerLimits::default());
    // 256 words of 120 bytes: as much as a request may have. None is in the vocabulary, so the answer
    // is that they have no tokens.
    let words: Vec<String> = (0..256).map(|number| format!("{number:0>120}")).collect();
    let all_of: Vec<Vec<String>> = words.chunks(64).map(<[String]>::to_vec).collect();
    let mut remote = Remote::open(
        &server.server.url(),
        "wiki",
        CnfOptions::default(),
        &RemoteSettings::default(),
        None,
    )
    .unwrap();
    assert!(remote.count(&[Query::new(all_of)]).unwrap()[0].occurrences.is_none());

    let known = vec![vec!["hen".to_owned(); 64]; 4];
    assert!(remote.count(&[Query::new(known.clone())]).unwrap()[0].occurrences.is_some());
    let mut one_more = known;
    one_more.push(vec!["hen".to_owned()]);
    let error = remote.count(&[Query::new(one_more)]).unwrap_err().to_string();
    assert!(error.contains("257 terms; at most 256"), "{error}");
}
