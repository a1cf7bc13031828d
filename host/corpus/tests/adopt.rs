//! Indexes of another program: found tokens, refused tokenizers, adoption.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use corver_corpus::{
    BuildOptions, CnfOptions, Error, Index, MANIFEST, OpenOptions, TextIndex, TokenWidth,
    Tokenizer, VerifyLevel, adopt, build_from_documents, verify,
};
use serde_json::{Value, json};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// Returns a byte-level tokenizer of bytes and these merges. Without merges a word has other ids.
fn tokenizer(merges: &[&str]) -> Tokenizer {
    let mut pieces: Vec<String> = ByteLevel::alphabet().into_iter().map(String::from).collect();
    pieces.sort_unstable();
    pieces.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let vocab: serde_json::Map<String, Value> =
        pieces.into_iter().enumerate().map(|(id, piece)| (piece, id.into())).collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    });
    Tokenizer::from_bytes(json.to_string()).unwrap()
}

const MERGES: [&str; 4] = ["Ġ r", "e d", "Ġr ed", "o x"];

/// Builds an index, and removes what no other program writes.
fn foreign_index(folder: &Path, width: TokenWidth, shards: usize) -> PathBuf {
    let path = folder.join("index");
    let text = "a red fox, and a red ox: the fox is red. ".repeat(500);
    let documents = [text.as_str(), "The ox.", text.as_str(), "", "a red fox"];
    let options = BuildOptions { token_width: Some(width), ..BuildOptions::with_shards(shards) };
    build_from_documents(documents, &tokenizer(&MERGES), &path, &options).unwrap();
    for entry in fs::read_dir(&path).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_str().unwrap();
        if name == MANIFEST || name == "tokenizer.json" || name.starts_with("prefixes") {
            fs::rename(&file, folder.join(name)).unwrap();
        }
    }
    path
}

fn count(corpus: &TextIndex, word: &str) -> u64 {
    let words = [vec![word.to_owned()]];
    corpus.count_words(&words, &CnfOptions::default(), None).unwrap().unwrap().count
}

#[test]
fn token_width_of_another_program_is_found() {
    for width in [TokenWidth::U16, TokenWidth::U32] {
        let folder = tempfile::tempdir().unwrap();
        let path = foreign_index(folder.path(), width, 2);
        let index = Index::open(&path).unwrap();
        assert_eq!((index.token_width(), index.info().documents), (width, 5));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let documents = [vec![1, 2, 3], vec![], vec![254; 300]];
    corver_corpus::build_from_tokens(documents, TokenWidth::U8, &path, &BuildOptions::default())
        .unwrap();
    fs::remove_file(path.join(MANIFEST)).unwrap();
    assert_eq!(Index::open(&path).unwrap().token_width(), TokenWidth::U8);
}

#[test]
fn adopted_index_is_like_one_built_here() {
    for (width, shards) in [(TokenWidth::U16, 1), (TokenWidth::U32, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let path = foreign_index(folder.path(), width, shards);
        fs::write(path.join("tokenizer.json"), "of another program").unwrap();
        let adoption = adopt(&path, &tokenizer(&MERGES), None, None).unwrap();
        assert_eq!((adoption.sampled, adoption.different), (5, 0));
        let corpus = TextIndex::open(&path).unwrap();
        assert_eq!(count(&corpus, "red"), 3 * 1_000 + 1);
        assert_eq!(corpus.index().token_width(), width);
        let verified = verify(&path, OpenOptions::default(), VerifyLevel::Full).unwrap();
        assert_eq!(verified.checksums, adoption.manifest.files.len() as u64);
        // All files are those of the build, except for the unknown size of the text.
        let read =
            |path: PathBuf| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
        let mut built = read(folder.path().join(MANIFEST));
        built["text_bytes"] = 0.into();
        assert_eq!(read(path.join(MANIFEST)), built);

        let error = adopt(&path, &tokenizer(&MERGES), None, None).unwrap_err();
        assert!(matches!(error, Error::OutputTaken(_)), "{error}");
    }
}

/// A server that has the old file mapped would crash if that one became shorter.
#[test]
fn prefix_file_of_earlier_adoption_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let texts: Vec<String> = (0..12_000).map(|number| format!("fox {number}")).collect();
    let documents = texts.iter().map(String::as_str);
    build_from_documents(documents, &tokenizer(&MERGES), &path, &BuildOptions::default()).unwrap();
    let prefixes = fs::File::open(path.join("prefixes.0")).unwrap();
    fs::remove_file(path.join(MANIFEST)).unwrap();
    adopt(&path, &tokenizer(&MERGES), None, None).unwrap();
    assert_eq!(prefixes.metadata().unwrap().nlink(), 0);
    assert!(path.join("prefixes.0").exists());
}

#[test]
fn another_tokenizer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = foreign_index(folder.path(), TokenWidth::U16, 1);
    let other = tokenizer(&["Ġ f", "o x"]);
    let error = adopt(&path, &other, None, None).unwrap_err().to_string();
    assert!(error.contains("4 of 5 documents get other tokens"), "{error}");
    assert!(!path.join(MANIFEST).exists() && !path.join("prefixes.0").exists());
    // Without adoption it is found too, from a smaller sample.
    let error = TextIndex::new(Index::open(&path).unwrap(), other).unwrap_err().to_string();
    assert!(error.contains("4 of 5 documents get other tokens"), "{error}");
    let corpus = TextIndex::new(Index::open(&path).unwrap(), tokenizer(&MERGES)).unwrap();
    assert_eq!(count(&corpus, "red"), 3 * 1_000 + 1);
}

#[test]
fn damaged_index_is_not_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let path = foreign_index(folder.path(), TokenWidth::U16, 1);
    let table = path.join("table.0");
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2 / 3 * 3;
    let (left, right) = bytes.split_at_mut(middle);
    left[..3].swap_with_slice(&mut right[..3]);
    fs::write(&table, bytes).unwrap();
    let error = adopt(&path, &tokenizer(&MERGES), None, None).unwrap_err();
    assert!(matches!(error, Error::InvalidIndex(_)), "{error}");
    assert!(!path.join(MANIFEST).exists());
}
