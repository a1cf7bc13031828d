//! The lists of `words/` as they stand in the SDK of each language: `CORVER_WRITE=1 cargo test -p
//! corver-sdk --test words` writes them anew.
//!
//! An SDK in Python or JavaScript is one file that is bundled with a rule. In Rust, patterns cost a
//! rule less than a search does.

use std::fs;
use std::path::Path;

const LISTS: [&str; 2] = ["words/stop_words.txt", "words/pronouns.txt"];

#[test]
fn the_lists_are_current() {
    check("src/words.rs", |word| format!("| b\"{word}\""));
    check("python/corver_sdk.py", |word| format!("\"{word}\","));
    check("js/corver-sdk.js", |word| format!("'{word}',"));
}

/// Compares what stands in `file` between a line that ends with the name of a list and the line
/// with its end.
fn check(file: &str, written: impl Fn(&str) -> String) {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let before = fs::read_to_string(sdk.join(file)).unwrap();
    let mut after = before.clone();
    for list in LISTS {
        let begin = after.find(&format!(" {list}\n")).expect("the list has a mark");
        let begin = begin + after[begin..].find('\n').unwrap() + 1;
        let end = after.find(&format!(" end of {list}\n")).expect("the list has an end");
        let end = after[..end].rfind('\n').unwrap() + 1;
        let indent = after[end..].find(|c| c != ' ').unwrap();
        let words = fs::read_to_string(sdk.join(list)).unwrap();
        let lines = words.lines().map(|line| {
            let words: Vec<String> = line.split(' ').map(&written).collect();
            format!("{:indent$}{}\n", "", words.join(" "))
        });
        after.replace_range(begin..end, &lines.collect::<String>());
    }
    if std::env::var_os("CORVER_WRITE").is_some() {
        fs::write(sdk.join(file), after).unwrap();
    } else {
        assert!(before == after, "sdk/{file} has other words; CORVER_WRITE=1 writes them anew");
    }
}
