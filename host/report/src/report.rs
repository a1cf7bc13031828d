//! The page about a run, or about several runs side by side.

use std::collections::{BTreeMap, BTreeSet};

use corver_core::ResponseGrades;
use maud::{Markup, html};

use crate::curves::curves;
use crate::hacks::{self, HackCheck, warnings};
use crate::headline::{headline, results, side_by_side};
use crate::page::{page, table};
use crate::reported::{Reported, distinct_names};
use crate::run::LoadedRun;
use crate::tally::Shown;
use crate::{ReportError, completion, number};

/// Reads the traces of runs, and returns the page about them.
///
/// # Errors
/// Fails if the traces cannot be read or are malformed.
pub fn report(runs: Vec<LoadedRun>) -> Result<String, ReportError> {
    let names = distinct_names(&runs);
    let reported: Vec<Reported> = runs
        .into_iter()
        .zip(names)
        .map(|(run, name)| Reported::of(run, name))
        .collect::<Result<_, _>>()?;
    let titles: Vec<&str> = reported.iter().map(|reported| reported.name.as_str()).collect();
    let title = format!("Training report: {}", titles.join(", "));
    let known_hacks = html! {
        h2 { "Known hacks" }
        (hacks(&reported))
        @if reported.iter().any(|reported| reported.checks.is_empty()) {
            p.note { "–: too few steps to show a trend" }
        }
    };
    let body = html! {
        @match reported.as_slice() {
            [one] => {
                (headline(one))
                div.columns { section { (results(&one.run)) } section { (known_hacks) } }
            }
            several => {
                (side_by_side(several))
                (differences(several))
                (known_hacks)
            }
        }
        h2 { "Curves" }
        (curves(&reported))
        h2 { "Completions" }
        @for one in &reported { (best_and_worst(one, reported.len() > 1)) }
        div.columns {
            section {
                h2 { "Time by stage" }
                @for one in &reported { (timing(one, reported.len() > 1)) }
            }
            section {
                h2 { "Settings and hashes" }
                @for one in &reported { (settings(one)) }
            }
        }
    };
    Ok(page(&title, &body))
}

/// Returns the table of hacks, with the measures in the first and last steps; one column per run.
fn hacks(runs: &[Reported]) -> Markup {
    let is_alone = runs.len() == 1;
    let name = |reported: &Reported| {
        if is_alone { "first → last steps".to_owned() } else { reported.name.clone() }
    };
    html! {
        div.table {
            table.checks {
                thead { tr { th { "hack" } @for reported in runs { th { (name(reported)) } } } }
                tbody {
                    @for hack in hacks::ALL {
                        tr {
                            td { (hack.name) small { (hack.measure) } }
                            @for reported in runs {
                                td { (reported.check(hack).map_or_else(unknown, trend)) }
                            }
                        }
                    }
                }
            }
        }
        @for reported in runs {
            @for check in reported.checks.iter().filter(|check| check.flagged) {
                p {
                    span.warn { @if !is_alone { (reported.name) ", " } (check.hack.name) ":" }
                    " " (check.hack.meaning)
                }
            }
            @for (step, warning) in warnings(&reported.run) {
                p {
                    span.warn { @if !is_alone { (reported.name) ", " } "step " (step) ":" }
                    " " (warning)
                }
            }
        }
    }
}

fn trend(check: &HackCheck) -> Markup {
    let HackCheck { first, last, flagged, .. } = check;
    html! {
        (first) " → " (last)
        " "
        @if *flagged { span.warn { "flagged" } } @else { span.soft { "none" } }
    }
}

fn unknown() -> Markup {
    html! { span.soft { "–" } }
}

