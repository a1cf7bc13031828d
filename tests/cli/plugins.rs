//! `corver-host plugin`, as a rule's author drives it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::host::{Finished, command, host, lines, small_index};
use crate::transcript::Transcript;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders of `plugins/` that hold a rule.
fn shipped() -> BTreeSet<String> {
    let entries = fs::read_dir(repository().join("plugins")).unwrap().map(Result::unwrap);
    let rules: BTreeSet<String> = entries
        .filter(|entry| entry.path().join("src").is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert!(rules.len() >= 12, "{rules:?}");
    rules
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_built_rule_is_listed() {
    let listed = host(&["plugin", "list", "--json"]).good();
    let lines: Vec<Value> =
        listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: BTreeSet<String> =
        lines.iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect();
    assert!(names.is_superset(&shipped()), "{names:?}");
    assert!(
        lines
            .iter()
            .all(|line| line["summary"].as_str().is_some_and(|summary| !summary.is_empty()))
    );
}

#[test]
fn every_rule_and_setting_is_documented() {
    let read = |page: &str| fs::read_to_string(repository().join(page)).unwrap();
    let page = read("docs/rules.md") + &read("docs/reproduction.md");
    for rule in shipped() {
        let heading = format!("\n### {rule}\n");
        let section = page
            .split(&heading)
            .nth(1)
            .unwrap_or_else(|| panic!("neither page has a section {rule}"));
        let section = section.split("\n##").next().unwrap();
        assert!(section.contains("*Gamed"), "{rule}: how can it be gamed?");
        let check = host(&["plugin", "check", &format!("{rule}.wasm"), "--json"]).good().json();
        for setting in check["settings"]["properties"].as_object().unwrap().keys() {
            let inherited = rule == "log" && section.contains("as [`linear`]");
            assert!(
                section.contains(&format!("`{setting}`")) || inherited,
                "{rule}: no setting {setting}"
            );
        }
    }
}

#[test]
fn every_configuration_suits_its_rule() {
    let mut folders = vec![repository().join("configs")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.extend(Some(path).filter(|path| !path.ends_with("judge"))); // those are judges
                continue;
            }
            let config: toml::Table = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let plugin = config
                .get("rule")
                .and_then(|rule| rule.get("plugin")?.as_str())
                .unwrap_or("first.wasm");
            host(&["plugin", "check", plugin, "--config", text(&path)]).good();
            seen += 1;
        }
    }
    assert!(seen >= 15, "only {seen} configurations found");
}

#[test]
fn plugin_check_reports_identity_and_conformance() {
    let mut transcript = Transcript::default();
    let check = host(&["plugin", "check", "first.wasm", "--json"]).good().json();
    assert_eq!(check["name"], "first");
    assert_eq!(check["imports"], json!(["corver:reward/diagnostics@0.1.0"]));
    assert_eq!(check["blake3"].as_str().unwrap().len(), 64);
    assert_eq!(check["bytes"], fs::metadata(check["path"].as_str().unwrap()).unwrap().len());
    assert!(check["conformance"]["scored"].as_u64().unwrap() > 20, "{check}");
    assert_eq!(check["settings"]["properties"]["tiers"]["default"]["thresholds"], json!([5, 20]));
    transcript.add(&host(&["plugin", "check", "first.wasm"]).good());
    transcript.add_failure(&host(&[
        "plugin",
        "check",
        "first.wasm",
        "--set",
        "rule.settings.tires=1",
    ]));
    transcript.add_failure(&host(&["plugin", "check", "nowhere.wasm"]));
    let set = "rule.settings.repeated=-0.5";
    transcript.add(&host(&["plugin", "check", "anti-repeat", "--set", set]).good());
    insta::assert_snapshot!(transcript);
}

#[test]
fn mistyped_plugin_gets_suggestion() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let wasm = folder.path().join("coherent.wasm");
    fs::write(&wasm, "").unwrap();
    let mistyped = folder.path().join("coherant.wasm");
    for path in [mistyped.as_path(), folder.path()] {
        transcript.add_failure(&host(&["plugin", "check", text(path)]));
    }
    transcript.add_failure(&host(&["plugin", "check", "frist"]));
    transcript.add_failure(&host(&["train", "--plugin", "first.wasm:x"]));
    transcript.add_failure(&host(&["train", "--plugin", "first.wasm:inf"]));
    insta::assert_snapshot!(transcript);
}

