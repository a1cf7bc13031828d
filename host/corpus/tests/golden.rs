//! The official engine's answers (`infini-gram` 2.6.0), line by line, and its files, byte by byte.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use common::{lines, shared};
use corver_corpus::{
    BuildOptions, Cnf, CnfOptions, Index, Mode, OpenOptions, TokenWidth, Tokenizer, VerifyLevel,
    build, build_from_streams, verify,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct Encoded {
    text: String,
    slow_ids: Vec<u32>,
    client_ids: Vec<u32>,
}

#[derive(Deserialize)]
struct NgramLine {
    id: String,
    words: String,
    ids: Vec<u32>,
    expect: BTreeMap<String, NgramExpect>,
}

#[derive(Deserialize)]
struct NgramExpect {
    count: u64,
}

#[derive(Deserialize)]
struct CnfLine {
    id: String,
    cnf: Vec<Vec<Vec<u32>>>,
    max_clause_freq: u64,
    max_diff_tokens: u64,
    expect: BTreeMap<String, CnfExpect>,
}

#[derive(Deserialize)]
struct CnfExpect {
    count: u64,
    approx: bool,
}

#[derive(Deserialize)]
struct PointersLine {
    id: String,
    #[serde(flatten)]
    pointers: BTreeMap<String, Vec<Vec<u64>>>,
}

#[derive(Deserialize)]
struct Micro {
    name: String,
    pointer_width: usize,
    shards: Vec<Vec<u32>>,
    queries: Vec<MicroQuery>,
}

#[derive(Deserialize)]
struct MicroQuery {
    cnf: Option<Vec<Vec<Vec<u32>>>>,
    ids: Option<Vec<u32>>,
    max_clause_freq: Option<u64>,
    max_diff_tokens: Option<u64>,
    count: u64,
    approx: Option<bool>,
    ptrs_by_shard: Option<Vec<Vec<u64>>>,
}

fn tokenizer(shared: &Path) -> Tokenizer {
    Tokenizer::open(shared.join("tokenizers/llama2/tokenizer.json")).unwrap()
}

/// The four indexes of the golden queries: the two small ones as the official builder made them,
/// the full ones built here, once for all tests.
fn indexes(shared: &Path) -> &'static BTreeMap<&'static str, Index> {
    static INDEXES: OnceLock<BTreeMap<&'static str, Index>> = OnceLock::new();
    INDEXES.get_or_init(|| {
        let small = shared.join("golden/corpus/index-small");
        BTreeMap::from([
            ("small-s1", Index::open(small.join("s1")).unwrap()),
            ("small-s4", Index::open(small.join("s4")).unwrap()),
            ("full-s1", Index::open(full(shared, 1)).unwrap()),
            ("full-s4", Index::open(full(shared, 4)).unwrap()),
        ])
    })
}

/// The index of all corpora, built in the test run's own folder and reused until the next run.
fn full(shared: &Path, shards: usize) -> PathBuf {
    static BUILT: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        [1, 4].map(|shards| {
            let path =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("golden-full-s{shards}"));
            if path.exists() {
                std::fs::remove_dir_all(&path).unwrap();
            }
            build(
                &[shared.join("corpora")],
                &tokenizer(shared),
                &path,
                &BuildOptions::with_shards(shards),
            )
            .unwrap();
            path
        })
    });
    built[usize::from(shards != 1)].clone()
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn tokenisation_matches_official_client() {
    let shared = shared();
    let tokenizer = tokenizer(&shared);
    let vectors: Vec<Encoded> = lines(&shared.join("tokenizers/llama2/encode-vectors.jsonl"));
    assert_eq!(vectors.len(), 639);
    for Encoded { text, slow_ids, client_ids } in vectors {
        assert_eq!(tokenizer.encode_document(&text).unwrap(), slow_ids, "{text:?}");
        assert_eq!(tokenizer.encode_word(&text).unwrap(), client_ids, "{text:?}");
    }
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn small_index_files_match_golden_bytes() {
    let shared = shared();
    let golden = shared.join("golden/corpus/index-small");
    let folder = tempfile::tempdir().unwrap();
    for (name, shards) in [("s1", 1), ("s4", 4)] {
        let ours = folder.path().join(name);
        build(
            &[golden.join("input")],
            &tokenizer(&shared),
            &ours,
            &BuildOptions::with_shards(shards),
        )
        .unwrap();
        let mut compared = 0;
        for entry in std::fs::read_dir(golden.join(name)).unwrap() {
            let file_name = entry.unwrap().file_name();
            if !file_name.to_string_lossy().starts_with("unigram") {
                let read = |dir: &Path| std::fs::read(dir.join(&file_name)).unwrap();
                assert!(
                    read(&ours) == read(&golden.join(name)),
                    "{name}/{} differs",
                    file_name.display()
                );
                compared += 1;
            }
        }
        assert_eq!(compared, if shards == 1 { 3 } else { 20 });
        verify(&ours, OpenOptions::default(), VerifyLevel::Full).unwrap();
    }
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn full_index_checksums_match_official() {
    let shared = shared();
    let readme = std::fs::read_to_string(shared.join("golden/corpus/README.md")).unwrap();
    let mut compared = 0;
    for line in readme.lines() {
        let Some((sum, file)) = line.trim().split_once("  full-s") else { continue };
        let (shards, file) = file.split_once('/').unwrap();
        let bytes = std::fs::read(full(&shared, shards.parse().unwrap()).join(file)).unwrap();
        let ours: String =
            Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(ours, sum, "full-s{shards}/{file}");
        compared += 1;
    }
    assert_eq!(compared, 15);
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn ngram_counts_match_official_engine() {
    let shared = shared();
    let queries: Vec<NgramLine> = lines(&shared.join("golden/corpus/count.jsonl"));
    assert_eq!(queries.len(), 485);
    let tokenizer = tokenizer(&shared);
    for query in &queries {
        assert_eq!(tokenizer.encode_word(&query.words).unwrap(), query.ids, "{}", query.id);
        for (name, expect) in &query.expect {
            assert_eq!(
                indexes(&shared)[name.as_str()].count(&query.ids).unwrap(),
                expect.count,
                "{} on {name}",
                query.id
            );
        }
    }
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn cnf_counts_and_flags_match_official_engine() {
    let shared = shared();
    let queries: Vec<CnfLine> = lines(&shared.join("golden/corpus/cnf.jsonl"));
    assert_eq!(queries.len(), 1_614);
    for query in queries {
        let cnf = Cnf::new(query.cnf).unwrap();
        let options = options(query.max_clause_freq, query.max_diff_tokens);
        for (name, expect) in &query.expect {
            let index = &indexes(&shared)[name.as_str()];
            let answer = index.count_cnf(&cnf, &options, None).unwrap();
            assert_eq!(
                (answer.count, answer.approx),
                (expect.count, expect.approx),
                "{} on {name}",
                query.id
            );

            // Stopping early never changes on which side of a threshold a count is.
            let early = index.count_cnf(&cnf, &options, Some(20)).unwrap();
            assert_eq!(
                early.count.min(20),
                expect.count.min(20),
                "{} on {name}, limit = 20",
                query.id
            );
            assert!(early.at_least || early == answer, "{} on {name}", query.id);

            // Both modes count occurrences of the rarer of two words. Without sampling, the exact
            // mode only adds those that the official engine loses at the borders of documents.
            let exact =
                index.count_cnf(&cnf, &CnfOptions { mode: Mode::Exact, ..options }, None).unwrap();
            assert!(exact.is_exact() && !exact.approx);
            let is_pair = cnf.clauses().len() == 2 && cnf.clauses().iter().all(|c| c.len() == 1);
            if is_pair && index.num_shards() == 1 && !answer.sampled {
                assert!(exact.count >= answer.count, "{} on {name}, exact", query.id);
            }
        }
    }
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn match_positions_agree_with_official_engine() {
    let shared = shared();
    let queries: Vec<CnfLine> = lines(&shared.join("golden/corpus/cnf.jsonl"));
    let queries: BTreeMap<String, CnfLine> =
        queries.into_iter().map(|query| (query.id.clone(), query)).collect();
    let expected: Vec<PointersLine> = lines(&shared.join("golden/corpus/cnf-pointers.jsonl"));
    assert_eq!(expected.len(), 400);
    for PointersLine { id, pointers } in expected {
        let query = &queries[&id];
        let cnf = Cnf::new(query.cnf.clone()).unwrap();
        for (name, pointers) in pointers {
            let index = &indexes(&shared)[name.as_str()];
            let found = index
                .find_cnf(&cnf, &options(query.max_clause_freq, query.max_diff_tokens))
                .unwrap();
            assert_pointers(&found, &pointers, &format!("{id} on {name}"));
        }
    }
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn micro_cases_match_official_engine() {
    let shared = shared();
    let cases: Vec<Micro> = lines(&shared.join("golden/corpus/micro.jsonl"));
    assert_eq!(cases.len(), 189);
    let folder = tempfile::tempdir().unwrap();
    let mut num_queries = 0;
    for case in cases {
        let path = folder.path().join(&case.name);
        let build_options =
            BuildOptions { pointer_width: Some(case.pointer_width), ..BuildOptions::default() };
        build_from_streams(&case.shards, TokenWidth::U16, &path, &build_options).unwrap();
        verify(&path, OpenOptions::default(), VerifyLevel::Full).unwrap();
        let index = Index::open(&path).unwrap();
        assert!(index.info().shards.iter().all(|shard| shard.pointer_width == case.pointer_width));
        for query in case.queries {
            num_queries += 1;
            let Some(cnf) = query.cnf else {
                assert_eq!(index.count(&query.ids.unwrap()).unwrap(), query.count, "{}", case.name);
                continue;
            };
            let context = format!("{}: {cnf:?}", case.name);
            let cnf = Cnf::new(cnf).unwrap();
            let options = options(query.max_clause_freq.unwrap(), query.max_diff_tokens.unwrap());
            let answer = index.count_cnf(&cnf, &options, None).unwrap();
            assert_eq!(
                (answer.count, Some(answer.approx)),
                (query.count, query.approx),
                "{context}"
            );
            if let Some(pointers) = query.ptrs_by_shard {
                assert_pointers(&index.find_cnf(&cnf, &options).unwrap(), &pointers, &context);
            }
        }
    }
    assert!(num_queries > 900, "{num_queries} queries");
}

fn options(max_clause_freq: u64, max_diff_tokens: u64) -> CnfOptions {
    CnfOptions { max_clause_freq, max_diff_tokens, mode: Mode::Compatible }
}

/// The official engine gives byte offsets, and no list at all where a clause is absent from every
/// shard.
fn assert_pointers(found: &[Vec<u64>], expected: &[Vec<u64>], context: &str) {
    let bytes = |starts: &Vec<u64>| starts.iter().map(|start| 2 * start).collect::<Vec<_>>();
    let found: Vec<Vec<u64>> = found.iter().map(bytes).collect();
    if expected.is_empty() {
        assert!(found.iter().all(Vec::is_empty), "{context}");
    } else {
        assert_eq!(found, expected, "{context}");
    }
}
