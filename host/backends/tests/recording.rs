//! Replays return recorded replies of every kind, report requests that are missing, and name bad
//! files.

use std::fs;
use std::path::Path;

use corver_backends::recording::{Recording, RecordingError, record, resume};
use corver_core::{
    Backends, BoxError, Capability, ChatModel, ChatPrompt, ChatReply, ChatRole, CorpusInfo, Count,
    CountPrecision, Counter, Entailment, Message, NliModel, NliPair, Passage, Query, Retriever,
    Search, Usage,
};

const CORPUS: CorpusInfo =
    CorpusInfo { tokens: Some(1_000), documents: None, window: Some(1_000), mode: None };

/// A backend that counts letters up to `enough`, uses lengths as probabilities, replies with the
/// last message, and finds the query itself. Usage is reported with the first of equal prompts.
#[derive(Clone, Default)]
struct Letters {
    replied: Vec<ChatPrompt>,
}

impl Counter for Letters {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let count = |query: &Query| {
            let letters = query.to_string().len() as u64;
            let occurrences = letters.min(query.limit.unwrap_or(u64::MAX));
            let precision = if occurrences == letters {
                CountPrecision::Exact
            } else {
                CountPrecision::AtLeast
            };
            Count { occurrences: Some(occurrences), precision }
        };
        Ok(queries.iter().map(count).collect())
    }

    fn info(&self) -> CorpusInfo {
        CORPUS
    }
}

impl NliModel for Letters {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let share = |pair: &NliPair| pair.hypothesis.len() as f32 / pair.premise.len() as f32;
        Ok(pairs
            .iter()
            .map(|pair| Entailment { entail: share(pair), neutral: Some(0.1), contradict: None })
            .collect())
    }
}

impl ChatModel for Letters {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let mut reply = |prompt: &ChatPrompt| {
            let known = self.replied.contains(prompt);
            self.replied.push(prompt.clone());
            let usage = if known {
                Usage::default()
            } else {
                Usage { prompt_tokens: 1, completion_tokens: 2 }
            };
            ChatReply { content: prompt.messages.last().unwrap().content.clone(), usage }
        };
        Ok(prompts.iter().map(&mut reply).collect())
    }
}

impl Retriever for Letters {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let found = |search: &Search| {
            let title = search.title.clone().unwrap_or_default();
            vec![Passage { title, text: search.query.clone() }; search.k as usize]
        };
        Ok(searches.iter().map(found).collect())
    }
}

fn letters() -> Backends<'static> {
    let letters = Letters::default();
    Backends::counting(letters.clone())
        .with_nli(letters.clone())
        .with_chat(letters.clone())
        .with_passages(letters)
}

fn query(word: &str, enough: Option<u64>) -> Query {
    Query::new([[word]]).with_limit(enough)
}

fn pair(premise: &str, hypothesis: &str) -> NliPair {
    NliPair { premise: premise.into(), hypothesis: hypothesis.into() }
}

fn prompt(content: &str, seed: Option<u32>) -> ChatPrompt {
    let messages = vec![Message { role: ChatRole::User, content: content.into() }];
    ChatPrompt { messages, temperature: 0.3, top_p: 0.9, max_tokens: 8, seed }
}

fn search(query: &str, title: Option<&str>) -> Search {
    Search { title: title.map(str::to_owned), query: query.into(), k: 2 }
}

/// Returns the replies to requests of every kind, with their usage, as text.
fn request(backends: &mut Backends<'_>, words: &[&str]) -> String {
    let pairs: Vec<NliPair> = words.iter().map(|word| pair("seven letters", word)).collect();
    let prompts: Vec<ChatPrompt> =
        words.iter().flat_map(|word| [prompt(word, None), prompt(word, Some(1))]).collect();
    let searches: Vec<Search> =
        words.iter().flat_map(|word| [search(word, None), search(word, Some("T"))]).collect();
    let queries: Vec<Query> = words.iter().map(|word| query(word, None)).collect();
    let answers = (
        backends.count(&queries).unwrap(),
        backends.entail(&pairs).unwrap(),
        backends.reply(&prompts).unwrap(),
        backends.passages(&searches).unwrap(),
    );
    format!("{answers:?} {:?}", backends.take_stats().usage)
}

