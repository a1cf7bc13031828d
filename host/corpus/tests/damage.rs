//! Folders that are no index, or no longer one, and builds that do not come to their end.

use std::fs;
use std::path::{Path, PathBuf};

use corver_corpus::{
    BuildOptions, Cnf, CnfOptions, Error, Index, MANIFEST, Mode, OpenOptions, TOKENIZER, TextIndex,
    TokenWidth, Tokenizer, VerifyLevel, build, build_from_documents, build_from_tokens, verify,
};

const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3},"unk_token":"[UNK]"}}"#;

/// Three documents of u16 tokens.
fn index_in(folder: &Path) -> PathBuf {
    let path = folder.join("index");
    let documents = [vec![1, 2, 3, 1, 2], vec![2, 3], vec![1; 200]];
    build_from_tokens(documents, TokenWidth::U16, &path, &BuildOptions::default()).unwrap();
    path
}

const NO_INDEX: &str = " is no Infini-gram index: ";
const MISSING: &str = " is missing: ";
const SIZE: &str = " bytes, but ";
const CHECKSUM: &str = ": checksum ";
const CORRUPT: &str = ": entry ";

/// True for an error of the index that begins with this path, or one in it, and has these
/// words.
fn is_invalid(error: &Error, path: &Path, words: &str) -> bool {
    matches!(error, Error::InvalidIndex(message)
        if message.starts_with(path.to_str().unwrap()) && message.contains(words))
}

fn is_input(error: &Error, path: &Path, words: &str) -> bool {
    matches!(error, Error::InvalidInput(message)
        if message.contains(path.to_str().unwrap()) && message.contains(words))
}

fn is_argument(error: &Error, words: &str) -> bool {
    matches!(error, Error::InvalidArgument(message) if message.contains(words))
}

fn open_error(path: &Path) -> Error {
    Index::open(path).map(|_| ()).expect_err("this is no index")
}

#[test]
fn folder_without_index_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    assert!(is_invalid(&open_error(folder.path()), folder.path(), NO_INDEX));
    fs::write(folder.path().join("notes.txt"), "hello").unwrap();
    assert!(is_invalid(&open_error(folder.path()), folder.path(), NO_INDEX));
    assert!(matches!(open_error(&folder.path().join("nowhere")), Error::Io { .. }));
}

#[test]
fn missing_or_resized_index_files_are_detected() {
    for with_manifest in [true, false] {
        for name in ["tokenized.0", "table.0", "offset.0"] {
            for damage in ["remove", "empty", "cut one byte", "halve", "double"] {
                let folder = tempfile::tempdir().unwrap();
                let index = index_in(folder.path());
                if !with_manifest {
                    fs::remove_file(index.join(MANIFEST)).unwrap();
                }
                let file = index.join(name);
                let bytes = fs::read(&file).unwrap();
                match damage {
                    "remove" => fs::remove_file(&file).unwrap(),
                    "empty" => fs::write(&file, []).unwrap(),
                    "cut one byte" => fs::write(&file, &bytes[..bytes.len() - 1]).unwrap(),
                    "halve" => fs::write(&file, &bytes[..bytes.len() / 2]).unwrap(),
                    _ => fs::write(&file, bytes.repeat(2)).unwrap(),
                }
                // Without a manifest it is unknown how many documents or how wide the pointers
                // were; `verify` finds out.
                let unknowable = !with_manifest
                    && matches!(
                        (name, damage),
                        ("table.0", "double") | ("offset.0", "halve" | "double")
                    );
                match Index::open(&index) {
                    Ok(_) if unknowable => {
                        assert!(
                            verify(&index, OpenOptions::default(), VerifyLevel::Full).is_err(),
                            "{name}: {damage}"
                        );
                    }
                    Err(error)
                        if [SIZE, MISSING, NO_INDEX]
                            .iter()
                            .any(|words| is_invalid(&error, &index, words)) => {}
                    Err(error) if !with_manifest && is_invalid(&error, &index, CORRUPT) => {}
                    other => panic!("{name}: {damage}, manifest {with_manifest}: {other:?}"),
                }
            }
        }
    }
}

