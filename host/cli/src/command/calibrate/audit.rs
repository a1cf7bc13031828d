//! `corver-host calibrate audit`: measures how well rules' rewards separate true from false
//! sentences.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use corver_analysis::calibrate::{
    Annotated, CountBuckets, RuleAudit, SamplePlan, Sampled, ScoredSentence, ShareOrder, audit,
    read_sheets,
};
use corver_core::Sampling;
use corver_eval::FactChecker;
use corver_report::page;
use corver_reward::config::{self, ExtractorConfig, PolicyConfig, Problems, Resolve, RulesConfig};
use corver_reward::parts::{self, Loader};
use corver_settings::Settings;
use serde::Serialize;

use super::saved::cells;
use crate::args::AuditArgs;
use crate::engine::{self, Answering};
use crate::files;
use crate::output;
use crate::policy;
use crate::questions::EvalSet;
use crate::recording::{self, Answers};
use crate::scoring::GivenConfig;
use crate::settings;

/// File with the results.
const AUDIT: &str = "audit.json";
/// Page with the plots.
const PAGE: &str = "audit.html";
/// File with every sentence of known truth, and the rewards and counts of each rule.
const SENTENCES: &str = "sentences.jsonl";

const ONE_SIDED: &str =
    "an audit needs true and false sentences; all sentences of known truth are of one kind";

/// Results of all rules on the same sentences.
#[derive(Serialize)]
struct Audited {
    /// Number of sentences.
    sentences: usize,
    /// Number of sentences with known truth.
    decided: usize,
    /// Share of the sentences with known truth that are true, 0 to 1.
    true_share: f64,
    /// True if an extractor read the triplets; false if each sentence has the one of its sheet.
    extracted: bool,
    rules: Vec<RuleAudit>,
}

/// Parts of an audit.
struct AuditConfig {
    rules: RulesConfig,
    answers: Answers,
    /// Extractor of the triplets. `None`: each sentence has the triplet of its sheet.
    extractor: Option<ExtractorConfig>,
    /// Parts that sample sentences of known truth. `None`: the sentences are those of labelled
    /// sheets.
    world: Option<WorldConfig>,
}

/// Policy and questions of a world whose truth is known.
struct WorldConfig {
    policy: PolicyConfig,
    questions: EvalSet,
}

impl AuditConfig {
    fn resolve(args: &AuditArgs, settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let has_triplets = !args.sheet.is_empty() && !args.extract;
        let given = GivenConfig::resolve(has_triplets, &args.recording, settings, problems);
        let mut world = None;
        if args.sheet.is_empty() {
            let policy = PolicyConfig::resolve(settings, problems);
            let questions = EvalSet::resolve(settings, problems);
            problems.required("question.eval", settings.question.eval.as_ref(), "--questions FILE");
            world = Some(WorldConfig { policy: policy?, questions: questions? });
        }
        let GivenConfig { extractor, rules, answers } = given?;
        Some(Self { rules, answers, extractor, world })
    }
}

/// Fails if a flag has no effect with --sheet.
fn check_flags(args: &AuditArgs) -> Result<()> {
    if args.sheet.is_empty() {
        return Ok(());
    }
    for (flag, value) in [("--model", &args.policy.model), ("--device", &args.policy.device)] {
        ensure!(value.is_none(), "{flag} is not for --sheet: its sentences are in the sheet");
    }
    ensure!(
        args.extract || args.reward.parts.extractor.is_none(),
        "--extractor is not for --sheet: without --extract, each sentence has the triplet of its \
         sheet"
    );
    Ok(())
}

fn settings_of(args: &AuditArgs) -> Result<Settings> {
    let mut layers = settings::layers(&args.settings, &[&args.policy, &args.reward])?;
    if let Some(questions) = &args.questions {
        layers.set("question.eval", questions.as_str());
    }
    if let Some(limit) = args.limit {
        layers.set("question.eval_limit", limit);
    }
    if args.adapter.is_some() || !args.sheet.is_empty() {
        layers.add_own_part();
    }
    settings::finish(&layers)
}