fn replay(path: &Path) -> Backends<'static> {
    Recording::open(path).unwrap().backends()
}

#[test]
fn replay_returns_recorded_answers_and_costs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.jsonl");
    let batches: [&[&str]; 3] = [&["Paris", "Rome", "Paris"], &["Rome"], &["Lima\n\"", ""]];
    let mut recorder = record(&path, letters()).unwrap();
    let recorded = batches.map(|words| request(&mut recorder, words));
    // A header; a count, a pair, two prompts and two searches of each of four words.
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1 + 4 * 6);
    let mut replayed = replay(&path);
    assert_eq!(replayed.info(), CORPUS);
    assert_eq!(batches.map(|words| request(&mut replayed, words)), recorded);
}

#[test]
fn recorded_counts_ignore_enough_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counts.jsonl");
    let mut recorder = record(&path, letters()).unwrap();
    for enough in [Some(2), Some(3)] {
        assert_eq!(recorder.count(&[query("Paris", enough)]).unwrap()[0].occurrences, Some(5));
    }
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    let counts = replay(&path).count(&[query("Paris", Some(4)), query("Paris", None)]).unwrap();
    assert_eq!(
        counts.iter().map(|count| count.occurrences).collect::<Vec<_>>(),
        [Some(5), Some(5)]
    );
    assert!(
        matches!(record(&path, letters()), Err(RecordingError::Exists { .. })),
        "never overwritten"
    );
}

#[test]
fn unrecorded_request_error_shows_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.jsonl");
    request(&mut record(&path, letters()).unwrap(), &["Paris"]);
    let mut replayed = replay(&path);
    let long = "x".repeat(1_000);
    let errors = [
        replayed.count(&[query("Rome", None)]).unwrap_err(),
        replayed.entail(&[pair("seven letters", "Paris"), pair("a", "b")]).unwrap_err(),
        replayed.reply(&[prompt("Paris", Some(7))]).unwrap_err(),
        replayed.passages(&[search(&long, Some("T"))]).unwrap_err(),
    ];
    let shown = [
        "the query \"Rome\"",
        "whether \"b\" follows from \"a\"",
        "the reply to \"Paris\" after 0 messages (temperature 0.3, top_p 0.9, at most 8 tokens, \
         seed 7)",
        "the 2 passages of the search \"xxx",
    ];
    for (error, shown) in errors.iter().zip(shown) {
        let error = error.to_string();
        assert!(
            error.contains(&format!("does not hold {shown}")) && error.contains("--record"),
            "{error}"
        );
        assert!(error.len() < 500, "{error}");
    }
}

#[test]
fn recorder_preserves_granted_capabilities() {
    let folder = tempfile::tempdir().unwrap();
    let backends = Backends::counting(Letters::default()).with_chat(Letters::default());
    let recorder = record(&folder.path().join("answers.jsonl"), backends).unwrap();
    let granted = [Capability::Nli, Capability::Chat, Capability::Passages]
        .map(|capability| recorder.grants(capability));
    assert_eq!(granted, [false, true, false]);
}

#[test]
fn recording_resumes_after_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.jsonl");
    request(&mut record(&path, letters()).unwrap(), &["Paris", "Rome"]);
    let whole = fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    for length in [last + 1, whole.len() - 5, whole.len() - 1, whole.len()] {
        fs::write(&path, &whole[..length]).unwrap();
        replay(&path); // a truncated line is no error
        request(&mut resume(&path, letters()).unwrap(), &["Rome", "Paris", "Lima"]);
        let mut replayed = replay(&path);
        request(&mut replayed, &["Lima", "Rome", "Paris"]);
        assert_eq!(replayed.info(), CORPUS);
        assert_eq!(
            fs::read_to_string(&path).unwrap().lines().count(),
            1 + 3 * 6,
            "no line is in it twice"
        );
    }
}

#[test]
fn recording_resumes_without_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.jsonl");
    for torn in ["", r#"{"corpus":{"#] {
        fs::write(&path, torn).unwrap();
        request(&mut resume(&path, letters()).unwrap(), &["Rome"]);
        let mut replayed = replay(&path);
        assert_eq!(replayed.info(), CORPUS);
        request(&mut replayed, &["Rome"]);
    }
}

/// A model that never returns the same probability twice, as a GPU may.
struct Rounding(f32);

