//! Files of every kind give the same documents.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use corver_corpus::{BuildOptions, TextIndex, Tokenizer, build};
use flate2::Compression;
use flate2::write::GzEncoder;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::json;

const TEXTS: [&str; 3] = ["red fox\nred", "the \"den\", red", "a\tfox"];

/// A vocabulary of the words of the texts.
fn tokenizer() -> Tokenizer {
    let json = r#"{"version":"1.0","added_tokens":[],"pre_tokenizer":{"type":"Whitespace"},"model":{"type":"WordLevel",
        "vocab":{"[UNK]":0,"red":1,"fox":2,"the":3,"den":4,"a":5,"\"":6,"\",":7},"unk_token":"[UNK]"}}"#;
    Tokenizer::from_bytes(json).unwrap()
}

/// A vocabulary of every word of the texts, as blanks separate them.
fn tokenizer_of(texts: &[&str]) -> Tokenizer {
    let mut vocabulary = serde_json::Map::new();
    vocabulary.insert("[UNK]".to_owned(), json!(0));
    for word in texts.iter().flat_map(|text| text.split_whitespace()) {
        let next = vocabulary.len();
        vocabulary.entry(word).or_insert(json!(next));
    }
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    });
    Tokenizer::from_bytes(tokenizer.to_string()).unwrap()
}

/// Builds an index, and returns its token streams and metadata.
fn index(inputs: &[PathBuf]) -> (Vec<u8>, Vec<String>) {
    index_with(&tokenizer(), inputs)
}

