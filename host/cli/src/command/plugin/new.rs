//! `corver-host plugin new`: creates a rule's project from a template.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use corver_reward::folders;
use serde_json::json;

use super::build::checkout;
use crate::args::{NewArgs, RuleKind, SdkLanguage};
use crate::output;

/// Path and text of a project's files. `{{name}}`, `{{type}}`, `{{summary}}`, `{{sdk}}` and
/// `{{target}}` are filled in.
type Template = &'static [(&'static str, &'static str)];

/// A rule's summary until its author writes one: a ready-made one would soon be wrong.
const SUMMARY: &str = "no summary yet";

/// Files of every Rust project in addition to `src/lib.rs`.
const RUST: Template = &[
    ("Cargo.toml", include_str!("../../../templates/rust/Cargo.toml")),
    (".cargo/config.toml", include_str!("../../../templates/rust/cargo-config.toml")),
    (".gitignore", include_str!("../../../templates/rust/gitignore")),
    // The same versions as the shipped rules': a machine that has built those needs no network.
    ("Cargo.lock", include_str!("../../../../../plugins/Cargo.lock")),
];

/// Types that the prelude of the SDK, its macros and the templates use. A rule's own type of the
/// same name would hide them.
const TAKEN_TYPES: [&str; 29] = [
    "Capability",
    "ChatPrompt",
    "Completion",
    "CompletionRule",
    "Component",
    "Corpus",
    "CreditKind",
    "Default",
    "False",
    "Grade",
    "NliPair",
    "None",
    "Pending",
    "Query",
    "ResponseRule",
    "Result",
    "RuleSettings",
    "Search",
    "Section",
    "Self",
    "Sentence",
    "SentenceContext",
    "SentenceRule",
    "String",
    "Tiers",
    "Triplet",
    "True",
    "Vec",
    "Verdict",
];

const SENTENCE: &str = include_str!("../../../templates/rust/src/sentence.rs");
const RESPONSE: &str = include_str!("../../../templates/rust/src/response.rs");

const PYTHON: Template = &[(".gitignore", include_str!("../../../templates/python/gitignore"))];
const PYTHON_SENTENCE: Template = &[
    ("rule.py", include_str!("../../../templates/python/rule.py")),
    ("test_rule.py", include_str!("../../../templates/python/test_rule.py")),
];
const PYTHON_RESPONSE: Template = &[
    ("response.py", include_str!("../../../templates/python/response.py")),
    ("test_response.py", include_str!("../../../templates/python/test_response.py")),
];

const JS: Template = &[
    ("package.json", include_str!("../../../templates/js/package.json")),
    (".gitignore", include_str!("../../../templates/js/gitignore")),
];
const JS_SENTENCE: Template = &[
    ("rule.js", include_str!("../../../templates/js/rule.js")),
    ("rule.test.js", include_str!("../../../templates/js/rule.test.js")),
];
const JS_RESPONSE: Template = &[
    ("response.js", include_str!("../../../templates/js/response.js")),
    ("response.test.js", include_str!("../../../templates/js/response.test.js")),
];

pub fn run(args: &NewArgs, json: bool) -> Result<()> {
    let dir = &args.dir;
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ensure!(
        is_name(name),
        "{name:?} cannot be a rule's name: use lower-case letters, digits and hyphens, and begin \
         with a letter; `judge` and `format` are taken"
    );
    let rule_type = type_name(name);
    // A rule in JavaScript has no type.
    ensure!(
        args.lang == SdkLanguage::Js || !TAKEN_TYPES.contains(&rule_type.as_str()),
        "{name:?} cannot be a rule's name: its type would be {rule_type}, a name that the project \
         uses already"
    );
    ensure!(!dir.exists(), "{} exists already", dir.display());
    let Project { files, sdk, edit, test } = project(args)?;
    let target = quoted(&folders::rule_builds()?.join("native"))?;
    let fill = |text: &str| {
        let text = text.replace("{{name}}", name).replace("{{type}}", &rule_type);
        text.replace("{{summary}}", SUMMARY).replace("{{sdk}}", &sdk).replace("{{target}}", &target)
    };
    for (file, text) in files {
        write(&dir.join(file), &fill(text))?;
    }
    if json {
        return output::json(&json!({"name": name, "path": dir}));
    }
    let flag = match args.kind {
        RuleKind::Sentence => "--plugin",
        RuleKind::Response => "--judge",
    };
    let dir = dir.display();
    output::lines(&format!(
        "{dir} has a rule that you can build as it is. Next:\n  edit {edit}\n{test}  \
         corver-host plugin build {dir}\n  \
         corver-host plugin check {dir}/{name}.wasm\n  \
         corver-host train {flag} {dir}/{name}.wasm"
    ));
    Ok(())
}

/// Files and next steps of a project, by language.
struct Project {
    files: Vec<(&'static str, &'static str)>,
    /// The SDK's folder, as the project's files name it.
    sdk: String,
    /// Description of the files that the author edits.
    edit: String,
    /// Commands that test the project, one per line.
    test: String,
}

