//! Texts are checked against a corpus.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::host::{EXTRACTOR, Server, host, lines, small_index};
use crate::transcript::Transcript;

/// Some sentence is unsupported.
const UNSUPPORTED: i32 = 3;

/// An article of the demo's corpus with a fact in it: its sentence, head and tail.
fn fact(folder: &Path) -> (String, String, String) {
    let world = folder.join("world");
    host(&["demo", "world", world.to_str().unwrap()]).good();
    for article in lines(&world.join("articles.jsonl")) {
        let text = article["text"].as_str().unwrap();
        let Some((_, birth)) = text.split_once(". ") else { continue };
        if let Some((place, person)) = birth.split_once(" is the birthplace of ") {
            let person = person.split_once('.').unwrap().0;
            return (
                format!("{place} is the birthplace of {person}."),
                person.to_owned(),
                place.to_owned(),
            );
        }
    }
    panic!("no article says where somebody was born");
}

fn statuses(checked: &Value) -> Vec<&str> {
    checked["sentences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sentence| sentence["status"].as_str().unwrap())
        .collect()
}

#[test]
fn check_reports_support_per_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (sentence, person, place) = fact(folder.path());
    let strange = format!("{place} is the birthplace of Nobody Known.");
    let text =
        format!("{sentence} What a nice day. {strange} The text does not say more. {strange}");
    let checked = host(&["check", "--json", "--text", &text]).found(UNSUPPORTED).json();
    assert_eq!(
        statuses(&checked),
        ["supported", "no_claim", "unsupported", "not_tested", "not_tested"]
    );
    assert_eq!(checked["unsupported"], 1);
    let [known, unknown] = [0, 2].map(|n| &checked["sentences"][n]["claims"][0]);
    assert!(known["occurrences"].as_u64().unwrap() >= 1, "{known}");
    assert_eq!(
        (&unknown["occurrences"], &unknown["supported"]),
        (&json!(0), &json!(false)),
        "{unknown}"
    );
    // What matches a claim, or what the corpus says of its head.
    let passage = |claim: &Value| -> String {
        let spans = claim["passages"][0]["spans"].as_array().unwrap();
        spans.iter().map(|span| span["text"].as_str().unwrap()).collect()
    };
    assert!([&person, &place].iter().all(|name| passage(known).contains(name.as_str())), "{known}");
    assert!(passage(unknown).contains(unknown["head"].as_str().unwrap()), "{unknown}");
    let reward = |n: usize| checked["sentences"][n]["rule"]["reward"].as_f64().unwrap();
    assert!(reward(2) < 0.0 && reward(4) < 0.0, "the rule judges what the test leaves out, too");

    insta::assert_snapshot!(host(&["check", "--text", &text]).found(UNSUPPORTED).stdout);
}

#[test]
fn check_exit_code_reflects_supported_text() {
    let folder = tempfile::tempdir().unwrap();
    let (sentence, ..) = fact(folder.path());
    let file = folder.path().join("answer.txt");
    fs::write(&file, &sentence).unwrap();
    let args = ["check", "--json", "--passages", "0", file.to_str().unwrap()];
    let checked = host(&args).good().json();
    assert_eq!(
        (&checked["question"], &checked["sentences"][0]["claims"][0]["passages"]),
        (&Value::Null, &json!([]))
    );
    let few = checked["sentences"][0]["claims"][0]["occurrences"].as_u64().unwrap();
    // Thresholds are settings, and the rule may decide.
    let more = format!("check.pair={}", few + 1);
    let checked = host(&[&args[..], &["--set", &more]].concat()).found(UNSUPPORTED).json();
    assert_eq!(statuses(&checked), ["unsupported"]);
    let checked = host(&[&args[..], &["--by", "rule", "--set", &more]].concat());
    let reward = checked.json()["sentences"][0]["rule"]["reward"].as_f64().unwrap();
    assert_eq!(statuses(&checked.json()), [if reward < 0.0 { "unsupported" } else { "supported" }]);
}