fn best_and_worst(reported: &Reported, is_named: bool) -> Markup {
    let Reported { run, name, tally, .. } = reported;
    let one = |shown: &Shown| {
        let ResponseGrades { judge, format } = &shown.trace.response;
        html! {
            article.completion {
                h3 { (shown.trace.question) }
                ul.figures {
                    li { span { "return " } (number::with_sign(shown.trace.mean_return)) }
                    li { span { "judge " } (judge.label) " " (number::with_sign(judge.reward)) }
                    li { span { "format " } (format.label) " " (number::with_sign(format.reward)) }
                    li { span { "step " } (shown.step) span { ", completion " } (shown.place) }
                }
                (completion::coloured(&shown.trace, &run.settings.reward))
            }
        }
    };
    html! {
        @if is_named { h3 { (name) } }
        @if tally.best.is_empty() {
            p.soft { "No step is finished yet." }
        } @else {
            (completion::scale())
            div.columns {
                section {
                    h3 { "The largest returns" }
                    @for shown in &tally.best { (one(shown)) }
                }
                section {
                    h3 { "The smallest returns" }
                    @for shown in &tally.worst { (one(shown)) }
                }
            }
            p.note {
                "One completion of each question. For the reasons of each reward, run "
                code { "corver-host explain " (run.path.display()) " --step N --completion K" }
            }
        }
    }
}

/// Stages of the reward; those without time are not shown.
const REWARD_STAGES: [(&str, &str); 6] = [
    ("extract", "reward: triplets"),
    ("count", "reward: counts"),
    ("nli", "reward: NLI"),
    ("chat", "reward: chat"),
    ("passages", "reward: passages"),
    ("rule", "reward: the rule"),
];

fn timing(reported: &Reported, is_named: bool) -> Markup {
    let mean = |name: &str| reported.run.mean(name);
    let step = mean("step_time");
    let reward = REWARD_STAGES.map(|(stage, what)| (what, mean(&format!("seconds/{stage}"))));
    let in_reward: f64 = reward.iter().map(|(_, seconds)| seconds).sum();
    let mut rows = vec![("sampling completions", mean("seconds/rollout"))];
    rows.extend(reward.into_iter().filter(|(_, seconds)| *seconds > 0.0));
    rows.push(("reward: other", (mean("seconds/reward") - in_reward).max(0.0)));
    rows.push(("the reference's log-probabilities", mean("seconds/prepare")));
    rows.push(("loss, gradients, optimiser", mean("seconds/update")));
    let share =
        |seconds: f64| if step > 0.0 { (100.0 * seconds / step).clamp(0.0, 100.0) } else { 0.0 };
    html! {
        @if is_named { h3 { (reported.name) } }
        div.table {
            table {
                thead {
                    tr { th { "stage" } th { "seconds/step" } th { "share of step" } th { "" } }
                }
                tbody {
                    @for (what, seconds) in rows {
                        tr {
                            td { (what) }
                            td { (format!("{seconds:.3}")) }
                            td { (format!("{:.1} %", share(seconds))) }
                            td {
                                span.bar {
                                    i style={ "width:" (format!("{:.1}", share(seconds))) "%" } {}
                                }
                            }
                        }
                    }
                    tr { td { "total" } td { (format!("{step:.3}")) } td {} td {} }
                }
            }
        }
        p.note { "On a GPU some stages overlap, so that the sum may exceed the total." }
    }
}

fn settings(reported: &Reported) -> Markup {
    let hashes: Vec<_> = reported.run.manifest.0.iter().collect();
    html! {
        details {
            summary { (reported.name) ": fingerprints" }
            div.table {
                table {
                    tbody {
                        @for (what, value) in hashes { tr { td { (what) } td.hash { (value) } } }
                    }
                }
            }
        }
        details {
            summary { (reported.name) ": config.toml" }
            pre { (reported.run.config) }
        }
    }
}

