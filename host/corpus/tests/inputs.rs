//! Files of every kind give the same documents.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use corver_corpus::{BuildOptions, TextIndex, Tokenizer, build};
use flate2::Compression;
use flate2::write::GzEncoder;

const TEXTS: [&str; 3] = ["red fox\nred", "the \"den\", red", "a\tfox"];

/// A vocabulary of the words of the texts.
fn tokenizer() -> Tokenizer {
    let json = r#"{"version":"1.0","added_tokens":[],"pre_tokenizer":{"type":"Whitespace"},"model":{"type":"WordLevel",
        "vocab":{"[UNK]":0,"red":1,"fox":2,"the":3,"den":4,"a":5,"\"":6,"\",":7},"unk_token":"[UNK]"}}"#;
    Tokenizer::from_bytes(json).unwrap()
}

/// Builds an index, and returns its token streams and metadata.
fn index(inputs: &[PathBuf]) -> (Vec<u8>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    build(inputs, &tokenizer(), &path, &BuildOptions::default()).unwrap();
    let metadata = fs::read_to_string(path.join("metadata.0")).unwrap();
    let corpus = TextIndex::open(&path).unwrap();
    assert!(corpus.index().documents().count() > 0);
    (fs::read(path.join("tokenized.0")).unwrap(), metadata.lines().map(str::to_owned).collect())
}

fn write(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_kind_of_file_gives_the_same_documents() {
    let lines: Vec<String> = TEXTS
        .iter()
        .map(|text| serde_json::json!({"text": text, "title": "T"}).to_string() + "\r\n")
        .collect();
    let lines = lines.concat();
    // As Python's csv writes the rows, with each of its two dialects.
    let csv = "title,text\r\nT,\"red fox\nred\"\r\nT,\"the \"\"den\"\", red\"\r\nT,a\tfox\r\n";
    let tsv =
        "title\ttext\r\nT\t\"red fox\nred\"\r\nT\t\"the \"\"den\"\", red\"\r\nT\t\"a\tfox\"\r\n";
    let wiki: Vec<String> =
        TEXTS.iter().map(|text| format!("<doc title=\"T\">\n{text}\n\n</doc>\n")).collect();
    let wiki = wiki.concat();
    let marked = format!("\u{feff}{lines}");
    let folder = tempfile::tempdir().unwrap();
    let (stream, _) = index(&[write(folder.path(), "a.jsonl", lines.as_bytes())]);
    let separators = stream.iter().filter(|&&token| token == 0xFF).count();
    assert_eq!(separators, TEXTS.len());
    for (name, content) in [
        ("b.json", lines.clone().into_bytes()),
        ("c.json.gz", gzip(lines.as_bytes())),
        ("d.NDJSON", lines.clone().into_bytes()),
        ("e.jsonl.zst", zstd::encode_all(lines.as_bytes(), 1).unwrap()),
        ("f.jsonl", gzip(lines.as_bytes())),
        ("g.jsonl.gz", lines.clone().into_bytes()),
        ("h.jsonl", marked.into_bytes()),
        ("wiki_00", lines.clone().into_bytes()),
        ("wiki_01", wiki.clone().into_bytes()),
        ("wiki_02.gz", gzip(wiki.as_bytes())),
        ("i.csv", csv.into()),
        ("j.csv", format!("\u{feff}{csv}").into_bytes()),
        ("k.tsv.gz", gzip(tsv.as_bytes())),
    ] {
        let (own_stream, metadata) = index(&[write(folder.path(), name, &content)]);
        assert_eq!(own_stream, stream, "{name}");
        for (number, line) in metadata.iter().enumerate() {
            let expected = format!(
                r#"{{"path": "{name}", "linenum": {number}, "metadata": {{"title": "T"}}}}"#
            );
            assert_eq!(*line, expected);
        }
    }
}

/// The names are those of the official builder: the paths within the folder.
#[test]
fn metadata_names_path_within_folder() {
    let folder = tempfile::tempdir().unwrap();
    let line = br#"{"text": "red"}"#;
    for name in ["AB/wiki_00", "AA/wiki_00", "AA.jsonl"] {
        write(folder.path(), name, line);
    }
    let (_, metadata) = index(&[folder.path().to_owned()]);
    let paths: Vec<&str> = metadata.iter().map(|line| line.split('"').nth(3).unwrap()).collect();
    assert_eq!(paths, ["AA.jsonl", "AA/wiki_00", "AB/wiki_00"]);
}

#[test]
fn unreadable_content_error_names_remedy() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content, remedy) in [
        ("array.json", &b"[\n{\"text\": \"red\"}]"[..], "jq -c"),
        ("pretty.json", b"{\n  \"text\": \"red\"\n}", "each line must be a JSON object"),
        ("pointer.jsonl", b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        ("pointer.parquet", b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        ("utf16.jsonl", b"\xff\xfe{\0", "iconv"),
        ("columns.csv", b"a;text\n1;2\n", "no column \"text\", but a;text"),
        ("empty.csv", b"", "it is empty"),
        ("surrogate.jsonl", b"{\"text\": \"a \\ud800\"}", "a lone surrogate"),
        ("ragged.csv", b"a,text\n1,2,3\n", "row 1"),
        ("latin1.csv", b"a,text\n1,\xe9\n", "row 1"),
        ("wiki_03", b"<doc id=\"1\" title=\"T\">\nred\n", "ends before </doc>"),
        ("wiki_04", b"<page>\n", "expected <doc"),
    ] {
        let input = write(folder.path(), name, content);
        let out = folder.path().join("index");
        let error = build(&[input], &tokenizer(), &out, &BuildOptions::default()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(name) && message.contains(remedy), "{message}");
    }
}