/// A completion whose answer holds the gold and more; the demo's index has nothing of its one fact.
fn completion(folder: &Path) -> PathBuf {
    let text =
        "<think>Mario Camerini directed Il Seduttore.</think><answer>Camerini or Loren</answer>";
    let facts = json!([
        ["Mario Camerini directed Il Seduttore.", [["Mario Camerini", "directed", "Il Seduttore"]]],
        ["Camerini or Loren", []]
    ]);
    let line = json!({"question": "Who directed it?", "answers": "Camerini", "completion": text, "triplets": facts});
    let path = folder.join("completion.jsonl");
    fs::write(&path, line.to_string()).unwrap();
    path
}

#[test]
fn several_rules_sum_with_separate_channels() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let file = completion(folder.path());
    let score = |more: &[&str]| host(&[&["score", text(&file), "--json"], more].concat());
    let both = [
        "--plugin",
        "first.wasm:0.5",
        "--plugin",
        "relcheck:2",
        "--set",
        "rule.settings.first.tiers.rewards=[-1.0, 0.0, 0.0, 0.0]",
    ];
    let verdict = score(&both).good().json()["sentences"][0]["verdict"].take();
    // 0.5 × −1.0 and 2 × −0.3, of one look-up.
    assert!((verdict["reward"].as_f64().unwrap() + 1.1).abs() < 1e-6, "{verdict}");
    assert_eq!(verdict["lookups"].as_array().unwrap().len(), 1);
    let channels = verdict["channels"].as_array().unwrap().iter();
    let named: Vec<(&str, f64)> =
        channels.map(|it| (it["rule"].as_str().unwrap(), it["weight"].as_f64().unwrap())).collect();
    assert_eq!(named, [("first", 0.5), ("relcheck", 2.0)]);

    let alone =
        score(&["--plugin", "first.wasm:0.5"]).good().json()["sentences"][0]["verdict"].take();
    assert!((alone["reward"].as_f64().unwrap() + 0.15).abs() < 1e-6, "{alone}");
    transcript.add_failure(&score(&["--plugin", "first", "--plugin", "first:2"]));
    transcript.add_failure(&score(&[
        "--plugin",
        "first",
        "--plugin",
        "min",
        "--set",
        "rule.settings.tiers.x=1",
    ]));
    transcript.add_failure(&score(&[
        "--plugin",
        "first",
        "--set",
        "rule.settings.first.tiers.x=1",
    ]));
    transcript.add_failure(&score(&["--plugin", "first:1e300"]));
    transcript.add_failure(&score(&["--plugin", "first:nan"]));
    transcript.add_failure(&score(&["--plugin", "frist"]));
    let failed = score(&["--plugin", "first", "--plugin", "brief"]).found(1).stderr;
    assert!(failed.contains("brief.wasm with its default settings, to learn its name: "));
    insta::assert_snapshot!(transcript);
}

#[test]
fn response_rules_replace_judge_and_format() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let file = completion(folder.path());
    let response = |more: &[&str]| {
        host(&[&["score", text(&file), "--json"], more].concat()).good().json()["response"].take()
    };
    let built_in = response(&[]);
    assert_eq!(
        (&built_in["judge"]["label"], &built_in["judge"]["reward"]),
        (&json!("GOOD"), &json!(2.0))
    );
    let replaced = response(&[
        "--judge",
        "token-f1.wasm",
        "--format",
        "brief",
        "--set",
        "format.settings.well_formed=0.5",
    ]);
    // One of three words: F1 1/2.
    assert_eq!(
        (&replaced["judge"]["label"], &replaced["judge"]["reward"]),
        (&json!("BAD"), &json!(0.5))
    );
    assert_eq!(
        (&replaced["format"]["label"], &replaced["format"]["reward"]),
        (&json!("OK"), &json!(0.5))
    );

    let graded = host(&["plugin", "run", "token-f1", text(&file), "--json"]).good().json();
    assert_eq!(graded["grade"]["note"], "F1 0.50");
    let settings = ["judge.plugin=token-f1.wasm", "format.plugin=brief"];
    let set = ["--set", settings[0], "--set", settings[1], "--json"];
    let run = host(&[&["plugin", "run", "first.wasm", text(&file)], &set[..]].concat()).good();
    assert_eq!(run.json()["response"]["judge"]["label"], "BAD");
    assert_eq!(host(&[&["score", text(&file)], &set[..]].concat()).good().stdout, run.stdout);
    let check = host(&["plugin", "check", "token-f1", "--json"]).good().json();
    assert_eq!(
        (&check["kind"], &check["conformance"]["highest"]),
        (&json!("response"), &json!(2.0))
    );
    assert!(
        host(&["plugin", "bench", "brief", "--json"]).good().json()["ns_per_completion"]
            .as_f64()
            .unwrap()
            > 0.0
    );

    let score = |more: &[&str]| host(&[&["score", text(&file)], more].concat());
    transcript.add_failure(&score(&["--judge", "first.wasm"]));
    transcript.add_failure(&score(&["--plugin", "brief.wasm"]));
    transcript.add_failure(&score(&["--set", "judge.settings.x=1"]));
    transcript.add_failure(&score(&["--judge", "brief", "--set", "judge.settings.limit=0"]));
    insta::assert_snapshot!(transcript);
}

