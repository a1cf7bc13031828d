//! A chat model's second opinion, from an endpoint in this process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::host::{host, host_with_cache, kill_when_with_cache, lines, run_dir};
use crate::served::{Response, Server};
use crate::transcript::Transcript;

/// A model: prompt → reply.
type Model = fn(&str) -> &'static str;

/// Starts an endpoint of a model. Every reply takes a moment.
fn endpoint(model: Model) -> Server {
    Server::new(move |request| {
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(request.body["temperature"], 0.0);
        let content = model(request.body["messages"][0]["content"].as_str().unwrap());
        let reply = json!({"choices": [{"message": {"role": "assistant", "content": content}}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 2}});
        Response::Answer(200, "", reply.to_string())
    })
}

fn field<'a>(prompt: &'a str, name: &str) -> &'a str {
    prompt.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim()
}

/// Calls an answer right where the prompt says that the golds are it; of one question it says
/// nothing.
fn grader(prompt: &str) -> &'static str {
    match field(prompt, "Answer:") {
        _ if field(prompt, "Question:") == "q56?" => "I would rather not say",
        "" => "NOT_ATTEMPTED",
        answer if field(prompt, "Gold answers:") == answer => "Correct.",
        _ => "INCORRECT",
    }
}

#[test]
fn chat_judge_regrades_string_match_answers() {
    let mut transcript = Transcript::default();
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
    let all: Vec<Value> =
        (0..57).map(|n| json!({"question": format!("q{n}?"), "answers": ["gold"]})).collect();
    fs::write(&questions, json!(all).to_string()).unwrap();

    let cache = tempfile::tempdir().unwrap();
    let server = endpoint(grader);
    let url = format!("{}/v1", server.url);
    let [answers_path, questions, folder] = [&answers_path, &questions, &out.join("judge")]
        .map(|path| path.to_str().unwrap().to_owned());
    let judge = [
        "judge",
        &answers_path,
        "--questions",
        &questions,
        "--endpoint",
        &url,
        "--chat-model",
        "m",
    ];
    let args = [&judge[..], &["--out", &folder, "--json"]].concat();
    kill_when_with_cache(cache.path(), &args, || server.num_requests() > 8);
    let before = server.num_requests();
    let judged = host_with_cache(cache.path(), &args).good().json();
    // Those under way when it was killed are asked again; the one without a label is asked twice.
    assert!(server.num_requests() <= 58 + 4, "{before} before, {} in all", server.num_requests());
    assert_eq!(judged["table"], json!([[30, 10, 0], [0, 15, 0], [0, 0, 1]]));
    assert_eq!((&judged["unlabelled"], &judged["answers"]), (&json!(1), &json!(57)));
    assert!((judged["agreement"].as_f64().unwrap() - 46.0 / 56.0).abs() < 1e-12);
    // Observed 46/56; expected (40·30 + 15·25 + 1·1)/56².
    let expected = (40.0 * 30.0 + 15.0 * 25.0 + 1.0) / (56.0 * 56.0);
    let kappa = (46.0 / 56.0 - expected) / (1.0 - expected);
    assert!((judged["kappa"]["value"].as_f64().unwrap() - kappa).abs() < 1e-12, "{judged}");
    assert!(judged["spent"]["cached"]["replies"].as_u64().unwrap() >= 1, "{judged}");
    let disputed = lines(&out.join("judge/disputed.jsonl"));
    assert_eq!(
        (disputed.len(), &disputed[0]["string_match"], &disputed[0]["model"]),
        (10, &json!("GOOD"), &json!("BAD"))
    );
    assert_eq!(lines(&out.join("judge/judged.jsonl"))[56]["reply"], "I would rather not say");

    let asked = server.num_requests();
    let again = out.join("again");
    let again_args = [&judge[..], &["--out", again.to_str().unwrap()]].concat();
    transcript.add(&host_with_cache(cache.path(), &again_args).good());
    assert_eq!(server.num_requests(), asked, "everything was known");

    let run = |more: &[&str]| host_with_cache(cache.path(), &[&judge[..], more].concat());
    transcript.add_failure(&run(&["--out", &folder]));
    transcript.add_failure(&run(&["--max-cost", "1"]));
    let for_sheets = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/judge/sentence.toml");
    transcript.add_failure(&run(&["--prompt", for_sheets]));
    let missing =
        ["judge", &answers_path, "--questions", "demo", "--endpoint", &url, "--chat-model", "m"];
    transcript.add_failure(&host_with_cache(cache.path(), &missing));
    transcript.add_failure(&host_with_cache(cache.path(), &["judge", &answers_path]));

    let priced = out.join("priced.toml");
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/judge/answer.toml"))
            .unwrap();
    fs::write(&priced, format!("{text}\nprices = {{ prompt = 1000.0, completion = 0.0 }}\n"))
        .unwrap();
    let fresh = tempfile::tempdir().unwrap();
    let ceiling = [
        "--prompt",
        priced.to_str().unwrap(),
        "--max-cost",
        "0.5",
        "--out",
        again.join("x").to_str().unwrap(),
    ]
    .map(str::to_owned);
    let args: Vec<&str> = judge.iter().copied().chain(ceiling.iter().map(String::as_str)).collect();
    transcript.add_failure(&host_with_cache(fresh.path(), &args).without_figures());
    assert!(
        fs::read_to_string(fresh.path().join("corver/chat/replies.jsonl")).unwrap().lines().count()
            >= 10
    );
    let asked = server.num_requests();
    transcript.add_failure(&host_with_cache(fresh.path(), &args).without_figures());
    assert_eq!(
        server.num_requests(),
        asked,
        "another process with the same ceiling pays for nothing more"
    );
    insta::assert_snapshot!(transcript);
}

