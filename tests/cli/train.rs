//! Training: what a run leaves, that it resumes, that rules can be exchanged.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use corver_eval::{FIGURES, FigureUnit};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

use crate::host::{
    EXTRACTOR, Server, command, host, host_with_files_of, kill_after, kill_when, lines, run_dir,
    short_run, short_run_args, signal_when,
};
use crate::transcript::{Transcript, without_figures};

#[test]
fn demo_training_writes_finished_run() {
    let mut transcript = Transcript::default();
    let out = run_dir("finished");
    let finished = short_run(&out, 2, &[]).good();
    let summary: Map<String, Value> = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(
        (&summary["rule"], &summary["judge"], &summary["seed"]),
        (&json!("first"), &json!("string-match"), &json!(42))
    );
    assert_eq!(summary["lambda_corver"], 1.0);
    assert_eq!(summary["steps"], 2);
    for when in ["before", "after"] {
        for figure in FIGURES {
            let value = summary[when][figure.name].as_f64().unwrap();
            let is_share = figure.unit == FigureUnit::Percent;
            assert!(value >= 0.0 && (!is_share || value <= 1.0), "{} = {value}", figure.name);
        }
    }
    for name in ["seconds_total", "seconds_per_step", "reward_seconds_per_step"] {
        assert!(summary[name].as_f64().unwrap() > 0.0, "{name}");
    }
    assert_eq!(
        serde_json::from_str::<Value>(&fs::read_to_string(out.join("summary.json")).unwrap())
            .unwrap(),
        json!(summary)
    );

    let metrics = lines(&out.join("metrics.jsonl"));
    assert_eq!(metrics.len(), 2);
    for name in [
        "loss",
        "reward",
        "reward_std",
        "grad_norm",
        "kl",
        "completions/mean_length",
        "rewards/first/mean",
    ] {
        assert!(metrics[0][name].is_number(), "no {name} in {}", metrics[0]);
    }
    assert_eq!(lines(&out.join("traces.jsonl")).len(), 2 * 2 * 16);
    transcript.add_text("training", &without_figures(&finished.stderr));
    let manifest: Map<String, Value> =
        serde_json::from_str(&fs::read_to_string(out.join("manifest.json")).unwrap()).unwrap();
    for what in ["plugin", "index", "extractor", "model"] {
        assert_eq!(manifest[what].as_str().unwrap().len(), 64, "{what}");
    }

    // The resolved configuration stands for itself.
    let config = out.join("config.toml");
    let again = host(&["train", "--config", config.to_str().unwrap(), "--dry-run"]).good();
    let (resolved, plan) = again.stdout.split_once("# memory: ").expect("the plan of the memory");
    assert_eq!(resolved.trim(), fs::read_to_string(&config).unwrap().trim());
    transcript.add_text("dry run", &without_figures(plan));

    // A finished run is neither overwritten nor resumed.
    transcript.add_failure(&short_run(&out, 2, &[]));
    transcript.add_failure(&short_run(&out, 2, &["--resume"]));
    // It can go on, and what it had logged stays.
    let extended = short_run(&out, 4, &["--resume"]).good().json();
    assert_eq!(extended["steps"], 4);
    assert_eq!(lines(&out.join("metrics.jsonl"))[..2], metrics);
    assert_eq!(lines(&out.join("metrics.jsonl")).len(), 4);
    transcript.add_failure(&short_run(&out, 3, &["--resume"]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn run_of_a_curriculum_has_a_fixed_length() {
    let out = run_dir("curriculum");
    let phase = r#"[{ file = "demo", take = 8 }]"#;
    let phases = format!("question.train=[{phase}, {phase}]");
    short_run(&out, 2, &["--config", "demo", "--set", &phases]).good();
    let longer = short_run(&out, 4, &["--resume"]);
    assert_eq!(longer.code, Some(1), "{longer}");
    assert!(longer.stderr.contains("began with other values of run.steps"), "{longer}");
    let finished = short_run(&out, 2, &["--resume"]);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(finished.stderr.contains("has finished its 2 steps"), "{finished}");
    assert!(!finished.stderr.contains("extends it"), "{finished}");
}

#[test]
fn run_plan_respects_memory_limit() {
    let mut transcript = Transcript::default();
    let plan = |device: &str, gib: f64| {
        host(&[
            "train",
            "--dry-run",
            "--json",
            "--device",
            device,
            "--set",
            &format!("run.memory_gib={gib}"),
        ])
    };
    let (scarce, ample) = (plan("cpu", 0.1).good().json(), plan("cpu", 50.0).good().json());
    assert!(scarce["settings"]["policy"]["max_rows"].as_u64().unwrap() < 512, "{scarce}");
    assert!(
        scarce["settings"]["update"]["micro_batch_tokens"].as_u64().unwrap() < 16_384,
        "{scarce}"
    );
    assert_eq!(ample["settings"]["policy"]["max_rows"], 512);
    assert_eq!(ample["memory"]["weights"], scarce["memory"]["weights"]);
    transcript.add_failure(&plan("cpu", 0.02));
    // For a GPU that is elsewhere, in the precision that it would have there.
    let elsewhere = plan("cuda:0", 80.0).good().json();
    assert_eq!(
        2 * elsewhere["memory"]["weights"].as_u64().unwrap(),
        ample["memory"]["weights"].as_u64().unwrap()
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn swapping_rule_changes_only_rewards() {
    let verdicts = |rule: &str| {
        let out = run_dir(rule);
        short_run(&out, 1, &["--plugin", rule]).good();
        let traces = lines(&out.join("traces.jsonl"));
        let completions: Vec<Value> =
            traces.iter().map(|line| line["trace"]["completion"].clone()).collect();
        let verdicts: Vec<Value> = traces
            .iter()
            .flat_map(|line| line["trace"]["sentences"].as_array().unwrap())
            .map(|sentence| sentence["verdict"].clone())
            .collect();
        (completions, verdicts)
    };
    let (first, min, relcheck) =
        (verdicts("first.wasm"), verdicts("min.wasm"), verdicts("relcheck.wasm"));
    assert_eq!(
        first.0, min.0,
        "the policy and the seed are the same, so the first step samples the same completions"
    );
    assert_eq!(first.0, relcheck.0);
    let rewards = |verdicts: &[Value]| {
        verdicts.iter().map(|verdict| verdict["reward"].clone()).collect::<Vec<_>>()
    };
    assert_ne!(rewards(&first.1), rewards(&min.1), "Min reads every triplet");
    let lookups = |verdicts: &[Value]| {
        verdicts
            .iter()
            .filter_map(|verdict| verdict["lookups"].as_array())
            .map(Vec::len)
            .sum::<usize>()
    };
    assert!(
        lookups(&relcheck.1) > lookups(&first.1),
        "RelCheck looks twice where the pair is frequent"
    );
}

/// The metrics of a run, but for how long they took.
fn without_times(run: &Path) -> Vec<Value> {
    let mut metrics = lines(&run.join("metrics.jsonl"));
    for line in &mut metrics {
        line.as_object_mut()
            .unwrap()
            .retain(|name, _| !name.starts_with("seconds") && name != "step_time");
    }
    metrics
}

/// Returns the arguments that resume the run in a folder; none if there is no run yet.
pub fn resume_args(out: &Path) -> &'static [&'static str] {
    if out.join("manifest.json").exists() { &["--resume"] } else { &[] }
}

/// Asserts that two runs of `steps` steps have the same results, bit for bit, except times.
pub fn assert_same_result(run: &Path, straight: &Path, steps: usize) {
    assert_eq!(without_times(run), without_times(straight));
    let summaries = [run, straight].map(|folder| {
        let text = fs::read_to_string(folder.join("summary.json")).unwrap();
        let mut summary: Map<String, Value> = serde_json::from_str(&text).unwrap();
        summary.retain(|name, _| !name.contains("second"));
        summary
    });
    assert_eq!(summaries[0], summaries[1]);
    let checkpoint = format!("checkpoints/step-{steps:06}");
    for file in [
        &format!("{checkpoint}/adapter_model.safetensors"),
        &format!("{checkpoint}/optimizer.safetensors"),
        "answers_before.jsonl",
        "answers_after.jsonl",
        "traces.jsonl",
    ] {
        let is_equal = fs::read(run.join(file)).unwrap() == fs::read(straight.join(file)).unwrap();
        assert!(is_equal, "{file} differs");
    }
}

/// Kills a run in the middle, resumes it, and compares it with one that nobody killed.
fn resumes_to_the_same_end(name: &str, rules: &[&str]) -> PathBuf {
    let straight = run_dir(name);
    short_run(&straight, 16, rules).good();

    let killed = run_dir(&format!("{name}-killed"));
    kill_when(&short_run_args(&killed, "16", rules), || {
        lines(&killed.join("metrics.jsonl")).len() >= 3
    });
    assert!(!killed.join("summary.json").exists(), "a run that was killed does not look finished");
    short_run(&killed, 16, &["--resume"]).good();

    assert_eq!(without_times(&killed), without_times(&straight));
    killed
}

#[test]
fn recorded_run_replays_without_index() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("answers.jsonl");
    let record = ["--record", recording.to_str().unwrap()];
    let run = run_dir("recorded");
    kill_when(&short_run_args(&run, "8", &record), || lines(&run.join("metrics.jsonl")).len() >= 3);
    let other = run_dir("recorded-again");
    transcript.add_failure(&short_run(&other, 8, &record));
    assert!(!other.exists(), "said before the run has a folder");
    host(&[&["train", "--out", run.to_str().unwrap(), "--resume"], &record[..]].concat()).good();

    let replay = [
        "--replay",
        recording.to_str().unwrap(),
        "--config",
        "demo",
        "--set",
        "corpus.index=/nowhere",
    ];
    let replayed = run_dir("replayed");
    short_run(&replayed, 8, &replay).good();
    assert_eq!(without_times(&replayed), without_times(&run));
    // It stays a replayed run: there is no index to go on with.
    let resume = ["train", "--out", replayed.to_str().unwrap(), "--resume", "--steps", "9"];
    transcript.add_failure(&host(&resume));
    let unanswered = host(&[&resume[..], &replay[..2]].concat());
    transcript.add_failure(&unanswered.masked("the query \".*?\"", "the query [QUERY]"));
    transcript.add_usage_error(&short_run(
        &run_dir("both"),
        1,
        &[&record[..], &replay[..]].concat(),
    ));
    insta::assert_snapshot!(transcript);
}

#[test]
fn resume_after_kill_matches_uninterrupted_run() {
    let mut transcript = Transcript::default();
    let killed = resumes_to_the_same_end("straight", &[]);
    transcript.add_failure(&short_run(&killed, 16, &["--resume", "--plugin", "min.wasm"]));
    insta::assert_snapshot!(transcript);
}

/// `make kills` does it 50 times; CORVER_KILLS is how often. A failed test prints its seed, which
/// CORVER_SEED sets.
#[test]
fn run_killed_at_random_ends_bit_identical() {
    let kills: usize = std::env::var("CORVER_KILLS").map_or(3, |kills| kills.parse().unwrap());
    let seed: u64 = std::env::var("CORVER_SEED")
        .map_or_else(|_| RandomState::new().hash_one(()), |seed| seed.parse().unwrap());
    eprintln!("CORVER_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let steps = if kills > 3 { 30 } else { 8 };
    let straight = run_dir("never-killed");
    let start = Instant::now();
    short_run(&straight, steps, &[]).good();
    let whole = start.elapsed();
    let mut out = run_dir("killed-at-random");
    let (mut killed, mut runs) = (0, 0);
    while killed < kills {
        // Anywhere between the start of the process and half of the run.
        killed += usize::from(kill_after(
            whole.mul_f64(random.random_range(0.0..0.5)),
            &short_run_args(&out, &steps.to_string(), resume_args(&out)),
        ));
        if out.join("summary.json").exists() {
            assert_same_result(&out, &straight, steps);
            out = run_dir("killed-at-random");
            runs += 1;
        }
    }
    if !out.join("summary.json").exists() {
        short_run(&out, steps, resume_args(&out)).good();
    }
    assert_same_result(&out, &straight, steps);
    eprintln!(
        "| kill -9 at {kills} random moments of {} runs | every run ended bit for bit as one that nobody killed |",
        runs + 1
    );
}

#[test]
fn resume_after_interrupt_matches_uninterrupted_run() {
    let mut transcript = Transcript::default();
    let straight = run_dir("not-interrupted");
    short_run(&straight, 6, &[]).good();
    for (name, signal, lines_before) in [("in-evaluation", "-INT", 0), ("in-training", "-TERM", 2)]
    {
        let out = run_dir(name);
        let begun = || {
            out.join("config.toml").exists()
                && lines(&out.join("metrics.jsonl")).len() >= lines_before
        };
        let stopped = signal_when(signal, &short_run_args(&out, "6", &[]), begun).good();
        let mut end = String::new();
        for line in stopped.stderr.lines() {
            if line.starts_with("interrupted") || line.starts_with("stopped") {
                end += &format!("{line}\n");
            }
        }
        transcript.add_text(name, &without_figures(&end));
        assert!(stopped.stdout.is_empty() && !out.join("summary.json").exists());
        short_run(&out, 6, &["--resume"]).good();
        assert_eq!(without_times(&out), without_times(&straight), "{name}");
    }
    insta::assert_snapshot!(transcript);
}

#[test]
fn interrupted_run_names_its_recording() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("answers.jsonl");
    let recording = recording.to_str().unwrap();
    let out = run_dir("recorded-in-part");
    let args = short_run_args(&out, "6", &["--record", recording]);
    let stopped = signal_when("-INT", &args, || out.join("config.toml").exists()).good();
    let hint = format!("train --out {} --resume --record {recording}` resumes it", out.display());
    assert!(stopped.stderr.contains(&hint), "{stopped}");
}

/// Ctrl-C also ends the `tee` of `corver-host train … 2>&1 | tee log`.
#[test]
fn interrupted_run_without_reader_of_messages_writes_checkpoint() {
    let out = run_dir("no-reader");
    let args = short_run_args(&out, "60", &["--set", "checkpoint.every=60"]);
    let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while lines(&out.join("metrics.jsonl")).len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "the run ended too early");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(child.stderr.take());
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
    let steps = lines(&out.join("metrics.jsonl")).len();
    assert!(out.join(format!("checkpoints/step-{steps:06}")).is_dir(), "{steps} steps");
}

/// A limit on the size of files gives the same error to the same calls as a disk that takes no
/// more.
#[test]
fn resume_after_full_disk_matches_uninterrupted_run() {
    let mut transcript = Transcript::default();
    let once = ["--set", "checkpoint.every=6"]; // so that the traces come to their limit first
    let resumed = ["--set", "checkpoint.every=6", "--resume"];
    let straight = run_dir("room");
    short_run(&straight, 6, &once).good();
    let full = run_dir("full");
    for (kib, file, more) in
        [(150, "traces.jsonl", once.as_slice()), (600, "optimizer.safetensors", &resumed)]
    {
        let start = Instant::now();
        transcript.add_failure(&host_with_files_of(kib, &short_run_args(&full, "6", more)));
        let seconds = start.elapsed().as_secs_f64();
        eprintln!(
            "| disk full while {file} is written | named after {seconds:.1} s; the run resumes to the same end |"
        );
    }
    short_run(&full, 6, &resumed).good();
    assert_eq!(without_times(&full), without_times(&straight));
    insta::assert_snapshot!(transcript);
}

#[test]
fn damaged_checkpoint_is_named_with_fallback() {
    let mut transcript = Transcript::default();
    let out = run_dir("damaged");
    let checkpoint = |step: usize| out.join(format!("checkpoints/step-{step:06}"));
    kill_when(&short_run_args(&out, "60", &[]), || checkpoint(4).exists());
    let newest = (2..=60).rev().map(checkpoint).find(|folder| folder.exists()).unwrap();
    let adapter = newest.join("adapter_model.safetensors");
    let mut bytes = fs::read(&adapter).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&adapter, bytes).unwrap();
    let resumed = host(&["train", "--resume", "--out", out.to_str().unwrap(), "--json"]);
    transcript.add_failure(&resumed.masked(r"step-\d{6}", "[STEP]"));
    let adapter = newest.to_str().unwrap();
    let evaluated = host(&["eval", "--config", "demo", "--adapter", adapter, "--limit", "1"]);
    transcript.add_failure(&evaluated.masked(r"step-\d{6}", "[STEP]"));
    insta::assert_snapshot!(transcript);
}

#[test]
fn several_rules_run_resumes_identically_after_kill() {
    let rules =
        ["--plugin", "first.wasm:0.7", "--plugin", "min.wasm:0.3", "--judge", "token-f1.wasm"];
    let killed = resumes_to_the_same_end("several", &rules);
    for channel in ["first", "min", "judge"] {
        let named = format!("rewards/{channel}/mean");
        assert!(
            lines(&killed.join("metrics.jsonl")).iter().all(|line| line[&named].is_number()),
            "{named}"
        );
    }
}

#[test]
fn run_resumes_after_count_server_loss() {
    let mut transcript = Transcript::default();
    let mut server = Server::start(&["--name", "demo-world"], "127.0.0.1:0");
    let count =
        host(&["index", "count", "Philadelphia AND Flyers", "--index", &server.url, "--json"])
            .good()
            .json();
    assert_eq!(count["count"], 0);
    let window = format!("corpus.max_diff_tokens={}", corver_demo::WINDOW);
    let local = run_dir("counted-here");
    short_run(&local, 4, &[]).good();

    let out = run_dir("counted-elsewhere");
    let source = format!("corpus.index={}", server.url);
    let remote = [
        "--config",
        "demo",
        "--extractor",
        EXTRACTOR,
        "--set",
        &source,
        "--set",
        &window,
        "--set",
        "corpus.remote.cache=false",
        "--set",
        "corpus.remote.retry_timeout_s=1",
    ];
    // The server goes away after the second step: the run stops with an error and its checkpoint.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| short_run(&out, 4, &remote));
        while lines(&out.join("metrics.jsonl")).len() < 2 && !run.is_finished() {
            std::thread::sleep(Duration::from_millis(2));
        }
        server.stop();
        transcript.add_failure(&run.join().unwrap().without_figures());
    });
    // It comes back, and the run goes on to where it would have got with an index of its own.
    let _server = Server::start(&["--name", "demo-world"], &server.address);
    short_run(&out, 4, &[&remote[..], &["--resume"]].concat()).good();
    let rewards = |run: &Path| -> Vec<Value> {
        lines(&run.join("metrics.jsonl")).iter().map(|line| line["reward"].clone()).collect()
    };
    assert_eq!(rewards(&out), rewards(&local));
    insta::assert_snapshot!(transcript);
}
