//! Building and searching passages of real indexes: ranking against BM25 computed by hand, several
//! indexes as one, and folders that are missing, stale, damaged or foreign.

#[path = "../../corpus/tests/vocabulary/mod.rs"]
mod vocabulary;

use std::fs;
use std::path::{Path, PathBuf};

use corver_backends::passages::{
    PassageError, PassageIndex, PassageLocation, PassageManifest, PassageOptions, build,
};
use corver_core::{Retriever, Search};
use corver_corpus::BuildOptions;
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use vocabulary::tokenizer;

/// An index of (title, text), in a folder of its own.
fn index(folder: &Path, documents: &[(&str, &str)], shards: usize) -> PathBuf {
    let (input, path) = (folder.join("documents.jsonl"), folder.join("index"));
    let line =
        |(title, text): &(&str, &str)| json!({"title": title, "text": text}).to_string() + "\n";
    fs::write(&input, documents.iter().map(line).collect::<String>()).unwrap();
    let texts: Vec<&str> = documents.iter().map(|(_, text)| *text).collect();
    corver_corpus::build(&[input], &tokenizer(&texts), &path, &BuildOptions::with_shards(shards))
        .unwrap();
    path
}

fn location(folder: &Path, documents: &[(&str, &str)], words: usize) -> PassageLocation {
    let location = PassageLocation::new(&index(folder, documents, 1), None).unwrap();
    build(&location, &PassageOptions { words, ..PassageOptions::default() }).unwrap();
    location
}

const ANIMALS: [(&str, &str); 4] = [
    ("Fox", "the red fox sleeps"),
    ("The Den", "the Fox fox den"),
    ("Hen", "a hen"),
    ("Owl", "owl owl owl owl the den"),
];

fn animals() -> (TempDir, PassageLocation) {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path(), &ANIMALS, 100);
    (folder, location)
}

fn search(query: &str, k: u32) -> Search {
    Search { title: None, query: query.into(), k }
}

/// Titles and scores.
fn found(passages: &PassageIndex, search: &Search) -> Vec<(String, f32)> {
    let found = passages.search(search).unwrap();
    found.into_iter().map(|(score, passage)| (passage.title, score)).collect()
}

fn titles(passages: &PassageIndex, search: &Search) -> Vec<String> {
    found(passages, search).into_iter().map(|(title, _)| title).collect()
}

#[track_caller]
fn assert_found(found: &[(String, f32)], expected: &[(&str, f64)]) {
    let titles = |(title, _): &(String, f32)| title.clone();
    assert_eq!(
        found.iter().map(titles).collect::<Vec<_>>(),
        expected.iter().map(|(title, _)| *title).collect::<Vec<_>>()
    );
    for ((title, got), (_, expected)) in found.iter().zip(expected) {
        assert!((f64::from(*got) - expected).abs() < 1e-5, "{title}: {got} instead of {expected}");
    }
}

#[test]
fn passages_are_ranked_by_bm25() {
    let (_folder, location) = animals();
    let passages = PassageIndex::open(&[location]).unwrap();
    // Lengths 4, 4, 2, 6; on average 4. `fox` and `den` are each in 2 of 4 passages: ln(1 + 2.5 /
    // 2.5) = ln 2. Length 4: k1 · (1 − b + b · 4/4) = 1.2; length 6: 1.2 · (0.25 + 0.75 · 1.5) =
    // 1.65. fox once at length 4: 2.2 / 2.2 = 1; twice: 2 · 2.2 / 3.2 = 1.375; den once at length
    // 6: 2.2 / 2.65.
    let (ln2, den_of_owl) = (2_f64.ln(), 2.2 / 2.65);
    let expected = [("The Den", 2.375 * ln2), ("Fox", ln2), ("Owl", den_of_owl * ln2)];
    assert_found(&found(&passages, &search("fox, DEN?", 10)), &expected);
    assert_found(&found(&passages, &search("fox den", 2)), &expected[..2]);
    // A word that a query repeats counts as often.
    let expected = [("The Den", 3.375 * ln2), ("Owl", 2.0 * den_of_owl * ln2), ("Fox", ln2)];
    assert_found(&found(&passages, &search("den fox den", 10)), &expected);
    assert!(titles(&passages, &search("weasel", 10)).is_empty());
}

#[test]
fn title_filter_preserves_scores() {
    let (_folder, location) = animals();
    let mut passages = PassageIndex::open(&[location]).unwrap();
    let within = |title: &str| Search { title: Some(title.into()), ..search("fox den", 10) };
    assert_found(&found(&passages, &within("THE den")), &[("The Den", 2.375 * 2_f64.ln())]);
    for other in ["Den", "The Den ", "Hen", ""] {
        assert!(titles(&passages, &within(other)).is_empty(), "{other:?}");
    }
    let answers = passages.passages(&[within("Fox"), search("hen", 1), within("Fox")]).unwrap();
    let texts: Vec<Vec<&str>> = answers
        .iter()
        .map(|found| found.iter().map(|passage| passage.text.as_str()).collect())
        .collect();
    assert_eq!(texts, [["the red fox sleeps"], ["a hen"], ["the red fox sleeps"]]);
}

