//! Rollouts from a real vLLM server: `make test-engine`. They are compared with those of the policy
//! itself, token by token, and a run trains on them.

mod vllm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corver_core::{
    Advantages, Device, LearnSettings, Learner, Mismatch, Question, Rollout, Sampler, Sampling,
    Signal, TrainingBatch, UpdateReport,
};
use corver_engine::{AdapterFolder, Engine, EngineApi, EngineSettings, ModelShape};
use corver_learn::{LoraSettings, LossSettings, Model, Policy, Precision};
use corver_pretrained::{ChatTokenizer, Dialogue};
use corver_settings::AdapterPrecision;
use serde_json::{Value, json};

use vllm::{MODEL, Vllm, free_port};

/// Nats that the two may differ by, in float32.
const NATS: f64 = 1e-4;

fn tokenizer(folder: &Path) -> ChatTokenizer {
    ChatTokenizer::load(folder).unwrap()
}

fn policy(folder: &Path) -> Policy {
    let settings = LearnSettings {
        lora: LoraSettings { r: 16, alpha: 32.0 },
        loss: LossSettings { beta: 0.0, ..LossSettings::default() },
        learning_rate: 1e-3,
        warmup_ratio: 0.0,
        ..LearnSettings::default()
    };
    let model =
        Model::load(folder, Precision::F32, corver_learn::find_device(Device::Cpu).unwrap())
            .unwrap();
    Policy::new(model, tokenizer(folder), settings, 3).unwrap()
}

fn engine(server: &Vllm, folder: &Path, adapters: &Path) -> Engine {
    let settings = EngineSettings {
        api: EngineApi::Vllm,
        url: server.url(),
        model: MODEL.into(),
        token: None,
        concurrency: 16,
        timeout: Duration::from_secs(300),
        patience: Duration::from_secs(5),
    };
    let shape = ModelShape { vocab_size: 1022, max_positions: 512 };
    let mut engine = Engine::open(&settings, Dialogue::new(tokenizer(folder)), shape).unwrap();
    engine
        .claim_adapter_folder(AdapterFolder {
            local: adapters.to_owned(),
            on_server: adapters.to_owned(),
        })
        .unwrap();
    engine
}

fn largest_gap(one: &[Rollout], other: &[Rollout]) -> f64 {
    let log_probs = |rollouts: &[Rollout]| {
        rollouts.iter().flat_map(|rollout| rollout.log_probs.clone()).collect::<Vec<_>>()
    };
    let gaps =
        log_probs(one).into_iter().zip(log_probs(other)).map(|(a, b)| f64::from((a - b).abs()));
    gaps.fold(0.0, f64::max)
}

/// One update on these rollouts, which rewards every other token.
fn update(policy: &mut Policy, batch: &TrainingBatch<'_>) -> UpdateReport {
    let values = |rollout: &Rollout| {
        (0..rollout.tokens.len()).map(|n| if n % 2 == 0 { 1.0 } else { -1.0 }).collect()
    };
    let values = batch.rollouts.iter().map(values).collect();
    let advantages = Advantages { values, ..Advantages::default() };
    policy.update(batch, &Signal::Advantages(advantages)).unwrap()
}

fn publish(engine: &mut Engine, policy: &Policy) -> String {
    engine.publish(|folder| Ok(policy.save_adapter(folder, AdapterPrecision::F32)?)).unwrap();
    engine.adapter().unwrap().to_owned()
}

#[test]
#[ignore = "needs vLLM: make test-engine"]
fn engine_samples_match_policy() {
    let folder = tempfile::tempdir().unwrap();
    let demo = corver_demo::materialise(folder.path()).unwrap().policy;
    let server = Vllm::start(&demo, free_port(), folder.path());
    let adapters = folder.path().join("adapters");
    let (mut policy, mut engine) = (policy(&demo), engine(&server, &demo, &adapters));
    let questions: Vec<Question> =
        corver_demo::demo_questions().1.into_iter().step_by(20).collect();

    let greedy = Sampling::greedy(64);
    let (ours, theirs) = (
        policy.sample(&questions, &greedy, 0, &mut |_, _| ()).unwrap(),
        engine.sample(&questions, &greedy, 0, &mut |_, _| ()).unwrap(),
    );
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(
            (&ours.tokens, &ours.text, ours.finished),
            (&theirs.tokens, &theirs.text, theirs.finished)
        );
        assert_eq!(ours.token_spans, theirs.token_spans);
    }
    let gap = largest_gap(&ours, &theirs);
    eprintln!("greedy: {} answers equal, log-probabilities within {gap:.1e} nats", ours.len());
    assert!(gap < NATS, "{gap}");

    let sampling = Sampling {
        num_generations: 8,
        max_completion_length: 64,
        temperature: 0.7,
        ..Sampling::default()
    };
    let mut names = Vec::new();
    for round in 0..3 {
        names.push(publish(&mut engine, &policy));
        let rollouts = engine.sample(&questions, &sampling, round, &mut |_, _| ()).unwrap();
        let distinct: std::collections::BTreeSet<&[u32]> =
            rollouts.iter().map(|rollout| rollout.tokens.as_slice()).collect();
        assert!(distinct.len() > rollouts.len() / 2, "completions of a question differ");
        let batch =
            TrainingBatch { questions: &questions, sampling: &sampling, rollouts: &rollouts };
        let Mismatch { difference_mean, difference_max, ratio_max, .. } =
            update(&mut policy, &batch).mismatch.unwrap();
        eprintln!(
            "temperature 0.7, after {round} updates: {difference_mean:.1e} nats a token, {difference_max:.1e} at most, ratio \
             {ratio_max:.5} at most"
        );
        assert!(difference_max < NATS, "the server has these very weights: {difference_max}");
    }
    names.push(publish(&mut engine, &policy));
    let moved = engine.sample(&questions, &greedy, 0, &mut |_, _| ()).unwrap();
    assert!(largest_gap(&moved, &theirs) > 0.01, "the adapter changes something");

    let models = server.request("GET", "/v1/models", "").1;
    for (n, name) in names.iter().enumerate() {
        let body = json!({"model": name, "prompt": [1], "max_tokens": 1}).to_string();
        let (status, _) = server.request("POST", "/v1/completions", &body);
        let is_last = n + 1 == names.len();
        assert_eq!(
            (status, models.contains(name)),
            if is_last { (200, true) } else { (404, false) },
            "{name}"
        );
        assert_eq!(adapters.join(name).exists(), is_last);
    }
}

