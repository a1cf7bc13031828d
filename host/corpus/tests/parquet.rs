//! Builds from intact, unusual and damaged Parquet files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corver_corpus::{
    BuildOptions, BuildProgress, Error, IndexManifest, TokenWidth, Tokenizer, build,
    parquet_records,
};
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3,"hill":4},"unk_token":"[UNK]"}}"#;

fn tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(WORDS).unwrap()
}

/// The values of one column in one row group; `None` is null. Lists hold one list per row.
enum Column<'a> {
    Strings(Vec<Option<&'a str>>),
    Bytes(Vec<&'a [u8]>),
    Longs(Vec<Option<i64>>),
    Ints(Vec<Option<i32>>),
    Doubles(Vec<Option<f64>>),
    Bools(Vec<Option<bool>>),
    Lists(Vec<Vec<i64>>),
    /// Strings in an optional group.
    Deep(Vec<&'a str>),
}

fn write(path: &Path, schema: &str, compression: Compression, groups: Vec<Vec<Column<'_>>>) {
    fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
        values.iter().map(|value| i16::from(value.is_some())).collect()
    }
    let schema = Arc::new(parse_message_type(schema).unwrap());
    // Small pages, so that a group has several.
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(5)
        .build();
    let mut file =
        SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::new(properties))
            .unwrap();
    for columns in groups {
        let mut group = file.next_row_group().unwrap();
        for column in columns {
            let mut writer = group.next_column().unwrap().unwrap();
            match column {
                Column::Strings(values) => {
                    let strings: Vec<ByteArray> =
                        values.iter().flatten().map(|&text| text.into()).collect();
                    writer
                        .typed::<ByteArrayType>()
                        .write_batch(&strings, Some(&levels(&values)), None)
                        .unwrap();
                }
                Column::Bytes(values) => {
                    let values: Vec<ByteArray> =
                        values.into_iter().map(|bytes| bytes.to_vec().into()).collect();
                    writer.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
                }
                Column::Longs(values) => {
                    let there: Vec<i64> = values.iter().flatten().copied().collect();
                    writer
                        .typed::<Int64Type>()
                        .write_batch(&there, Some(&levels(&values)), None)
                        .unwrap();
                }
                Column::Ints(values) => {
                    let there: Vec<i32> = values.iter().flatten().copied().collect();
                    writer
                        .typed::<Int32Type>()
                        .write_batch(&there, Some(&levels(&values)), None)
                        .unwrap();
                }
                Column::Doubles(values) => {
                    let there: Vec<f64> = values.iter().flatten().copied().collect();
                    writer
                        .typed::<DoubleType>()
                        .write_batch(&there, Some(&levels(&values)), None)
                        .unwrap();
                }
                Column::Bools(values) => {
                    let there: Vec<bool> = values.iter().flatten().copied().collect();
                    writer
                        .typed::<BoolType>()
                        .write_batch(&there, Some(&levels(&values)), None)
                        .unwrap();
                }
                Column::Deep(texts) => {
                    let strings: Vec<ByteArray> = texts.iter().map(|&text| text.into()).collect();
                    writer
                        .typed::<ByteArrayType>()
                        .write_batch(&strings, Some(&vec![2; texts.len()]), None)
                        .unwrap();
                }
                Column::Lists(lists) => {
                    let (mut values, mut definition, mut repetition) =
                        (Vec::new(), Vec::new(), Vec::new());
                    for list in &lists {
                        definition.extend(if list.is_empty() {
                            vec![0]
                        } else {
                            vec![1; list.len()]
                        });
                        repetition.extend((0..list.len().max(1)).map(|at| i16::from(at > 0)));
                        values.extend(list);
                    }
                    let writer = writer.typed::<Int64Type>();
                    writer.write_batch(&values, Some(&definition), Some(&repetition)).unwrap();
                }
            }
            writer.close().unwrap();
        }
        group.close().unwrap();
    }
    file.close().unwrap();
}

const TEXTS: &str = "message documents { optional binary text (UTF8); }";

fn strings<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<Column<'a>> {
    vec![Column::Strings(texts.into_iter().map(Some).collect())]
}

fn index(input: &Path, out: &Path, options: &BuildOptions<'_>) -> Result<IndexManifest, Error> {
    build(&[input.to_owned()], &tokenizer(), out, options)
}

fn files(folder: &Path, names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| fs::read(folder.join(name)).unwrap()).collect()
}