/// The files that `open` does not read: their size is the manifest's, or `open` says so, and their
/// content, or `verify` does.
#[test]
fn damage_to_metadata_and_tokenizer_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
    build_from_documents(["red fox", "den"], &tokenizer, &path, &BuildOptions::default()).unwrap();
    for name in ["metadata.0", "metaoff.0", TOKENIZER] {
        let file = path.join(name);
        let intact = fs::read(&file).unwrap();
        let mut flipped = intact.clone();
        flipped[intact.len() / 2] ^= 4;
        for (damaged, is_size) in [(&flipped[..], false), (&intact[1..], true), (&[], true)] {
            fs::write(&file, damaged).unwrap();
            if is_size {
                assert!(is_invalid(&open_error(&path), &file, SIZE), "{name}");
                continue;
            }
            Index::open(&path).unwrap();
            match verify(&path, OpenOptions::default(), VerifyLevel::Sampled(1)) {
                Err(error) => assert!(is_invalid(&error, &file, CHECKSUM), "{name}: {error}"),
                other => panic!("{name}: {other:?}"),
            }
        }
        fs::remove_file(&file).unwrap();
        assert!(is_invalid(&open_error(&path), &file, MISSING), "{name}");
        fs::write(&file, &intact).unwrap();
    }
    verify(&path, OpenOptions::default(), VerifyLevel::Full).unwrap();
}

/// Without a manifest, metadata must at least fit the documents.
#[test]
fn metadata_not_matching_documents_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
    let options = BuildOptions { token_width: Some(TokenWidth::U16), ..BuildOptions::default() };
    build_from_documents(["red fox", "den"], &tokenizer, &path, &options).unwrap();
    fs::remove_file(path.join(MANIFEST)).unwrap();
    let all: u64 = ["tokenized.0", "table.0", "offset.0", "metadata.0", "metaoff.0"]
        .map(|name| fs::metadata(path.join(name)).unwrap().len())
        .iter()
        .sum();
    assert_eq!(Index::open(&path).unwrap().info().index_bytes, all);

    let (offsets, lines) = (path.join("metaoff.0"), path.join("metadata.0"));
    let intact = fs::read(&offsets).unwrap();
    fs::write(&offsets, [&intact[..], &intact[..8]].concat()).unwrap();
    assert!(is_invalid(&open_error(&path), &offsets, ": 24 bytes, but "));
    fs::remove_file(&offsets).unwrap();
    assert!(is_invalid(&open_error(&path), &offsets, MISSING));
    fs::write(&offsets, &intact).unwrap();
    fs::remove_file(&lines).unwrap();
    assert!(is_invalid(&open_error(&path), &lines, MISSING));
    fs::remove_file(&offsets).unwrap();
    Index::open(&path).unwrap();
}

/// A manifest leads nowhere but into its own folder.
#[test]
fn manifest_rejects_files_outside_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_in(folder.path());
    let manifest = fs::read_to_string(index.join(MANIFEST)).unwrap();
    fs::write(folder.path().join("elsewhere"), "x").unwrap();
    for name in ["../elsewhere", "..", "/dev/zero", "offset.0/", ""] {
        let listed = format!("\"files\": {{\"{name}\": {{\"bytes\": 1, \"blake3\": \"\"}},");
        fs::write(index.join(MANIFEST), manifest.replace("\"files\": {", &listed)).unwrap();
        assert!(
            is_invalid(
                &open_error(&index),
                &index.join(MANIFEST),
                &format!(": lists {name:?}, which")
            ),
            "{name:?}"
        );
    }
}

/// An index that is open stays what it was when another takes its name; opened anew it is the other
/// one, or an error.
#[test]
fn replaced_index_stays_consistent_or_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = index_in(folder.path());
    let open = Index::open(&path).unwrap();
    let before = open.count(&[1]).unwrap();
    fs::rename(&path, folder.path().join("old")).unwrap();
    build_from_tokens([vec![9]], TokenWidth::U16, &path, &BuildOptions::default()).unwrap();
    assert_eq!(open.count(&[1]).unwrap(), before);
    let new = Index::open(&path).unwrap();
    assert_eq!((new.count(&[1]).unwrap(), new.count(&[9]).unwrap()), (0, 1));

    // Files of two indexes in one folder.
    let (old, mixed) = (folder.path().join("old"), folder.path().join("mixed"));
    for foreign in ["tokenized.0", "table.0", "offset.0", MANIFEST] {
        fs::create_dir(&mixed).unwrap();
        for name in ["tokenized.0", "table.0", "offset.0", MANIFEST] {
            let from = if name == foreign { &path } else { &old };
            fs::copy(from.join(name), mixed.join(name)).unwrap();
        }
        assert!(is_invalid(&open_error(&mixed), &mixed, SIZE), "{foreign}");
        fs::remove_dir_all(&mixed).unwrap();
    }
}

