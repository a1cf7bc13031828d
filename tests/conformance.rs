//! The whole reward path against vectors from the authors' published code: real tokenizers, the
//! shipped rules as WebAssembly, scripted triplets and counts:
//! `make conformance`.

mod golden;

use std::collections::HashMap;
use std::path::Path;

use corver_core::compat::spans_of_pieces;
use corver_core::returns::{SentenceReward, token_returns};
use corver_core::sentence::align;
use corver_core::split::split;
use corver_core::{
    AdvantageSettings, Alignment, Backends, BoxError, Compatibility, CorpusInfo, Count, Counter,
    Estimator, Extractor, ExtractorInput, Grade, Graders, Granularity, Language, Query, Question,
    ResponseGrades, RewardSettings, Rollout, Scorers, SentenceMean, SentenceSplitter, Signal,
    Trace, Triplet, question, score,
};
use corver_rules::{LoadOptions, Rule};
use golden::{check_all, close, numbers, same, shared, strings, token_map};
use serde_json::Value;
use tokenizers::Tokenizer;

/// What a sentence's triplets are, by script.
struct Script(HashMap<String, Vec<Triplet>>);

impl Script {
    fn new(triplets_by_sentence: &Value) -> Self {
        let entries = triplets_by_sentence.as_array().unwrap().iter().map(|entry| {
            let triplets = entry[1].as_array().unwrap().iter().filter_map(|triplet| {
                let [head, relation, tail] = triplet.as_array()?.as_slice() else { return None };
                // The published code does not look at the relation, which may be a list.
                let relation =
                    relation.as_str().map_or_else(|| relation.to_string(), str::to_owned);
                Some(Triplet { head: head.as_str()?.into(), relation, tail: tail.as_str()?.into() })
            });
            (entry[0].as_str().unwrap().to_owned(), triplets.collect())
        });
        Self(entries.collect())
    }
}

impl Extractor for Script {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        Ok(inputs
            .iter()
            .map(|input| self.0.get(input.sentence).cloned().unwrap_or_default())
            .collect())
    }
}

/// What a query counts, by script; `null` is a corpus that cannot answer.
struct Counts<'a>(&'a Value);

impl Counter for Counts<'_> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let answer = |query: &Query| {
            let text = query.to_string();
            let count = self
                .0
                .get(&text)
                .ok_or_else(|| BoxError::from(format!("unexpected query {text:?}")))?;
            Ok(Count::exact(count.as_u64()))
        };
        queries.iter().map(answer).collect()
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo::default()
    }
}