/// Returns the table of the settings in which runs differ.
fn differences(runs: &[Reported]) -> Markup {
    let settings: Vec<BTreeMap<String, String>> =
        runs.iter().map(|reported| flat(&reported.run.config)).collect();
    let keys: BTreeSet<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
    let row = |key: &String| -> Option<Vec<String>> {
        let values: Vec<_> = settings
            .iter()
            .map(|one| one.get(key).cloned().unwrap_or_else(|| "–".to_owned()))
            .collect();
        let differ = values.iter().any(|value| *value != values[0]);
        differ.then(|| [vec![key.clone()], values].concat())
    };
    let rows: Vec<_> = keys.into_iter().filter_map(row).collect();
    let header: Vec<&str> =
        ["setting"].into_iter().chain(runs.iter().map(|reported| reported.name.as_str())).collect();
    html! {
        h2 { "Different settings" }
        @if rows.is_empty() {
            p.soft { "These runs have the same settings." }
        } @else {
            (table(&header, &rows))
        }
    }
}

/// Returns every value of a configuration by its dotted name.
fn flat(config: &str) -> BTreeMap<String, String> {
    fn add(name: &str, value: &toml::Value, flat: &mut BTreeMap<String, String>) {
        match value {
            toml::Value::Table(table) => {
                let dotted = |key: &str| {
                    if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") }
                };
                table.iter().for_each(|(key, member)| add(&dotted(key), member, flat));
            }
            value => drop(flat.insert(name.to_owned(), value.to_string())),
        }
    }
    let mut all = BTreeMap::new();
    if let Ok(table) = config.parse::<toml::Table>() {
        add("", &toml::Value::Table(table), &mut all);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_folder, trace};

    const HOSTILE: &str = "<think>Paris is in <script>alert(1)</script>\u{202e} & \"France\".</think><answer>Paris</answer>";

    fn page_of(folders: &[&tempfile::TempDir]) -> String {
        report(folders.iter().map(|folder| LoadedRun::open(folder.path()).unwrap()).collect())
            .unwrap()
    }

    #[test]
    fn report_covers_unfinished_run() {
        let folder = run_folder(6, |step| {
            vec![trace("<b>Where</b>?", HOSTILE, step as f64), trace("Who?", "It is.", -1.0)]
        });
        let page = page_of(&[&folder]);
        assert!(page.contains("Not finished: 6 of 9 steps"), "{page}");
        assert!(
            page.contains(
                "rule first (1), judge string-match (1), format think-then-answer (1), seed 7"
            ),
            "{page}"
        );
        for part in [
            "collapsing length",
            "&lt;b&gt;Where",
            "&lt;script&gt;alert(1)",
            "return </span>+6.00",
            "+0.10",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert!(!page.contains("<script") && !page.contains("<b>Where"));
        assert_eq!(page.matches("<figure").count(), 7, "what was not recorded has no chart");
    }

    #[test]
    fn stage_of_some_steps_is_averaged_over_all_steps() {
        let folder = run_folder(4, |_| vec![trace("q", "A.", 0.0)]);
        let mut run = LoadedRun::open(folder.path()).unwrap();
        run.metrics[1].insert("seconds/nli".into(), 1.0.into());
        let page = report(vec![run]).unwrap();
        let row = "<td>reward: NLI</td><td>0.250</td><td>12.5 %</td>";
        assert!(page.contains(row), "no {row} in\n{page}");
    }

    #[test]
    fn report_handles_run_without_steps() {
        let page = page_of(&[&run_folder(0, |_| Vec::new())]);
        assert!(
            page.contains("Not finished: 0 of 9 steps")
                && page.contains("No step is finished yet.")
        );
    }

    #[test]
    fn report_compares_runs_and_lists_differing_settings() {
        let [first, second] =
            [0.0, 1.0].map(|value| run_folder(6, |_| vec![trace("q", HOSTILE, value)]));
        let config = second.path().join("config.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text.replace("first.wasm", "min.wasm")).unwrap();
        let page = page_of(&[&first, &second]);
        for part in [
            "2 training runs",
            "<td>rule.plugin</td><td>&quot;first.wasm&quot;</td><td>&quot;min.wasm&quot;</td>",
            "Channels: judge",
        ] {
            assert!(page.contains(part), "no {part} in\n{page}");
        }
        assert!(!page.contains("<td>run.steps</td>"), "what they share is left out");
    }
}