/// A file system that takes no more: a limit on the size of files gives the same error to the same
/// calls.
#[test]
fn full_disk_fails_build_without_leaving_index() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "trap '' XFSZ; ulimit -f 64; exec \"$0\" fill_the_disk --exact --ignored --nocapture";
    let program = std::env::current_exe().unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(script).arg(program).env("CORVER_FULL", folder.path());
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "run by another test, with a limit on the size of files"]
fn fill_the_disk() {
    let folder = PathBuf::from(std::env::var_os("CORVER_FULL").expect("run by another test"));
    let path = folder.join("index");
    // The stream is too big; the stream fits, but the table does not; the pieces of a sort in parts
    // do not.
    for (tokens, max_block_tokens) in [(400_000, None), (15_000, None), (20_000, Some(18_000))] {
        let documents = [(0..tokens).map(|token| token % 60_000).collect::<Vec<u32>>()];
        let options =
            BuildOptions { max_block_tokens, pointer_width: Some(8), ..BuildOptions::default() };
        match build_from_tokens(documents, TokenWidth::U16, &path, &options) {
            Err(Error::Io { action: "write", source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::FileTooLarge);
            }
            other => panic!("{tokens} tokens: {other:?}"),
        }
        assert!(matches!(Index::open(&path), Err(Error::Io { .. })));
    }
}

#[test]
fn missing_middle_shard_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    build_from_tokens(vec![vec![1]; 9], TokenWidth::U16, &path, &BuildOptions::with_shards(3))
        .unwrap();
    fs::remove_file(path.join(MANIFEST)).unwrap();
    assert_eq!(Index::open(&path).unwrap().num_shards(), 3);
    fs::remove_file(path.join("tokenized.1")).unwrap();
    assert!(is_invalid(&open_error(&path), &path.join("tokenized.1"), MISSING));
}

/// Every bit of every file, one at a time: an answer or a typed error, never a panic, and `verify`
/// always notices.
#[test]
fn any_flipped_bit_is_detected_without_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    build_from_tokens(
        [vec![1, 2, 3, 1, 2], vec![2, 3]],
        TokenWidth::U16,
        &path,
        &BuildOptions::default(),
    )
    .unwrap();
    let cnf = Cnf::new(vec![vec![vec![1], vec![2, 3]], vec![vec![3]], vec![vec![2]]]).unwrap();
    let mut refused = 0;
    for name in ["tokenized.0", "table.0", "offset.0"] {
        let file = path.join(name);
        let intact = fs::read(&file).unwrap();
        for bit in 0..8 * intact.len() {
            let mut damaged = intact.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, &damaged).unwrap();
            match Index::open(&path) {
                Ok(index) => {
                    let count_cnf = |mode| {
                        let options = CnfOptions { mode, ..CnfOptions::default() };
                        index.count_cnf(&cnf, &options, None).map(drop)
                    };
                    let counts = [Mode::Compatible, Mode::Exact, Mode::ExactFirst, Mode::Span]
                        .map(count_cnf);
                    for answer in counts.into_iter().chain([index.count(&[1, 2]).map(drop)]) {
                        assert!(
                            answer
                                .as_ref()
                                .err()
                                .is_none_or(|error| is_invalid(error, &path, CORRUPT)),
                            "{name}, bit {bit}: {answer:?}"
                        );
                    }
                    let verdict = verify(&path, OpenOptions::default(), VerifyLevel::Full);
                    assert!(
                        verdict.as_ref().is_err_and(|error| is_invalid(error, &path, CHECKSUM)),
                        "{name}, bit {bit}: {verdict:?}"
                    );
                }
                Err(error) => {
                    assert!(is_invalid(&error, &path, CORRUPT), "{name}, bit {bit}: {error}");
                    refused += 1;
                }
            }
        }
        fs::write(&file, &intact).unwrap();
    }
    assert!(refused > 0);
    verify(&path, OpenOptions::default(), VerifyLevel::Full).unwrap();
}