/// A pipe cannot be opened again.
#[test]
fn completions_of_a_pipe_are_graded() {
    let folder = tempfile::tempdir().unwrap();
    let line = fs::read(completion(folder.path())).unwrap();
    let mut run = command(&["plugin", "run", "token-f1", "/dev/stdin", "--json"]);
    let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&line).unwrap();
    let stdout = child.wait_with_output().unwrap().stdout;
    let graded: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(graded["grade"]["note"], "F1 0.50");
}

/// KnowRL asks a chat model, NLI and passages: here the demo's world, then the recording of what it
/// said.
#[test]
fn model_querying_judge_needs_grants_and_replays() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let file = completion(folder.path());
    let answers = folder.path().join("answers.jsonl");
    let grants = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/demo-backends.toml");
    let run =
        |more: &[&str]| host(&[&["plugin", "run", "knowrl", text(&file), "--json"], more].concat());
    transcript.add_failure(&run(&[]));
    let graded = |more: &[&str]| run(more).good().json()["grade"].take();
    let recorded = graded(&["--config", "demo", "--config", grants, "--record", text(&answers)]);
    assert!(recorded["exchanges"].as_array().is_some_and(|asked| asked.len() >= 2), "{recorded}");
    assert_eq!(graded(&["--replay", text(&answers)]), recorded);

    let refused = |more: &[&str]| host(&[&["train", "--steps", "1"], more].concat());
    transcript.add_failure(&refused(&["--plugin", "fspo"]));
    transcript.add_failure(&refused(&["--judge", "knowrl"]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn recording_replaces_index_on_replay() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, lines: &[Value]| {
        let path = folder.path().join(name);
        fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        path
    };
    let france =
        json!({"sentence": "Paris is in France.", "triplets": [["Paris", "is in", "France"]]});
    let peru = json!({"sentence": "Paris is in Peru.", "triplets": [["Paris", "is in", "Peru"]]});
    let facts =
        file("facts.jsonl", &[france.clone(), json!({"sentence": "Well.", "triplets": []})]);
    let more = file("more.jsonl", &[france, peru]);
    let completions = file(
        "completions.jsonl",
        &[
            json!({"answers": "France", "completion": "Paris is in France.", "triplets": [["Paris is in France.", [["Paris", "is in", "France"]]]]}),
        ],
    );
    let counts = folder.path().join("counts.jsonl");
    let index = folder.path().join("index");
    small_index(&index);
    let set = format!("corpus.index={}", index.display());

    let run = |more: &[&str]| host(&[&["plugin", "run", "first.wasm"], more].concat());
    let rewards = |finished: &Finished| {
        let lines =
            finished.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|line| {
                line["verdict"]["reward"].as_f64().map(|reward| (reward * 1e6).round() / 1e6)
            })
            .collect::<Vec<_>>()
    };
    let recorded = run(&[text(&facts), "--set", &set, "--record", text(&counts), "--json"]).good();
    assert_eq!(rewards(&recorded), [Some(-0.1), None]);
    transcript.add_failure(&run(&[text(&facts), "--set", &set, "--record", text(&counts)]));

    // From here on there is no index. A threshold may change all the same: the recording holds full
    // counts.
    fs::remove_dir_all(&index).unwrap();
    let replay = ["--set", &set, "--replay", text(&counts)];
    let replayed = run(&[&[text(&facts), "--json"], &replay[..]].concat()).good();
    assert_eq!(replayed.stdout, recorded.stdout);
    let steeper = ["--set", "rule.settings.tiers={thresholds=[2], rewards=[-1, 0, 1]}", "--json"];
    assert_eq!(
        rewards(&run(&[&[text(&facts)], &replay[..], &steeper[..]].concat()).good()),
        [Some(1.0), None]
    );
    transcript.add_failure(&run(&[&[text(&more)], &replay[..]].concat()));
    transcript.add_usage_error(&run(&[&[text(&facts), "--record", "x"], &replay[..]].concat()));
    let shown = run(&[&[text(&completions)], &replay[..]].concat()).good();
    transcript.add(&shown);
    let scored = host(&[&["score", text(&completions)], &replay[..]].concat()).good().stdout;
    assert_eq!(scored, shown.stdout);
    insta::assert_snapshot!(transcript);
}

