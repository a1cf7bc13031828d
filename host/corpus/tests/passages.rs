//! Matches as text: the right document, the right words marked, in every kind of index.

mod vocabulary;

use std::fs;

use corver_corpus::{
    BuildOptions, CnfOptions, Error, Index, MatchPassage, Mode, TextIndex, Tokenizer, build,
    build_from_documents,
};
use serde_json::{Map, Value, json};

use vocabulary::tokenizer;

fn words(query: &str) -> Vec<Vec<String>> {
    corver_corpus::parse_query(query).unwrap()
}

/// The passage's text, the query's words in brackets.
fn text_of(passage: &MatchPassage) -> String {
    passage
        .spans
        .iter()
        .map(|span| if span.matched { format!("[{}]", span.text) } else { span.text.clone() })
        .collect()
}

#[test]
fn passages_mark_query_words() {
    let far = format!("red fox {} den", vec!["grass"; 200].join(" "));
    let texts = ["a red fox in a den", "red red hen", "one fox and one den or one fox", &far];
    let tokenizer = tokenizer(&texts);
    for shards in [1, 2, 4] {
        for mode in [Mode::Compatible, Mode::Exact] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("index");
            build_from_documents(texts, &tokenizer, &path, &BuildOptions::with_shards(shards))
                .unwrap();
            let corpus = TextIndex::open(&path).unwrap();
            let options = CnfOptions { mode, ..CnfOptions::default() };
            let shown = |query: &str| {
                let mut shown: Vec<String> = corpus
                    .passages(&words(query), &options, 9)
                    .unwrap()
                    .iter()
                    .map(text_of)
                    .collect();
                shown.sort();
                shown
            };
            let context = |words: usize| vec!["grass"; words].join(" ");
            let cut = format!("red [fox] {} … {} [den]", context(24), context(24));
            if shards == 4 {
                // One document to a shard: no neighbour is absorbed across a boundary.
                assert_eq!(
                    shown("fox AND den"),
                    [
                        "a red [fox] in a [den]".into(),
                        "one [fox] and one [den] or one [fox]".into(),
                        cut
                    ]
                );
            }
            assert_eq!(
                shown("red fox"),
                [format!("[red fox] {} …", context(24)), "a [red fox] in a den".to_owned()]
            );
            // Each occurrence is a match of its own, but one passage shows both.
            assert_eq!(
                shown("hen OR one fox"),
                ["[one fox] and one den or [one fox]", "red red [hen]"]
            );
            assert_eq!(shown("hen AND den"), [] as [&str; 0]);
            assert_eq!(shown("hen AND weasel"), [] as [&str; 0]);
        }
    }
}

#[test]
fn passages_are_sampled_across_corpus() {
    let texts: Vec<String> = (0..100).map(|number| format!("fox {number}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    build_from_documents(
        texts.iter().copied(),
        &tokenizer(&texts),
        &path,
        &BuildOptions::default(),
    )
    .unwrap();
    let corpus = TextIndex::open(&path).unwrap();
    let documents = |limit: usize| -> Vec<u64> {
        let passages = corpus.passages(&words("fox"), &CnfOptions::default(), limit).unwrap();
        passages.iter().map(|passage| passage.document).collect()
    };
    assert_eq!(documents(4), [0, 25, 50, 75]);
    assert_eq!(documents(0), [] as [u64; 0]);
    assert_eq!(documents(1_000).len(), 100);
}

#[test]
fn passage_edges_never_split_words() {
    // One token per letter; `▁` is a space.
    let letters = |decoder: Value| {
        let vocab: Map<String, Value> = "▁abcdefghijklmnopqrstuvwxyz"
            .chars()
            .zip(0..)
            .map(|(letter, id)| (letter.into(), json!(id)))
            .collect();
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "pre_tokenizer": null,
            "post_processor": null, "decoder": decoder,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
        });
        Tokenizer::from_bytes(json.to_string()).unwrap()
    };
    let tokenizer = letters(json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
    ]}));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let text = format!("{} fox {}", "marmalade ".repeat(9).trim(), "marmalade ".repeat(9).trim());
    build_from_documents([text.as_str()], &tokenizer, &path, &BuildOptions::default()).unwrap();
    let passages =
        TextIndex::open(&path).unwrap().passages(&words("fox"), &CnfOptions::default(), 1).unwrap();
    let words = ["marmalade"; 3].join(" ");
    assert_eq!(
        passages.iter().map(text_of).collect::<Vec<_>>(),
        [format!("… {words} [fox] {words} …")]
    );
}

#[test]
fn passage_carries_position_and_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let (input, path) = (folder.path().join("animals.jsonl"), folder.path().join("index"));
    let line = |title: &str, text: &str| json!({"title": title, "text": text}).to_string() + "\n";
    fs::write(
        &input,
        [line("Dens", "a den"), line("Füchse", "a fox"), line("Hens", "a hen")].concat(),
    )
    .unwrap();
    build(&[input], &tokenizer(&["a den fox hen"]), &path, &BuildOptions::with_shards(2)).unwrap();
    let corpus = TextIndex::open(&path).unwrap();
    let passage =
        |query: &str| corpus.passages(&words(query), &CnfOptions::default(), 1).unwrap().remove(0);

    let fox = passage("fox");
    assert_eq!((fox.shard, fox.document, fox.position), (1, 0, 2));
    assert_eq!(
        fox.metadata,
        Some(json!({"path": "animals.jsonl", "linenum": 1, "metadata": {"title": "Füchse"}}))
    );
    assert_eq!(passage("hen").metadata.unwrap()["linenum"], 2); // the second document of its shard
    let texts: Vec<String> = corpus
        .index()
        .documents()
        .map(|document| corpus.text(&document.unwrap()).unwrap())
        .collect();
    assert_eq!(texts, ["a den", "a hen", "a fox"], "shard by shard");

    // Damaged: an error that names the file. Gone: nothing is known, and that is no error.
    let offsets = path.join("metaoff.1");
    fs::write(&offsets, u64::MAX.to_le_bytes()).unwrap();
    let error = corpus.passages(&words("fox"), &CnfOptions::default(), 1).unwrap_err();
    assert!(
        matches!(&error, Error::InvalidIndex(message) if message.contains("/metaoff.1: entry ")),
        "{error}"
    );
    fs::remove_file(offsets).unwrap();
    assert_eq!(passage("fox").metadata, None::<Value>);
}

#[test]
fn document_is_found_by_token_position() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let documents = [vec![1, 2, 3], vec![], vec![4]];
    corver_corpus::build_from_tokens(
        documents,
        corver_corpus::TokenWidth::U8,
        &path,
        &BuildOptions::default(),
    )
    .unwrap();
    let index = Index::open(&path).unwrap();
    let numbers: Vec<Option<u64>> = (0..8)
        .map(|position| index.document_at(0, position).unwrap().map(|document| document.number))
        .collect();
    // S 1 2 3 S S 4, and one past the end
    assert_eq!(numbers, [Some(0), Some(0), Some(0), Some(0), Some(1), Some(2), Some(2), None]);
    assert_eq!(index.document_at(0, 2).unwrap().unwrap().tokens, 1..4);
    assert_eq!(index.document_at(1, 0).unwrap(), None);
    let all: Vec<_> = index.documents().map(|document| document.unwrap().tokens).collect();
    assert_eq!(all, [1..4, 5..5, 6..7]);
}