/// Different documents, enough for several pages.
fn texts() -> Vec<String> {
    let words = ["red", "fox", "den", "hill", "moor"];
    let text = |document: usize| {
        (0..1 + document % 7).map(move |word| words[(word * word + document) % 5])
    };
    (0..230).map(|document| text(document).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn parquet_rows_build_same_index_as_jsonl() {
    let folder = tempfile::tempdir().unwrap();
    let texts = texts();
    let lines = folder.path().join("a.jsonl");
    fs::write(
        &lines,
        texts.iter().map(|text| format!("{{\"text\": \"{text}\"}}\n")).collect::<String>(),
    )
    .unwrap();
    let options = BuildOptions { shards: 3, ..BuildOptions::default() };
    let plain = folder.path().join("plain");
    let from_lines = index(&lines, &plain, &options).unwrap();
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
    ];
    for (number, codec) in codecs.into_iter().enumerate() {
        let rows = folder.path().join("a.parquet");
        let groups =
            texts.chunks(100).map(|texts| strings(texts.iter().map(String::as_str))).collect();
        write(&rows, TEXTS, codec, groups);
        let out = folder.path().join(format!("packed-{number}"));
        let from_rows = index(&rows, &out, &options).unwrap();
        assert_eq!((from_rows.documents, from_rows.text_bytes), (230, from_lines.text_bytes));
        for name in ["tokenized.0", "tokenized.2", "offset.1", "table.0", "table.1"] {
            assert_eq!(from_rows.files[name], from_lines.files[name], "{codec:?}: {name}");
        }
        let metadata = fs::read_to_string(out.join("metadata.1")).unwrap();
        assert_eq!(
            metadata,
            fs::read_to_string(plain.join("metadata.1")).unwrap().replace(".jsonl", ".parquet")
        );
    }
}

#[test]
fn other_columns_become_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("a.parquet");
    let schema = "message documents {
        optional binary title (UTF8); optional int64 views; required binary body; optional double score;
        optional boolean good; optional int32 day (DATE); repeated int64 links; }";
    let columns = vec![
        Column::Strings(vec![Some("Æon"), None]),
        Column::Longs(vec![Some(-7), Some(1 << 60)]),
        Column::Bytes(vec![b"red fox", "den é".as_bytes()]),
        Column::Doubles(vec![Some(0.5), None]),
        Column::Bools(vec![Some(true), Some(false)]),
        Column::Ints(vec![Some(19_000), None]),
        Column::Lists(vec![vec![], vec![3, 4]]),
    ];
    write(&input, schema, Compression::SNAPPY, vec![columns]);
    let out = folder.path().join("index");
    let options = BuildOptions { text_field: "body", ..BuildOptions::default() };
    let manifest = index(&input, &out, &options).unwrap();
    assert_eq!((manifest.documents, manifest.text_bytes), (2, 13));
    let expected = concat!(
        r#"{"path": "a.parquet", "linenum": 0, "metadata": {"title": "\u00c6on", "views": -7, "score": 0.5, "#,
        r#""good": true, "day": "2022-01-08", "links": []}}"#,
        "\n",
        r#"{"path": "a.parquet", "linenum": 1, "metadata": {"title": null, "views": 1152921504606846976, "score": null, "#,
        r#""good": false, "day": null, "links": [3, 4]}}"#,
        "\n"
    );
    assert_eq!(fs::read_to_string(out.join("metadata.0")).unwrap(), expected);

    let bare = folder.path().join("bare");
    index(&input, &bare, &BuildOptions { metadata: false, ..options }).unwrap();
    let names = ["tokenized.0", "offset.0", "table.0"];
    assert!(files(&out, &names) == files(&bare, &names));
}

#[test]
fn parquet_rows_read_as_json_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let schema = "message schema { optional binary question (UTF8); optional int64 s_pop; repeated int64 links;
        optional group answer { optional binary value (UTF8); } }";
    let columns = |from: i64| {
        vec![
            Column::Strings(vec![Some("who?"), None]),
            Column::Longs(vec![Some(from), None]),
            Column::Lists(vec![vec![from, from + 1], vec![]]),
            Column::Deep(vec!["Æon", "b"]),
        ]
    };
    write(&path, schema, Compression::SNAPPY, vec![columns(1), columns(7)]);
    let records: Vec<serde_json::Value> =
        parquet_records(&path, &FIELDS).unwrap().map(Result::unwrap).collect();
    let first = serde_json::json!({"question": "who?", "s_pop": 1, "links": [1, 2], "answer": {"value": "Æon"}});
    let second =
        serde_json::json!({"question": null, "s_pop": null, "links": [], "answer": {"value": "b"}});
    assert_eq!((records.len(), &records[0], &records[3]), (4, &first, &second));
    assert_eq!(records[2]["links"], serde_json::json!([7, 8]));

    let intact = fs::read(&path).unwrap();
    fs::write(&path, &intact[..intact.len() / 2]).unwrap();
    let error = parquet_records(&path, &FIELDS).map(drop).unwrap_err();
    assert!(is_input(&error, NOT_READABLE), "{error}");
    // A page of the first group is destroyed: an error that names a row, and then the end.
    let mut damaged = intact;
    damaged[8..40].fill(0xFF);
    fs::write(&path, &damaged).unwrap();
    let records: Vec<_> = parquet_records(&path, &FIELDS).unwrap().collect();
    assert!(matches!(&records[..], [Err(error)] if is_input(error, ", row 1: ")), "{records:?}");
}