fn host(arguments: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corver-host"));
    command
        .args(arguments)
        .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command.env_remove("LD_LIBRARY_PATH").env_remove("RUST_LOG").stderr(Stdio::piped());
    command
}

fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn wait_for_steps(run: &Path, steps: usize, process: &mut Child) {
    let start = Instant::now();
    while metrics(run).len() < steps {
        let has_ended = process.try_wait().unwrap().is_some();
        assert!(
            !has_ended && start.elapsed() < Duration::from_secs(900),
            "no step {steps} in {}",
            run.display()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "needs vLLM: make test-engine"]
fn engine_run_resumes_after_server_loss() {
    const STEPS: usize = 12;
    let folder = tempfile::tempdir().unwrap();
    let demo = corver_demo::materialise(folder.path()).unwrap().policy;
    let run: PathBuf = folder.path().join("run");
    let port = free_port();
    let server = Vllm::start(&demo, port, folder.path());
    let out = run.display().to_string();
    let mut arguments: Vec<String> = vec!["train".into(), "--out".into(), out.clone()];
    for set in [
        "engine.kind=vllm".to_owned(),
        format!("engine.url={}", server.url()),
        format!("engine.model={MODEL}"),
        "engine.retry_timeout_s=2".into(),
        format!("run.steps={STEPS}"),
        "question.eval_limit=32".into(),
    ] {
        arguments.extend(["--set".into(), set]);
    }
    let mut process = host(&arguments).spawn().unwrap();
    wait_for_steps(&run, 3, &mut process);
    server.kill();
    let ended = process.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("the engine http://127.0.0.1:{port}")) && said.contains("--resume"),
        "{said}"
    );
    let done = metrics(&run).len();
    assert!(run.join(format!("checkpoints/step-{done:06}")).exists(), "no step is lost: {done}");

    let moved = free_port(); // it may also be elsewhere
    let server = Vllm::start(&demo, moved, folder.path());
    let set = format!("engine.url={}", server.url());
    let resumed = ["train", "--out", &out, "--resume", "--set", &set].map(str::to_owned);
    let ended = host(&resumed).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));

    let metrics = metrics(&run);
    let of = |name: &str| -> Vec<f64> {
        metrics.iter().map(|step| step[name].as_f64().unwrap_or(f64::NAN)).collect()
    };
    assert_eq!(of("step"), (1..=STEPS).map(|step| step as f64).collect::<Vec<_>>());
    let rewards = of("reward");
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (first, last) = (mean(&rewards[..3]), mean(&rewards[STEPS - 3..]));
    let apart = of("sampling/sampling_logp_difference/max").into_iter().fold(0.0, f64::max);
    eprintln!(
        "reward {first:.3} in the first three steps, {last:.3} in the last three; log-probabilities within {apart:.1e} nats"
    );
    assert!(last > first, "{rewards:?}");
    assert!(apart < NATS, "{apart}");
    for name in [
        "sampling/sampling_logp_difference/mean",
        "sampling/importance_sampling_ratio/mean",
        "kl",
        "corver/counted_rate",
    ] {
        assert!(of(name).iter().all(|value| value.is_finite()), "{name}");
    }
    assert!(run.join("summary.json").exists() && run.join("report.html").exists());
    assert_eq!(
        fs::read_dir(run.join("adapters"))
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().is_dir())
            .count(),
        0
    );
    assert!(!server.request("GET", "/v1/models", "").1.contains("policy-"), "nothing stays behind");

    // The same server answers an evaluation of what was trained.
    let adapter = run.join(format!("checkpoints/step-{STEPS:06}")).display().to_string();
    let mut evaluation =
        vec!["eval".to_owned(), "--json".into(), "--raw".into(), "--adapter".into(), adapter];
    for set in [
        "engine.kind=vllm".into(),
        set,
        format!("engine.model={MODEL}"),
        "question.eval_limit=32".into(),
    ] {
        evaluation.extend(["--set".into(), set]);
    }
    let ended = host(&evaluation).stdout(Stdio::piped()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let evaluated: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let summary: Value =
        serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(evaluated[1]["accuracy"], summary["after"]["accuracy"], "{evaluated}");
}