/// Source of sentences with known truth.
enum SentenceSource<'a> {
    /// Sheets that people labelled.
    Sheets(Annotated),
    /// The policy's answers to questions about a world with known facts.
    World(&'a WorldConfig, Arc<dyn FactChecker>),
}

pub fn run(args: &AuditArgs, json: bool) -> Result<()> {
    check_flags(args)?;
    let (mut settings, config) = config::resolve_with(settings_of(args)?, |settings, problems| {
        AuditConfig::resolve(args, settings, problems)
    })?;
    let buckets = CountBuckets::new(&args.buckets.buckets)?;
    let source = match &config.world {
        None => SentenceSource::Sheets(read_sheets(&args.sheet)?),
        Some(world) => {
            let truth = world.questions.truth().context(
                "the truth of answers to these questions is unknown; label sentences (calibrate \
                 draw), then give the sheet with --sheet",
            )?;
            policy::find_device(settings.run.device)?;
            SentenceSource::World(world, truth)
        }
    };
    if let Some(out) = &args.out {
        files::ensure_new(out)?;
    }
    let rules = Loader::new(&config.rules)?.each_sentence_rule()?;
    recording::check(&args.recording, false)?;
    let (_, backends) = recording::open(&config.answers, &args.recording)?;
    let mut sampled = match source {
        SentenceSource::Sheets(annotated) => Sampled::from_labels(&annotated),
        SentenceSource::World(world, truth) => sample(args, &mut settings, world, truth.as_ref())?,
    };
    if let Some(extractor) = &config.extractor {
        let mut extractor = parts::open_extractor(extractor)?;
        sampled.extract(&mut extractor, settings.reward.language)?;
    }
    // Last, because it creates the file of --record: an earlier failure leaves none.
    let mut backends = recording::recorded(&args.recording, false, backends)?;

    let mut audits = Vec::new();
    let mut all = Vec::new();
    for mut rule in rules {
        let judged = sampled
            .score(&mut rule, &mut backends)
            .with_context(|| format!("auditing {}", rule.name))?;
        audits.push(audit(&rule.name, &judged, &buckets, settings.run.seed).context(ONE_SIDED)?);
        all.push((rule.name, judged));
    }
    let (sentences, decided) = sampled.num_sentences();
    let truths = all[0].1.iter().filter(|judged| judged.is_true).count();
    let audited = Audited {
        sentences,
        decided,
        true_share: truths as f64 / decided as f64,
        extracted: config.extractor.is_some(),
        rules: audits,
    };
    if let Some(out) = &args.out {
        write(out, &audited, &sampled, &all)?;
    }
    if json {
        return output::json(&audited);
    }
    show(&audited, &buckets, config.world.is_none());
    Ok(())
}

/// Samples answers to the evaluation questions, as in training.
fn sample(
    args: &AuditArgs,
    settings: &mut Settings,
    world: &WorldConfig,
    truth: &dyn FactChecker,
) -> Result<Sampled> {
    policy::choose_threads(settings)?;
    let questions = world.questions.read()?;
    let model = parts::policy_folder(&world.policy)?;
    let sampling = Sampling { num_generations: usize::from(args.samples), ..settings.rollout };
    let plan = SamplePlan {
        sampling,
        batch: settings.eval.answers.batch,
        text: settings.reward.text(),
        truth,
        seed: settings.run.seed,
    };
    let bar = output::progress(questions.len() as u64, "answering");
    let scratch = tempfile::tempdir().context("making a folder for adapters")?;
    let adapter = args.adapter.as_deref().or(world.policy.adapter.as_deref());
    let system_prompt = settings.policy.system_prompt.as_str();
    let answering = Answering { adapter, system_prompt, scratch: scratch.path() };
    let mut policy = engine::open_sampler(
        settings,
        &world.policy,
        &model,
        answering,
        (&questions, &sampling),
        output::decoding(&bar, None),
    )?;
    let mut progress = |done: usize| bar.set_position(done as u64);
    let sampled = Sampled::draw(policy.as_mut(), questions, &plan, &mut progress);
    bar.finish_and_clear();
    Ok(sampled?)
}

