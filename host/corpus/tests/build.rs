//! Builds that are killed, exceed the memory or the disk, are tiny, or have compressed inputs.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use corver_corpus::{
    BuildOptions, BuildProgress, Error, Index, IndexManifest, OpenOptions, TokenWidth, Tokenizer,
    VerifyLevel, build, build_from_documents, build_from_tokens, verify,
};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3,"hill":4},"unk_token":"[UNK]"}}"#;

fn tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(WORDS).unwrap()
}

/// Writes files of repetitive documents, one of them long.
fn corpus(folder: &Path) -> PathBuf {
    let inputs = folder.join("inputs");
    fs::create_dir(&inputs).unwrap();
    let words = ["red", "fox", "den", "hill", "moor"];
    for file in 0..3 {
        let mut text = String::new();
        for document in 0..400 {
            let length = if document == 200 { 40_000 } else { 1 + document % 90 };
            let words: Vec<&str> =
                (0..length).map(|word| words[(word * word + document * (file + 1)) % 5]).collect();
            text += &format!("{{\"text\": \"{}\", \"number\": {document}}}\n", words.join(" "));
        }
        fs::write(inputs.join(format!("{file}.jsonl")), text).unwrap();
    }
    inputs
}

/// Returns the names and contents of all files of a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn options() -> BuildOptions<'static> {
    BuildOptions { checkpoint_bytes: 60_000, ..BuildOptions::default() }
}

/// Runs [`child`] in a process of its own.
fn in_child_process(work: &str, folder: &Path, value: u64) -> Output {
    on_threads(2, work, folder, value)
}

fn on_threads(threads: usize, work: &str, folder: &Path, value: u64) -> Output {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env("RAYON_NUM_THREADS", threads.to_string());
    command
        .env("CORVER_CHILD", work)
        .env("CORVER_CHILD_FOLDER", folder)
        .env("CORVER_CHILD_VALUE", value.to_string());
    command.output().unwrap()
}

#[test]
#[ignore = "other tests run it in child processes"]
fn child() {
    let work = std::env::var("CORVER_CHILD").expect("run by another test");
    let folder = PathBuf::from(std::env::var_os("CORVER_CHILD_FOLDER").unwrap());
    let value: u64 = std::env::var("CORVER_CHILD_VALUE").unwrap().parse().unwrap();
    match work.as_str() {
        "abort after N reports" => {
            let reports = AtomicUsize::new(0);
            let count = |_: BuildProgress| {
                if reports.fetch_add(1, Relaxed) as u64 + 1 == value {
                    std::process::abort();
                }
            };
            let options = BuildOptions {
                max_block_tokens: Some(50_000),
                progress: Some(&count),
                ..options()
            };
            build(&[folder.join("inputs")], &tokenizer(), &folder.join("index"), &options).unwrap();
        }
        "abort after a block" => {
            let abort = |progress: BuildProgress| {
                if matches!(progress, BuildProgress::Sorting { sorted: 1.., .. }) {
                    std::process::abort();
                }
            };
            let options = BuildOptions {
                max_block_tokens: Some(50_000),
                progress: Some(&abort),
                ..options()
            };
            build(&[folder.join("inputs")], &tokenizer(), &folder.join("index"), &options).unwrap();
        }
        "sort within N bytes" => {
            let options = BuildOptions { memory: Some(value), ..BuildOptions::default() };
            build_from_tokens(many_documents(), TokenWidth::U16, &folder.join("index"), &options)
                .unwrap();
            write_peak(folder);
        }
        "index files within N bytes" => {
            let options = BuildOptions { memory: Some(value), ..BuildOptions::default() };
            build(&[folder.join("inputs")], &llama(), &folder.join("index"), &options).unwrap();
            write_peak(folder);
        }
        _ => panic!("{work}"),
    }
}

fn write_peak(folder: PathBuf) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    fs::write(folder.join("peak"), peak).unwrap();
}

/// Returns the peak memory of a child process, bytes.
fn peak(folder: &Path) -> u64 {
    let peak = fs::read_to_string(folder.join("peak")).unwrap();
    let kilobytes: u64 =
        peak.trim_start_matches("VmHWM:").trim().trim_end_matches(" kB").parse().unwrap();
    1024 * kilobytes
}

