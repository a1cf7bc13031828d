//! Every command of docs/reproduction.md, in order and in one folder, with a small model of the user's
//! own and little training.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

const ASSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/assets");

/// Settings of the tiny model: it was made without a prompt, and its context is short.
const TINY: &str = r#"
[run]
threads = 1
device = "cpu"

[question]
prompts_per_step = 2
eval_limit = 8

[policy]
system_prompt = ""

[rollout]
num_generations = 4
max_completion_length = 48

[filter]
num_generations = 4
max_completion_length = 48

[checkpoint]
every = 1

[update.lora]
r = 4

[eval]
system_prompt = ""
trained_suffix = ""

[eval.answers]
max_completion_length = 48
"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The commands of the page: the text between backticks that begins with one.
fn commands(page: &str) -> Vec<String> {
    let subcommands = [
        "data pool ",
        "data evidence ",
        "index passages ",
        "filter ",
        "train ",
        "eval ",
        "compare ",
        "calibrate ",
        "sft ",
        "explain ",
        "report ",
        "judge ",
    ];
    let code = page.split('`').skip(1).step_by(2);
    let is_command = |code: &&str| subcommands.iter().any(|name| code.starts_with(name));
    code.filter(is_command).map(str::to_owned).collect()
}

/// The same command with less training in it.
fn shortened(command: &str) -> String {
    let steps = command.replace("step-000050", "step-000001").replace("step-000100", "step-000002");
    let steps = steps.replace("step-000120", "step-000001").replace("--steps 300", "--steps 3");
    let steps = steps
        .replace("--seeds 3", "")
        .replace("--step 50", "--step 1")
        .replace("--per-bucket 200,100,100,100,200", "--per-bucket 3");
    let is_baseline = command.contains("configs/baselines/paper");
    let more = match command.split(' ').next().unwrap() {
        // Its backends, its curriculum and its prices are of another world.
        "train" if is_baseline => " --dry-run --set backends.nli.model=demo",
        "train" if !command.contains("--steps") => " --steps 2",
        "compare" => " --steps 1 --seeds 1",
        _ => "",
    };
    format!("corver-host {steps}{more}\n")
}

fn world(folder: &Path) {
    let host = env!("CARGO_BIN_EXE_corver-host");
    let run = |args: &[&str]| {
        assert!(Command::new(host).args(args).current_dir(folder).status().unwrap().success())
    };
    run(&["demo", "world", "world"]);
    let tokenizer = format!("{ASSETS}/policy/tokenizer.json");
    run(&[
        "index",
        "build",
        "world/articles.jsonl",
        "--tokenizer",
        &tokenizer,
        "--out",
        "wikipedia",
    ]);
    let read = |name: &str| -> Vec<Value> {
        serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
    };
    let (train, mut eval) = (read("world/train.json"), read("world/eval.json"));
    for (n, question) in eval.iter_mut().enumerate() {
        question["popularity"] = json!(n % 7);
    }
    let write = |name: &str, questions: &[Value]| {
        fs::write(folder.join(name), json!(questions).to_string()).unwrap()
    };
    write("nq.json", &train[..24]);
    write("webq.json", &train[20..40]);
    write("triviaqa-train.json", &train[40..60]);
    write("triviaqa.json", &eval[..24]);
    write("popqa.json", &eval[24..48]);
    for name in ["easy.jsonl", "medium.jsonl", "hard.jsonl"] {
        let mut lines = String::new();
        for n in 0..5000 {
            lines +=
                &format!("{}\n", json!({"question": format!("{name} {n}?"), "answers": ["x"]}));
        }
        fs::write(folder.join(name), lines).unwrap();
    }
    let demonstration = |question: &Value| {
        let answer = question["answers"].as_str().unwrap_or("x");
        json!({"question": question["question"], "completion": format!("<think>{answer}.</think><answer>{answer}</answer>")})
    };
    let lines: Vec<String> =
        train[..8].iter().map(|question| demonstration(question).to_string()).collect();
    fs::write(folder.join("demonstrations.jsonl"), lines.join("\n")).unwrap();
    fs::write(folder.join("tiny.toml"), TINY).unwrap();
    fs::copy(repository().join("configs/demo-backends.toml"), folder.join("backends.toml"))
        .unwrap();
}

/// A sheet whose first rows are correct, and whose last ones are not.
fn label(sheet: &Path) {
    let text = fs::read_to_string(sheet).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headers = reader.headers().unwrap().clone();
    let column = headers.iter().position(|name| name == "label").unwrap();
    let mut writer = csv::Writer::from_path(sheet).unwrap();
    writer.write_record(&headers).unwrap();
    for (n, record) in reader.records().enumerate() {
        let record = record.unwrap();
        let cells = record.iter().enumerate();
        let label = if n % 2 == 0 { "c" } else { "i" };
        writer
            .write_record(cells.map(|(place, cell)| if place == column { label } else { cell }))
            .unwrap();
    }
}

#[test]
fn reproduce_page_commands_work() {
    let folder = tempfile::tempdir().unwrap();
    let page = fs::read_to_string(repository().join("docs/reproduction.md")).unwrap();
    let commands = commands(&page);
    assert!(commands.len() >= 24, "{commands:#?}");
    world(folder.path());
    std::os::unix::fs::symlink(repository().join("configs"), folder.path().join("configs"))
        .unwrap();
    std::os::unix::fs::symlink(repository().join("plugins"), folder.path().join("plugins"))
        .unwrap();
    let model = format!("--config tiny.toml --model {ASSETS}/policy");
    let own = format!("{model} --extractor {ASSETS}/extractor --index wikipedia");
    let binary = Path::new(env!("CARGO_BIN_EXE_corver-host")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    for command in commands {
        if command.starts_with("judge ") {
            continue; // it asks a chat model; tests/cli/judge.rs has one
        }
        if command.starts_with("calibrate read") {
            label(&folder.path().join("sheet.csv"));
        }
        let script = shortened(&command);
        let run = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("M", &model)
            .env("C", &own)
            .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
            .env_remove("LD_LIBRARY_PATH")
            .output()
            .unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{script}{stdout}\n{stderr}");
    }
}