/// A cut within a file's last page reads as zeros, and the system says nothing.
#[test]
fn file_truncated_while_open_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
    build_from_documents(["red fox den"; 300], &tokenizer, &path, &BuildOptions::default())
        .unwrap();
    let words = [vec!["red".to_owned()], vec!["den".to_owned()]];
    let options = CnfOptions::default();
    for name in ["tokenized.0", "table.0", "offset.0"] {
        let corpus = TextIndex::open(&path).unwrap();
        let counts = || {
            let batch = corpus.count_words_batch(&[&words], &options, None, None);
            [corpus.count_words(&words, &options, None), batch.map(|counts| counts[0])]
        };
        let right = counts().map(Result::unwrap);
        let file = path.join(name);
        let intact = fs::read(&file).unwrap();
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(intact.len() as u64 - 1)
            .unwrap();
        for error in counts().map(Result::unwrap_err) {
            assert!(is_invalid(&error, &file, SIZE), "{name}: {error}");
        }
        fs::write(&file, intact).unwrap();
        assert_eq!(counts().map(Result::unwrap), right);
    }
}

/// The prefix file of a larger index: wrong prefixes may give wrong counts, as wrong tokens do, and
/// nothing worse.
#[test]
fn damage_to_the_prefix_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let document = |number: u32| {
        (0..700).map(|index: u32| 1 + index.wrapping_mul(number ^ index) % 900).collect()
    };
    let documents: Vec<Vec<u32>> = (0..100).map(document).collect();
    build_from_tokens(documents, TokenWidth::U16, &path, &BuildOptions::default()).unwrap();
    let verified = || verify(&path, OpenOptions::default(), VerifyLevel::Sampled(10));
    assert_eq!(verified().unwrap().checksums, 4);
    let counts = || {
        let index = Index::open(&path).unwrap();
        (1..900).map(|token| index.count(&[token, token + 1]).unwrap()).collect::<Vec<_>>()
    };
    let right = counts();

    let (file, manifest) = (path.join("prefixes.0"), path.join(MANIFEST));
    let (intact, listed) = (fs::read(&file).unwrap(), fs::read_to_string(&manifest).unwrap());
    assert_eq!(
        intact.len(),
        8 * (1_536 + 3),
        "every 64th of 70,100 suffixes, and every 512th of those from the fourth page on"
    );
    let mut mixed = intact.clone();
    mixed.rotate_left(200);
    for damaged in [vec![0xFF; intact.len()], vec![0; intact.len()], mixed] {
        fs::write(&file, &damaged).unwrap();
        counts();
        assert!(is_invalid(&verified().unwrap_err(), &file, CHECKSUM));
    }
    let [old, new] = [&intact[..], &fs::read(&file).unwrap()]
        .map(|bytes| blake3::hash(bytes).to_hex().to_string());
    fs::write(&manifest, listed.replace(&old, &new)).unwrap();
    assert!(is_invalid(&verified().unwrap_err(), &file, ": entry 0 is "));
    // Without a manifest the file is not used.
    fs::remove_file(&manifest).unwrap();
    assert_eq!(counts(), right);

    fs::write(&manifest, &listed).unwrap();
    fs::write(&file, &intact[8..]).unwrap();
    assert!(is_invalid(&open_error(&path), &file, SIZE));
    fs::write(
        &manifest,
        listed.replace(
            &format!("\"bytes\": {},", intact.len()),
            &format!("\"bytes\": {},", intact.len() - 8),
        ),
    )
    .unwrap();
    assert!(is_invalid(&open_error(&path), &file, SIZE));
    fs::remove_file(&file).unwrap();
    assert!(is_invalid(&open_error(&path), &file, MISSING));
}

/// A count with many ranges reads where every document starts.
#[test]
fn documents_out_of_order_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    build_from_tokens(vec![vec![1, 2]; 400], TokenWidth::U16, &path, &BuildOptions::default())
        .unwrap();
    let offsets = path.join("offset.0");
    let mut bytes = fs::read(&offsets).unwrap();
    bytes.copy_within(8 * 100..8 * 101, 8 * 200);
    fs::write(&offsets, bytes).unwrap();
    let index = Index::open(&path).unwrap();
    let cnf = Cnf::new(vec![vec![vec![1]], vec![vec![2]]]).unwrap();
    for mode in [Mode::Compatible, Mode::Exact] {
        let error =
            index.count_cnf(&cnf, &CnfOptions { mode, ..CnfOptions::default() }, None).unwrap_err();
        assert!(is_invalid(&error, &offsets, ": entry 200 is "), "{error}");
    }
}

