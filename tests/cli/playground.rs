//! The playground of a rule, in a browser.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::host::{Server, host, lines, run_dir, short_run};

const MARKS: &str = "[...document.querySelectorAll('.text mark')].map(mark => mark.querySelector('small')?.innerText ?? null)";

/// Changes an input as a user does.
fn enter(browser: &mut Browser, path: &Value, value: &str) {
    let input = format!("document.querySelector({})", json!(format!("[data-path='{path}']")));
    browser.look(&format!(
        "(() => {{ const input = {input}; input.value = '{value}'; \
         input.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
    ));
}

fn wait_for(browser: &mut Browser, expression: &str, expected: &Value) {
    let started = Instant::now();
    loop {
        let found = browser.look(expression);
        if found == *expected {
            return;
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{expression}: {found}, not {expected}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the rewards on the page if the map gives `unattested` to a count of 0, and the paper's
/// rewards to the other tiers.
fn expected_marks(run: &Path, step: u64, unattested: f64) -> Value {
    let mut marks = Vec::new();
    for line in lines(&run.join("traces.jsonl")).iter().filter(|line| line["step"] == step) {
        for sentence in line["trace"]["sentences"].as_array().unwrap() {
            let verdict = &sentence["verdict"];
            let reward = match verdict["count"].as_u64() {
                // A query without a count has the reward 0.
                None if verdict["reward"].is_null() => None,
                None => Some(0.0),
                Some(0) => Some(unattested),
                Some(1..5) => Some(-0.1),
                Some(5..20) => Some(0.0),
                Some(_) => Some(0.1),
            };
            marks.push(reward.map(|reward| match reward {
                0.0 => "0.00".to_owned(),
                reward => format!("{reward:+.2}").replace('-', "\u{2212}"),
            }));
        }
    }
    json!(marks)
}

#[test]
fn sentences_change_colour_with_the_settings() {
    let run = run_dir("played");
    short_run(&run, 2, &[]).good();
    let run_path = run.to_str().unwrap();
    let play = ["plugin", "play", run_path, "--json", "--completions", "1000"];
    let mut server = Server::run(&play);
    let mut browser = Browser::start();
    browser.visit(&server.url, 1200, false);
    let at_start = expected_marks(&run, 2, -0.3);
    assert_eq!(browser.look(MARKS), at_start);
    assert!(at_start.as_array().unwrap().contains(&json!("\u{2212}0.30")), "{at_start}");

    enter(&mut browser, &json!(["tiers", "rewards", 0]), "-0.75");
    wait_for(&mut browser, MARKS, &expected_marks(&run, 2, -0.75));
    let problem = "document.querySelector('#problem').innerText";
    assert_eq!(browser.look(problem), "");

    // A refused setting changes nothing on the page.
    enter(&mut browser, &json!(["tiers", "thresholds", 0]), "30");
    wait_for(&mut browser, &format!("{problem}.includes('thresholds')"), &json!(true));
    assert_eq!(browser.look(MARKS), expected_marks(&run, 2, -0.75));
    let elsewhere = |url: &&String| !url.starts_with(&server.url);
    assert_eq!(browser.requests.iter().filter(elsewhere).count(), 0, "{:?}", browser.requests);
    server.stop();

    // Without the index the counts of the traces answer; those that a rule did not request are named.
    let config = fs::read_to_string(run.join("config.toml")).unwrap();
    let moved = config.replace("index = [\"demo\"]", "index = [\"/nowhere\"]");
    assert_ne!(moved, config);
    fs::write(run.join("config.toml"), moved).unwrap();
    let mut server = Server::run(&[&play[..], &["--step", "1"]].concat());
    browser.visit(&server.url, 360, true);
    assert_eq!(browser.look(MARKS), expected_marks(&run, 1, -0.3));
    assert!(
        browser.look("document.documentElement.scrollWidth - innerWidth").as_f64().unwrap() <= 0.0
    );
    server.stop();
    let other = host(&["plugin", "play", run_path, "--plugin", "relcheck"]).found(1);
    assert!(other.stderr.contains("traces.jsonl does not hold"), "{other}");
    let response = host(&["plugin", "play", run_path, "--plugin", "token-f1"]).found(1);
    assert!(response.stderr.contains("token-f1"), "{response}");
}