/// Written by pyarrow 26 with LZ4: texts without a mark for UTF-8, a DECIMAL(3,3), dates and times
/// beyond the years of `chrono`, and bytes that are no text. The expected values are pyarrow's, and
/// numpy's for the far dates.
const ODD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/assets/odd.parquet");

#[test]
fn parquet_values_of_every_type_are_read() {
    let read = |columns: &[&str]| -> Vec<Result<serde_json::Value, Error>> {
        parquet_records(Path::new(ODD), columns).unwrap().collect()
    };
    let records = read(&["question", "answers", "s_pop", "rank", "found", "seen"]);
    let expected = serde_json::json!({
        "question": "Who kept the light?",
        "answers": ["Orla Venn", "Ærø"],
        "s_pop": "142.00",
        "rank": "0.125",
        "found": "+5881580-07-11",
        "seen": "+146140482-04-24 15:36:27.904 +00:00",
    });
    assert_eq!(*records[0].as_ref().unwrap(), expected);
    assert_eq!(records[1].as_ref().unwrap()["rank"], "-0.500");
    let error = read(&["question", "image"]).remove(0).unwrap_err();
    assert!(
        is_input(&error, "row 1: the column \"image\" has bytes that are not UTF-8"),
        "{error}"
    );

    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("index");
    let options = BuildOptions { text_field: "question", ..BuildOptions::default() };
    index(Path::new(ODD), &out, &options).unwrap();
    let metadata = fs::read_to_string(out.join("metadata.0")).unwrap();
    assert!(metadata.contains(r#""rank": "0.125", "found": "+5881580-07-11""#), "{metadata}");
    assert!(metadata.contains(r#""image": "/9g=""#), "{metadata}");
}

#[test]
fn lists_of_two_levels_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    for schema in [
        "message m { required group links (LIST) { repeated int64 element; } }",
        "message m { required group links (LIST) { repeated int64 array; } }",
        "message m { required group links (LIST) { repeated group array { required int64 n; } } }",
        "message m { required group links (LIST) { repeated group list { required int64 n; } } }",
        "message m { repeated int64 links; }",
    ] {
        let columns = vec![Column::Lists(vec![vec![3, 4], vec![], vec![5]])];
        write(&path, schema, Compression::SNAPPY, vec![columns]);
        let mut lists = Vec::new();
        for record in parquet_records(&path, &["links"]).unwrap() {
            lists.push(record.unwrap()["links"].clone());
        }
        let expected = if schema.contains("group array") {
            serde_json::json!([[{"n": 3}, {"n": 4}], [], [{"n": 5}]])
        } else {
            serde_json::json!([[3, 4], [], [5]])
        };
        assert_eq!(serde_json::Value::from(lists), expected, "{schema}");
    }
}

#[test]
fn missing_columns_are_reported() {
    let error = parquet_records(Path::new(ODD), &["prompt"]).map(drop).unwrap_err();
    assert!(
        is_input(&error, ": no column \"prompt\"; its columns are question, answers, "),
        "{error}"
    );
}

const FIELDS: [&str; 4] = ["question", "s_pop", "links", "answer"];
const NOT_READABLE: &str = ": not a readable Parquet file: ";

fn is_input(error: &Error, words: &str) -> bool {
    matches!(error, Error::InvalidInput(message) if message.contains(words))
}

#[test]
fn unusable_parquet_error_names_problem() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("a.parquet");
    let out = folder.path().join("index");
    let attempt = || index(&input, &out, &BuildOptions::default()).map(drop).unwrap_err();
    let number = || vec![vec![Column::Longs(vec![Some(1)])]];

    write(&input, "message m { optional int64 id; }", Compression::SNAPPY, number());
    let error = attempt();
    assert!(is_input(&error, ": no column \"text\"; its columns are id; "), "{error}");
    for (schema, kind) in [
        ("message m { optional int64 text; }", "INT64"),
        ("message m { optional group text { optional int64 id; } }", "a struct"),
        (
            "message m { optional group text (LIST) { repeated group list { required int64 element; } } }",
            "LIST",
        ),
        ("message m { repeated int64 text; }", "a list"),
    ] {
        let columns = match kind {
            "INT64" => vec![Column::Longs(vec![Some(1)])],
            "LIST" | "a list" => vec![Column::Lists(vec![vec![1]])],
            _ => vec![Column::Longs(vec![Some(1)])],
        };
        write(&input, schema, Compression::SNAPPY, vec![columns]);
        let error = attempt();
        assert!(
            is_input(&error, &format!(": the column \"text\" is {kind}, not a string ")),
            "{schema}: {error}"
        );
    }

    write(
        &input,
        TEXTS,
        Compression::SNAPPY,
        vec![strings(["red"]), vec![Column::Strings(vec![Some("fox"), None])]],
    );
    let error = attempt();
    assert!(is_input(&error, ", row 3: the text is null"), "{error}");
    for schema in
        ["message m { required binary text; }", "message m { required binary text (UTF8); }"]
    {
        write(
            &input,
            schema,
            Compression::SNAPPY,
            vec![vec![Column::Bytes(vec![b"red", &[0xFF; 5_000]])]],
        );
        let error = attempt();
        assert!(
            is_input(&error, ", row ") && error.to_string().len() < 1_000 + input.as_os_str().len(),
            "{error}"
        );
    }

    write(&input, TEXTS, Compression::SNAPPY, vec![strings(texts().iter().map(String::as_str))]);
    let intact = fs::read(&input).unwrap();
    for length in [0, 3, 11, intact.len() / 2, intact.len() - 1] {
        fs::write(&input, &intact[..length]).unwrap();
        assert!(is_input(&attempt(), NOT_READABLE), "{length} bytes");
    }
    fs::write(&input, "{\"text\": \"red\"}\n".repeat(9)).unwrap();
    assert!(is_input(&attempt(), NOT_READABLE));
    fs::remove_file(&input).unwrap();
    assert!(matches!(attempt(), Error::Io { .. }));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

    let none = folder.path().join("none.parquet");
    write(&none, TEXTS, Compression::SNAPPY, vec![]);
    let built = index(&none, &out, &BuildOptions::default());
    let error = built.unwrap_err();
    assert!(is_input(&error, " would be empty: 0 documents in all"), "{error}");
}

/// A build that stops behind the middle of a file goes on within it.
#[test]
fn interrupted_build_resumes_within_file() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("inputs");
    fs::create_dir(&inputs).unwrap();
    let texts = texts();
    let groups = |last: Option<&'static str>| {
        let mut groups: Vec<_> =
            texts.chunks(50).map(|texts| strings(texts.iter().map(String::as_str))).collect();
        groups.push(vec![Column::Strings(vec![last])]);
        groups
    };
    let (first, second): (PathBuf, PathBuf) = (inputs.join("a.parquet"), inputs.join("b.jsonl"));
    write(&first, TEXTS, Compression::SNAPPY, groups(Some("end")));
    fs::write(&second, "oops\n").unwrap();
    let resumed = std::sync::Mutex::new(0);
    let on_progress = |progress: BuildProgress| {
        if let BuildProgress::Resumed { documents, .. } = progress {
            *resumed.lock().unwrap() = documents;
        }
    };
    // A checkpoint after every few rows, of which the newest lies within the first file.
    let options = BuildOptions {
        checkpoint_bytes: 2_000,
        progress: Some(&on_progress),
        ..BuildOptions::default()
    };
    let options = BuildOptions { token_width: Some(TokenWidth::U16), ..options };
    let out = folder.path().join("index");
    let error = index(&inputs, &out, &options).unwrap_err();
    assert!(is_input(&error, "/b.jsonl, line 1: "), "{error}");
    fs::write(&second, "{\"text\": \"red\"}\n").unwrap();
    index(&inputs, &out, &options).unwrap();
    let documents = *resumed.lock().unwrap();
    assert!((51..231).contains(&documents) && !documents.is_multiple_of(50), "{documents}");
    let afresh = folder.path().join("afresh");
    index(&inputs, &afresh, &options).unwrap();
    let names = ["tokenized.0", "offset.0", "table.0", "metadata.0", "metaoff.0"];
    assert!(files(&out, &names) == files(&afresh, &names));
}