#[test]
fn equal_scores_follow_text_order() {
    let titles_of =
        |numbers: &[usize]| numbers.iter().map(|n| format!("Fox {n}")).collect::<Vec<_>>();
    let names = titles_of(&(0..300).collect::<Vec<_>>());
    let documents: Vec<(&str, &str)> =
        names.iter().map(|name| (name.as_str(), "a red fox")).collect();
    let mut first = None;
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let location = PassageLocation::new(&index(folder.path(), &documents, 2), None).unwrap();
        build(&location, &PassageOptions::default()).unwrap();
        let passages = PassageIndex::open(&[location]).unwrap();
        // Documents are dealt to the shards in turn.
        assert_eq!(titles(&passages, &search("red fox", 3)), titles_of(&[0, 2, 4]));
        let all = titles(&passages, &search("fox red", u32::MAX));
        assert_eq!(all.len(), 300);
        assert_eq!(*first.get_or_insert_with(|| all.clone()), all);
    }
}

/// The words of other scripts, and the two forms of an accented letter, in texts and titles.
#[test]
fn texts_of_every_script_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let documents = [
        ("巴黎", "巴黎是法国的首都。"),
        ("東京", "東京タワーは日本にある。"),
        ("Cafe\u{301}", "un cafe\u{301} noir"),
        ("Berlin", "Die Hauptstadt ist Berlin."),
    ];
    let location = location(folder.path(), &documents, 100);
    let passages = PassageIndex::open(&[location]).unwrap();
    for (query, title) in [
        ("法国首都", "巴黎"),
        ("日本のタワー", "東京"),
        ("café", "Cafe\u{301}"),
        ("BERLIN", "Berlin"),
    ] {
        assert_eq!(titles(&passages, &search(query, 1)), [title], "{query}");
    }
    let titled = Search { title: Some("CAFÉ".into()), ..search("noir", 1) };
    assert_eq!(titles(&passages, &titled), ["Cafe\u{301}"]);
}

#[test]
fn long_documents_are_split_into_passages() {
    let folder = tempfile::tempdir().unwrap();
    let location =
        location(folder.path(), &[("Numbers", "one two three four five"), ("", "six")], 2);
    let manifest = PassageManifest::load(&location).unwrap();
    assert_eq!(
        (manifest.documents, manifest.titled, manifest.passages, manifest.words),
        (2, 1, 4, 2)
    );
    let passages = PassageIndex::open(&[location]).unwrap();
    let texts: Vec<String> = passages
        .search(&search("one two three four five six", 9))
        .unwrap()
        .into_iter()
        .map(|(_, passage)| format!("{}: {}", passage.title, passage.text))
        .collect();
    // Of two words, passages of two score twice; then those of one, in order.
    assert_eq!(texts, ["Numbers: two three", "Numbers: four five", "Numbers: one", ": six"]);
}

#[test]
fn several_indexes_are_searched_as_one() {
    let (_folder, whole) = animals();
    let halves: Vec<(TempDir, PassageLocation)> = ANIMALS
        .chunks(2)
        .map(|half| {
            let folder = tempfile::tempdir().unwrap();
            let location = location(folder.path(), half, 100);
            (folder, location)
        })
        .collect();
    let whole = PassageIndex::open(&[whole]).unwrap();
    let halves = PassageIndex::open(
        &halves.iter().map(|(_, location)| location.clone()).collect::<Vec<_>>(),
    )
    .unwrap();
    for query in ["fox den", "the", "owl hen sleeps", "a the fox"] {
        for k in [1, 2, 9] {
            assert_eq!(
                found(&halves, &search(query, k)),
                found(&whole, &search(query, k)),
                "{query}"
            );
        }
    }
}

#[test]
fn missing_or_stale_passages_error_names_command() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path(), &ANIMALS, 1);
    let location = PassageLocation::new(&index, None).unwrap();
    let message = |location: &PassageLocation| {
        PassageIndex::open(std::slice::from_ref(location)).map(drop).unwrap_err().to_string()
    };
    let command = format!("corver-host index passages --index {}", index.display());
    assert!(
        message(&location).contains("there are no passages")
            && message(&location).contains(&command),
        "{}",
        message(&location)
    );
    build(&location, &PassageOptions::default()).unwrap();
    let first = PassageIndex::open(std::slice::from_ref(&location)).unwrap();

    // The same index built from other documents.
    let other = tempfile::tempdir().unwrap();
    let other = self::index(other.path(), &ANIMALS[1..], 1);
    fs::remove_dir_all(&index).unwrap();
    fs::rename(other, &index).unwrap();
    assert!(
        message(&location).contains("made from another index")
            && message(&location).contains(&command),
        "{}",
        message(&location)
    );
    build(&location, &PassageOptions::default()).unwrap();
    let second = PassageIndex::open(std::slice::from_ref(&location)).unwrap();
    assert_eq!(titles(&second, &search("sleeps", 1)), [] as [&str; 0]);
    // Passages that are open stay usable.
    assert_eq!(titles(&first, &search("sleeps", 1)), ["Fox"]);

    let elsewhere = PassageLocation::new(&index, Some(&folder.path().join("apart"))).unwrap();
    assert!(message(&elsewhere).contains(&format!("{command} --dir ")), "{}", message(&elsewhere));
    build(&elsewhere, &PassageOptions::default()).unwrap();
    assert!(folder.path().join("apart/index.passages/corver-passages.json").is_file());
    let error = PassageIndex::open(&[]).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("no index is named "), "{error}");
}