/// A sentence with its rewards by rule; `None` if a rule abstains.
#[derive(Serialize)]
struct AuditedSentence<'a> {
    question: &'a str,
    sentence: &'a str,
    is_true: bool,
    rewards: BTreeMap<&'a str, Option<f32>>,
    counts: BTreeMap<&'a str, Option<u64>>,
}

fn write(
    out: &Path,
    audited: &Audited,
    sampled: &Sampled,
    all: &[(String, Vec<ScoredSentence<'_>>)],
) -> Result<()> {
    files::create_folder(out)?;
    files::write(&out.join(AUDIT), &(serde_json::to_string_pretty(audited)? + "\n"))?;
    let mut lines = String::new();
    for (n, ScoredSentence { question, sentence, is_true, .. }) in all[0].1.iter().enumerate() {
        let mut line = AuditedSentence {
            question: sampled.question(*question),
            sentence,
            is_true: *is_true,
            rewards: BTreeMap::new(),
            counts: BTreeMap::new(),
        };
        for (name, judged) in all {
            line.rewards.insert(name, judged[n].verdict.reward);
            line.counts.insert(name, judged[n].verdict.count);
        }
        files::push_line(&mut lines, &line)?;
    }
    files::write(&out.join(SENTENCES), &lines)?;
    Ok(page::save(&out.join(PAGE), &corver_report::calibration::audit(&audited.rules))?)
}

fn show(audited: &Audited, buckets: &CountBuckets, is_of_sheet: bool) {
    let Audited { sentences, decided, true_share, extracted, rules } = audited;
    output::line(format_args!(
        "{decided} of {sentences} sentences can be decided; {} of those are true",
        output::percent(*true_share)
    ));
    if is_of_sheet {
        output::line(
            "this share and the AUC are the sheet's: `calibrate draw` draws equally many sentences \
             from each range of counts",
        );
    }
    if !extracted {
        output::line("each sentence has the triplet of its sheet; --extract reads all triplets");
    }
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
    let mut header = vec!["P(true) at a count of".to_owned()];
    header.extend(buckets.iter().map(|bucket| bucket.to_string()));
    header.push("in order".to_owned());
    output::table(
        header,
        rules.iter().map(|audit| {
            let of_bucket = |bucket| {
                let share = audit.by_count.iter().find(|own| own.bucket == bucket);
                share.map_or("–".to_owned(), |own| {
                    format!("{} of {}", output::percent(own.share.share), own.share.n)
                })
            };
            let in_order = match audit.order {
                ShareOrder::Rising => "yes",
                ShareOrder::Unclear => "within chance",
                ShareOrder::Broken => "no",
            }
            .to_owned();
            [audit.rule.clone()]
                .into_iter()
                .chain(buckets.iter().map(of_bucket))
                .chain([in_order])
                .collect::<Vec<_>>()
        }),
    );
    let abstained =
        |audit: &RuleAudit| audit.of_abstained.map(|share| ("abstains".to_owned(), share));
    output::table(
        ["rule", "reward", "sentences", "P(true)", "95 %"],
        rules.iter().flat_map(|audit| {
            let points = audit
                .by_reward
                .iter()
                .map(|point| (point.label.clone(), point.share))
                .chain(abstained(audit));
            points.map(|(label, share)| {
                let [n, p, interval] = cells(&share);
                [audit.rule.clone(), label, n, p, interval]
            })
        }),
    );
    rules.iter().for_each(|audit| output::line(audit.summary()));
}
