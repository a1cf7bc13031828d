//! Files made to bring the host down. `make attack` shows what each cost.

mod files;
mod runs;
mod servers;

use std::fs;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::host::{Cost, Finished, Server, demo_policy, host, host_with_cache, small_index};
use crate::transcript::{Transcript, normalise};

/// Prints a row of the table of `make attack`: the kind of the attack, the attack, the bound that holds
/// against it, and its measured cost and result.
fn print_row(kind: &str, attack: &str, bound: &str, cost: &Cost, result: &str) {
    let (seconds, peak_mib) = (cost.time.as_secs_f64(), cost.peak_mib);
    eprintln!("\n| {kind} | {attack} | {bound} | {seconds:.1} s | {peak_mib} MiB | {result} |");
}

/// A component that passes for a sentence rule until it is compiled, with these declarations in it.
fn component(declarations: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(component {declarations} (instance $e) (export "corver:reward/sentence-scoring@0.1.0" (instance $e)))"#
    ))
    .unwrap()
}

/// Components in components, each instantiated ten times by the next.
fn nested_instances(depth: usize) -> Vec<u8> {
    let innermost = "(component $c (core module $m) (core instance (instantiate $m)))".to_owned();
    let nest = |inner: String, _| {
        format!("(component $c {inner} {})", "(instance (instantiate $c))".repeat(10))
    };
    component(&format!("{} (instance (instantiate $c))", (0..depth).fold(innermost, nest)))
}

/// Components in components, empty otherwise.
fn nested_components(depth: usize) -> Vec<u8> {
    const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";
    let section = |inner: &[u8]| {
        let mut section = vec![4];
        let mut size = inner.len();
        while size >= 0x80 {
            section.push(size as u8 | 0x80);
            size >>= 7;
        }
        section.push(size as u8);
        [&section, inner].concat()
    };
    let nested = (0..depth).fold(HEADER.to_vec(), |inner, _| [HEADER, &section(&inner)].concat());
    let rule = component("");
    [HEADER, &section(&nested), &rule[HEADER.len()..]].concat()
}

/// A function in which every one of so many nested loops may change every local.
fn nested_loops(loops: usize, locals: usize) -> Vec<u8> {
    let change: String = (0..locals)
        .map(|i| {
            format!("(local.set {i} (i32.add (local.get {i}) (local.get {})))", (i + 1) % locals)
        })
        .collect();
    let begin = "loop ".repeat(loops);
    let end = "(br_if 0 (local.get 0)) end ".repeat(loops);
    component(&format!(
        "(core module (func (local {}) {begin} {change} {end}))",
        "i32 ".repeat(locals)
    ))
}

fn check(path: &Path) -> (Finished, Duration) {
    let start = Instant::now();
    (host(&["plugin", "check", path.to_str().unwrap()]), start.elapsed())
}

#[test]
fn hostile_plugin_compilation_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for (what, bytes) in [
        ("nested instances", nested_instances(8)),
        ("nested components", nested_components(20_000)),
        ("nested loops", nested_loops(300, 2_000)),
        ("locals", nested_loops(10, 40_000)),
    ] {
        let path = folder.path().join("hostile.wasm");
        fs::write(&path, &bytes).unwrap();
        let (finished, time) = check(&path);
        let limit =
            if finished.stderr.contains("compile_s") { "compile_s" } else { "compile_bytes" };
        eprintln!(
            "| plugin of {what}, {} bytes | stopped by {limit} after {:.1} s |",
            bytes.len(),
            time.as_secs_f64()
        );
        let finished = finished.found(1);
        assert!(
            finished.stderr.contains("hostile.wasm")
                && finished.stderr.contains("(limits.compile_"),
            "{finished}"
        );
        assert!(time < Duration::from_secs(60), "{what}: {time:?}"); // 8 s of processor time, beside whatever the machine does
    }
}

/// The library that reads a module's contract follows packages that need each other until its stack
/// is full. Here one version of the contract needs another.
#[test]
fn compiler_crashing_plugin_is_named() {
    let mut transcript = Transcript::default();
    const EXPORT: &[u8] = b"sentence-scoring@0.1.0";
    let mut module =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/admission/module"))
            .unwrap();
    let export = module.windows(EXPORT.len()).rposition(|window| window == EXPORT).unwrap();
    module[export + EXPORT.len() - 5] = b'5';
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.wasm");
    fs::write(&path, module).unwrap();
    transcript.add_failure(&check(&path).0);
    insta::assert_snapshot!(transcript);
}

#[test]
fn compile_limits_are_configurable() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("first.wasm");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm"), &path)
        .unwrap();
    let check = |set: &str| {
        host_with_cache(
            &folder.path().join("cache"),
            &["plugin", "check", path.to_str().unwrap(), "--set", set],
        )
    };
    transcript.add_failure(&check("rule.limits.compile_bytes=1000000"));
    transcript.add_failure(&check("rule.limits.compile_s=0"));
    check("rule.limits.compile_s=60").good();
    insta::assert_snapshot!(transcript);
}