fn is_invalid(error: &PassageError, words: &str) -> bool {
    matches!(error, PassageError::InvalidPassages(message) if message.contains(words))
}

#[test]
fn damaged_passages_are_an_error() {
    let (_folder, location) = animals();
    let files: Vec<PathBuf> =
        fs::read_dir(location.folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.iter().all(|file| !file.to_string_lossy().contains("lock")), "{files:?}");
    let answer =
        || PassageIndex::open(std::slice::from_ref(&location))?.search(&search("fox den the", 9));
    let whole = answer().unwrap();
    for file in files {
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        assert!(is_invalid(&answer().unwrap_err(), " are damaged: "), "{}", file.display());
        fs::remove_file(&file).unwrap();
        assert!(answer().is_err(), "{}", file.display());
        // Any damaged byte leads to an answer or an error.
        for at in (0..bytes.len()).step_by(3) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            fs::write(&file, damaged).unwrap();
            if let Err(error) = answer() {
                let known =
                    [" are damaged: ", "but this program reads ", "were made from another index "]
                        .iter()
                        .any(|words| is_invalid(&error, words));
                assert!(known, "{}: {error}", file.display());
            }
        }
        fs::write(&file, bytes).unwrap();
        assert_eq!(answer().unwrap(), whole);
    }
    let manifest = location.folder().join("corver-passages.json");
    let later = fs::read_to_string(&manifest).unwrap().replace("\"version\": 2", "\"version\": 3");
    fs::write(&manifest, later).unwrap();
    assert!(is_invalid(&answer().unwrap_err(), " are corver-passages version 3, but "));
}

#[test]
fn unfinished_passage_build_is_ignored_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let location = PassageLocation::new(&index(folder.path(), &ANIMALS, 1), None).unwrap();
    let unfinished = location.folder().with_file_name("index.passages.unfinished");
    fs::create_dir(&unfinished).unwrap();
    for name in ["meta.json", "half.idx"] {
        fs::write(unfinished.join(name), "half").unwrap();
    }
    let error = PassageIndex::open(std::slice::from_ref(&location)).map(drop).unwrap_err();
    assert!(is_invalid(&error, "there are no passages in "), "{error}");
    let lock = fs::File::open(&unfinished).unwrap();
    lock.lock().unwrap();
    assert!(matches!(build(&location, &PassageOptions::default()), Err(PassageError::Busy { .. })));
    drop(lock);
    build(&location, &PassageOptions::default()).unwrap();
    assert!(!unfinished.exists());
    assert_eq!(
        titles(&PassageIndex::open(std::slice::from_ref(&location)).unwrap(), &search("hen", 1)),
        ["Hen"]
    );
}

#[test]
fn foreign_folder_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let location = PassageLocation::new(&index(folder.path(), &ANIMALS, 1), None).unwrap();
    fs::create_dir(location.folder()).unwrap();
    let precious = location.folder().join("precious.txt");
    fs::write(&precious, "mine").unwrap();
    let error = build(&location, &PassageOptions::default()).unwrap_err().to_string();
    assert!(error.contains(" exists and holds no passages: "), "{error}");
    assert_eq!(fs::read_to_string(precious).unwrap(), "mine");
    let none = PassageOptions { words: 0, ..PassageOptions::default() };
    let error = build(&location, &none).unwrap_err().to_string();
    assert!(error.starts_with("a passage of 0 words: "), "{error}");
}

#[test]
fn arbitrary_query_text_is_accepted() {
    let (_folder, location) = animals();
    let passages = PassageIndex::open(&[location]).unwrap();
    let pieces = prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "fox", "title:", "\"", "(", ")", "AND", "OR", "NOT", "*", "~2", "^9", "[a TO z]", "\\",
            " ", "\0"
        ])
        .prop_map(str::to_owned),
    ];
    let text = prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat());
    proptest!(|(query in text.clone(), title in prop::option::of(text), k in any::<u32>())| {
        let found = passages.search(&Search { title, query, k }).unwrap();
        prop_assert!(found.len() <= k as usize && found.iter().all(|(score, _)| *score > 0.0));
        prop_assert!(found.is_sorted_by(|(one, _), (next, _)| one >= next));
    });
    let long = "fox ".repeat(100_000) + &"x".repeat(100_000);
    assert_eq!(titles(&passages, &search(&long, 1)), ["The Den"]);
}