#[test]
fn invalid_sentence_lines_are_named() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("facts.jsonl");
    let run = |lines: &str| {
        fs::write(&file, lines).unwrap();
        host(&["plugin", "run", "first.wasm", text(&file)])
    };
    transcript.add_failure(&run(""));
    transcript.add_failure(&run("{\"sentence\": \"A.\", \"triplets\": []}\n{\"sentence\": 3}\n"));
    transcript.add_failure(&run("{\"sentence\": \"A.\", \"triplet\": []}\n"));
    transcript.add_failure(&host(&["plugin", "run", "first.wasm", "nowhere.jsonl"]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn sentences_without_triplets_go_to_the_extractor() {
    let folder = tempfile::tempdir().unwrap();
    host(&["demo", "world", text(&folder.path().join("world"))]).good();
    let article = &lines(&folder.path().join("world/articles.jsonl"))[0];
    let sentences: Vec<&str> = article["text"].as_str().unwrap().split(". ").collect();
    let file = folder.path().join("facts.jsonl");
    let line = |sentence: &&str| {
        format!("{}\n", json!({"sentence": format!("{}.", sentence.trim_end_matches('.'))}))
    };
    fs::write(&file, sentences.iter().map(line).collect::<String>()).unwrap();
    let run = host(&["plugin", "run", "first.wasm", text(&file), "--json"]).good();
    let traces: Vec<Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(traces.len(), sentences.len());
    let counted =
        traces.iter().filter(|trace| trace["verdict"]["count"].as_u64() > Some(0)).count();
    assert!(counted > 0, "the article itself attests what it says: {traces:?}");
}

#[test]
fn plugin_bench_reports_all_figures() {
    let bench = host(&["plugin", "bench", "first.wasm", "--json"]).good().json();
    for name in
        ["ns_per_sentence", "ms_per_batch", "ms_instance", "ms_load_cached", "ms_load_compiled"]
    {
        assert!(bench[name].as_f64().unwrap() > 0.0, "{name}");
    }
    assert_eq!(bench["sentences"], 1_152);
    assert!(
        bench["other_work"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)),
        "{bench}"
    );
}

/// The names of the files of a new project of this kind in this language, whose rule holds all
/// these texts; and how a project fails that names an SDK.
fn project_in(
    language: &str,
    kind: &str,
    rule: &str,
    holds: &[&str],
) -> (BTreeSet<String>, Finished) {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("well-attested");
    let new = |project: &Path, more: &[&str]| {
        host(
            &[&["plugin", "new", text(project), "--lang", language, "--kind", kind], more].concat(),
        )
    };
    new(&project, &[]).good();
    let names = fs::read_dir(&project)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let rule = fs::read_to_string(project.join(rule)).unwrap();
    assert!(holds.iter().all(|part| rule.contains(part)) && !rule.contains("{{"), "{rule}");
    let other = folder.path().join("other");
    let refused = new(&other, &["--sdk", text(&project)]);
    assert!(!other.exists());
    (names, refused)
}

#[test]
fn new_plugin_project_supports_python_and_javascript() {
    let mut transcript = Transcript::default();
    for (kind, module) in [("sentence", "rule"), ("response", "response")] {
        let rule = format!("{module}.py");
        let (files, refused) =
            project_in("python", kind, &rule, &["class WellAttested:", "name=\"well-attested\""]);
        transcript.add_failure(&refused);
        assert_eq!(files, [".gitignore".to_owned(), format!("test_{rule}"), rule].into());
        let rule = format!("{module}.js");
        let (files, refused) =
            project_in("js", kind, &rule, &["/** WellAttested:", "name: 'well-attested'"]);
        transcript.add_failure(&refused);
        let tests = format!("{module}.test.js");
        assert_eq!(files, [".gitignore".to_owned(), "package.json".to_owned(), tests, rule].into());
    }
    insta::assert_snapshot!(transcript);
}

/// Starts a project and follows what is said to come next, up to building.
fn build_new_project(project: &Path, language: &str, kind: &str) {
    let output =
        host(&["plugin", "new", text(project), "--lang", language, "--kind", kind]).good().stdout;
    let tests: Vec<&str> =
        output.lines().filter(|line| line.contains("unittest") || line.contains("npm")).collect();
    assert!(!tests.is_empty(), "{output}");
    for command in tests {
        let run = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
        assert!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stdout));
    }
    host(&["plugin", "build", text(project)]).good();
}