#[test]
fn build_killed_at_any_point_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = corpus(folder.path());
    let expected = folder.path().join("expected");
    build(&[inputs], &tokenizer(), &expected, &options()).unwrap();
    let expected = files(&expected);

    let index = folder.path().join("index");
    let mut kills = 0;
    for reports in 1.. {
        let first = in_child_process("abort after N reports", folder.path(), reports);
        if first.status.success() {
            assert!(files(&index) == expected);
            break;
        }
        kills += 1;
        assert!(!index.exists(), "killed after {reports} reports");
        let error = Index::open(index.with_extension("unfinished")).unwrap_err().to_string();
        assert!(error.contains(" is an unfinished build: "), "{error}");
        // A second blow before it may come to its end.
        in_child_process("abort after N reports", folder.path(), reports);
        if !index.exists() {
            let last = in_child_process("abort after N reports", folder.path(), u64::MAX);
            assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stderr));
        }
        assert!(files(&index) == expected, "killed after {reports} reports");
        fs::remove_dir_all(&index).unwrap();
    }
    assert!(kills > 10, "{kills}");
    assert_eq!(names(folder.path()), ["expected", "index", "inputs"]);
}

#[test]
fn resumed_build_leaves_no_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = corpus(folder.path());
    let killed = in_child_process("abort after a block", folder.path(), 0);
    assert!(!killed.status.success());
    let left = names(&folder.path().join("index.unfinished"));
    assert!(left.iter().any(|name| name.starts_with("suffixes.0.")), "{left:?}");
    // The rest of the shard is sorted in one piece.
    let index = folder.path().join("index");
    build(std::slice::from_ref(&inputs), &tokenizer(), &index, &options()).unwrap();
    let afresh = folder.path().join("afresh");
    build(&[inputs], &tokenizer(), &afresh, &options()).unwrap();
    assert_eq!(names(&index), names(&afresh));
    assert!(files(&index) == files(&afresh));
}

fn is_taken(built: &Result<IndexManifest, Error>, words: &str) -> bool {
    matches!(built, Err(Error::OutputTaken(message)) if message.contains(words))
}

/// The bytes that a build with this budget says it takes at least.
fn needed(error: &Error, budget: u64) -> u64 {
    let Error::OutOfMemory(message) = error else { panic!("{error}") };
    let begin = format!("a memory budget of {budget} bytes is too small: this takes at least ");
    message.strip_prefix(&begin).unwrap_or_else(|| panic!("{message}")).parse().unwrap()
}

/// Kills a build in the middle of its inputs, in this process: the failure stands for the kill.
fn interrupt(folder: &Path, broken_file: &str) -> PathBuf {
    let inputs = folder.join("inputs");
    let file = inputs.join(broken_file);
    let good = fs::read(&file).unwrap();
    fs::write(&file, [&good[..], b"oops\n"].concat()).unwrap();
    let failed =
        build(std::slice::from_ref(&inputs), &tokenizer(), &folder.join("index"), &options());
    let error = failed.unwrap_err().to_string();
    assert!(error.contains(", line 401: "), "{error}");
    fs::write(&file, good).unwrap();
    inputs
}

fn resumed(
    inputs: &Path,
    options: &BuildOptions<'_>,
    index: &Path,
) -> (Result<IndexManifest, Error>, u64) {
    let resumed = std::sync::Mutex::new(0);
    let on_progress = |progress: BuildProgress| {
        if let BuildProgress::Resumed { documents, .. } = progress {
            *resumed.lock().unwrap() = documents;
        }
    };
    let options = BuildOptions { progress: Some(&on_progress), ..*options };
    let built = build(&[inputs.to_owned()], &tokenizer(), index, &options);
    (built, resumed.into_inner().unwrap())
}

#[test]
fn resumed_build_reuses_unchanged_inputs() {
    let folder = tempfile::tempdir().unwrap();
    corpus(folder.path());
    let inputs = interrupt(folder.path(), "2.jsonl");
    let index = folder.path().join("index");
    let (built, documents) = resumed(&inputs, &options(), &index);
    built.unwrap();
    assert!((400..=800).contains(&documents), "{documents}"); // nothing of the third file, which was repaired
    let afresh = folder.path().join("afresh");
    build(&[inputs], &tokenizer(), &afresh, &options()).unwrap();
    assert!(files(&index) == files(&afresh));
}

