//! A chat model's second opinion, from an endpoint in this process.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};

use crate::host::{host_with_cache, kill_when_with_cache, lines, run_dir};

/// An endpoint that calls an answer right where the prompt says that the golds are it, and says something else about the first `mute`
/// answers. Every reply takes a moment.
fn endpoint(mute: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let counted = counted.clone();
            std::thread::spawn(move || serve(stream.unwrap(), mute, &counted));
        }
    });
    (url, requests)
}

fn serve(mut stream: TcpStream, mute: &str, requests: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        requests.fetch_add(1, SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let request: Value = serde_json::from_slice(&body).unwrap();
        let prompt = request["messages"][0]["content"].as_str().unwrap();
        let field = |name: &str| prompt.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let (question, golds, answer) = (field("Question:"), field("Gold answers:"), field("Answer:"));
        let said = match answer {
            _ if question == mute => "I would rather not say",
            answer if answer.is_empty() => "NOT_ATTEMPTED",
            answer if golds == answer => "Correct.",
            _ => "INCORRECT",
        };
        let reply = json!({"choices": [{"message": {"role": "assistant", "content": said}}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 2}})
        .to_string();
        if write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{reply}", reply.len()).is_err() {
            return;
        }
    }
}

#[test]
fn a_model_judges_what_the_string_match_has_graded() {
    let out = run_dir("judged");
    fs::create_dir_all(&out).unwrap();
    let answer = |n: usize, grade: &str, said: &str| {
        json!({"grade": grade, "length": 3, "question": format!("q{n}?"), "completion": format!("<answer>{said}</answer>")}).to_string()
    };
    let mut answers: Vec<String> = (0..30).map(|n| answer(n, "GOOD", "gold")).collect();
    answers.extend((30..40).map(|n| answer(n, "GOOD", "old")));
    answers.extend((40..55).map(|n| answer(n, "BAD", "lead")));
    answers.push(answer(55, "NOT_ATTEMPTED", ""));
    answers.push(answer(56, "BAD", "lead"));
    let (answers_path, questions) = (out.join("answers.jsonl"), out.join("questions.json"));
    fs::write(&answers_path, answers.join("\n")).unwrap();
    let all: Vec<Value> = (0..57).map(|n| json!({"question": format!("q{n}?"), "answers": ["gold"]})).collect();
    fs::write(&questions, json!(all).to_string()).unwrap();

    let cache = tempfile::tempdir().unwrap();
    let (url, requests) = endpoint("q56?");
    let [answers_path, questions, folder] =
        [&answers_path, &questions, &out.join("judge")].map(|path| path.to_str().unwrap().to_owned());
    let judge = ["judge", &answers_path, "--questions", &questions, "--endpoint", &url, "--model", "m"];
    let args = [&judge[..], &["--out", &folder, "--json"]].concat();
    kill_when_with_cache(cache.path(), &args, || requests.load(SeqCst) > 8);
    let before = requests.load(SeqCst);
    let judged = host_with_cache(cache.path(), &args).good().json();
    // Those under way when it was killed are asked again; the one without a label is asked twice.
    assert!(requests.load(SeqCst) <= 58 + 4, "{before} before, {} in all", requests.load(SeqCst));
    assert_eq!(judged["table"], json!([[30, 10, 0], [0, 15, 0], [0, 0, 1]]));
    assert_eq!((&judged["unlabelled"], &judged["answers"]), (&json!(1), &json!(57)));
    assert!((judged["agreement"].as_f64().unwrap() - 46.0 / 56.0).abs() < 1e-12);
    // Observed 46/56; expected (40·30 + 15·25 + 1·1)/56².
    let expected = (40.0 * 30.0 + 15.0 * 25.0 + 1.0) / (56.0 * 56.0);
    let kappa = (46.0 / 56.0 - expected) / (1.0 - expected);
    assert!((judged["kappa"]["value"].as_f64().unwrap() - kappa).abs() < 1e-12, "{judged}");
    assert!(judged["spent"]["before"]["replies"].as_u64().unwrap() >= 1, "{judged}");
    let disputed = lines(&out.join("judge/disputed.jsonl"));
    assert_eq!(
        (disputed.len(), &disputed[0]["string_match"], &disputed[0]["model"]),
        (10, &json!("GOOD"), &json!("BAD"))
    );
    assert_eq!(lines(&out.join("judge/judged.jsonl"))[56]["reply"], "I would rather not say");

    let asked = requests.load(SeqCst);
    let again = out.join("again");
    let shown =
        host_with_cache(cache.path(), &[&judge[..], &["--out", again.to_str().unwrap()]].concat()).good().stdout;
    assert!(shown.contains("Cohen's κ 0.6") && shown.contains("1 replies are no label"), "{shown}");
    assert_eq!(requests.load(SeqCst), asked, "everything was known");

    let run = |more: &[&str]| host_with_cache(cache.path(), &[&judge[..], more].concat());
    run(&["--out", &folder]).bad("is finished; choose another folder");
    run(&["--max-cost", "1"]).bad("chat.prices");
    run(&["--judge", &questions]).bad("is no judge");
    let missing = ["judge", &answers_path, "--questions", "demo", "--endpoint", &url, "--model", "m"];
    host_with_cache(cache.path(), &missing).bad("no gold is known for \"q0?\"");

    let priced = out.join("priced.toml");
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/judge/answer.toml")).unwrap();
    fs::write(&priced, format!("{text}\nprices = {{ prompt = 1000.0, completion = 0.0 }}\n")).unwrap();
    let fresh = tempfile::tempdir().unwrap();
    let ceiling =
        ["--judge", priced.to_str().unwrap(), "--max-cost", "0.5", "--out", again.join("x").to_str().unwrap()]
            .map(str::to_owned);
    let args: Vec<&str> = judge.iter().copied().chain(ceiling.iter().map(String::as_str)).collect();
    host_with_cache(fresh.path(), &args).bad("a higher ceiling goes on");
    assert!(fs::read_to_string(fresh.path().join("corver/chat/replies.jsonl")).unwrap().lines().count() >= 10);
    let asked = requests.load(SeqCst);
    host_with_cache(fresh.path(), &args).bad("of at most 0.5 (chat.max_cost)");
    assert_eq!(requests.load(SeqCst), asked, "another process with the same ceiling pays for nothing more");
}
