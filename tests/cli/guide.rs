//! docs/write-a-rule.md, command by command, in an empty folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Training takes this much shorter here than in the guide.
const SHORT: &str =
    " --steps 2 --device cpu --set question.prompts_per_step=2 --set question.eval_limit=8";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn guide() -> String {
    fs::read_to_string(repository().join("docs/write-a-rule.md")).unwrap()
}

/// The fenced blocks of a language, in order.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The same script with less training in it.
fn shortened(script: &str) -> String {
    let shorten = |line: &str| match line.split(' ').nth(1) {
        Some("train" | "compare") => format!("{line}{SHORT}\n"),
        Some("calibrate") => format!("{line} --device cpu --limit 8\n"),
        _ => format!("{line}\n"),
    };
    script.lines().map(shorten).collect()
}

/// What a script prints that is run in this folder.
fn bash(folder: &Path, script: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_corver-host")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let run = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", binary.display()))
        .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
        // The new project's dependencies are the shipped rules', whose tests have compiled them: no
        // network is needed.
        .env("CARGO_TARGET_DIR", repository().join("plugins/target/native"))
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_NET_OFFLINE", "true")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{stdout}\n{stderr}");
    stdout.into_owned()
}

#[test]
fn plugin_guide_commands_work() {
    let script = shortened(&blocks(&guide(), "sh").concat());
    assert!(script.contains("corver-host compare") && script.contains("plugin new"), "{script}");

    let folder = tempfile::tempdir().unwrap();
    let stdout = bash(folder.path(), &script);
    for said in [
        "attested 0.1.0",
        "test result: ok. 3 passed",
        "conforms:",
        "Paris AND Peru = ",
        "-1.00",
        "ns  a sentence",
    ] {
        assert!(stdout.contains(said), "no {said:?} in\n{stdout}");
    }
    for said in ["verbatim 0.1.0, a response rule", "labels BAD, GOOD, NOT_ATTEMPTED"] {
        assert!(stdout.contains(said), "no {said:?} in\n{stdout}");
    }
    for rule in ["attested", "first"] {
        let run = folder.path().join("runs/attested").join(rule).join("seed-42");
        let summary = fs::read_to_string(run.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&summary).unwrap();
        assert_eq!((&summary["rule"], &summary["steps"]), (&Value::from(rule), &Value::from(2)));
    }
}

#[test]
fn readme_shell_commands_work() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let ways = readme.split("## Use it").nth(1).unwrap().split("\n## ").next().unwrap();
    let scripts = blocks(ways, "sh");
    assert_eq!(
        scripts.len(),
        2,
        "training and checking; the one in Python is run by host/python/tests/with_trl"
    );
    let folder = tempfile::tempdir().unwrap();
    let run = bash(folder.path(), &shortened(&scripts.concat()));
    for said in [
        "my-rule 0.1.0",
        "runs/my-rule/report.html",
        "explain.html",
        "  supported",
        "\"unsupported\":1",
    ] {
        assert!(run.contains(said), "no {said:?} in\n{run}");
    }
    assert!(folder.path().join("runs/my-rule/summary.json").is_file());
}

#[test]
fn readme_rule_is_shipped() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let source = fs::read_to_string(repository().join("plugins/first/src/lib.rs")).unwrap();
    let code = blocks(&readme, "rust");
    assert_eq!(code.len(), 1);
    assert!(source.contains(code[0]), "{}", code[0]);
}

#[test]
fn guide_rules_match_sdk_documentation() {
    let guide = guide();
    let code = blocks(&guide, "rust");
    let source = fs::read_to_string(repository().join("sdk/src/rule.rs")).unwrap();
    let unindented = |line: &str| line.strip_prefix(' ').unwrap_or(line).to_owned();
    let documented: Vec<String> =
        source.lines().filter_map(|line| line.strip_prefix("///")).map(unindented).collect();
    let documented = documented.join("\n");
    for rule in ["impl CompletionRule for Fresh", "impl SentenceRule for Entailed"] {
        let code = code.iter().find(|block| block.contains(rule)).unwrap();
        assert!(documented.contains(code), "{code}");
    }
}

#[test]
fn guide_code_matches_templates() {
    let guide = guide();
    let rust = blocks(&guide, "rust");
    let template = |kind: &str, name: &str| {
        let path = repository().join("host/cli/templates/rust/src").join(kind).with_extension("rs");
        let text = fs::read_to_string(path).unwrap().replace("{{type}}", name);
        text.split("#[cfg(test)]").next().unwrap().trim().to_owned()
    };
    let whole = template("sentence", "Attested");
    let code = whole.split_once('\n').unwrap().1; // without the first line, which says what the file is
    assert!(
        rust.iter().any(|block| block.trim() == code),
        "the guide's rule is not the template's"
    );

    let path = repository().join("host/cli/templates/python/rule.py");
    let python = fs::read_to_string(path).unwrap();
    let python = python.replace("{{type}}", "AttestedPy").replace("{{name}}", "attested-py");
    let (_, code) = python.split_once("\n\n").unwrap(); // without the module's docstring
    assert_eq!(
        blocks(&guide, "python").first(),
        Some(&code),
        "the guide's Python rule is not the template's"
    );

    let whole = template("response", "Verbatim");
    let heart =
        rust.iter().find(|block| block.starts_with("impl ResponseRule for Verbatim")).unwrap();
    // Without `validate`, which the guide leaves out.
    let (grade, export) = heart.trim().rsplit_once("}\n\n").unwrap();
    assert!(
        whole.contains(grade.trim_end()) && whole.ends_with(export),
        "the guide's judge is not the template's"
    );
}