#[test]
fn resume_rejects_different_shards_or_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    corpus(folder.path());
    let inputs = interrupt(folder.path(), "1.jsonl");
    let index = folder.path().join("index");
    let two = BuildOptions { shards: 2, ..options() };
    let refused = build(std::slice::from_ref(&inputs), &tokenizer(), &index, &two);
    assert!(is_taken(&refused, "differs in the number of shards: "), "{refused:?}");
    let other = Tokenizer::from_bytes(WORDS.replace("hill", "moor")).unwrap();
    let refused = build(std::slice::from_ref(&inputs), &other, &index, &options());
    assert!(is_taken(&refused, "differs in the tokenizer: "), "{refused:?}");

    let (built, documents) = resumed(&inputs, &BuildOptions { restart: true, ..two }, &index);
    assert_eq!((built.unwrap().shards, documents), (2, 0));
    assert_eq!(names(folder.path()), ["index", "inputs"]);
}

#[test]
fn resume_rejects_tampered_partial_build() {
    let folder = tempfile::tempdir().unwrap();
    corpus(folder.path());
    let inputs = interrupt(folder.path(), "1.jsonl");
    let index = folder.path().join("index");
    let stream = folder.path().join("index.unfinished/tokenized.0");
    let mut bytes = fs::read(&stream).unwrap();
    bytes[100] ^= 1;
    fs::write(&stream, &bytes).unwrap();
    let error = resumed(&inputs, &options(), &index).0.unwrap_err().to_string();
    assert!(error.contains("/tokenized.0: checksum "), "{error}");
    fs::write(&stream, &bytes[..50]).unwrap();
    let error = resumed(&inputs, &options(), &index).0.unwrap_err().to_string();
    assert!(error.contains("/tokenized.0: 50 bytes, but "), "{error}");
    let again = BuildOptions { restart: true, ..options() };
    resumed(&inputs, &again, &index).0.unwrap();
    verify(&index, OpenOptions::default(), VerifyLevel::Full).unwrap();
}

#[test]
fn concurrent_build_of_same_index_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = corpus(folder.path());
    let index = folder.path().join("index");
    let refused = AtomicUsize::new(0);
    let on_progress = |progress: BuildProgress| {
        if let BuildProgress::Sorting { .. } = progress {
            let second = build(std::slice::from_ref(&inputs), &tokenizer(), &index, &options());
            assert!(
                is_taken(&second, " is locked: another process is building this index"),
                "{second:?}"
            );
            refused.fetch_add(1, Relaxed);
        }
    };
    let first = BuildOptions { progress: Some(&on_progress), ..options() };
    build(std::slice::from_ref(&inputs), &tokenizer(), &index, &first).unwrap();
    assert_eq!(refused.into_inner(), 1);

    // Documents from memory wait for each other instead: one builds, and the others find it there.
    let demo = folder.path().join("demo");
    let results: Vec<_> = std::thread::scope(|scope| {
        let build = || {
            build_from_documents(["red fox", "den"], &tokenizer(), &demo, &BuildOptions::default())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(build)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(
        results.iter().all(|result| result.is_ok() || is_taken(result, " already exists: ")),
        "{results:?}"
    );
    assert_eq!(names(folder.path()), ["demo", "index", "inputs"]);
}

#[test]
fn link_to_an_empty_folder_becomes_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = corpus(folder.path());
    let disk = folder.path().join("disk");
    fs::create_dir_all(disk.join("empty")).unwrap();
    let index = folder.path().join("index");
    symlink(disk.join("empty"), &index).unwrap();
    let with_slash = index.join("");
    build(&[inputs], &tokenizer(), &with_slash, &options()).unwrap();
    assert!(index.is_symlink());
    Index::open(&index).unwrap();
    assert_eq!(names(&disk), ["empty"]);
    assert_eq!(names(folder.path()), ["disk", "index", "inputs"]);
}

#[test]
fn folder_that_cannot_be_replaced_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = corpus(folder.path());
    // A path without a name, and a mount point.
    for target in [PathBuf::from("."), folder.path().join(".."), PathBuf::from("/proc")] {
        let refused = build(std::slice::from_ref(&inputs), &tokenizer(), &target, &options());
        assert!(is_taken(&refused, " cannot be replaced by a finished index: "), "{refused:?}");
    }
    assert_eq!(names(folder.path()), ["inputs"]);
}

