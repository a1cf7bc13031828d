//! Files go both ways between this crate and the official engine (`infini-gram` 2.6.0), and the
//! answers are the same.
//!
//! `make test-peer` installs the official package and runs these; a plain `cargo test` lists them
//! as ignored.

#[path = "../../benches/peer/official.rs"]
mod official;

use std::path::{Path, PathBuf};
use std::process::Command;

use corver_corpus::{
    BuildOptions, Cnf, CnfOptions, Index, Mode, OpenOptions, TokenWidth, VerifyLevel,
    build_from_tokens, verify,
};
use official::Official;
use rand_mt::Mt;
use serde_json::json;

const WIDTHS: [TokenWidth; 3] = [TokenWidth::U8, TokenWidth::U16, TokenWidth::U32];
const SHARDS: [usize; 2] = [1, 3];

fn python() -> PathBuf {
    let python = std::env::var_os("CORVER_PEER_PYTHON");
    PathBuf::from(python.expect(
        "CORVER_PEER_PYTHON names the Python that has infini-gram; `make test-peer` sets it",
    ))
}

/// Few different ids, so that n-grams repeat and co-occur. Their bytes disagree with their numbers
/// about the order, and some look like half a separator, which the official engine falls for.
fn alphabet(width: TokenWidth) -> Vec<u32> {
    match width {
        TokenWidth::U8 => vec![0, 1, 7, 65, 128, 254],
        TokenWidth::U16 => vec![1, 2, 255, 256, 511, 0xFF41, 0x12FF],
        TokenWidth::U32 => vec![1, 255, 256, 65_536, 128_000, 0xFFFF_FF00, 0x00FF_FFFF],
    }
}

fn documents(width: TokenWidth, draw: &mut Mt) -> Vec<Vec<u32>> {
    let ids = alphabet(width);
    (0..60).map(|_| (0..draw.next_u32() % 80).map(|_| pick(&ids, draw)).collect()).collect()
}

fn pick<T: Copy>(from: &[T], draw: &mut Mt) -> T {
    from[draw.next_u32() as usize % from.len()]
}

enum Query {
    Ngram(Vec<u32>),
    Cnf(Cnf, CnfOptions),
}

impl Query {
    fn drawn(width: TokenWidth, draw: &mut Mt) -> Self {
        let ids = alphabet(width);
        let term = |draw: &mut Mt| {
            (0..1 + draw.next_u32() % 3).map(|_| pick(&ids, draw)).collect::<Vec<_>>()
        };
        if draw.next_u32().is_multiple_of(8) {
            return Self::Ngram(term(draw));
        }
        let clauses = (0..1 + draw.next_u32() % 4)
            .map(|_| (0..1 + draw.next_u32() % 3).map(|_| term(draw)).collect())
            .collect();
        let options = CnfOptions {
            max_clause_freq: pick(&[1, 3, 10, 50, 500_000], draw),
            max_diff_tokens: pick(&[1, 2, 5, 20, 1_000], draw),
            mode: Mode::Compatible,
        };
        Self::Cnf(Cnf::new(clauses).unwrap(), options)
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Ngram(ids) => json!({"ids": ids}),
            Self::Cnf(cnf, options) => json!({
                "cnf": cnf.clauses(),
                "max_clause_freq": options.max_clause_freq,
                "max_diff_tokens": options.max_diff_tokens,
            }),
        }
    }
}

/// Asks both engines about one folder: counts, flags, and where every match begins.
fn assert_answered_alike(path: &Path, width: TokenWidth, draw: &mut Mt) {
    let index = Index::open_with(path, OpenOptions::with_token_width(width)).unwrap();
    let queries: Vec<Query> = (0..400).map(|_| Query::drawn(width, draw)).collect();
    let file = path.with_extension("queries");
    let lines: String = queries.iter().map(|query| format!("{}\n", query.to_json())).collect();
    std::fs::write(&file, lines).unwrap();
    let answers = Official::start(&python(), width, path, &file).answers();
    assert_eq!(answers.len(), queries.len());
    for (query, (count, approx, pointers)) in queries.iter().zip(answers) {
        match query {
            Query::Ngram(ids) => assert_eq!(index.count(ids).unwrap(), count, "{width} {ids:?}"),
            Query::Cnf(cnf, options) => {
                let ours = index.count_cnf(cnf, options, None).unwrap();
                assert_eq!(
                    (ours.count, ours.approx),
                    (count, approx),
                    "{width} {cnf:?} {options:?}"
                );
                let theirs: Vec<Vec<u64>> = serde_json::from_value(pointers).unwrap();
                let ours: Vec<Vec<u64>> = index.find_cnf(cnf, options).unwrap();
                let bytes = |starts: &Vec<u64>| {
                    starts.iter().map(|start| start * width.bytes() as u64).collect()
                };
                let ours: Vec<Vec<u64>> = ours.iter().map(bytes).collect();
                // No lists at all, instead of empty ones, where a clause occurs nowhere.
                assert!(
                    ours == theirs || theirs.is_empty() && ours.iter().all(Vec::is_empty),
                    "{width} {cnf:?}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs the official engine: make test-peer"]
fn official_engine_reads_our_indexes() {
    let mut draw = Mt::new(1);
    for width in WIDTHS {
        for shards in SHARDS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("index");
            build_from_tokens(
                documents(width, &mut draw),
                width,
                &path,
                &BuildOptions::with_shards(shards),
            )
            .unwrap();
            assert_answered_alike(&path, width, &mut draw);
        }
    }
}

#[test]
#[ignore = "needs the official engine: make test-peer"]
fn official_indexes_open_and_match_ours() {
    let mut draw = Mt::new(2);
    // Not u32: for it the official indexer reserves 34 GB, whatever the size of the input.
    for width in [TokenWidth::U8, TokenWidth::U16] {
        for shards in SHARDS {
            let folder = tempfile::tempdir().unwrap();
            let (input, theirs, ours) = (
                folder.path().join("input"),
                folder.path().join("theirs"),
                folder.path().join("ours"),
            );
            let documents = documents(width, &mut draw);
            let text =
                |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            let lines: String =
                documents.iter().map(|ids| format!("{}\n", json!({"text": text(ids)}))).collect();
            std::fs::create_dir(&input).unwrap();
            std::fs::write(input.join("ids.jsonl"), lines).unwrap();
            let indexer = Command::new(python())
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/index_ids.py"))
                .args([&width.to_string(), &shards.to_string()])
                .args([&input, &theirs])
                .output()
                .unwrap();
            assert!(indexer.status.success(), "{}", String::from_utf8_lossy(&indexer.stderr));

            verify(&theirs, OpenOptions::with_token_width(width), VerifyLevel::Full).unwrap();
            assert_answered_alike(&theirs, width, &mut draw);
            build_from_tokens(documents, width, &ours, &BuildOptions::with_shards(shards)).unwrap();
            for file in (0..shards)
                .flat_map(|k| ["tokenized", "table", "offset"].map(|name| format!("{name}.{k}")))
            {
                let read = |folder: &Path| std::fs::read(folder.join(&file)).unwrap();
                assert!(read(&theirs) == read(&ours), "{width}, {shards} shards: {file} differs");
            }
        }
    }
}
