//! Reports and explanations of a real run, as a browser shows them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::host::{host, lines, run_dir, short_run, small_index};
use crate::transcript::{Transcript, normalise, without_figures};

/// Widths of a desk and of a phone, in the light and in the dark.
const WINDOWS: [(u32, bool); 4] = [(1200, false), (1200, true), (360, false), (360, true)];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What no page may do, in any window; `look` looks at the rest.
fn in_every_window(page: &Path, mut look: impl FnMut(&mut Browser, bool)) {
    let mut browser = Browser::start();
    for (width, is_dark) in WINDOWS {
        browser.open(page, width, is_dark);
        assert_eq!(browser.problems, [""; 0], "{width} {is_dark}");
        let overflow =
            browser.look("document.documentElement.scrollWidth - innerWidth").as_f64().unwrap();
        assert!(overflow <= 0.0, "{} is {overflow} px too wide for {width}", page.display());
        assert_eq!(browser.look("document.scripts.length + document.images.length"), 0);
        look(&mut browser, is_dark);
        assert_eq!(browser.problems, [""; 0]);
        let [asked] = browser.requests.as_slice() else {
            panic!("it asked for {:?}", browser.requests)
        };
        assert!(asked.starts_with("file://"), "{asked}");
    }
}

#[test]
fn browser_detects_page_errors_and_requests() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let wide = "<p style='width:900px'>x<script>throw new Error('x')</script><img src='http://127.0.0.1:9/x.png'>";
    fs::write(&page, wide).unwrap();
    let mut browser = Browser::start();
    browser.open(&page, 360, true);
    assert!(
        browser.requests.iter().any(|asked| asked == "http://127.0.0.1:9/x.png"),
        "{:?}",
        browser.requests
    );
    assert!(
        browser.problems.iter().any(|problem| problem.contains("Error: x")),
        "{:?}",
        browser.problems
    );
    assert!(
        browser.look("document.documentElement.scrollWidth - innerWidth").as_f64().unwrap() > 0.0
    );
    assert_eq!(browser.look("matchMedia('(prefers-color-scheme: dark)').matches"), true);
}

fn shown(browser: &mut Browser) -> String {
    browser.look("document.body.innerText").as_str().unwrap().replace('\u{a0}', " ")
}

/// Headings, captions and what is folded, one a line.
fn headings(browser: &mut Browser) -> String {
    let all = "[...document.querySelectorAll('h1, h2, h3, figcaption, summary')]";
    let lines = browser.look(&format!("{all}.map(one => one.innerText).join('\\n')"));
    normalise(&lines.as_str().unwrap().replace('\u{a0}', " "))
}

/// Red, green and blue of a computed colour; transparent is `None`.
fn rgb(colour: &Value) -> Option<[f64; 3]> {
    let colour = colour.as_str().unwrap();
    let numbers: Vec<f64> = colour
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter_map(|part| part.parse().ok())
        .collect();
    match numbers[..] {
        [.., 0.0] if numbers.len() == 4 => None,
        [r, g, b, ..] => Some([r, g, b]),
        _ => panic!("{colour} is no colour"),
    }
}

/// The contrast ratio of WCAG.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| {
        let linear = colour.map(|part| {
            let part = part / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Of each chart its size, what is in its legend, and the computed colours of the series and labels
/// that are drawn.
const CHARTS: &str = "[...document.querySelectorAll('figure.chart')].map(figure => {
    const chart = figure.querySelector('[role=img] svg'), box = chart.getBoundingClientRect();
    const inks = [...figure.querySelectorAll('.swatch polyline')].map(line => line.getAttribute('stroke'));
    const drawn = [...chart.querySelectorAll('polyline, circle')].filter(one => inks.includes(one.getAttribute('stroke')) || inks.includes(one.getAttribute('fill')));
    const colour = one => one.tagName == 'circle' ? getComputedStyle(one).fill : getComputedStyle(one).stroke;
    return {
        title: figure.querySelector('figcaption').innerText, width: box.width, height: box.height, legend: inks.length,
        series: drawn.map(colour), labels: [...chart.querySelectorAll('text')].map(one => getComputedStyle(one).fill),
    };
})";

/// Every chart is there with a line for every entry of its legend, and can be told from the page.
fn charts_are_drawn(browser: &mut Browser, least: usize) -> Vec<usize> {
    let background = browser.look("getComputedStyle(document.body).backgroundColor");
    let background = rgb(&background).expect("a page has a colour");
    let charts = browser.look(CHARTS);
    let charts = charts.as_array().unwrap();
    assert!(charts.len() >= least, "{} charts", charts.len());
    for chart in charts {
        assert!(
            chart["width"].as_f64().unwrap() > 200.0 && chart["height"].as_f64().unwrap() > 100.0,
            "{chart}"
        );
        let (series, labels) =
            (chart["series"].as_array().unwrap(), chart["labels"].as_array().unwrap());
        assert_eq!(json!(series.len()), chart["legend"], "{chart}");
        assert!(
            series.iter().all(|ink| contrast(rgb(ink).unwrap(), background) >= 3.0),
            "{chart} on {background:?}"
        );
        assert!(labels.len() > 3, "{chart}");
        assert!(
            labels.iter().all(|ink| contrast(rgb(ink).unwrap(), background) >= 4.5),
            "{chart} on {background:?}"
        );
    }
    charts.iter().map(|chart| chart["legend"].as_u64().unwrap() as usize).collect()
}

