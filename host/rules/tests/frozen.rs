//! Plugins of released contracts keep working. Each file in `frozen/` was built with the contract in
//! its name, and is never built again after that version's release (RELEASE.md).

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use corver_core::{
    Backends, BoxError, ChatModel, ChatPrompt, ChatReply, Completion, CorpusInfo, Count, Counter,
    Entailment, NliModel, NliPair, Passage, Query, Retriever, Search, Section, Sentence, Triplet,
    Usage,
};
use corver_rules::{LoadOptions, ResponseRule, Rule};
use flate2::read::GzDecoder;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/frozen");

/// Unpacks a frozen plugin.
fn frozen(name: &str, folder: &Path) -> PathBuf {
    let packed = Path::new(FOLDER).join(format!("{name}-0.1.0.wasm.gz"));
    let mut wasm = Vec::new();
    GzDecoder::new(fs::File::open(&packed).unwrap()).read_to_end(&mut wasm).unwrap();
    let path = folder.join(format!("{name}.wasm"));
    fs::write(&path, wasm).unwrap();
    path
}

struct World;

impl Counter for World {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let is_known = |query: &Query| query.to_string() == "Mario AND Camerini AND Rome";
        Ok(queries
            .iter()
            .map(|query| Count::exact(Some(if is_known(query) { 7 } else { 0 })))
            .collect())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo { tokens: Some(1_000), documents: None, window: Some(1_000), mode: None }
    }
}

impl NliModel for World {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let entail = |pair: &NliPair| if pair.premise == pair.hypothesis { 0.9 } else { 0.1 };
        let entailment =
            |pair| Entailment { entail: entail(pair), neutral: None, contradict: Some(0.05) };
        Ok(pairs.iter().map(entailment).collect())
    }
}

impl ChatModel for World {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let reply = |prompt: &ChatPrompt| {
            let is_judge = prompt.messages[0].content.contains("<gold>");
            let content = if is_judge { "A" } else { "- Rome is old.\n- Rome is in Peru." };
            ChatReply { content: content.to_owned(), usage: Usage::default() }
        };
        Ok(prompts.iter().map(reply).collect())
    }
}

impl Retriever for World {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let passage = Passage { title: "Rome".to_owned(), text: "Rome is old.".to_owned() };
        Ok(vec![vec![passage]; searches.len()])
    }
}

fn sentence(text: &str, triplets: &[(&str, &str, &str)]) -> Sentence {
    let triplets = triplets.iter().map(|&(head, relation, tail)| Triplet {
        head: head.to_owned(),
        relation: relation.to_owned(),
        tail: tail.to_owned(),
    });
    Sentence {
        text: text.to_owned(),
        section: Section::Think,
        span: None,
        triplets: triplets.collect(),
    }
}

#[test]
fn sentence_rule_of_contract_0_1_scores() {
    let folder = tempfile::tempdir().unwrap();
    let rule = Rule::load(&frozen("first", folder.path()), LoadOptions::default()).unwrap();
    let sentences = [
        sentence("Camerini was born in Rome.", &[("Mario Camerini", "born in", "Rome")]),
        sentence("Rome is in Peru.", &[("Rome", "is in", "Peru")]),
        sentence("Well.", &[]),
    ];
    let completion = Completion { sentences: &sentences, ..Completion::default() };
    let verdicts = rule.score(&[completion], &mut Backends::counting(World)).unwrap();
    // 7 occurrences are in the tier from 5 to 19, none in the lowest.
    let rewards: Vec<_> = verdicts[0].iter().map(|verdict| verdict.reward).collect();
    assert_eq!(rewards, [Some(0.0), Some(-0.3), None]);
}

#[test]
fn response_rule_of_contract_0_1_grades() {
    let folder = tempfile::tempdir().unwrap();
    let path = frozen("knowrl", folder.path());
    let rule = ResponseRule::load(&path, LoadOptions::default()).unwrap();
    let golds = ["Rome".to_owned()];
    let completion = Completion {
        question: "Which city?",
        golds: &golds,
        title: Some("Rome"),
        text: "<think>Rome is old. Rome is in Peru.</think><answer>Rome</answer>",
        ..Completion::default()
    };
    let mut backends =
        Backends::counting(World).with_nli(World).with_chat(World).with_passages(World);
    let grades = rule.grade(&[completion], &mut backends).unwrap();
    // Format 1, answer 2, and one of two facts: 1/2 · exp(1 − 10/2) = 0.009158.
    assert!((grades[0].reward - 3.009_158).abs() < 1e-6, "{:?}", grades[0]);
    assert_eq!(grades[0].label, "GOOD");
}
