//! `corver-host calibrate audit`: rules, before anyone trains with them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use corver_core::Sampling;
use corver_report::page;
use corver_reward::Config;
use corver_reward::parts::{self, Loader};
use corver_study::calibrate::{Annotated, Buckets, Judged, Order, RuleAudit, SamplePlan, Sampled, audit, read_sheets};
use corver_study::eval::Truth;
use corver_study::whole;
use serde::Serialize;

use super::cells;
use crate::args::AuditArgs;
use crate::engine::{self, Answering};
use crate::output;
use crate::policy;
use crate::recording;
use crate::settings;

/// What came of the audit.
const AUDIT: &str = "audit.json";
/// The same, drawn.
const PAGE: &str = "audit.html";
/// Every sentence whose truth is known, and what each rule says of it.
const SENTENCES: &str = "sentences.jsonl";

const ONE_SIDED: &str = "an audit needs true sentences and false ones; all whose truth is known are one or the other";

/// All rules, on the same sentences.
#[derive(Serialize)]
struct Audited {
    /// Those that were said or labelled.
    sentences: usize,
    /// Those whose truth is known.
    decided: usize,
    /// Share of those that are true.
    true_share: f64,
    rules: Vec<RuleAudit>,
}

/// Where the truth comes from.
enum Source {
    /// People's labels.
    Sheets(Annotated),
    /// The world that the evaluation questions are about.
    World(Arc<dyn Truth>),
}

pub fn run(args: &AuditArgs, json: bool) -> Result<()> {
    let mut config = Config::resolve(settings::of_audit(args)?)?;
    let buckets = Buckets::new(&args.buckets.buckets)?;
    let source = if args.sheet.is_empty() {
        let truth = parts::truth(&config).context(
            "nobody knows what is true of these questions; label sentences (calibrate draw), then give the sheet with --sheet",
        )?;
        policy::find_device(config.device)?;
        Source::World(truth)
    } else {
        Source::Sheets(read_sheets(&args.sheet)?)
    };
    if let Some(out) = &args.out {
        ensure!(!out.exists(), "{} is there already; choose another --out", out.display());
    }
    let rules = Loader::new(&config)?.each_sentence_rule()?;
    let mut verifiers = recording::verifiers(&config, &args.recording)?;
    let sampled = match source {
        Source::Sheets(annotated) => Sampled::labelled(&annotated),
        Source::World(truth) => sample(args, &mut config, truth.as_ref())?,
    };

    let (mut audits, mut all) = (Vec::new(), Vec::new());
    for mut rule in rules {
        let judged = sampled.judge(&mut rule, &mut verifiers).with_context(|| format!("auditing {}", rule.name))?;
        audits.push(audit(&rule.name, &judged, &buckets, config.seed).context(ONE_SIDED)?);
        all.push((rule.name, judged));
    }
    let (sentences, decided) = sampled.sentences();
    let truths = all[0].1.iter().filter(|judged| judged.is_true).count();
    let audited = Audited { sentences, decided, true_share: truths as f64 / decided as f64, rules: audits };
    if let Some(out) = &args.out {
        write(out, &audited, &sampled, &all)?;
    }
    if json {
        return output::json(&audited);
    }
    show(&audited, &buckets);
    Ok(())
}

/// What the policy says of the evaluation questions, drawn as in training.
fn sample(args: &AuditArgs, config: &mut Config, truth: &dyn Truth) -> Result<Sampled> {
    policy::choose_threads(config)?;
    let questions = parts::eval_questions(config)?;
    ensure!(!questions.is_empty(), "there are no questions: set `question.eval`");
    let model = parts::model(config)?;
    let mut extractor = parts::extractor(config)?.1;
    let sampling = Sampling { num_generations: usize::from(args.samples), ..config.rollout };
    let plan = SamplePlan {
        sampling,
        batch: config.eval.answers.batch,
        compatibility: config.reward.compatibility,
        truth,
        seed: config.seed,
    };
    let bar = output::progress(questions.len() as u64, "answering");
    let mut show = output::decoding(&bar);
    let watch = move |decoding| {
        show(decoding);
        ControlFlow::Continue(())
    };
    let scratch = tempfile::tempdir().context("making a folder for adapters")?;
    let (adapter, system_prompt) = (args.adapter.as_deref(), config.system_prompt.as_str());
    let answering = Answering { adapter, system_prompt, scratch: scratch.path() };
    let mut policy = engine::open_sampler(config, &model, answering, (&questions, &sampling), watch)?;
    let mut progress = |done: usize| bar.set_position(done as u64);
    let sampled = Sampled::draw(policy.as_mut(), &mut extractor, questions, &plan, &mut progress);
    bar.finish_and_clear();
    Ok(sampled?)
}