/// Sentences with a reward above 0 are blue, below 0 orange, and the others have no colour; all can
/// be read.
fn sentences_have_the_colour_of_their_reward(browser: &mut Browser) -> usize {
    let marks = browser.look(
        "[...document.querySelectorAll('.text mark')].map(mark => ({
            reward: mark.querySelector('small')?.innerText, ink: getComputedStyle(mark).color,
            paper: getComputedStyle(mark).backgroundColor, visible: mark.getBoundingClientRect().height > 0,
        }))",
    );
    let marks = marks.as_array().unwrap();
    for mark in marks {
        assert_eq!(mark["visible"], true, "{mark}");
        let reward =
            mark["reward"].as_str().map(|reward| reward.replace('−', "-").parse::<f64>().unwrap());
        match (reward, rgb(&mark["paper"])) {
            (None, paper) => assert_eq!(paper, None, "{mark}"),
            (Some(reward), None) => assert_eq!(reward, 0.0, "{mark}"),
            (Some(reward), Some(paper)) => {
                assert_eq!(reward > 0.0, paper[2] > paper[0], "{mark}");
                assert!(contrast(rgb(&mark["ink"]).unwrap(), paper) >= 4.5, "{mark}");
            }
        }
    }
    marks.len()
}

#[test]
fn report_page_renders_run_in_browser() {
    let out = run_dir("reported");
    let summary = short_run(&out, 6, &[]).good().json();
    let page = out.join("report.html");
    let mut papers = Vec::new();
    in_every_window(&page, |browser, is_dark| {
        let shown = shown(browser);
        assert_eq!(browser.look("document.querySelector('h1').innerText"), "Training run reported");
        for (when, name) in [
            ("before", "accuracy"),
            ("after", "accuracy"),
            ("after", "supported_rate"),
            ("before", "refusal_rate"),
        ] {
            let percent = format!("{:.1} %", 100.0 * summary[when][name].as_f64().unwrap());
            assert!(shown.contains(&percent), "no {name} = {percent} in\n{shown}");
        }
        for part in ["rule first (1), judge string-match (1)", "seed 42", "6 steps"] {
            assert!(shown.contains(part), "no {part:?} in\n{shown}");
        }
        charts_are_drawn(browser, 12);
        assert!(sentences_have_the_colour_of_their_reward(browser) >= 6);
        papers.push((
            is_dark,
            rgb(&browser.look("getComputedStyle(document.body).backgroundColor")).unwrap(),
        ));
    });
    for (is_dark, paper) in papers {
        assert_eq!(contrast(paper, [0.0; 3]) < 2.0, is_dark, "{paper:?}");
    }

    // Settings and hashes are folded, and there.
    let mut browser = Browser::start();
    browser.open(&page, 360, false);
    insta::assert_snapshot!(without_figures(&headings(&mut browser)));
    browser.look("document.querySelectorAll('details').forEach(one => one.open = true)");
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(out.join("manifest.json")).unwrap()).unwrap();
    let shown = shown(&mut browser);
    assert!(
        shown.contains(manifest["plugin"].as_str().unwrap())
            && shown.contains("prompts_per_step = 2"),
        "{shown}"
    );
    assert!(
        browser.look("document.documentElement.scrollWidth - innerWidth").as_f64().unwrap() <= 0.0
    );
}

#[test]
fn report_page_compares_several_runs() {
    let (first, min) = (run_dir("beside-first"), run_dir("beside-min"));
    short_run(&first, 2, &[]).good();
    short_run(&min, 2, &["--plugin", "min.wasm"]).good();
    let out = first.with_extension("html");
    host(&["report", text(&first), text(&min), "--out", text(&out)]).good();
    in_every_window(&out, |browser, _| {
        let shown = shown(browser);
        assert!(shown.contains("2 training runs") && shown.contains("\"min.wasm\""), "{shown}");
        let legends = charts_are_drawn(browser, 12);
        assert!(legends.iter().filter(|entries| **entries == 2).count() > 10, "{legends:?}");
    });
}