#[test]
fn verify_detects_swapped_suffixes_without_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_in(folder.path());
    fs::remove_file(index.join(MANIFEST)).unwrap();
    let table = index.join("table.0");
    let mut pointers = fs::read(&table).unwrap();
    pointers.swap(20, 22); // two-byte pointers: ranks 10 and 11 change places
    pointers.swap(21, 23);
    fs::write(&table, pointers).unwrap();
    let error = verify(&index, OpenOptions::default(), VerifyLevel::Full).unwrap_err();
    assert!(is_invalid(&error, &table, CORRUPT), "{error}");
}

#[test]
fn mismatching_token_width_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_in(folder.path());
    let as_u32 = || OpenOptions::with_token_width(TokenWidth::U32);
    let error = Index::open_with(&index, as_u32()).unwrap_err();
    assert!(is_argument(&error, "token width (bytes) = 4: "), "{error}");
    fs::remove_file(index.join(MANIFEST)).unwrap();
    assert!(Index::open_with(&index, as_u32()).is_err());
    assert!(Index::open_with(&index, OpenOptions::with_token_width(TokenWidth::U16)).is_ok());
}

#[test]
fn future_manifest_version_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_in(folder.path());
    fs::write(index.join(MANIFEST), r#"{"format":"corver-index","version":9,"news":1}"#).unwrap();
    assert!(is_invalid(&open_error(&index), &index, ": manifest corver-index version 9, but "));
    fs::write(index.join(MANIFEST), "{").unwrap();
    assert!(is_invalid(&open_error(&index), &index.join(MANIFEST), "EOF while parsing"));
}

#[test]
fn bad_queries_are_typed_errors() {
    let folder = tempfile::tempdir().unwrap();
    let index = Index::open(index_in(folder.path())).unwrap();
    for (cnf, part) in [(vec![], "query"), (vec![vec![]], "clause"), (vec![vec![vec![]]], "term")] {
        assert!(is_argument(&Cnf::new(cnf).unwrap_err(), &format!("an empty {part}: ")));
    }
    assert!(is_argument(&index.count(&[65_536]).unwrap_err(), "token id 65536 does not fit"));
    let cnf = Cnf::new(vec![vec![vec![1]]]).unwrap();
    for (options, name) in [
        (CnfOptions { max_clause_freq: 0, ..CnfOptions::default() }, "max_clause_freq"),
        (CnfOptions { max_diff_tokens: 0, ..CnfOptions::default() }, "max_diff_tokens"),
    ] {
        let error = index.count_cnf(&cnf, &options, None).unwrap_err();
        assert!(is_argument(&error, &format!("{name} = 0: ")), "{error}");
    }
    let far = CnfOptions { max_diff_tokens: u64::MAX, ..CnfOptions::default() };
    let pair = Cnf::new(vec![vec![vec![3]], vec![vec![2]]]).unwrap();
    assert_eq!(index.count_cnf(&pair, &far, None).unwrap().count, 2); // and nothing overflows
}

#[test]
fn failed_build_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("index");
    let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
    let input = folder.path().join("corpus.jsonl");
    let attempt = |text: &str| {
        fs::write(&input, text).unwrap();
        build(std::slice::from_ref(&input), &tokenizer, &out, &BuildOptions::default()).map(drop)
    };
    for (text, wrong_line) in [
        ("{\"text\":\"red\"}\nred\n", 2),
        ("{\"text\":\"red\"}\n\n", 2),
        ("{\"text\":1}\n", 1),
        ("{\"title\":\"red\"}", 1),
    ] {
        match attempt(text) {
            Err(error) => assert!(
                is_input(&error, &input, &format!(", line {wrong_line}: ")),
                "{text:?}: {error}"
            ),
            Ok(()) => panic!("{text:?}"),
        }
    }
    assert!(attempt("").unwrap_err().to_string().contains("the inputs hold no document"));
    let missing = folder.path().join("missing.jsonl");
    assert!(matches!(
        build(&[missing], &tokenizer, &out, &BuildOptions::default()),
        Err(Error::Io { .. })
    ));
    let text = out.with_extension("txt");
    let error =
        build(std::slice::from_ref(&text), &tokenizer, &out, &BuildOptions::default()).unwrap_err();
    assert!(is_input(&error, &text, ": its name is not that of a supported file; "), "{error}");
    fs::write(folder.path().join("broken.jsonl.gz"), [0x1f, 0x8b, 8, 0]).unwrap();
    let broken = folder.path().join("broken.jsonl.gz");
    let error = build(std::slice::from_ref(&broken), &tokenizer, &out, &BuildOptions::default())
        .unwrap_err();
    assert!(is_input(&error, &broken, "copy it again"), "{error}");
    fs::remove_file(broken).unwrap();

    fs::write(folder.path().join("broken.jsonl.zst"), [0x28, 0xb5, 0x2f, 0xfd, 9]).unwrap();
    let broken = folder.path().join("broken.jsonl.zst");
    let error = build(std::slice::from_ref(&broken), &tokenizer, &out, &BuildOptions::default())
        .unwrap_err();
    assert!(is_input(&error, &broken, "copy it again"), "{error}");
    fs::remove_file(broken).unwrap();

    let left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["corpus.jsonl"]);

    attempt("{\"text\":\"red fox\"}\n{\"text\":\"fox\",\"id\":7}\n").unwrap();
    assert!(matches!(
        attempt("{\"text\":\"red\"}\n"),
        Err(Error::OutputTaken(message)) if message.contains(" already exists: ")
    ));
}