fn tokenizer(name: &str) -> Tokenizer {
    let path = shared(&format!("golden/tokenizers/{name}/tokenizer.json"));
    Tokenizer::from_file(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rule(name: &str) -> Rule {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../plugins/dist")
        .join(name)
        .with_extension("wasm");
    Rule::load(&path, LoadOptions::default())
        .unwrap_or_else(|error| panic!("{error}; `make plugins` builds the rules"))
}

/// The English clean-up that some tokenizer configurations ask the decoder for.
fn clean_up(text: String, wanted: bool) -> String {
    let pairs = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    if wanted { pairs.iter().fold(text, |text, (from, to)| text.replace(from, to)) } else { text }
}

/// A completion as the published code sees it: unmasked tokens, each decoded alone.
fn rollout(tokenizer: &Tokenizer, ids: &Value, mask: &Value, clean: bool) -> Rollout {
    let kept = numbers(ids).into_iter().zip(numbers(mask)).filter(|(_, mask)| *mask != 0.0);
    let tokens: Vec<u32> = kept.map(|(id, _)| id as u32).collect();
    let decode = |ids: &[u32]| clean_up(tokenizer.decode(ids, true).unwrap(), clean);
    let pieces: Vec<Option<String>> = tokens.iter().map(|id| Some(decode(&[*id]))).collect();
    Rollout {
        question: 0,
        log_probs: vec![0.0; tokens.len()],
        text: decode(&tokens),
        token_spans: spans_of_pieces(&pieces),
        tokens,
        finished: true,
    }
}

const REFERENCE: RewardSettings = RewardSettings {
    refusal: None,
    lambda_judge: 1.0,
    lambda_format: 1.0,
    lambda_corver: 1.0,
    min_alignment: 0.5,
    granularity: Granularity::Token,
    sentence_mean: SentenceMean::OverSentences,
    compatibility: Compatibility::Reference,
    sentences: SentenceSplitter::Paper,
    language: Language::English,
};

fn trace(row: &Value, rollout: &Rollout, rule: &mut Rule) -> Result<Trace, String> {
    let mut extractor = Script::new(&row["triplets_by_sentence"]);
    let mut backends = Backends::counting(Counts(&row["counts_by_query"]));
    let mut graders = Graders::built_in(&REFERENCE);
    let mut scorers = Scorers {
        extractor: &mut extractor,
        backends: &mut backends,
        sentence_scorer: rule,
        graders: &mut graders,
    };
    let question =
        Question { question: String::new(), golds: vec!["?".into()], ..Question::default() };
    let scored = score(std::slice::from_ref(rollout), &[question], &mut scorers, &REFERENCE);
    scored
        .map(|mut scored| scored.completions.remove(0).trace)
        .map_err(|error| format!("{error}: {:?}", std::error::Error::source(&error)))
}

fn sentence_rewards(trace: &Trace) -> Vec<SentenceReward> {
    let paid = trace.sentences.iter().filter(|sentence| sentence.verdict.is_some());
    paid.map(|sentence| SentenceReward {
        reward: sentence.reward(),
        counted: sentence.is_counted(),
        shares: None,
    })
    .collect()
}

/// The row's returns under its own response-level rewards, against the tokens that the mask keeps.
fn check_returns(
    what: &str,
    row: &Value,
    alignment: &Alignment,
    sentences: &[SentenceReward],
    settings: &RewardSettings,
    expected: &Value,
) -> Result<(), String> {
    let number = |field: &str| row[field].as_f64().unwrap();
    let grades = ResponseGrades {
        judge: Grade::new(number("judge_reward"), ""),
        format: Grade::new(number("format_reward"), ""),
    };
    let settings = RewardSettings { lambda_judge: number("beta_judge"), ..*settings };
    let got = token_returns(&grades, alignment, sentences, &settings);
    let mask = numbers(&row["mask"]);
    let expected = numbers(expected)
        .into_iter()
        .zip(mask)
        .filter(|(_, mask)| *mask != 0.0)
        .map(|(value, _)| value);
    for (token, (got, expected)) in got.iter().zip(expected).enumerate() {
        close(&format!("{what}, token {token}"), *got, expected, 1e-6, 1e-6)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn completion_returns_match_reference() {
    let tokenizers = ["bytelevel-4k", "metaspace-4k"].map(|name| (name, tokenizer(name)));
    let rules = ["first", "min", "relcheck"].map(|name| std::cell::RefCell::new(rule(name)));
    check_all("returns", |row| {
        let tokenizer = &tokenizers.iter().find(|(name, _)| row["tokenizer"] == *name).unwrap().1;
        let clean = row["clean_up_tokenization_spaces"].as_bool().unwrap();
        let rollout = rollout(tokenizer, &row["ids"], &row["mask"], clean);
        let alignment = align(&split(&rollout.text, REFERENCE.text()), &rollout.token_spans);
        let kept = numbers(&row["mask"]);
        let map = token_map(&row["map"]).into_iter().zip(&kept).filter(|(_, mask)| **mask != 0.0);
        same("map", alignment.sentence_of.clone(), map.map(|(sentence, _)| sentence).collect())?;

        let first = trace(row, &rollout, &mut rules[0].borrow_mut())?;
        same("fallback", first.fallback, row["first"]["fallback"].as_bool().unwrap())?;
        same(
            "sentences",
            first.sentences.iter().map(|sentence| sentence.text.clone()).collect(),
            strings(&row["sentences"]),
        )?;
        let positions: Vec<u64> =
            (0..).zip(&kept).filter(|(_, mask)| **mask != 0.0).map(|(at, _)| at).collect();
        check_details(&first, &positions, &row["first"])?;
        let rewards = sentence_rewards(&first);
        check_returns("first", row, &alignment, &rewards, &REFERENCE, &row["first"]["returns"])?;

        let a3 = RewardSettings { granularity: Granularity::Response, ..REFERENCE };
        check_returns("a3", row, &alignment, &rewards, &a3, &row["derived_a3"]["returns"])?;

        let min = trace(row, &rollout, &mut rules[1].borrow_mut())?;
        check_rewards("min", &min, &row["derived_min"])?;
        check_returns(
            "min",
            row,
            &alignment,
            &sentence_rewards(&min),
            &REFERENCE,
            &row["derived_min"]["returns"],
        )?;

        let relcheck = trace(row, &rollout, &mut rules[2].borrow_mut())?;
        check_rewards("relcheck", &relcheck, &row["derived_relcheck"])?;
        let expected = &row["derived_relcheck"]["returns"];
        check_returns(
            "relcheck",
            row,
            &alignment,
            &sentence_rewards(&relcheck),
            &REFERENCE,
            expected,
        )
    });
}

/// `positions` are the padded positions of the tokens that the mask keeps.
fn check_details(trace: &Trace, positions: &[u64], expected: &Value) -> Result<(), String> {
    for (sentence, expected) in trace.sentences.iter().zip(expected["details"].as_array().unwrap())
    {
        same("sentence", sentence.text.as_str(), expected["sentence"].as_str().unwrap())?;
        let verdict = sentence.verdict.as_ref().ok_or("no verdict")?;
        same("count", verdict.count, expected["count"].as_u64())?;
        close("reward", sentence.reward(), expected["reward"].as_f64().unwrap(), 1e-6, 0.0)?;
        let asked = verdict.lookups.first().map(|lookup| lookup.query.to_string());
        same("query", asked, expected["query"].as_str().map(str::to_owned))?;
        let ends = sentence
            .tokens
            .as_ref()
            .map(|tokens| [positions[tokens.start], positions[tokens.end - 1]]);
        let expected = expected["token_span"]
            .as_array()
            .map(|span| [0, 1].map(|end| span[end].as_u64().unwrap()));
        same("token_span", ends, expected)?;
    }
    Ok(())
}

fn check_rewards(rule: &str, trace: &Trace, expected: &Value) -> Result<(), String> {
    if trace.fallback {
        return Ok(());
    }
    for (index, expected) in numbers(&expected["sentence_rewards"]).into_iter().enumerate() {
        let sentence = &trace.sentences[index];
        close(&format!("{rule}, sentence {index}"), sentence.reward(), expected, 1e-6, 0.0)?;
    }
    if let Some(lookups) = expected["lookups"].as_array() {
        let got = trace
            .sentences
            .iter()
            .map(|sentence| sentence.verdict.as_ref().map_or(0, |verdict| verdict.lookups.len()));
        let expected = lookups.iter().map(|lookups| lookups.as_u64().unwrap() as usize);
        same(&format!("{rule}, look-ups"), got.collect::<Vec<_>>(), expected.collect())?;
    }
    Ok(())
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn trainer_step_rewards_match_reference() {
    let tokenizers = ["bytelevel-4k", "metaspace-4k"].map(|name| (name, tokenizer(name)));
    let first = std::cell::RefCell::new(rule("first"));
    check_all("trainer_step", |row| {
        let tokenizer = &tokenizers.iter().find(|(name, _)| row["tokenizer"] == *name).unwrap().1;
        let clean = row["clean_up_tokenization_spaces"].as_bool().unwrap();
        let rows = row["ids"].as_array().unwrap().iter().zip(row["mask"].as_array().unwrap());
        let rollouts: Vec<Rollout> =
            rows.map(|(ids, mask)| rollout(tokenizer, ids, mask, clean)).collect();

        let mode = row["mode"].as_str().unwrap();
        let settings = RewardSettings {
            lambda_judge: if mode == "corver_only" {
                0.0
            } else {
                row["beta_judge"].as_f64().unwrap()
            },
            lambda_corver: if mode == "judge_only" { 0.0 } else { 1.0 },
            ..REFERENCE
        };
        let golds = question::split_golds(row["gold"].as_str().unwrap());
        let question = Question { question: String::new(), golds, ..Question::default() };
        let mut extractor = Script::new(&row["triplets_by_sentence"]);
        let mut backends = Backends::counting(Counts(&row["counts_by_query"]));
        let mut rules = first.borrow_mut();
        let mut graders = Graders::built_in(&REFERENCE);
        let mut scorers = Scorers {
            extractor: &mut extractor,
            backends: &mut backends,
            sentence_scorer: &mut *rules,
            graders: &mut graders,
        };
        let scored = score(&rollouts, &[question], &mut scorers, &settings)
            .map_err(|error| error.to_string())?;

        let traces = || scored.completions.iter().map(|completion| &completion.trace);
        if mode != "corver_only" {
            same(
                "judge",
                traces().map(|trace| trace.response.judge.reward).collect(),
                numbers(&row["judge_rewards"]),
            )?;
        }
        same(
            "format",
            traces().map(|trace| trace.response.format.reward).collect(),
            numbers(&row["format_rewards"]),
        )?;
        if mode != "judge_only" {
            let fallback = row["fallback"]
                .as_array()
                .unwrap()
                .iter()
                .map(|value| value.as_bool().unwrap())
                .collect();
            same("fallback", traces().map(|trace| trace.fallback).collect::<Vec<_>>(), fallback)?;
        }
        let scale = serde_json::from_value(row["scale_rewards"].clone()).unwrap();
        let settings = AdvantageSettings { scale_rewards: scale, min_spread: 0.0 };
        let num_generations = row["num_generations"].as_u64().unwrap() as usize;
        let estimator = Estimator::Grpo(settings);
        let signal = estimator.signal(&scored.completions, None, num_generations).unwrap();
        let Signal::Advantages(advantages) = signal else { return Err("pairs".into()) };
        for (completion, (scored, advantages)) in
            scored.completions.iter().zip(&advantages.values).enumerate()
        {
            let kept = numbers(&row["mask"][completion]);
            let of = |field: &str| {
                let values = numbers(&row[field][completion]).into_iter().zip(kept.clone());
                values
                    .filter(|(_, mask)| *mask != 0.0)
                    .map(|(value, _)| value)
                    .collect::<Vec<f64>>()
            };
            for (got, expected) in scored.returns.iter().zip(of("returns")) {
                close(&format!("return of completion {completion}"), *got, expected, 1e-6, 1e-6)?;
            }
            for (got, expected) in advantages.iter().zip(of("advantages")) {
                close(
                    &format!("advantage of completion {completion}"),
                    *got,
                    expected,
                    5e-3,
                    1e-2,
                )?;
            }
        }
        let metrics = &row["metrics"];
        let stats = estimator.return_stats(&scored.completions, num_generations);
        close("reward", stats.reward, metrics["reward"].as_f64().unwrap(), 1e-5, 1e-5)?;
        close("reward_std", stats.reward_std, metrics["reward_std"].as_f64().unwrap(), 1e-4, 1e-4)
    });
}

/// Every file of the folder is read by some conformance test of the workspace.
#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn every_golden_vector_is_tested() {
    let folder = shared("golden/reward");
    let sources = [
        include_str!("conformance.rs"),
        include_str!("../host/core/tests/conformance.rs"),
        include_str!("../host/core/tests/triplet_conformance.rs"),
        include_str!("../host/learn/src/linear.rs"),
        include_str!("../host/learn/tests/conformance.rs"),
        include_str!("../host/eval/tests/conformance.rs"),
        include_str!("../sdk/tests/conformance.rs"),
    ];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let named = |source: &&str| {
                [format!("\"{name}\""), format!("\"{name}.jsonl\"")]
                    .iter()
                    .any(|name| source.contains(name))
            };
            assert!(sources.iter().any(named), "no test reads {name}.jsonl");
        }
    }
}