#[test]
fn index_that_cannot_be_renamed_is_not_built_again() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = corpus(folder.path());
    let index = folder.path().join("index");
    let take_name = |progress: BuildProgress| {
        if let BuildProgress::Sorting { .. } = progress {
            fs::create_dir(&index).unwrap();
            fs::write(index.join("file"), "").unwrap();
        }
    };
    let first = BuildOptions { progress: Some(&take_name), ..options() };
    let failed = build(std::slice::from_ref(&inputs), &tokenizer(), &index, &first);
    let error = failed.unwrap_err().to_string();
    assert!(error.starts_with("failed to rename the finished folder to "), "{error}");
    fs::remove_dir_all(&index).unwrap();

    let reports = AtomicUsize::new(0);
    let count = |_: BuildProgress| {
        reports.fetch_add(1, Relaxed);
    };
    let second = BuildOptions { progress: Some(&count), ..options() };
    build(std::slice::from_ref(&inputs), &tokenizer(), &index, &second).unwrap();
    assert_eq!(reports.into_inner(), 0);
    let afresh = folder.path().join("afresh");
    build(&[inputs], &tokenizer(), &afresh, &options()).unwrap();
    assert!(files(&index) == files(&afresh));
}

#[test]
fn folder_that_no_build_has_left_is_not_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = corpus(folder.path());
    let index = folder.path().join("index");
    let unfinished = folder.path().join("index.unfinished");
    fs::create_dir(&unfinished).unwrap();
    let restarted = BuildOptions { restart: true, ..options() };
    for (name, problem) in [
        ("notes.txt", " holds files that no build has left: "),
        ("corver-index.json", " holds a complete index: rename it to "),
    ] {
        fs::write(unfinished.join(name), "").unwrap();
        for given in [options(), restarted] {
            let refused = build(std::slice::from_ref(&inputs), &tokenizer(), &index, &given);
            assert!(is_taken(&refused, problem), "{refused:?}");
        }
        assert_eq!(names(&unfinished), [name]);
        fs::remove_file(unfinished.join(name)).unwrap();
    }
    // What is left of a build that was killed at its start.
    fs::write(unfinished.join(".tmpA1b2C3"), "").unwrap();
    build(&[inputs], &tokenizer(), &index, &options()).unwrap();
    assert!(!index.join(".tmpA1b2C3").exists());
    assert_eq!(names(folder.path()), ["index", "inputs"]);
}

/// A build may be killed after it removes its state, and before it renames the folder.
#[test]
fn complete_index_without_its_name_is_built_again_on_restart() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = [corpus(folder.path())];
    let index = folder.path().join("index");
    build(&inputs, &tokenizer(), &index, &options()).unwrap();
    let expected = files(&index);
    let unfinished = folder.path().join("index.unfinished");
    fs::rename(&index, &unfinished).unwrap();
    let restarted = BuildOptions { restart: true, ..options() };
    let notes = unfinished.join("notes.txt");
    fs::write(&notes, "").unwrap();
    let with_notes = build(&inputs, &tokenizer(), &index, &restarted);
    fs::remove_file(notes).unwrap();
    for refused in [with_notes, build(&inputs, &tokenizer(), &index, &options())] {
        assert!(is_taken(&refused, " holds a complete index: rename it to "), "{refused:?}");
    }
    assert!(files(&unfinished) == expected);
    build(&inputs, &tokenizer(), &index, &restarted).unwrap();
    assert!(files(&index) == expected);
    assert_eq!(names(folder.path()), ["index", "inputs"]);
}

/// Eight million tokens that compress badly, in documents of a thousand, one of which stands many
/// times.
fn many_documents() -> impl Iterator<Item = Vec<u32>> {
    (0..8_000_u32).map(|document| {
        let mut state = if document % 10 == 0 { 1 } else { document.wrapping_mul(2_654_435_761) };
        (0..1_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 12) % (1 + (state >> 8) % 30_000)
            })
            .collect()
    })
}

#[test]
fn sort_memory_budget_holds_without_changing_index() {
    let budget: u64 = 44 << 20; // sorting in one piece would need 48 MB
    let folder = tempfile::tempdir().unwrap();
    let expected = folder.path().join("expected");
    build_from_tokens(many_documents(), TokenWidth::U16, &expected, &BuildOptions::default())
        .unwrap();

    let child = in_child_process("sort within N bytes", folder.path(), budget);
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let peak = peak(folder.path());
    assert!(peak <= budget, "{peak} bytes with a budget of {budget}");
    assert!(peak > budget / 2, "{peak} bytes: the budget is not made use of");
    assert!(files(&folder.path().join("index")) == files(&expected));
}