fn project(args: &NewArgs) -> Result<Project> {
    let dir = args.dir.display();
    Ok(match (args.lang, args.kind) {
        (SdkLanguage::Rust, kind) => {
            let source = if kind == RuleKind::Sentence { SENTENCE } else { RESPONSE };
            Project {
                files: [RUST, &[("src/lib.rs", source)]].concat(),
                sdk: rust_sdk(args.sdk.as_deref())?,
                edit: format!(
                    "{dir}/src/lib.rs, and the description in {dir}/Cargo.toml, which is the \
                     rule's summary"
                ),
                test: format!("  (cd {dir} && cargo test)\n"),
            }
        }
        (SdkLanguage::Python | SdkLanguage::Js, _) if args.sdk.is_some() => {
            bail!(
                "--sdk is for Rust: a rule in Python or JavaScript is built with the checkout's SDK"
            )
        }
        (SdkLanguage::Python, kind) => {
            let sdk = checkout()?.join("sdk/python");
            let (rule, own) = match kind {
                RuleKind::Sentence => ("rule.py", PYTHON_SENTENCE),
                RuleKind::Response => ("response.py", PYTHON_RESPONSE),
            };
            Project {
                files: [PYTHON, own].concat(),
                sdk: String::new(),
                edit: format!("{dir}/{rule}, including its summary"),
                test: format!(
                    "  PYTHONPATH={} python3 -m unittest discover {dir}\n",
                    sdk.display()
                ),
            }
        }
        (SdkLanguage::Js, kind) => {
            let (rule, own) = match kind {
                RuleKind::Sentence => ("rule.js", JS_SENTENCE),
                RuleKind::Response => ("response.js", JS_RESPONSE),
            };
            Project {
                files: [JS, own].concat(),
                sdk: quotable(&checkout()?.join("sdk/js"))?,
                edit: format!("{dir}/{rule}, including its summary"),
                test: format!("  npm install --prefix {dir}\n  npm test --prefix {dir}\n"),
            }
        }
    })
}

/// Returns the requirement of corver-sdk for Cargo.toml: the given folder, that of the checkout, or
/// else the published release of this host's version.
fn rust_sdk(given: Option<&Path>) -> Result<String> {
    let sdk = match (given, checkout()) {
        (Some(sdk), _) => sdk.to_owned(),
        (None, Ok(checkout)) => checkout.join("sdk"),
        (None, Err(_)) => return Ok(format!("\"={}\"", env!("CARGO_PKG_VERSION"))),
    };
    ensure!(
        sdk.join("Cargo.toml").is_file(),
        "{} is not the SDK: give the sdk folder of a checkout with --sdk",
        sdk.display()
    );
    Ok(format!("{{ path = \"{}\" }}", quotable(&sdk)?))
}

/// Returns the absolute path of an existing file, escaped for a string of TOML or JSON.
fn quotable(path: &Path) -> Result<String> {
    quoted(&path.canonicalize().with_context(|| format!("looking at {}", path.display()))?)
}

fn quoted(path: &Path) -> Result<String> {
    let Some(path) = path.to_str() else {
        bail!("the path {} is not UTF-8, and the project must name it", path.display())
    };
    Ok(path.replace('\\', "\\\\").replace('"', "\\\""))
}

/// True if the host accepts a rule's name, and cargo the package's.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=64).contains(&name.len())
        && !["judge", "format"].contains(&name) // the host's own rewards
        && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain)
}

/// Converts a rule's name to a type name: `my-rule` to `MyRule`.
fn type_name(name: &str) -> String {
    let word = |word: &str| {
        word.get(..1).map(|first| first.to_ascii_uppercase() + &word[1..]).unwrap_or_default()
    };
    name.split('-').map(word).collect()
}

fn write(path: &PathBuf, text: &str) -> Result<()> {
    let folder = path.parent().expect("a project's file has a parent folder");
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_names_are_valid_packages_and_types() {
        assert!(["attested", "my-rule-2"].into_iter().all(is_name));
        assert!(
            ["", "2nd", "My", "a b", "ä", "-a", "judge"].into_iter().all(|name| !is_name(name))
        );
        assert_eq!(type_name("my-rule-2"), "MyRule2");
        assert_eq!(type_name("a--b-"), "AB");
    }

    #[test]
    fn types_of_the_prelude_are_taken() {
        let sdk = include_str!("../../../../../sdk/src/lib.rs");
        let (_, prelude) = sdk.split_once("pub mod prelude {").unwrap();
        let mut types = Vec::new();
        for name in prelude.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if name.starts_with(|c: char| c.is_ascii_uppercase()) {
                types.push(name);
            }
        }
        assert!(types.len() >= 20, "{types:?}");
        types.retain(|name| !TAKEN_TYPES.contains(name));
        assert!(types.is_empty(), "{types:?}");
    }
}
