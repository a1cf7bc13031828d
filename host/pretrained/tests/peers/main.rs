//! Compares prompts with those of `transformers`, for every chat template that TRL ships:
//! `make test-peers`.

#[path = "../rendering/mod.rs"]
mod rendering;

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "needs transformers and trl: make test-peers"]
fn prompts_of_published_templates_match_transformers() {
    let python = std::env::var_os("CORVER_PEERS").expect("CORVER_PEERS is a Python with trl");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/templates.py");
    let output = Command::new(python).arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut templates = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        templates.push(serde_json::from_str(line).unwrap());
    }
    assert!(templates.len() > 20, "{} templates", templates.len());
    rendering::assert_texts(&templates);
}
