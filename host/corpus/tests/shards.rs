//! Some shards of an index, opened alone.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use corver_corpus::{
    BuildOptions, Cnf, CnfOptions, Error, Index, MANIFEST, Mode, OpenOptions, TOKENIZER, TextIndex,
    TokenWidth, Tokenizer, VerifyLevel, build_from_documents, fingerprint, verify,
};

const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3,"hen":4},"unk_token":"[UNK]"}}"#;
const TEXTS: [&str; 7] =
    ["red fox", "den", "hen red fox", "fox den fox", "red", "red den hen", "fox red"];

fn options(shards: RangeInclusive<usize>) -> OpenOptions {
    OpenOptions { shards: Some(shards), ..OpenOptions::default() }
}

/// An index of three shards.
fn index_in(path: &Path) {
    let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
    build_from_documents(TEXTS, &tokenizer, path, &BuildOptions::with_shards(3)).unwrap();
}

/// Copies what a machine needs that serves these shards alone.
fn copy(from: &Path, to: &Path, shards: RangeInclusive<usize>) {
    fs::create_dir(to).unwrap();
    for name in [MANIFEST, TOKENIZER] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if shards.clone().any(|shard| name.ends_with(&format!(".{shard}"))) {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

#[test]
fn partial_index_counts_sum_to_full_index() {
    let folder = tempfile::tempdir().unwrap();
    let (all_shards, part) = (folder.path().join("all_shards"), folder.path().join("part"));
    index_in(&all_shards);
    copy(&all_shards, &part, 1..=2);
    let index = Index::open(&all_shards).unwrap();
    let parts = [
        Index::open_with(&all_shards, options(0..=0)).unwrap(),
        Index::open_with(&part, options(1..=2)).unwrap(),
    ];
    assert_eq!(parts.each_ref().map(Index::num_shards), [1, 2]);

    // In `Mode::Exact` the rarest clause of a part may be another than that of the index.
    for mode in [Mode::ExactFirst, Mode::Span] {
        let near = CnfOptions { mode, max_diff_tokens: 3, ..CnfOptions::default() };
        for clauses in [
            vec![vec![vec![1]], vec![vec![2]]],
            vec![vec![vec![2]], vec![vec![3], vec![4]]],
            vec![vec![vec![1, 2]]],
        ] {
            let cnf = Cnf::new(clauses).unwrap();
            let count = |index: &Index| index.count_cnf(&cnf, &near, None).unwrap().count;
            assert_eq!(parts.iter().map(count).sum::<u64>(), count(&index), "{mode:?}: {cnf:?}");
        }
    }
    let infos = parts.each_ref().map(Index::info);
    let info = index.info();
    assert_eq!(infos.iter().map(|info| info.documents).sum::<u64>(), info.documents);
    assert_eq!(infos.iter().map(|info| info.tokens).sum::<u64>(), info.tokens);
    assert_eq!(infos.iter().map(|info| info.index_bytes).sum::<u64>(), info.index_bytes);
    assert_eq!(
        (infos[0].text_bytes, info.text_bytes.is_some()),
        (None, true),
        "no one has counted those of a part"
    );
    assert_eq!(
        fingerprint(&part).unwrap(),
        fingerprint(&all_shards).unwrap(),
        "it is the same index"
    );
    let found = verify(&part, options(1..=2), VerifyLevel::Full).unwrap();
    assert_eq!(found.documents, infos[1].documents);
}

#[test]
fn partial_index_preserves_shard_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    index_in(&path);
    let (all_shards, part) =
        (TextIndex::open(&path).unwrap(), TextIndex::open_with(&path, options(2..=2)).unwrap());
    let hens = |corpus: &TextIndex| {
        corpus.passages(&[vec!["hen".to_owned()]], &CnfOptions::default(), 9).unwrap()
    };
    let shown = hens(&part);
    assert_eq!(
        shown,
        hens(&all_shards).into_iter().filter(|passage| passage.shard == 2).collect::<Vec<_>>()
    );
    assert!(!shown.is_empty());
    assert_eq!(part.index().document_at(0, 0).unwrap(), None, "that shard is not open");
    assert!(part.index().tokens(0, 0..1).is_empty());
    let documents: Vec<_> = part.index().documents().map(Result::unwrap).collect();
    let expected: Vec<_> =
        all_shards.index().documents().map(Result::unwrap).filter(|one| one.shard == 2).collect();
    assert_eq!(documents, expected);
    assert_eq!(
        part.index().document_at(2, documents[0].tokens.start).unwrap().as_ref(),
        documents.first()
    );
}

fn is_missing(error: &Error, file: &str) -> bool {
    matches!(error, Error::InvalidIndex(message)
        if message.contains(&format!("/{file} is missing: ")))
}

#[test]
fn unavailable_shard_range_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let (all_shards, part) = (folder.path().join("all_shards"), folder.path().join("part"));
    index_in(&all_shards);
    copy(&all_shards, &part, 1..=1);
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    for wrong in [0..=3, 3..=3, 2..=1, 0..=usize::MAX] {
        let error = Index::open_with(&all_shards, options(wrong)).unwrap_err();
        assert!(error.to_string().contains(" has no shards "), "{error}");
    }
    let error = |shards| Index::open_with(&part, shards).unwrap_err();
    assert!(is_missing(&error(OpenOptions::default()), "tokenized.0"));
    assert!(is_missing(&error(options(1..=2)), "tokenized.2"));
    fs::remove_file(part.join("metadata.1")).unwrap();
    assert!(is_missing(&error(options(1..=1)), "metadata.1"));

    // Without a manifest only the files say what there is.
    for path in [&all_shards, &part] {
        fs::remove_file(path.join(MANIFEST)).unwrap();
    }
    assert!(is_missing(&error(OpenOptions::default()), "tokenized.0"));
    assert!(is_missing(&error(options(2..=2)), "tokenized.2"));
    let narrow = OpenOptions { token_width: Some(TokenWidth::U8), ..options(1..=2) };
    assert_eq!(Index::open_with(&all_shards, narrow).unwrap().num_shards(), 2);
}
