//! `corver-host plugin new`: a project from the template.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::build::checkout;
use crate::args::{Language, RuleKind};
use crate::output;

/// Path and text of a project's files. `{{name}}`, `{{type}}`, `{{summary}}` and `{{sdk}}` are filled in.
type Template = &'static [(&'static str, &'static str)];

/// What every Rust project has beside its `src/lib.rs`.
const RUST: Template = &[
    ("Cargo.toml", include_str!("../../../templates/rust/Cargo.toml")),
    (".gitignore", include_str!("../../../templates/rust/gitignore")),
    // The very releases that the shipped rules were built with, which need no network where those were built.
    ("Cargo.lock", include_str!("../../../../../plugins/Cargo.lock")),
];

const SENTENCE: &str = include_str!("../../../templates/rust/src/sentence.rs");
const RESPONSE: &str = include_str!("../../../templates/rust/src/response.rs");
const PYTHON: Template = &[
    ("rule.py", include_str!("../../../templates/python/rule.py")),
    ("test_rule.py", include_str!("../../../templates/python/test_rule.py")),
    (".gitignore", include_str!("../../../templates/python/gitignore")),
];
const JS: Template = &[
    ("rule.js", include_str!("../../../templates/js/rule.js")),
    ("rule.test.js", include_str!("../../../templates/js/rule.test.js")),
    ("package.json", include_str!("../../../templates/js/package.json")),
    (".gitignore", include_str!("../../../templates/js/gitignore")),
];

pub fn run(dir: &Path, language: Language, kind: RuleKind, sdk: Option<&Path>, json: bool) -> Result<()> {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ensure!(
        is_name(name),
        "{name:?} cannot be a rule's name: take small letters, digits and hyphens, begin with a letter, and leave `judge` and `format` to the host"
    );
    ensure!(!dir.exists(), "{} exists already", dir.display());
    let (summary, source, flag) = match kind {
        RuleKind::Sentence => ("pays a sentence whose first fact the corpus attests", SENTENCE, "--plugin"),
        RuleKind::Response => ("pays an answer that is a gold and nothing more", RESPONSE, "--judge"),
    };
    let (files, edit, summary_in, test, sdk) = match (language, kind) {
        (Language::Rust, _) => {
            let files = [RUST, &[("src/lib.rs", source)]].concat();
            let test = format!("  cargo test --manifest-path {}/Cargo.toml\n", dir.display());
            (files, "src/lib.rs", "Cargo.toml", test, rust_sdk(sdk)?)
        }
        (Language::Python, RuleKind::Sentence) => {
            ensure!(sdk.is_none(), "--sdk is for Rust: a Python rule is built with the checkout's sdk/python");
            let sdk = checkout()?.join("sdk/python");
            let test = format!("  PYTHONPATH={} python3 -m unittest discover {}\n", sdk.display(), dir.display());
            (PYTHON.to_vec(), "rule.py", "rule.py", test, String::new())
        }
        (Language::Js, RuleKind::Sentence) => {
            ensure!(sdk.is_none(), "--sdk is for Rust: a rule in JavaScript is built with the checkout's sdk/js");
            let test = format!("  npm install --prefix {0}\n  npm test --prefix {0}\n", dir.display());
            (JS.to_vec(), "rule.js", "rule.js", test, quotable(&checkout()?.join("sdk/js"))?)
        }
        (Language::Python | Language::Js, RuleKind::Response) => {
            bail!("response rules are written in Rust so far")
        }
    };
    let fill = |text: &str| {
        let text = text.replace("{{name}}", name).replace("{{type}}", &type_name(name));
        text.replace("{{summary}}", summary).replace("{{sdk}}", &sdk)
    };
    for (file, text) in files {
        write(&dir.join(file), &fill(text))?;
    }
    if json {
        return output::json(&json!({"name": name, "path": dir}));
    }
    let dir = dir.display();
    output::line(format_args!(
        "{dir} is a rule of your own now. Next:\n  edit {dir}/{edit}, and the summary in {dir}/{summary_in}\n{test}  corver-host plugin build {dir}\n  corver-host train {flag} {dir}/{name}.wasm"
    ));
    Ok(())
}

/// The folder of corver-sdk, as Cargo.toml has it.
fn rust_sdk(given: Option<&Path>) -> Result<String> {
    let sdk = match given {
        Some(sdk) => sdk.to_owned(),
        None => checkout()?.join("sdk"),
    };
    ensure!(
        sdk.join("Cargo.toml").is_file(),
        "{} is no corver-sdk: give the sdk folder of a checkout with --sdk",
        sdk.display()
    );
    quotable(&sdk)
}

/// An absolute path as strings of TOML and JSON have it.
fn quotable(path: &Path) -> Result<String> {
    let path = path.canonicalize().with_context(|| format!("looking at {}", path.display()))?;
    let Some(path) = path.to_str() else { bail!("the path {} is not UTF-8, which a project needs", path.display()) };
    Ok(path.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What the host takes for a rule's name, and cargo for a package's.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=64).contains(&name.len())
        && !["judge", "format"].contains(&name) // the host's own rewards
        && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain)
}

/// `my-rule` → `MyRule`.
fn type_name(name: &str) -> String {
    let word = |word: &str| word.get(..1).map(|first| first.to_ascii_uppercase() + &word[1..]).unwrap_or_default();
    name.split('-').map(word).collect()
}

fn write(path: &PathBuf, text: &str) -> Result<()> {
    let folder = path.parent().expect("a file of the project lies in its folder");
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_packages_and_types() {
        assert!(["attested", "my-rule-2"].into_iter().all(is_name));
        assert!(["", "2nd", "My", "a b", "ä", "-a", "judge"].into_iter().all(|name| !is_name(name)));
        assert_eq!(type_name("my-rule-2"), "MyRule2");
        assert_eq!(type_name("a--b-"), "AB");
    }
}
