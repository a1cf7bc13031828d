//! The algorithms beside GRPO, and the cold start before training.

use std::fs;

use serde_json::{Value, json};

use crate::host::{host, lines, run_dir, short_run};
use crate::transcript::Transcript;

#[test]
fn each_algorithm_trains_and_logs_own_metrics() {
    let of = |algorithm: &str, own: &[&str]| {
        let out = run_dir(algorithm);
        short_run(&out, 2, &["--set", &format!("update.algorithm={algorithm}")]).good();
        let metrics = lines(&out.join("metrics.jsonl"));
        assert_eq!(metrics.len(), 2, "{algorithm}");
        for name in own {
            assert!(metrics[1][name].is_number(), "{algorithm}: no {name} in {}", metrics[1]);
        }
        (out, metrics)
    };
    let (_, rloo) = of("rloo", &["loss", "kl"]);
    assert!(rloo[0].get("loss/value_avg").is_none() && rloo[0].get("rewards/margins").is_none());
    let (out, ppo) = of("ppo", &["kl", "loss/value_avg", "val/explained_variance"]);
    let (_, dpo) = of("dpo", &["kl", "rewards/margins", "rewards/accuracies", "rewards/pairs"]);
    // The same policy answers the same questions before anything is learned.
    assert!(rloo[0]["reward"] == ppo[0]["reward"] && ppo[0]["reward"] == dpo[0]["reward"]);
    host(&["explain", out.to_str().unwrap(), "--step", "2"]).good();
}

#[test]
fn settings_that_contradict_the_algorithm_are_refused() {
    let mut transcript = Transcript::default();
    let mut refused = |set: &[&str]| {
        let set = set.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["train", "--dry-run"].into_iter().chain(set).collect();
        transcript.add_failure(&host(&args));
    };
    refused(&["update.algorithm=rloo", "advantage.scale_rewards=batch"]);
    refused(&["update.ppo.lambda=1.0"]);
    refused(&["update.algorithm=dpo", "update.num_iterations=2"]);
    refused(&["update.algorithm=sarsa"]);
    refused(&["policy.adapter=nowhere"]);
    insta::assert_snapshot!(transcript);
}

#[test]
fn sft_cold_start_resumes_and_feeds_training() {
    let mut transcript = Transcript::default();
    let folder = run_dir("cold-start");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("demonstrations.jsonl");
    let answer = |n: usize| {
        format!("<think>Old Riavuck lies in Denwick, number {n}.</think><answer>Denwick</answer>")
    };
    let line = |n: usize| {
        json!({"question": format!("Where does Old Riavuck lie? {n}"), "completion": answer(n)})
            .to_string()
    };
    fs::write(&file, (0..24).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let sft = |out: &str, more: &[&str]| {
        let (out, file) = (folder.join(out).display().to_string(), file.display().to_string());
        let args = [
            "sft",
            "--config",
            "demo",
            &file,
            "--json",
            "--out",
            &out,
            "--set",
            "sft.per_step=4",
            "--set",
            "checkpoint.every=2",
        ];
        host(&[&args, more].concat())
    };
    let whole = sft("whole", &[]).good().json();
    assert_eq!(
        (&whole["summary"]["demonstrations"], &whole["summary"]["steps"]),
        (&json!(24), &json!(6))
    );
    assert!(
        whole["summary"]["loss_last"].as_f64() < whole["summary"]["loss_first"].as_f64(),
        "{whole}"
    );
    transcript.add_failure(&sft("whole", &["--resume"]));

    // As if it had been killed after the fourth step.
    sft("cut", &[]).good();
    fs::remove_dir_all(folder.join("cut/checkpoints/step-000006")).unwrap();
    fs::remove_file(folder.join("cut/summary.json")).unwrap();
    sft("cut", &["--resume"]).good();
    let adapter = |out: &str| {
        fs::read(folder.join(out).join("checkpoints/step-000006/adapter_model.safetensors"))
            .unwrap()
    };
    assert!(adapter("cut") == adapter("whole"), "resumed to the same end");

    // A resumed run has the batches that fitted when it began.
    let small = ["--set", "run.memory_gib=0.1"];
    sft("small", &small).good();
    let config = fs::read_to_string(folder.join("small/config.toml")).unwrap();
    let saved: toml::Table = config.parse().unwrap();
    assert!(saved["update"]["micro_batch_tokens"].as_integer().unwrap() < 16_384, "{config}");
    assert!(saved["run"]["threads"].is_integer(), "{config}");
    fs::remove_dir_all(folder.join("small/checkpoints/step-000006")).unwrap();
    fs::remove_file(folder.join("small/summary.json")).unwrap();
    sft("small", &["--resume"]).good();
    assert_eq!(fs::read_to_string(folder.join("small/config.toml")).unwrap(), config);

    let from = format!("policy.adapter={}", whole["adapter"].as_str().unwrap());
    let trained = run_dir("warm");
    short_run(&trained, 1, &["--config", "demo", "--set", &from]).good();
    let kl = lines(&trained.join("metrics.jsonl"))[0]["kl"].as_f64().unwrap();
    assert!(kl.abs() < 1e-5, "the policy is compared with what it began with: {kl}");
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(trained.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["adapter"].as_str().unwrap().len(), 64);
    transcript.add_failure(&short_run(
        &run_dir("warm-other"),
        1,
        &["--config", "demo", "--set", &from, "--set", "update.lora.r=8"],
    ));

    fs::write(&file, "{\"question\": \"a?\", \"completion\": \"b\"}\n{\"question\": \"c?\"}\n")
        .unwrap();
    transcript.add_failure(&sft("bad", &[]));
    assert!(!folder.join("bad").exists(), "nothing is left of it");
    fs::write(&file, json!({"question": "a?", "completion": "b ".repeat(600)}).to_string())
        .unwrap();
    transcript.add_failure(&sft("long", &["--set", "sft.max_length=64"]));
    transcript.add_failure(&sft("beyond", &[]));
    assert!(!folder.join("beyond").exists(), "nothing is left of it");
    insta::assert_snapshot!(transcript);
}

#[test]
fn rule_with_unusable_credit_is_rejected_before_training() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let train = |more: &[&str]| {
        host(&[&["train", "--steps", "1", "--out", out.to_str().unwrap()], more].concat())
    };
    transcript.add_failure(&train(&["--plugin", "rlfh.wasm"]));
    transcript.add_failure(&train(&["--plugin", "rlfh.wasm:0.5"]));
    let gspo = "update.loss.importance_sampling_level=sequence";
    transcript.add_failure(&train(&["--plugin", "fspo.wasm", "--set", gspo]));
    assert!(!out.exists());
    // One reward for the completion has no token rewards: what is missing then is the grant.
    let set = "reward.granularity=response";
    transcript.add_failure(&train(&["--plugin", "rlfh.wasm", "--set", set]));
    insta::assert_snapshot!(transcript);
}