#[test]
fn check_counts_from_server_without_passages() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let (sentence, ..) = fact(folder.path());
    let server = Server::start(&[], "127.0.0.1:0");
    let check =
        ["check", "--json", "--text", &sentence, "--index", &server.url, "--extractor", EXTRACTOR];
    let checked =
        host(&[&check[..], &["--set", "corpus.max_diff_tokens=64"]].concat()).good().json();
    assert_eq!(statuses(&checked), ["supported"]);
    assert_eq!(checked["sentences"][0]["claims"][0]["passages"], json!([]));
    transcript.add_failure(&host(&[&check[..], &["--passages", "1"]].concat()));
    insta::assert_snapshot!(transcript);
}

#[test]
fn empty_check_text_is_rejected() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.txt");
    fs::write(&empty, " \n").unwrap();
    transcript.add_failure(&host(&["check", empty.to_str().unwrap()]));
    transcript.add_failure(&host(&["check", "--text", ""]));
    transcript.add_failure(&host(&["check", "nowhere.txt"]));
    transcript.add_failure(&host(&["check", "--text", "A.", "--set", "check.pair=-1"]));
    transcript.add_usage_error(&host(&["check", "--text", "A.", "--by", "chance"]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn lines_and_list_items_are_checked_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let (sentence, _, place) = fact(folder.path());
    let strange = format!("{place} is the birthplace of Nobody Known");
    for text in [
        format!("- {sentence}\n- {strange}."),
        format!("1. {sentence}\n2. {strange}."),
        format!("{sentence}\n{strange}."),
        format!("{sentence}[1] {strange}."),
        format!("{sentence}{strange}."),
    ] {
        let checked = host(&["check", "--json", "--text", &text]).found(UNSUPPORTED).json();
        assert_eq!(statuses(&checked), ["supported", "unsupported"], "{text}");
    }
    let joined = format!("{sentence}[1] {strange}.");
    let paper =
        host(&["check", "--json", "--text", &joined, "--set", "check.sentences=paper"]).json();
    assert_eq!(paper["sentences"].as_array().unwrap().len(), 1, "the paper's splitter");
}

#[test]
fn check_takes_triplets_in_place_of_extractor() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
    let line = |tail: &str| {
        let sentence = format!("Paris is the capital of {tail}.");
        json!({"text": sentence, "triplets": [[sentence, [["Paris", "capital of", tail]]]]})
            .to_string()
    };
    let file = folder.path().join("texts.jsonl");
    fs::write(&file, format!("\u{feff}{}\n{}\n", line("France"), line("Peru"))).unwrap();
    let set = format!("corpus.index={}", index.display());
    let args = ["check", "--json", file.to_str().unwrap(), "--set", &set];
    let run = host(&args).found(UNSUPPORTED);
    let checked: Vec<Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        checked.iter().map(|text| statuses(text)[0]).collect::<Vec<_>>(),
        ["supported", "unsupported"]
    );

    let mut transcript = Transcript::default();
    fs::write(&file, json!({"text": "Paris is old.", "triplets": []}).to_string()).unwrap();
    transcript.add_failure(&host(&args));
    fs::write(&file, "{\"txt\": \"Paris is old.\"}\n").unwrap();
    transcript.add_failure(&host(&args));
    insta::assert_snapshot!(transcript);
}

#[test]
fn check_skips_byte_order_mark() {
    let folder = tempfile::tempdir().unwrap();
    let (sentence, ..) = fact(folder.path());
    let file = folder.path().join("answer.txt");
    fs::write(&file, format!("\u{feff}{sentence}")).unwrap();
    let checked = host(&["check", "--json", file.to_str().unwrap()]).good().json();
    assert_eq!(
        (statuses(&checked), &checked["sentences"][0]["text"]),
        (vec!["supported"], &json!(sentence))
    );
}

#[test]
fn demo_extractor_refuses_text_about_the_real_world() {
    let mut transcript = Transcript::default();
    let text = "Napoleon was born in Corsica. He died in 1821.";
    transcript.add_failure(&host(&["check", "--text", text]));
    insta::assert_snapshot!(transcript);
}