/// Follows what `plugin new` says comes next, up to training.
fn new_project_is_good(language: &str, [what, complaint, place]: [&str; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let judge = folder.path().join("verbatim");
    build_new_project(&judge, language, "response");
    let check =
        host(&["plugin", "check", text(&judge.join("verbatim.wasm")), "--json"]).good().json();
    assert_eq!(
        (&check["kind"], &check["conformance"]["highest"]),
        (&json!("response"), &json!(2.0)),
        "{check}"
    );

    let project = folder.path().join("well-attested");
    build_new_project(&project, language, "sentence");
    let check = host(&["plugin", "check", text(&project.join("well-attested.wasm")), "--json"])
        .good()
        .json();
    assert_eq!(check["imports"], json!(["corver:reward/diagnostics@0.1.0"]));
    assert!(check["conformance"]["scored"].as_u64().unwrap() > 20, "{check}");
    assert_eq!(
        check["settings"]["properties"]["attested"]["description"],
        "Reward of an attested fact."
    );

    // Its errors are reported in its own words.
    let rule = fs::read_dir(&project).unwrap().map(|entry| entry.unwrap().path());
    let rule =
        rule.into_iter().find(|path| path.file_stem().is_some_and(|stem| stem == "rule")).unwrap();
    fs::write(&rule, fs::read_to_string(&rule).unwrap().replacen(what, complaint, 1)).unwrap();
    host(&["plugin", "build", text(&project)]).good();
    let failed = host(&["plugin", "check", text(&project.join("well-attested.wasm"))]);
    assert!(
        failed.stderr.contains("my own words") && failed.stderr.contains(place),
        "{}",
        failed.stderr
    );
}

#[test]
#[ignore = "needs componentize-py: `make test-languages`"]
fn new_project_in_python_builds_and_conforms() {
    let complaint = "raise ValueError(\"my own words\")\n        valid = ";
    new_project_is_good("python", ["valid = ", complaint, "rule.py:17 in score"]);
}

#[test]
#[ignore = "needs componentize-js: `make test-languages`"]
fn new_project_in_javascript_builds_and_conforms() {
    let complaint = "throw new Error('my own words');\n    const first = ";
    new_project_is_good("js", ["const first = ", complaint, "score@rule.js:16"]);
}

#[test]
fn invalid_plugin_projects_are_rejected() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    transcript.add_failure(&host(&["plugin", "new", &path("My Rule")]));
    for (name, rule_type) in [("string", "String"), ("nli-pair", "NliPair"), ("self", "Self")] {
        let failed = host(&["plugin", "new", &path(name)]).found(1).stderr;
        assert!(failed.contains(&format!("its type would be {rule_type}")), "{failed}");
        assert!(!folder.path().join(name).exists());
    }
    host(&["plugin", "new", &path("search"), "--lang", "js"]).good();
    transcript.add(&host(&["plugin", "new", &path("taken")]).good());
    transcript.add_failure(&host(&["plugin", "new", &path("taken")]));
    transcript.add_failure(&host(&["plugin", "new", &path("other"), "--sdk", &path("nowhere")]));
    assert!(!folder.path().join("other").exists(), "nothing is left behind");
    transcript.add_failure(&host(&["plugin", "build", &path("nowhere")]));
    fs::write(folder.path().join("taken/src/lib.rs"), "compile_error!(\"on purpose\");").unwrap();
    let failed = host(&["plugin", "build", &path("taken")]);
    assert!(
        failed.stderr.contains("on purpose") && failed.stderr.contains("does not compile"),
        "{}",
        failed.stderr
    );
    assert!(!folder.path().join("taken/taken.wasm").exists());
    insta::assert_snapshot!(transcript);
}

#[test]
fn settings_of_renamed_file_have_the_name_of_its_rule() {
    let folder = tempfile::tempdir().unwrap();
    let [renamed, config] = ["mine.wasm", "several.toml"].map(|name| folder.path().join(name));
    fs::copy(repository().join("plugins/dist/first.wasm"), &renamed).unwrap();
    let settings = "rule.plugin = [\"first.wasm\", \"min.wasm\"]\n\
                    rule.settings.first.tiers.rewards = [-1.0, 0.0, 0.0, 0.0]\n";
    fs::write(&config, settings).unwrap();
    let check = host(&["plugin", "check", text(&renamed), "--config", text(&config)]).good();
    assert!(check.stdout.contains("[-1.0,0.0,0.0,0.0]"), "{check}");
}