impl NliModel for Rounding {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let mut answer = |_| {
            self.0 += 0.01;
            Entailment { entail: self.0, neutral: None, contradict: None }
        };
        Ok(pairs.iter().map(&mut answer).collect())
    }
}

#[test]
fn recorder_returns_same_answer_as_replay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.jsonl");
    let pairs = [pair("a", "b"), pair("c", "d"), pair("a", "b")];
    let mut recorder = record(&path, letters().with_nli(Rounding(0.0))).unwrap();
    let [first, second] = [(); 2].map(|()| recorder.entail(&pairs).unwrap());
    let mut resumed = resume(&path, letters().with_nli(Rounding(0.5))).unwrap();
    let third = resumed.entail(&pairs).unwrap();
    let replayed = replay(&path).entail(&pairs).unwrap();
    assert_eq!([&first, &second, &third], [&replayed; 3]);
}

#[test]
fn malformed_recording_error_names_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counts.jsonl");
    let header = r#"{"corpus":{"tokens":7,"documents":null}}"#;
    let count = |count: u64| {
        format!(r#"{{"query":{{"all_of":[["Rome"]]}},"occurrences":{count},"precision":"exact"}}"#)
    };
    let chat = |reply: &str, tokens: u64| {
        format!(
            r#"{{"kind":"chat","messages":[{{"role":"user","content":"a"}}],"temperature":0.0,"top_p":1.0,"max_tokens":8,"seed":null,"reply":"{reply}","usage":{{"prompt_tokens":{tokens},"completion_tokens":0}}}}"#
        )
    };
    let open = |lines: &[&str]| {
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        Recording::open(&path).map(|recording| recording.info())
    };
    assert_eq!(
        open(&[&count(1)]).unwrap(),
        CorpusInfo::default(),
        "written by hand, without a header"
    );
    assert_eq!(
        open(&[header, &count(1), &count(1), &chat("b", 3), &chat("b", 0)]).unwrap().tokens,
        Some(7)
    );
    let open = |lines: &[&str]| open(lines).unwrap_err();
    for bad in ["{}", header, r#"{"kind":"nli","premise":"a"}"#, r#"{"kind":"rumour"}"#, "", "torn"]
    {
        let error = open(&[&count(1), bad]).to_string();
        assert!(
            error.contains(":2: ") && error.contains("; a line is {\"query\": "),
            "{bad}: {error}"
        );
    }
    let error = open(&[&count(1), &count(2)]).to_string();
    assert!(
        error.contains(":2: ") && error.ends_with(" was answered differently before"),
        "{error}"
    );
    let error = open(&[header, &chat("b", 3), &chat("c", 3)]).to_string();
    assert!(
        error.contains(":3: ") && error.ends_with(" was answered differently before"),
        "{error}"
    );
}

#[test]
fn recorded_reply_outside_its_domain_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.jsonl");
    let nli = |entail: &str, neutral: &str| {
        format!(
            r#"{{"kind":"nli","premise":"a","hypothesis":"b","entail":{entail},"neutral":{neutral},"contradict":null}}"#
        )
    };
    let passages = |k: u32, number: usize| {
        let found = vec![r#"{"title":"","text":"a"}"#; number].join(",");
        format!(r#"{{"kind":"passages","title":null,"query":"a","k":{k},"found":[{found}]}}"#)
    };
    for possible in [nli("0", "1"), nli("1.0", "null"), passages(1, 1), passages(2, 0)] {
        fs::write(&path, possible + "\n").unwrap();
        Recording::open(&path).unwrap();
    }
    for (impossible, problem) in [
        (nli("5", "null"), "the probability 5 is not from 0 to 1"),
        (nli("-1", "null"), "the probability -1 is not from 0 to 1"),
        (nli("0.5", "-0.1"), "the probability -0.1 is not from 0 to 1"),
        (nli("1e39", "null"), "the probability inf is not from 0 to 1"),
        (nli("1e999", "null"), "number out of range"),
        (passages(1, 1_000), "a search for k = 1 has 1000 passages"),
        (passages(0, 1), "a search for k = 0 has 1 passages"),
    ] {
        fs::write(&path, format!("{}\n{impossible}\n", nli("0.1", "null"))).unwrap();
        let error = Recording::open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!(":2: {problem}")), "{impossible}: {error}");
    }
}