fn index_with(tokenizer: &Tokenizer, inputs: &[PathBuf]) -> (Vec<u8>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    build(inputs, tokenizer, &path, &BuildOptions::default()).unwrap();
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
    // As Python's csv writes the rows, with each of its two dialects; but a TSV field may have no
    // line break, and a blank in its place gives the same tokens.
    let csv = "title,text\r\nT,\"red fox\nred\"\r\nT,\"the \"\"den\"\", red\"\r\nT,a\tfox\r\n";
    let tsv = "title\ttext\r\nT\tred fox red\r\nT\t\"the \"\"den\"\", red\"\r\nT\t\"a\tfox\"\r\n";
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

/// WikiExtractor escapes text and titles for HTML, in both of its formats.
#[test]
fn escapes_of_wikiextractor_are_undone() {
    let texts = ["AT&T is < and > ours", "the entity &lt; is <"];
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (mut plain, mut lines, mut tagged) = (String::new(), String::new(), String::new());
    for text in texts {
        let title = escape("R&D");
        plain += &(json!({"text": text}).to_string() + "\n");
        lines += &(json!({"title": title, "text": escape(text)}).to_string() + "\n");
        tagged += &format!("<doc title=\"{title}\">\n{}\n</doc>\n", escape(text));
    }
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer_of(&texts);
    let unescaped = write(folder.path(), "a.jsonl", plain.as_bytes());
    let (stream, _) = index_with(&tokenizer, &[unescaped]);
    for (name, content) in [("wiki_00", lines), ("wiki_01", tagged)] {
        let file = write(folder.path(), name, content.as_bytes());
        let (own_stream, metadata) = index_with(&tokenizer, &[file]);
        assert_eq!(own_stream, stream, "{name}");
        assert!(metadata.iter().all(|line| line.contains(r#"{"title": "R&D"}"#)), "{metadata:?}");
    }
    // In other JSON lines, `&amp;` is text.
    let escaped = write(folder.path(), "b.jsonl", b"{\"text\": \"AT&amp;T\"}");
    let (stream_of_unknown, _) = index_with(&tokenizer, &[escaped]);
    assert_eq!(stream_of_unknown, [0xFF, 0]);
}

/// WikiExtractor copies titles from the dump, where older MediaWikis escape quotation marks.
#[test]
fn quotes_in_titles_of_wikiextractor_are_decoded() {
    let title = "&quot;R&amp;D&quot; red";
    let body = "the entity &amp;quot; fox";
    let text = "\"R&D\" red\n\nthe entity &quot; fox";
    let escaped = format!("{title}\n\n{body}");
    let line = json!({"title": title, "text": escaped}).to_string();
    let tagged = format!("<doc title=\"{title}\">\n{escaped}\n</doc>\n");
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer_of(&[text]);
    let plain = json!({"text": text}).to_string();
    let unescaped = write(folder.path(), "a.jsonl", plain.as_bytes());
    let (stream, _) = index_with(&tokenizer, &[unescaped]);
    for (name, content) in [("wiki_00", line), ("wiki_01", tagged)] {
        let file = write(folder.path(), name, content.as_bytes());
        let (own_stream, metadata) = index_with(&tokenizer, &[file]);
        assert_eq!(own_stream, stream, "{name}");
        assert!(metadata[0].contains(r#"{"title": "\"R&D\" red"}"#), "{metadata:?}");
    }
}

/// A dump with the pages `(title, namespace, other elements, wikitext)`.
fn dump(pages: &[(&str, &str, &str, &str)]) -> String {
    let mut xml =
        "<mediawiki xml:lang=\"en\">\n<siteinfo><sitename>W</sitename></siteinfo>".to_owned();
    for (title, namespace, others, wikitext) in pages {
        let text = wikitext.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        xml += &format!(
            "<page><title>{title}</title><ns>{namespace}</ns><id>7</id>{others}<revision><id>8</id>\
             <text bytes=\"9\" xml:space=\"preserve\">{text}</text></revision></page>\n"
        );
    }
    xml + "</mediawiki>\n"
}

fn bzip2(text: &str) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn articles_of_a_dump_are_documents_without_markup() {
    let heron = "{{Infobox bird|name=Heron}}\n'''Herons''' are [[wader|long-legged birds]] \
                 of the family [[Ardeidae]].<ref>{{cite|title=Birds}}</ref> R&D &mdash; <!-- no -->they wait.\n\n\
                 == Range ==\n* [[Europe]]\n\n[[File:Heron.jpg|thumb|A [[heron]]]]\n[[Category:Birds]]";
    let xml = dump(&[
        ("Heron", "0", "", heron),
        ("Egret", "0", "<redirect title=\"Heron\" />", "#REDIRECT [[Heron]]"),
        ("Talk:Heron", "1", "", "They wait."),
        ("Tom &amp; \"Jerry\"", "0", "", "A cat and a mouse."),
    ]);
    let plain = "Herons are long-legged birds of the family Ardeidae. R&D \u{2014} they wait.\n\n\
                 Range\n\nEurope";
    let expected = [plain, "A cat and a mouse."];
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> =
        expected.iter().map(|text| json!({"text": text}).to_string() + "\n").collect();
    let tokenizer = tokenizer_of(&expected);
    let lines = write(folder.path(), "a.jsonl", lines.concat().as_bytes());
    let (stream, _) = index_with(&tokenizer, &[lines]);
    for (name, content) in [
        ("wiki-pages-articles.xml", xml.clone().into_bytes()),
        ("wiki-pages-articles.xml.bz2", bzip2(&xml)),
        ("wiki-pages-articles1.xml-p1p41242.bz2", bzip2(&xml)),
        ("wiki-pages-articles.xml.gz", gzip(xml.as_bytes())),
    ] {
        let dump = write(folder.path(), name, &content);
        let (own_stream, metadata) = index_with(&tokenizer, &[dump]);
        assert_eq!(own_stream, stream, "{name}");
        let fields = [r#"{"title": "Heron"}"#, r#"{"title": "Tom & \"Jerry\""}"#];
        for (number, fields) in fields.iter().enumerate() {
            let line =
                format!(r#"{{"path": "{name}", "linenum": {number}, "metadata": {fields}}}"#);
            assert_eq!(metadata[number], line);
        }
    }
}

/// Returns pages with links, templates, references and tables, and their texts without markup, until
/// the wikitext has `megabytes`.
fn many_pages(megabytes: usize) -> (Vec<String>, Vec<String>) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut word = move || format!("w{}", rng.next_u32() % 5_000);
    let (mut pages, mut texts) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    while bytes < megabytes << 20 {
        let (mut wikitext, mut plain) = (String::new(), String::new());
        for paragraph in 0..8 {
            if paragraph > 0 {
                wikitext += "\n\n";
                plain += "\n\n";
            }
            for _ in 0..12 {
                let [a, b, c, d] = std::array::from_fn(|_| word());
                wikitext += &format!(
                    "''{a}'' [[{b}|{c}]]<ref name=\"x\">{{{{cite web|title={b}}}}}</ref> [[{d}]] & {a} "
                );
                plain += &format!("{a} {c} {d} & {a} ");
            }
            wikitext += "end.{{citation needed|date=May}}";
            plain += "end.";
        }
        bytes += wikitext.len();
        pages.push(wikitext);
        texts.push(plain);
    }
    (pages, texts)
}

/// A dump of several megabytes in many bzip2 streams, as Wikimedia publishes it.
#[test]
fn dump_of_many_streams_gives_the_same_index_as_its_texts() {
    let (pages, texts) = many_pages(12);
    let titles: Vec<String> = (0..pages.len()).map(|number| format!("Page {number}")).collect();
    let all: Vec<_> =
        titles.iter().zip(&pages).map(|(title, page)| (&**title, "0", "", &**page)).collect();
    let xml = dump(&all);
    let mut streams = Vec::new();
    for part in xml.as_bytes().chunks(300_000) {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(part).unwrap();
        streams.extend(encoder.finish().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "enwiki-pages-articles-multistream.xml.bz2";
    let dump = write(folder.path(), name, &streams);
    let lines: Vec<String> =
        texts.iter().map(|text| json!({"text": text}).to_string() + "\n").collect();
    let lines = write(folder.path(), "a.jsonl", lines.concat().as_bytes());
    let tokenizer = tokenizer_of(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let (stream, metadata) = index_with(&tokenizer, &[dump]);
    let (expected, _) = index_with(&tokenizer, &[lines]);
    assert!(stream == expected, "the texts differ");
    assert_eq!(metadata.len(), pages.len());
    assert!(metadata.last().unwrap().contains(titles.last().unwrap().as_str()));
}

#[test]
fn damaged_dump_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let page = ("Heron", "0", "", "They wait.");
    let whole = dump(&[page, page]);
    let two = "<revision><text>Earlier.</text></revision>";
    let end = whole.rfind("</text>").unwrap();
    for (content, problem) in [
        (whole.as_bytes()[..end].to_vec(), "after 1 articles"),
        (bzip2(&whole)[..90].to_vec(), "failed to read"),
        (dump(&[("Heron", "0", two, "Later.")]).into_bytes(), "multi-revision"),
        (dump(&[("Heron", "zero", "", "They wait.")]).into_bytes(), "<ns>"),
        (b"<html><body>Not found</body></html>".to_vec(), "no dump of MediaWiki"),
        (dump(&[("Heron", "0", "", &"wait ".repeat(8 << 20))]).into_bytes(), "more than 32 MiB"),
    ] {
        let path = write(folder.path(), "wiki.xml", &content);
        let out = folder.path().join("index");
        let options = BuildOptions::default();
        let error = build(&[path], &tokenizer(), &out, &options).unwrap_err().to_string();
        assert!(error.contains(problem), "{problem}: {error}");
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

#[test]
fn rows_of_csv_are_never_merged() {
    let folder = tempfile::tempdir().unwrap();
    let not_closed = "a field that begins with a quote has no closing quote";
    let text_after_quote = "text follows a closing quote";
    for (content, row, problem) in [
        ("id,text\n1,\"red fox\n2,den\n3,red den\n", "row 1", not_closed),
        ("id,text\r\n\r\n1,\"a \"\"red\"\" fox\r\n\"\r\n2,\"den", "row 2", not_closed),
        ("text,id\n\"red \"\"fox\"\" den,1\n\"hen\",2\n", "row 1", text_after_quote),
        ("\"id,text\n1,red\n", "row 0", not_closed),
    ] {
        let input = write(folder.path(), "a.csv", content.as_bytes());
        let out = folder.path().join("index");
        let error = build(&[input], &tokenizer(), &out, &BuildOptions::default()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&format!("a.csv, {row}: {problem}")), "{message}");
    }
}

#[test]
fn rows_of_tsv_are_never_merged() {
    let folder = tempfile::tempdir().unwrap();
    for (content, row) in [
        ("id\ttext\ttitle\n1\tred\tR\n2\t\"red is\tR\n3\tfox\"\tF\n", "row 2"),
        ("id\ttext\n1\t\"red is\n", "row 1"),
        ("text\t\"title\nred\tR\"\n", "row 0"),
    ] {
        let input = write(folder.path(), "a.tsv", content.as_bytes());
        let out = folder.path().join("index");
        let error = build(&[input], &tokenizer(), &out, &BuildOptions::default()).unwrap_err();
        let message = error.to_string();
        let expected = format!("a.tsv, {row}: a field that begins with a quote has a line break");
        assert!(message.contains(&expected) && message.contains(".jsonl"), "{message}");
    }
}