/// A tokenizer of the Llama 2 family, of which every thread keeps word parts: letters, and what
/// their merges make.
fn llama() -> Tokenizer {
    let letters: Vec<String> = ('a'..='z').map(String::from).collect();
    let mut pieces = vec!["<unk>".to_owned(), "▁".to_owned()];
    pieces.extend((0..=255_u8).map(|byte| format!("<{byte:#04X}>")));
    pieces.extend(letters.iter().cloned());
    let mut merges = Vec::new();
    for first in std::iter::once("▁").chain(letters.iter().map(String::as_str)) {
        for second in &letters {
            pieces.push(format!("{first}{second}"));
            merges.push(serde_json::json!([first, second]));
        }
    }
    let vocab: serde_json::Map<String, serde_json::Value> =
        pieces.into_iter().enumerate().map(|(id, piece)| (piece, id.into())).collect();
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "post_processor": null, "decoder": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": merges},
    });
    Tokenizer::from_bytes(tokenizer.to_string()).unwrap()
}

/// Words that hardly come again fill the memories of all threads.
#[test]
fn tokenisation_respects_memory_budget() {
    let mut state = 7_u64;
    let mut next = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut word = || {
        (0..4 + next(5)).map(|_| char::from(b'a' + next(26) as u8)).chain([' ']).collect::<String>()
    };
    let documents: Vec<String> = (0..4_000).map(|_| (0..250).map(|_| word()).collect()).collect();
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("inputs");
    fs::create_dir(&inputs).unwrap();
    let half = documents.len() / 2;
    let lines: String =
        documents[..half].iter().map(|text| format!("{{\"text\": \"{text}\"}}\n")).collect();
    fs::write(inputs.join("a.jsonl.zst"), zstd::encode_all(lines.as_bytes(), 0).unwrap()).unwrap();
    write_texts(&inputs.join("b.parquet"), &documents[half..]);
    drop((documents, lines));

    let expected = folder.path().join("expected");
    build(std::slice::from_ref(&inputs), &llama(), &expected, &BuildOptions::default()).unwrap();
    let expected = files(&expected);
    // Without a bound, 32 threads take 32 memories.
    for (threads, budget) in [(2, 90 << 20), (32, 110 << 20), (32, 200 << 20)] {
        let child = on_threads(threads, "index files within N bytes", folder.path(), budget);
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        let peak = peak(folder.path());
        assert!(peak <= budget, "{threads} threads: {peak} bytes with a budget of {budget}");
        assert!(files(&folder.path().join("index")) == expected);
        fs::remove_dir_all(folder.path().join("index")).unwrap();
    }

    // A budget without room for one thread is refused before anything is read, with the least that
    // would do.
    let index = folder.path().join("index");
    let options = BuildOptions { memory: Some(20 << 20), ..BuildOptions::default() };
    let refused = build(std::slice::from_ref(&inputs), &llama(), &index, &options);
    assert!(needed(&refused.unwrap_err(), 20 << 20) > 50 << 20);
    assert!(!index.exists());
}

/// A Parquet file with a column `text`.
fn write_texts(path: &Path, texts: &[String]) {
    let schema = parse_message_type("message documents { required binary text (UTF8); }").unwrap();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let file = fs::File::create(path).unwrap();
    let mut file = SerializedFileWriter::new(file, schema.into(), properties.into()).unwrap();
    for texts in texts.chunks(1_000) {
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let texts: Vec<ByteArray> = texts.iter().map(|text| text.as_str().into()).collect();
        column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    file.close().unwrap();
}

#[test]
fn insufficient_memory_budget_error_names_minimum() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    let options = BuildOptions { memory: Some(1 << 20), ..BuildOptions::default() };
    let refused = build_from_tokens([vec![1, 2], vec![3]], TokenWidth::U16, &index, &options);
    assert!(needed(&refused.unwrap_err(), 1 << 20) > 1 << 20);
    assert_eq!(names(folder.path()), [] as [&str; 0]);
}