#[test]
fn index_stores_and_checks_its_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("index");
    let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
    let manifest = build_from_documents(
        ["red fox", "fox den", "red red den"],
        &tokenizer,
        &out,
        &BuildOptions::default(),
    )
    .unwrap();
    assert_eq!(
        (manifest.documents, manifest.tokens, manifest.token_width),
        (3, 10, TokenWidth::U8)
    );

    let corpus = TextIndex::open(&out).unwrap();
    let words = |all_of: &[&[&str]]| -> Vec<Vec<String>> {
        all_of.iter().map(|any| any.iter().map(|&word| word.to_owned()).collect()).collect()
    };
    let ask = |all_of: &[&[&str]]| {
        corpus
            .count_words(&words(all_of), &CnfOptions::default(), None)
            .unwrap()
            .map(|answer| answer.count)
    };
    assert_eq!(ask(&[&["red"]]), Some(3));
    assert_eq!(ask(&[&["red"], &["den", "fox"]]), Some(1)); // the other "red"s take in "den" across a boundary
    assert_eq!(ask(&[&["fox den"]]), Some(1));
    assert_eq!(ask(&[&["red"], &[""]]), None);
    let error = corpus.count_words(&[], &CnfOptions::default(), None).unwrap_err();
    assert!(is_argument(&error, "an empty query: "), "{error}");

    // A batch: repeats, a single word, one without tokens; each count as if it were requested
    // alone.
    let either: &[&[&str]] = &[&["red"], &["den", "fox"]];
    let all_of: [&[&[&str]]; 6] = [
        either,
        &[&["fox"]],
        &[&["red"], &["fox"]],
        either,
        &[&["red"], &[""]],
        &[&["den"], &["den"]],
    ];
    let all_of = all_of.map(words);
    let queries: Vec<&[Vec<String>]> = all_of.iter().map(Vec::as_slice).collect();
    let options = CnfOptions::default();
    for limit in [None, Some(1)] {
        let alone =
            queries.iter().map(|all_of| corpus.count_words(all_of, &options, limit).unwrap());
        assert_eq!(
            corpus.count_words_batch(&queries, &options, limit, None).unwrap(),
            alone.collect::<Vec<_>>()
        );
    }
    assert!(corpus.count_words_batch(&[&[]], &options, None, None).is_err());

    let other = Tokenizer::from_bytes(WORDS.replace("den", "lair")).unwrap();
    let error = TextIndex::new(Index::open(&out).unwrap(), other).unwrap_err();
    assert!(is_argument(&error, "was built with the tokenizer "), "{error}");
    fs::remove_file(out.join(TOKENIZER)).unwrap();
    assert!(is_invalid(&TextIndex::open(&out).unwrap_err(), &out.join(TOKENIZER), MISSING));
    let of_ids = folder.path().join("ids");
    build_from_tokens([vec![1]], TokenWidth::U8, &of_ids, &BuildOptions::default()).unwrap();
    assert!(is_invalid(
        &TextIndex::open(&of_ids).unwrap_err(),
        &of_ids,
        " holds no tokenizer.json"
    ));
}