#[test]
fn named_pipe_plugin_is_rejected_without_waiting() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("rule.wasm");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    transcript.add_failure(&check(&pipe).0);
    insta::assert_snapshot!(transcript);
}

/// Somebody else's file in the cache would decide what a rule does.
#[test]
fn world_writable_rule_cache_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("corver/rules");
    fs::create_dir_all(&rules).unwrap();
    fs::set_permissions(&rules, Permissions::from_mode(0o777)).unwrap();
    let checked = host_with_cache(folder.path(), &["plugin", "check", "first"]).good();
    insta::assert_snapshot!(normalise(&checked.stderr));
    assert_eq!(fs::read_dir(&rules).unwrap().count(), 0);
}

#[test]
fn hostile_chat_template_stops_at_limits() {
    let mut transcript = Transcript::default();
    const PROMPT: &str = "{{ messages[-1].content }}";
    let cache = tempfile::tempdir().unwrap();
    let model = cache.path().join("model");
    demo_policy(cache.path(), &model);
    let evaluate = |template: &str| {
        fs::write(model.join("chat_template.jinja"), template).unwrap();
        let set = format!("policy.model={}", model.display());
        host_with_cache(
            cache.path(),
            &["eval", "--config", "demo", "--limit", "1", "--device", "cpu", "--set", &set],
        )
    };
    evaluate(PROMPT).good();
    let doubled = "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}";
    let slow = "{% set s = 'ab' * 1000000 %}{% for i in range(9999) %}{% set t = s.replace('ab', 'ba') %}{% endfor %}";
    for (what, template) in [
        ("that doubles a text", doubled),
        ("that rewrites a long text", slow),
        ("that counts to 10^12", &"{% for a in range(9999) %}".repeat(3)),
        ("that prints too much", "{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}"),
    ] {
        let ends = "{% endfor %}"
            .repeat(template.matches("{% for").count() - template.matches("{% endfor").count());
        let start = Instant::now();
        let finished = evaluate(&format!("{template}{ends}{PROMPT}"));
        let error = finished.stderr.lines().last().unwrap_or_default();
        eprintln!(
            "| chat template {what} | stopped after {:.1} s: {error} |",
            start.elapsed().as_secs_f64()
        );
        transcript.add_failure(&finished);
    }
    insta::assert_snapshot!(transcript);
}

/// The system ends a process that reads beyond the end of a mapped file.
#[test]
fn index_file_truncated_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
    let mut server = Server::start(&["--index", index.to_str().unwrap()], "127.0.0.1:0");
    host(&["index", "count", "Paris AND France", "--index", &server.url]).good();
    fs::File::options().write(true).open(index.join("tokenized.0")).unwrap().set_len(0).unwrap();
    fs::File::options().write(true).open(index.join("table.0")).unwrap().set_len(0).unwrap();
    let body = r#"{"index": "index", "query_type": "count", "query": "Lima AND Peru"}"#;
    let request =
        format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut client = TcpStream::connect(&server.address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap_or_default(); // the connection ends with the process
    assert_eq!(answer, "");
    let (code, said) = server.end();
    assert_eq!(code, Some(1), "{said}");
    // Either file may be read first.
    insta::assert_snapshot!(normalise(&said.replace("tokenized.0", "table.0")));
}

/// What a data file says cannot act on the terminal, nor pass for a line of the program's own.
#[test]
fn foreign_text_is_escaped_on_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
    let evil = "\u{1b}[2J\rerror: none\nreward +9.99\u{9b}1m\u{202e}";
    let line = json!({
        "question": format!("Who? {evil}"), "answers": "x", "completion": format!("<answer>Well {evil}.</answer>"),
        "triplets": [[format!("Well {evil}."), [[evil, "is", "France"]]]],
    });
    let file = folder.path().join("completions.jsonl");
    fs::write(&file, line.to_string()).unwrap();
    let set = format!("corpus.index={}", index.display());
    let score =
        |more: &[&str]| host(&[&["score", file.to_str().unwrap(), "--set", &set], more].concat());
    let shown = score(&[]).good().stdout;
    insta::assert_snapshot!(normalise(&shown));
    let traced = score(&["--json"]).good();
    assert!(traced.json()["question"].as_str().unwrap().ends_with(evil), "JSON keeps the value");
    let wrong =
        host(&["score", file.to_str().unwrap(), "--set", &format!("corpus.index=/no{evil}")]);
    for text in [shown, traced.stdout, traced.stderr, wrong.stderr] {
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(acts), "{text:?}");
        assert!(
            !text.lines().any(|line| line.starts_with("reward") || line.starts_with("error: none")),
            "{text}"
        );
    }
}