/// A sentence with the rewards that it earns; `None` where a rule abstains.
#[derive(Serialize)]
struct Sentence<'a> {
    question: &'a str,
    sentence: &'a str,
    is_true: bool,
    rewards: BTreeMap<&'a str, Option<f32>>,
    counts: BTreeMap<&'a str, Option<u64>>,
}

fn write(out: &Path, audited: &Audited, sampled: &Sampled, all: &[(String, Vec<Judged<'_>>)]) -> Result<()> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot create the folder {}", out.display()))?;
    let write = |name: &str, text: String| {
        let path = out.join(name);
        whole::write(&path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
    };
    write(AUDIT, serde_json::to_string_pretty(audited)? + "\n")?;
    let line = |n: usize| -> Result<String> {
        let Judged { question, sentence, is_true, .. } = &all[0].1[n];
        let line = Sentence {
            question: sampled.question(*question),
            sentence,
            is_true: *is_true,
            rewards: all.iter().map(|(name, judged)| (name.as_str(), judged[n].verdict.reward)).collect(),
            counts: all.iter().map(|(name, judged)| (name.as_str(), judged[n].verdict.count)).collect(),
        };
        Ok(serde_json::to_string(&line)? + "\n")
    };
    write(SENTENCES, (0..all[0].1.len()).map(line).collect::<Result<_>>()?)?;
    Ok(page::save(&out.join(PAGE), &corver_report::calibration::audit(&audited.rules))?)
}

fn show(audited: &Audited, buckets: &Buckets) {
    let Audited { sentences, decided, true_share, rules } = audited;
    output::line(format_args!(
        "{decided} of {sentences} sentences can be decided; {} of those are true",
        output::percent(*true_share)
    ));
    output::table(
        ["rule", "abstains", "reward if true", "if false", "AUC (95 %)", "within a question", "ρ"],
        rules.iter().map(|audit| {
            [
                audit.rule.clone(),
                output::percent(audit.abstained),
                format!("{:+.3}", audit.mean_true),
                format!("{:+.3}", audit.mean_false),
                audit.auc.to_string(),
                audit.auc_within_questions.map_or("–".to_owned(), |auc| auc.to_string()),
                audit.rank_correlation.map_or("–".to_owned(), |rho| format!("{rho:.3}")),
            ]
        }),
    );
    let names: Vec<String> = buckets.iter().map(|bucket| bucket.to_string()).collect();
    let header = [&["P(true) at a count of"][..], &names.iter().map(String::as_str).collect::<Vec<_>>(), &["in order"]];
    output::table(
        header.concat(),
        rules.iter().map(|audit| {
            let of_bucket = |bucket| {
                let share = audit.by_count.iter().find(|own| own.bucket == bucket);
                share.map_or("–".to_owned(), |own| format!("{} of {}", output::percent(own.share.share), own.share.n))
            };
            let in_order = match audit.order {
                Order::Kept => "yes",
                Order::Unclear => "within chance",
                Order::Broken => "no",
            }
            .to_owned();
            [audit.rule.clone()].into_iter().chain(buckets.iter().map(of_bucket)).chain([in_order]).collect::<Vec<_>>()
        }),
    );
    let abstained = |audit: &RuleAudit| audit.of_abstained.map(|share| ("abstains".to_owned(), share));
    output::table(
        ["rule", "reward", "sentences", "P(true)", "95 %"],
        rules.iter().flat_map(|audit| {
            let points = audit.by_reward.iter().map(|point| (point.label.clone(), point.share)).chain(abstained(audit));
            points.map(|(label, share)| {
                let [n, p, interval] = cells(&share);
                [audit.rule.clone(), label, n, p, interval]
            })
        }),
    );
    rules.iter().for_each(|audit| output::line(audit.told()));
}