/// Affirms what a sentence says of itself; of one it says nothing. It must not be shown more than
/// the sentence.
fn believer(prompt: &str) -> &'static str {
    assert!(!prompt.contains("who?") && !prompt.contains("Rome AND Italy"), "{prompt}");
    match field(prompt, "Sentence:") {
        mute if mute.starts_with("Mute") => "That depends.",
        sound if sound.contains("sounds right") => "Correct.",
        _ => "incorrect",
    }
}

const HEADER: &str = "id,bucket,count,question,sentence,head,relation,tail,query,label,note";

/// A sheet of so many sentences each: bucket, count, how they begin, the people's label.
fn sheet(path: &Path, parts: &[(usize, &str, u64, &str, &str)]) {
    let sentences = parts.iter().flat_map(|part| std::iter::repeat_n(part, part.0));
    let row = |(n, (_, bucket, count, sounds, label)): (usize, &(usize, &str, u64, &str, &str))| {
        format!(
            "s{n},{bucket},{count},who?{n},{sounds} {n}.,Rome,is in,Italy,Rome AND Italy,{label},\n"
        )
    };
    fs::write(path, format!("{HEADER}\n{}", sentences.enumerate().map(row).collect::<String>()))
        .unwrap();
}

#[test]
fn chat_judge_labels_sheet_sentences() {
    let mut transcript = Transcript::default();
    let out = run_dir("sentences");
    fs::create_dir_all(&out).unwrap();
    let at = |name: &str| out.join(name).to_str().unwrap().to_owned();
    let (right, wrong) = ("It sounds right", "It sounds odd");
    let parts = [
        (16, "0", 0, wrong, "incorrect"),
        (4, "0", 0, right, "incorrect"), // affirmed, and wrong
        (4, "0", 0, right, "correct"),
        (1, "0", 0, right, "unclear"),
        (12, "20 or more", 30, right, "correct"),
        (3, "20 or more", 30, wrong, "correct"),
        (2, "20 or more", 30, wrong, "incorrect"),
        (1, "20 or more", 30, "Mute", "correct"),
        (2, "20 or more", 30, right, ""),
    ];
    let labelled = at("labelled.csv");
    sheet(Path::new(&labelled), &parts);

    let cache = tempfile::tempdir().unwrap();
    let server = endpoint(believer);
    let url = format!("{}/v1", server.url);
    let to = ["--endpoint", &url, "--chat-model", "believer"];
    let run = |args: &[&str]| host_with_cache(cache.path(), &[&["judge"], args, &to].concat());
    let folder = at("judge");
    let args = [&["judge", &labelled, "--out", &folder, "--json"][..], &to].concat();
    kill_when_with_cache(cache.path(), &args, || server.num_requests() > 8);
    let found = host_with_cache(cache.path(), &args).good().json();
    assert!(server.num_requests() <= 46 + 4, "{} requests", server.num_requests());
    let number = |name: &str| found[name].as_u64().unwrap();
    let numbers = ["sentences", "affirmed", "rejected", "unlabelled", "unclear"].map(number);
    assert_eq!(numbers, [45, 23, 21, 1, 1]);
    let shares = |name: &str| -> Vec<[u64; 2]> {
        let buckets = found[name]["buckets"].as_array().unwrap();
        buckets
            .iter()
            .map(|bucket| ["correct", "n"].map(|name| bucket[name].as_u64().unwrap()))
            .collect()
    };
    assert_eq!(shares("affirmed_by_count"), [[9, 25], [14, 19]]);
    assert_eq!(shares("correct_by_count"), [[4, 24], [16, 18]]);
    assert_eq!(shares("missed_by_count"), [[4, 20], [0, 2]]);
    assert_eq!(found["table"], json!([[16, 3], [4, 18]]));
    // Observed 34/41; expected (19·20 + 22·21)/41² = 842/1681, so κ = (1394 − 842)/(1681 − 842).
    assert!((found["agreement"].as_f64().unwrap() - 34.0 / 41.0).abs() < 1e-12, "{found}");
    assert!((found["kappa"]["value"].as_f64().unwrap() - 552.0 / 839.0).abs() < 1e-12, "{found}");
    let disputed = lines(&out.join("judge/disputed.jsonl"));
    let first = ["label", "model", "count"].map(|name| disputed[0][name].clone());
    assert_eq!((disputed.len(), first), (7, [json!("incorrect"), json!("correct"), json!(0)]));
    assert_eq!(lines(&out.join("judge/judged.jsonl"))[42]["reply"], "That depends.");

    let asked = server.num_requests();
    transcript.add(&run(&[&labelled, "--out", &at("again")]).good());
    assert_eq!(server.num_requests(), asked, "everything was known");

    // A sheet without labels has the model's, which a person checks.
    let bare = at("bare.csv");
    sheet(
        Path::new(&bare),
        &parts.map(|(n, bucket, count, sounds, _)| (n, bucket, count, sounds, "")),
    );
    let first = run(&[&bare, "--out", &at("first"), "--json"]).good().json();
    assert_eq!((&first["correct_by_count"], first.get("table")), (&Value::Null, None));
    assert_eq!(server.num_requests(), asked, "the sentences are the same");
    let by_model = at("first/sheet.csv");
    let read = host(&["calibrate", "read", &by_model, "--json"]).good().json();
    assert_eq!((&read["by_model"], &read["unlabelled"]), (&json!(44), &json!(1)));
    assert_eq!(read["buckets"], first["affirmed_by_count"]["buckets"]);
    transcript.add(&host(&["calibrate", "read", &by_model]).good());

    // Its own labels are nobody's second opinion; the one that a person has checked is.
    let text = fs::read_to_string(&by_model).unwrap();
    let checked = text.replacen(",correct,model: believer", ",incorrect,", 1);
    assert_ne!(text, checked);
    fs::write(at("checked.csv"), checked).unwrap();
    let audited = run(&[&at("checked.csv"), "--out", &at("audited"), "--json"]).good().json();
    assert_eq!(audited["table"], json!([[0, 0], [1, 0]]));

    transcript.add_failure(&run(&[&labelled, "--questions", "demo"]));
    transcript.add_failure(&run(&[&labelled, &at("judge/judged.jsonl")]));
    let answers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/judge/answer.toml");
    transcript.add_failure(&run(&[&labelled, "--prompt", answers]));
    transcript.add_failure(&run(&[&at("absent.csv")]));
    insta::assert_snapshot!(transcript);
}