/// The official builder needs 100,000 bytes per core and shard.
#[test]
fn tiny_and_empty_inputs_build_correct_indexes() {
    let cases: [&[&[u32]]; 6] = [
        &[&[]],
        &[&[7]],
        &[&[], &[], &[]],
        &[&[7, 7]],
        &[&[0], &[]],
        &[&[1, 2], &[2, 1], &[], &[1]],
    ];
    for width in [TokenWidth::U8, TokenWidth::U16, TokenWidth::U32] {
        for documents in cases {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("index");
            let given = documents.iter().map(|ids| ids.to_vec());
            let manifest =
                build_from_tokens(given, width, &path, &BuildOptions::default()).unwrap();
            let tokens: u64 = documents.iter().map(|ids| 1 + ids.len() as u64).sum();
            assert_eq!((manifest.documents, manifest.tokens), (documents.len() as u64, tokens));
            assert_eq!(
                verify(&path, OpenOptions::default(), VerifyLevel::Full).unwrap().suffix_pairs,
                tokens - 1
            );
            let index = Index::open(&path).unwrap();
            assert_eq!(index.count(&[]).unwrap(), tokens);
            assert_eq!(index.count(&[width.separator()]).unwrap(), documents.len() as u64);
            let sevens =
                documents.iter().flat_map(|ids| *ids).filter(|&&id| id == 7).count() as u64;
            assert_eq!(index.count(&[7]).unwrap(), sevens);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let none = build_from_tokens(
        [],
        TokenWidth::U16,
        &folder.path().join("index"),
        &BuildOptions::default(),
    );
    let error = none.unwrap_err().to_string();
    assert!(error.contains("the inputs hold no document"), "{error}");
    let empty = ["", ""];
    let manifest = build_from_documents(
        empty,
        &tokenizer(),
        &folder.path().join("empty"),
        &BuildOptions::default(),
    )
    .unwrap();
    assert_eq!((manifest.documents, manifest.tokens, manifest.text_bytes), (2, 2, 0));
}

#[test]
fn compressed_inputs_build_identical_index() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "{\"body\": \"red fox\", \"text\": 3}\n{\"body\": \"den\"}"; // without a line break at the end
    let stem = folder.path().join("plain");
    fs::create_dir(&stem).unwrap();
    fs::write(stem.join("a.jsonl"), lines).unwrap();
    let gzip = folder.path().join("gzip");
    fs::create_dir(&gzip).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(lines.as_bytes()).unwrap();
    fs::write(gzip.join("a.jsonl.gz"), packed.finish().unwrap()).unwrap();
    let zstd = folder.path().join("zstd");
    fs::create_dir(&zstd).unwrap();
    // Two frames, one behind the other.
    let (first, second) = lines.split_at(20);
    let frames = [first, second].map(|part| zstd::encode_all(part.as_bytes(), 0).unwrap()).concat();
    fs::write(zstd.join("a.jsonl.zst"), &frames).unwrap();

    let options = BuildOptions { text_field: "body", ..BuildOptions::default() };
    let built = ["plain", "gzip", "zstd"].map(|name| {
        let index = folder.path().join(format!("{name}-index"));
        let manifest = build(&[folder.path().join(name)], &tokenizer(), &index, &options).unwrap();
        assert_eq!((manifest.documents, manifest.text_bytes), (2, 10));
        let metadata = fs::read_to_string(index.join("metadata.0")).unwrap();
        assert!(metadata.contains("\"metadata\": {\"text\": 3}"), "{metadata}");
        ["tokenized.0", "offset.0", "table.0"].map(|file| fs::read(index.join(file)).unwrap())
    });
    assert!(built[0] == built[1] && built[0] == built[2]);

    fs::write(zstd.join("a.jsonl.zst"), &frames[..frames.len() - 2]).unwrap();
    let cut = build(&[zstd], &tokenizer(), &folder.path().join("cut"), &options);
    let error = cut.unwrap_err().to_string();
    assert!(error.contains("/a.jsonl.zst, line "), "{error}");
    assert!(!folder.path().join("cut").exists());
}

#[test]
fn sharded_index_is_independent_of_block_size() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = corpus(folder.path());
    let (free, bound) = (folder.path().join("free"), folder.path().join("bound"));
    let four = BuildOptions { shards: 4, ..options() };
    build(std::slice::from_ref(&inputs), &tokenizer(), &free, &four).unwrap();
    let bounded = BuildOptions { max_block_tokens: Some(20_000), ..four };
    build(std::slice::from_ref(&inputs), &tokenizer(), &bound, &bounded).unwrap();
    assert!(files(&free) == files(&bound));
}