#[test]
fn explain_page_escapes_quoted_content() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
    let hostile = "Paris is in France <script>document.title = 'ran'</script><img src=http://127.0.0.1:9/ onerror=alert(1)>.";
    let line = json!({
        "question": "</title><script>document.title = 'ran'</script> Where?", "answers": "Paris",
        "completion": format!("<think>{hostile} \u{202e}Rome is in Peru, nobody doubts it.</think><answer>Paris</answer>"),
        "triplets": [
            [hostile, [["Paris", "</td><b onclick=alert(1)>", "France"]]],
            ["\u{202e}Rome is in Peru, nobody doubts it.", [["Rome", "is in", "Peru"]]],
            ["Paris", []],
        ],
    });
    let file = folder.path().join("completions.jsonl");
    fs::write(&file, format!("\n{line}\n")).unwrap();
    let set = format!("corpus.index={}", index.display());
    let explained = host(&["explain", text(&file), "--line", "2", "--set", &set]).good();
    assert!(!explained.stdout.contains('\u{202e}'), "{explained}");
    transcript.add(&explained);

    let mut texts = BTreeSet::new();
    in_every_window(&folder.path().join("explain.html"), |browser, _| {
        texts.insert(shown(browser));
        assert_eq!(browser.look("document.title"), "Rewards of line 2 of completions.jsonl");
        assert_eq!(sentences_have_the_colour_of_their_reward(browser), 3);
        assert_eq!(browser.look("document.querySelectorAll('[onclick], [onerror]').length"), 0);
    });
    assert_eq!(texts.len(), 1, "every window shows the same: {texts:#?}");
    let page = texts.first().unwrap().replace('\u{202e}', "[U+202E]");
    transcript.add_text("explain.html", &page);
    transcript.add_failure(&host(&["explain", text(&file), "--line", "1", "--set", &set]));
    let only = host(&["explain", text(&file), "--set", &set]).good();
    assert!(only.stdout.starts_with("line 2 of completions.jsonl"), "{only}");
    fs::write(&file, format!("{line}\n{line}\n")).unwrap();
    transcript.add_failure(&host(&["explain", text(&file)]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn explain_reproduces_training_returns_and_advantages() {
    let mut transcript = Transcript::default();
    let out = run_dir("explained");
    short_run(&out, 2, &["--plugin", "relcheck.wasm", "--set", "reward.lambda_corver=0.7"]).good();
    let explain = |completion: usize| {
        let completion = completion.to_string();
        host(&["explain", text(&out), "--step", "2", "--completion", &completion, "--json"])
            .good()
            .json()["completions"][0]
            .clone()
    };
    // Two questions, 16 completions each.
    let groups = [explain(0), explain(16)];
    let metrics = &lines(&out.join("metrics.jsonl"))[1];
    for (name, of_group) in [("reward", "centre"), ("reward_std", "spread")] {
        let mean =
            groups.iter().map(|one| one["group"][of_group].as_f64().unwrap()).sum::<f64>() / 2.0;
        assert!(
            (mean - metrics[name].as_f64().unwrap()).abs() < 1e-9,
            "{name}: {mean} in {metrics}"
        );
    }
    let [one, _] = &groups;
    let base = one["returns"]["outside"].as_f64().unwrap();
    for (n, sentence) in one["trace"]["sentences"].as_array().unwrap().iter().enumerate() {
        let reward = sentence["verdict"]["reward"].as_f64().unwrap_or(0.0);
        let value = one["returns"]["sentences"][n].as_f64().unwrap();
        assert!((value - base - 0.7 * reward).abs() < 1e-6, "{one}");
        let (centre, scale) = (&one["group"]["centre"], &one["group"]["scale"]);
        let advantage = (value - centre.as_f64().unwrap()) / scale.as_f64().unwrap();
        assert!((one["group"]["sentences"][n].as_f64().unwrap() - advantage).abs() < 1e-9, "{one}");
    }
    // Without a completion, the best and the worst.
    let both = host(&["explain", text(&out), "--json"]).good().json();
    let means: Vec<f64> = both["completions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["trace"]["mean_return"].as_f64().unwrap())
        .collect();
    let traces = lines(&out.join("traces.jsonl"));
    let of_step = traces
        .iter()
        .filter(|line| line["step"] == 2)
        .map(|line| line["trace"]["mean_return"].as_f64().unwrap());
    let bounds =
        of_step.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    assert_eq!(means, [bounds.1, bounds.0]);

    transcript.add_failure(&host(&["explain", text(&out), "--step", "3"]));
    transcript.add_failure(&host(&["explain", text(&out), "--completion", "32"]));
    transcript.add_failure(&host(&["explain", text(&out), "--set", "reward.lambda_judge=2"]));
    fs::write(out.join("traces.jsonl"), "{\"step\": 1}\n").unwrap();
    transcript.add_failure(&host(&["report", text(&out)]));
    fs::remove_file(out.join("manifest.json")).unwrap();
    transcript.add_failure(&host(&["report", text(&out)]));
    insta::assert_snapshot!(transcript);
}
