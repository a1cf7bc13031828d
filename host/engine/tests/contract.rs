//! Tests of the client with recorded replies of a vLLM server, and with faulty servers
//! (`replies/README.md`).

#[path = "../../http/tests/served/mod.rs"]
mod served;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corver_core::{LongPrompts, Question, Rollout, Sampler, Sampling};
use corver_engine::{AdapterFolder, Engine, EngineApi, EngineError, EngineSettings, ModelShape};
use corver_pretrained::{ChatTokenizer, Dialogue};
use serde_json::{Value, json};

use served::{Response, Server};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/assets/policy");
const SHAPE: ModelShape = ModelShape { vocab_size: 1022, max_positions: 512 };
const GROUP: Sampling = Sampling {
    num_generations: 3,
    max_completion_length: 24,
    temperature: 0.7,
    top_p: 1.0,
    top_k: None,
    max_prompt_length: None,
    long_prompts: LongPrompts::Reject,
};
const COMPLETIONS: &str = "/v1/completions";
const LOAD: &str = "/v1/load_lora_adapter";
const UNLOAD: &str = "/v1/unload_lora_adapter";

fn recorded(name: &str) -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replies").join(format!("{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn questions(number: usize) -> Vec<Question> {
    let mut questions = Vec::with_capacity(number);
    for n in 0..number {
        let question = if n == 0 { "Who?".into() } else { format!("Who is {n}?") };
        questions.push(Question { question, golds: Vec::new(), ..Question::default() });
    }
    questions
}

fn settings(url: &str, api: EngineApi) -> EngineSettings {
    EngineSettings {
        api,
        url: url.to_owned(),
        model: "demo".into(),
        token: None,
        concurrency: 4,
        timeout: Duration::from_secs(5),
        patience: Duration::from_secs(2),
    }
}

fn open_as(url: &str, api: EngineApi) -> Result<Engine, EngineError> {
    let dialogue = Dialogue::new(ChatTokenizer::load(Path::new(DEMO)).unwrap());
    Engine::open(&settings(url, api), dialogue, SHAPE)
}

fn open(server: &Server) -> Engine {
    open_as(&server.url, EngineApi::Vllm).unwrap()
}

/// Status and body of an answer.
type Answer = (u16, String);

/// Starts a server whose answers `script` computes from the route and the body of a request.
fn serve(script: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Server {
    Server::new(move |request| {
        let (status, body) = script(request.route(), &request.body);
        Response::Answer(status, "", body)
    })
}

/// A simulated vLLM server with adapters and recorded completions.
#[derive(Default)]
struct Vllm {
    adapters: BTreeSet<String>,
}

impl Vllm {
    fn answer(&mut self, route: &str, body: &Value) -> Answer {
        let name = || body["lora_name"].as_str().unwrap().to_owned();
        match route {
            "/v1/models" => {
                let mut models: Value = serde_json::from_str(&recorded("models")).unwrap();
                let data = models["data"].as_array_mut().unwrap();
                data.extend(
                    self.adapters
                        .iter()
                        .map(|name| json!({"id": name, "parent": "demo", "max_model_len": null})),
                );
                (200, models.to_string())
            }
            LOAD if !Path::new(body["lora_path"].as_str().unwrap()).is_dir() => {
                (404, recorded("no_folder"))
            }
            LOAD if !self.adapters.insert(name()) => (400, recorded("duplicate")),
            LOAD => (200, "Success: LoRA adapter added successfully.".into()),
            UNLOAD if !self.adapters.remove(&name()) => (404, recorded("unload_unknown")),
            UNLOAD => (200, "Success: LoRA adapter removed successfully.".into()),
            COMPLETIONS => {
                let model = body["model"].as_str().unwrap();
                if model != "demo" && !self.adapters.contains(model) {
                    return (404, recorded("no_model"));
                }
                (200, completions(body).to_string())
            }
            other => panic!("no route {other}"),
        }
    }
}

/// Returns the recorded reply for a request, with its model and prompt.
fn completions(body: &Value) -> Value {
    let name = match (body["logprobs"].as_u64(), body["temperature"].as_f64()) {
        (Some(5), Some(1.0)) => "processed_1",
        (Some(5), _) => "processed_2",
        (_, Some(0.0)) => "greedy",
        _ => "completions",
    };
    let mut reply: Value = serde_json::from_str(&recorded(name)).unwrap();
    reply["model"] = body["model"].clone();
    for choice in reply["choices"].as_array_mut().unwrap() {
        choice["prompt_token_ids"] = body["prompt"].clone();
    }
    reply
}

fn vllm() -> Server {
    let state = Mutex::new(Vllm::default());
    serve(move |route, body| state.lock().unwrap().answer(route, body))
}

/// A vLLM server whose completions are changed on their way.
fn vllm_with(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Server {
    let state = Mutex::new(Vllm::default());
    serve(move |route, body| {
        let (status, answer) = state.lock().unwrap().answer(route, body);
        if route != COMPLETIONS || body["logprobs"] == 5 {
            return (status, answer);
        }
        let mut reply = serde_json::from_str(&answer).unwrap();
        change(&mut reply);
        (status, reply.to_string())
    })
}

fn error_of(result: Result<impl Sized, corver_core::BoxError>) -> Box<EngineError> {
    result.err().expect("it fails").downcast().expect("an engine's error")
}

#[test]
fn vllm_request_carries_settings_and_returns_tokens() {
    let server = vllm();
    let mut engine = open(&server);
    let rollouts = engine.sample(&questions(2), &GROUP, 7, &mut |_, _| ()).unwrap();
    assert_eq!(
        rollouts.iter().map(|rollout| rollout.question).collect::<Vec<_>>(),
        [0, 0, 0, 1, 1, 1]
    );
    let reply: Value = serde_json::from_str(&recorded("completions")).unwrap();
    for (rollout, choice) in rollouts.iter().zip(reply["choices"].as_array().unwrap()) {
        assert_eq!(json!(rollout.tokens), choice["token_ids"]);
        let log_probs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        assert!(
            rollout
                .log_probs
                .iter()
                .zip(log_probs)
                .all(|(&a, b)| f64::from(a) == f64::from(b.as_f64().unwrap() as f32))
        );
        assert_eq!(rollout.finished, choice["finish_reason"] == "stop");
        assert_eq!(rollout.token_spans.len(), rollout.tokens.len());
        let text = choice["text"].as_str().unwrap();
        assert_eq!(
            rollout.text,
            text.trim_end_matches("<|im_end|>"),
            "by our own tokenizer, without special tokens"
        );
    }

    // The first two requests detect the kind of the log-probabilities.
    let mut requests = server.bodies(COMPLETIONS).split_off(2);
    requests.sort_by_key(|body| body["prompt"].as_array().unwrap().len());
    assert_ne!(requests[0]["seed"], requests[1]["seed"]);
    for body in &requests {
        assert!(body["seed"].as_u64().unwrap() < 1 << 62);
    }
    let mut first = requests[0].clone();
    let seed = first.as_object_mut().unwrap().remove("seed").unwrap();
    let expected = json!({
        "model": "demo",
        "prompt": [1, 1014, 205, 455, 37, 2, 205, 1, 1009, 205],
        "n": 3,
        "max_tokens": 24,
        "min_tokens": 0,
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": [],
        "stop_token_ids": [0, 2],
        "include_stop_str_in_output": true,
        "ignore_eos": false,
        "logprobs": 0,
        "return_token_ids": true,
        "return_tokens_as_token_ids": true,
        "skip_special_tokens": false,
        "echo": false,
        "stream": false,
    });
    assert_eq!(first, expected);

    engine.sample(&questions(1), &GROUP, 7, &mut |_, _| ()).unwrap();
    engine.sample(&questions(1), &GROUP, 8, &mut |_, _| ()).unwrap();
    let requests = server.bodies(COMPLETIONS);
    assert_eq!(requests[4]["seed"], seed, "the step's seed decides it");
    assert_ne!(requests[5]["seed"], seed);
}

#[test]
fn rollouts_are_reported_as_they_arrive() {
    let server = vllm();
    let mut arrived = Vec::new();
    let mut on_finished = |index: usize, rollout: &Rollout| arrived.push((index, rollout.clone()));
    let rollouts = open(&server).sample(&questions(5), &GROUP, 7, &mut on_finished).unwrap();
    arrived.sort_by_key(|(index, _)| *index);
    assert_eq!(arrived, rollouts.into_iter().enumerate().collect::<Vec<_>>());
}

#[test]
fn greedy_group_requests_single_completion() {
    let server = vllm();
    let sampling = Sampling { num_generations: 2, ..Sampling::greedy(24) };
    let rollouts = open(&server).sample(&questions(1), &sampling, 7, &mut |_, _| ()).unwrap();
    assert_eq!((rollouts.len(), &rollouts[0]), (2, &rollouts[1]));
    assert_eq!(rollouts[0].text, "<think>unknown</think><answer>I don't know</answer>");
    assert_eq!(server.bodies(COMPLETIONS)[2]["n"], 1);
}

#[test]
fn max_tokens_fits_context_after_prompt() {
    let server = vllm();
    let long = Sampling { max_completion_length: 1024, ..GROUP };
    open(&server).sample(&questions(1), &long, 7, &mut |_, _| ()).unwrap();
    assert_eq!(server.bodies(COMPLETIONS)[2]["max_tokens"], 512 - 10);
    let question = Question { question: "Who? ".repeat(300), ..questions(1).remove(0) };
    let error = error_of(open(&server).sample(&[question], &long, 7, &mut |_, _| ()));
    let message = format!("the engine {} takes 512, completion included", server.url);
    assert!(error.to_string().contains(&message), "{error}");
}

#[test]
fn prompt_without_room_is_found_before_sampling() {
    let server = vllm();
    let engine = open(&server);
    engine.check_prompts(&questions(2), &GROUP).unwrap();
    let mut long = questions(2);
    long[1].question = "Who? ".repeat(300);
    let error = engine.check_prompts(&long, &GROUP).unwrap_err().to_string();
    let message = format!("the engine {} takes 512, completion included", server.url);
    assert!(error.contains(&message), "{error}");
    assert!(error.contains("Shorten the question or the system prompt"), "{error}");
    assert_eq!(server.bodies(COMPLETIONS).len(), 2, "only those that open the engine");
}

#[test]
fn invalid_engine_replies_are_rejected() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 13] = [
        ("without token ids: it needs vLLM", |reply| {
            reply["choices"][0]["token_ids"] = Value::Null
        }),
        ("without log-probabilities", |reply| reply["choices"][0]["logprobs"] = Value::Null),
        ("of the model \"other\", not of \"demo\"", |reply| reply["model"] = json!("other")),
        ("a prompt other than", |reply| reply["choices"][1]["prompt_token_ids"] = json!([1])),
        ("2 completions instead of 3", |reply| {
            drop(reply["choices"].as_array_mut().unwrap().pop())
        }),
        ("of other tokens", |reply| {
            reply["choices"][0]["logprobs"]["tokens"][0] = json!("token_id:1")
        }),
        ("log-probability is NaN", |reply| {
            reply["choices"][0]["logprobs"]["token_logprobs"][0] = Value::Null
        }),
        ("log-probability is 0.5", |reply| {
            reply["choices"][0]["logprobs"]["token_logprobs"][0] = json!(0.5)
        }),
        ("log-probability is -1e30", |reply| {
            reply["choices"][0]["logprobs"]["token_logprobs"][0] = json!(-1e30)
        }),
        ("a completion was aborted", |reply| reply["choices"][0]["finish_reason"] = json!("abort")),
        ("1 tokens after the stop token 2", |reply| {
            let choice = &mut reply["choices"][0];
            choice["token_ids"] = json!([4, 2, 4]);
            choice["logprobs"]["tokens"] = json!(["token_id:4", "token_id:2", "token_id:4"]);
            choice["logprobs"]["token_logprobs"] = json!([-0.5, -0.5, -0.5]);
        }),
        ("of the model \"xxxx", |reply| reply["model"] = json!("x".repeat(1 << 20))),
        ("the token 4000, where policy.model has 1022", |reply| {
            reply["choices"][0]["token_ids"][0] = json!(4000);
            reply["choices"][0]["logprobs"]["tokens"][0] = json!("token_id:4000");
        }),
    ];
    for (message, change) in cases {
        let server = vllm_with(change);
        let error =
            error_of(open(&server).sample(&questions(1), &GROUP, 7, &mut |_, _| ())).to_string();
        assert!(error.contains(message) && error.contains(&server.url), "{message}: {error}");
        assert!(error.len() < 700, "{error}");
    }
}

#[test]
fn raw_log_probs_are_rejected_for_training_at_other_temperatures() {
    let state = Mutex::new(Vllm::default());
    let server = serve(move |route, body| {
        match (route, body["logprobs"].as_u64(), body["temperature"].as_f64()) {
            (COMPLETIONS, Some(5), Some(1.0)) => (200, recorded("raw_1")),
            (COMPLETIONS, Some(5), _) => (200, recorded("raw_2")),
            _ => state.lock().unwrap().answer(route, body),
        }
    });
    let mut engine = open(&server);
    let error = engine.check_log_probs(GROUP.temperature).unwrap_err();
    assert!(error.to_string().contains(" and rollout.temperature is 0.7: "), "{error}");
    assert!(error.to_string().contains("--logprobs-mode processed_logprobs"), "{error}");
    engine.check_log_probs(1.0).unwrap();
    engine.check_log_probs(0.0).unwrap();
    open(&vllm()).check_log_probs(GROUP.temperature).unwrap();
    // Without training, no update uses them.
    for sampling in [GROUP, Sampling { temperature: 1.0, ..GROUP }, Sampling::greedy(24)] {
        engine.sample(&questions(1), &sampling, 7, &mut |_, _| ()).unwrap();
    }
}

#[test]
fn unreachable_server_or_wrong_model_fails_on_open() {
    // The listener is dropped, so the port is closed.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start = Instant::now();
    let error = open_as(&format!("http://{port}"), EngineApi::Vllm).unwrap_err();
    assert!(
        matches!(&error, EngineError::Unreachable(message) if message.contains(&port.to_string())),
        "{error}"
    );
    assert!(start.elapsed() < Duration::from_secs(2));

    let server = serve(|_, _| (200, recorded("models").replace("\"demo\"", "\"llama\"")));
    let error = open_as(&server.url, EngineApi::Vllm).unwrap_err();
    assert!(
        error.to_string().contains("has no model \"demo\" (engine.model); it has llama"),
        "{error}"
    );
}

#[test]
fn temporary_server_failure_is_retried() {
    let state = Mutex::new(Vllm::default());
    let failures = AtomicUsize::new(0);
    let server = serve(move |route, body| {
        if route == COMPLETIONS && body["logprobs"] == 0 && failures.fetch_add(1, SeqCst) == 0 {
            return (503, r#"{"error": {"message": "loading"}}"#.into());
        }
        state.lock().unwrap().answer(route, body)
    });
    assert_eq!(open(&server).sample(&questions(1), &GROUP, 7, &mut |_, _| ()).unwrap().len(), 3);
    assert_eq!(server.bodies(COMPLETIONS).len(), 2 + 2);
}

#[test]
fn aborted_completions_are_requested_again() {
    let num_replies = AtomicUsize::new(0);
    let server = vllm_with(move |reply| {
        if num_replies.fetch_add(1, SeqCst) == 0 {
            reply["choices"][2]["finish_reason"] = json!("abort");
            reply["choices"][2]["token_ids"] = Value::Null;
        }
    });
    assert_eq!(open(&server).sample(&questions(1), &GROUP, 7, &mut |_, _| ()).unwrap().len(), 3);
    assert_eq!(server.bodies(COMPLETIONS).len(), 2 + 2);

    let num_generated = AtomicUsize::new(0);
    let sglang = serve(move |route, body| {
        let name = match route {
            "/v1/models" => "sglang_models",
            _ if body["top_logprobs_num"] == 0 => "sglang_generate",
            _ if body["sampling_params"][0]["temperature"] == 1.0 => "sglang_processed_1",
            _ => "sglang_processed_2",
        };
        if name == "sglang_generate" && num_generated.fetch_add(1, SeqCst) == 0 {
            // As SGLang writes it of a request that waits in its queue.
            let reason = json!({"type": "abort", "message": "Abort in waiting queue"});
            let reply = json!({"text": "", "meta_info": {"id": "a", "finish_reason": reason}});
            return (200, json!([reply, reply]).to_string());
        }
        (200, recorded(name))
    });
    let mut engine = open_as(&sglang.url, EngineApi::Sglang).unwrap();
    let sampling = Sampling { num_generations: 2, ..GROUP };
    assert_eq!(engine.sample(&questions(1), &sampling, 7, &mut |_, _| ()).unwrap().len(), 2);
    assert_eq!(sglang.bodies("/generate").len(), 2 + 2);
}

#[test]
fn concurrent_requests_reach_configured_limit() {
    let state = Mutex::new(Vllm::default());
    let server = serve(move |route, body| {
        std::thread::sleep(Duration::from_millis(30));
        state.lock().unwrap().answer(route, body)
    });
    open(&server).sample(&questions(12), &GROUP, 7, &mut |_, _| ()).unwrap();
    assert_eq!(server.max_in_flight(), 4);
}

#[test]
fn watch_callback_stops_sampling() {
    let server = vllm();
    let mut engine = open(&server);
    engine.set_watch(|decoding| {
        if decoding.ended > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let error = error_of(engine.sample(&questions(200), &GROUP, 7, &mut |_, _| ()));
    assert!(matches!(*error, EngineError::Stopped), "{error}");
    assert!(server.bodies(COMPLETIONS).len() < 150);
}

#[test]
fn retry_ends_on_patience_or_stop() {
    let state = Mutex::new(Vllm::default());
    let is_down = Arc::new(AtomicUsize::new(0));
    let server_is_down = is_down.clone();
    let server = serve(move |route, body| match server_is_down.load(SeqCst) {
        0 => state.lock().unwrap().answer(route, body),
        _ => (502, "bad gateway".into()),
    });
    let mut engine = open(&server);
    is_down.store(1, SeqCst);
    let error = error_of(engine.sample(&questions(3), &GROUP, 7, &mut |_, _| ()));
    assert!(
        matches!(&*error, EngineError::Unreachable(message) if message.contains("502")),
        "{error}"
    );
    assert!(error.to_string().contains(&server.url), "{error}");

    let patient = EngineSettings {
        patience: Duration::from_secs(600),
        ..settings(&server.url, EngineApi::Vllm)
    };
    is_down.store(0, SeqCst);
    let dialogue = Dialogue::new(ChatTokenizer::load(Path::new(DEMO)).unwrap());
    let mut engine = Engine::open(&patient, dialogue, SHAPE).unwrap();
    is_down.store(1, SeqCst);
    let start = Instant::now();
    engine.set_watch(move |_| {
        if start.elapsed() > Duration::from_secs(1) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let error = error_of(engine.sample(&questions(3), &GROUP, 7, &mut |_, _| ()));
    assert!(
        matches!(*error, EngineError::Stopped) && start.elapsed() < Duration::from_secs(30),
        "{error}"
    );
}

fn adapter_folder(folder: &Path) -> AdapterFolder {
    AdapterFolder { local: folder.to_owned(), on_server: folder.to_owned() }
}

/// Publishes an empty folder, which the simulated server accepts as an adapter.
fn publish(engine: &mut Engine) -> Result<(), EngineError> {
    engine.publish(|folder| Ok(std::fs::create_dir(folder)?))
}

fn versions(folder: &Path) -> Vec<String> {
    let mut versions = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with("policy-") {
            versions.push(name);
        }
    }
    versions
}

#[test]
fn adapter_versions_have_unique_names() {
    let server = vllm();
    let folder = tempfile::tempdir().unwrap();
    let mut names = BTreeSet::new();
    for _ in 0..2 {
        // Another engine counts from 0 again, but no name is used twice.
        let mut engine = open(&server);
        engine.claim_adapter_folder(adapter_folder(folder.path())).unwrap();
        for _ in 0..3 {
            publish(&mut engine).unwrap();
            let name = engine.adapter().unwrap().to_owned();
            assert_eq!(
                versions(folder.path()),
                std::slice::from_ref(&name),
                "the previous version is removed"
            );
            engine.sample(&questions(1), &GROUP, 7, &mut |_, _| ()).unwrap();
            assert_eq!(server.bodies(COMPLETIONS).last().unwrap()["model"], json!(name));
            names.insert(name);
        }
        drop(engine);
        assert!(versions(folder.path()).is_empty());
    }
    assert_eq!(names.len(), 6);
    let unloaded: BTreeSet<String> = server
        .bodies(UNLOAD)
        .iter()
        .map(|body| body["lora_name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(unloaded, names);
}

#[test]
fn adapter_path_is_mapped_for_server() {
    let server = vllm();
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere");
    let mut engine = open(&server);
    engine
        .claim_adapter_folder(AdapterFolder {
            local: folder.path().join("here"),
            on_server: elsewhere.clone(),
        })
        .unwrap();
    let error = publish(&mut engine).unwrap_err();
    assert!(
        matches!(&error, EngineError::Unusable(message)
            if message.contains(&format!("the adapter {}/", elsewhere.display()))),
        "{error}"
    );
    let message = error.to_string();
    assert!(message.contains("No adapter found"), "{message}");
    assert!(message.contains("engine.adapters_on_server"), "{message}");
    std::os::unix::fs::symlink(folder.path().join("here"), &elsewhere).unwrap();
    publish(&mut engine).unwrap();
}

#[test]
fn lost_adapter_is_reloaded() {
    let state = Arc::new(Mutex::new(Vllm::default()));
    let restart_at = Arc::new(AtomicUsize::new(usize::MAX));
    let server_state = state.clone();
    let server_restart_at = restart_at.clone();
    let count = AtomicUsize::new(0);
    let server = serve(move |route, body| {
        let mut state = server_state.lock().unwrap();
        if route == COMPLETIONS && count.fetch_add(1, SeqCst) == server_restart_at.load(SeqCst) {
            state.adapters.clear();
        }
        state.answer(route, body)
    });
    let folder = tempfile::tempdir().unwrap();
    let mut engine = open(&server);
    engine.claim_adapter_folder(adapter_folder(folder.path())).unwrap();
    publish(&mut engine).unwrap();
    state.lock().unwrap().adapters.clear(); // between two samplings
    engine.sample(&questions(1), &GROUP, 7, &mut |_, _| ()).unwrap();
    restart_at.store(server.bodies(COMPLETIONS).len() + 3, SeqCst); // in the middle of one
    assert_eq!(engine.sample(&questions(9), &GROUP, 7, &mut |_, _| ()).unwrap().len(), 27);
    assert_eq!(server.bodies(LOAD).len(), 3);
}

#[test]
fn adapter_folder_is_locked_and_stale_versions_removed() {
    let server = vllm();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("policy-123456-000003")).unwrap();
    std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let mut engine = open(&server);
    engine.claim_adapter_folder(adapter_folder(folder.path())).unwrap();
    assert!(versions(folder.path()).is_empty() && folder.path().join("notes.txt").exists());
    assert_eq!(server.bodies(UNLOAD)[0]["lora_name"], "policy-123456-000003");
    let error = open(&server).claim_adapter_folder(adapter_folder(folder.path())).unwrap_err();
    assert!(error.to_string().starts_with("another run publishes its adapters in "), "{error}");
}

#[test]
fn linked_lock_of_adapter_folder_does_not_empty_its_target() {
    let server = vllm();
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes.txt");
    std::fs::write(&notes, "mine").unwrap();
    std::os::unix::fs::symlink(&notes, folder.path().join(".lock")).unwrap();
    open(&server).claim_adapter_folder(adapter_folder(folder.path())).unwrap();
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "mine");
}

#[test]
fn sglang_request_matches_its_api() {
    let folder = tempfile::tempdir().unwrap();
    let refusals = Arc::new(AtomicUsize::new(0));
    let server_refusals = refusals.clone();
    let server = serve(move |route, body| match route {
        "/v1/models" => (200, recorded("sglang_models")),
        "/load_lora_adapter" if server_refusals.load(SeqCst) > 0 => {
            (400, recorded("sglang_refused"))
        }
        "/load_lora_adapter" | "/unload_lora_adapter" => (200, r#"{"success": true}"#.into()),
        "/generate" => match (
            body["top_logprobs_num"].as_u64(),
            body["sampling_params"][0]["temperature"].as_f64(),
        ) {
            (Some(5), Some(1.0)) => (200, recorded("sglang_processed_1")),
            (Some(5), _) => (200, recorded("sglang_processed_2")),
            _ => (200, recorded("sglang_generate")),
        },
        other => panic!("no route {other}"),
    });
    let mut engine = open_as(&server.url, EngineApi::Sglang).unwrap();
    let sampling = Sampling { num_generations: 2, ..GROUP };
    let rollouts = engine.sample(&questions(1), &sampling, 7, &mut |_, _| ()).unwrap();
    assert_eq!(rollouts[0].tokens, [4, 460, 6, 2]);
    assert_eq!(rollouts[1].log_probs, [-1.842_971_2, -0.174_292_19]);
    assert_eq!((rollouts[0].finished, rollouts[1].finished), (true, false));

    let mut body = server.bodies("/generate").pop().unwrap();
    let mut seeds = Vec::new();
    for parameters in body["sampling_params"].as_array_mut().unwrap() {
        let seed = parameters.as_object_mut().unwrap().remove("sampling_seed").unwrap();
        seeds.push(seed.as_u64().unwrap());
    }
    assert_ne!(seeds[0], seeds[1]);
    let parameters = json!({
        "n": 1,
        "max_new_tokens": 24,
        "min_new_tokens": 0,
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": [],
        "stop_token_ids": [0, 2],
        "no_stop_trim": true,
        "ignore_eos": false,
        "skip_special_tokens": false,
    });
    let prompt = json!([1, 1014, 205, 455, 37, 2, 205, 1, 1009, 205]);
    let expected = json!({
        "input_ids": [prompt, prompt],
        "sampling_params": [parameters, parameters],
        "lora_path": [null, null],
        "return_logprob": true,
        "logprob_start_len": -1,
        "top_logprobs_num": 0,
        "return_text_in_logprobs": false,
        "stream": false,
    });
    assert_eq!(body, expected);

    engine.claim_adapter_folder(adapter_folder(folder.path())).unwrap();
    refusals.store(1, SeqCst);
    let error = publish(&mut engine).unwrap_err();
    assert!(error.to_string().contains("rank 64"), "{error}");
}
