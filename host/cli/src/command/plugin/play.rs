//! `corver-host plugin play`: serves a page on which a rule's settings change.

use anyhow::{Context, Result, bail, ensure};
use corver_backends::recording::Recording;
use corver_core::{
    Backends, Completion, Counter, RewardSettings, Sentence, SentenceScorer as _, Trace,
    error_chain,
};
use corver_report::LoadedRun;
use corver_report::playground::{
    PlayedRule, SCRIPT, SCRIPT_PATH, SENTENCES_PATH, playground, sentences,
};
use corver_reward::config::{self, CorpusConfig, RulesConfig};
use corver_reward::parts::{self, AnyRule, Loader};
use corver_runs::folder::{CONFIG, TRACES};
use corver_serve::{
    HttpError, HttpReply, HttpServer, Metrics, Route, ServerLimits, exclusive_route,
};
use corver_settings::Settings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::args::{PlayArgs, SettingsArgs};
use crate::{output, settings};

/// Largest request, bytes: the settings of a rule.
const BODY_BYTES: usize = 1 << 20;
const FORM: &str = r#"{"settings": {KEY: VALUE, …}}"#;

pub fn run(args: &PlayArgs, json: bool) -> Result<()> {
    let run = LoadedRun::open(&args.run)?;
    let of_run = SettingsArgs { config: vec![args.run.join(CONFIG)], set: Vec::new() };
    let of_training = settings::load(&of_run, &[])?;
    let rules = rule_config(args, of_training.clone())?;
    let rule = played_rule(&rules)?;

    let step = args.step.unwrap_or_else(|| run.last_step());
    let mut traces = run.traces_of(step)?;
    traces.retain(|trace| !trace.fallback && !trace.sentences.is_empty());
    traces.truncate(args.completions);
    ensure!(!traces.is_empty(), "step {step} has no completion with scored sentences");
    let origin = format!("{}, step {step}, {} completions", run.name, traces.len());

    let backends = Backends::counting(open_counter(args, of_training, &run)?);
    let mut played = Played { rules, backends, traces, reward: run.settings.reward };
    let scored = played.score(rule.settings.clone())?;
    let page = playground(&rule, &origin, &scored, &played.reward);
    serve(args, played, page, json)
}

/// Returns the configuration of the run's rule, or of --plugin with its default settings.
fn rule_config(args: &PlayArgs, mut of_training: Settings) -> Result<RulesConfig> {
    if let Some(plugin) = &args.plugin {
        of_training.rule.plugin = vec![plugin.to_string()];
        of_training.rule.settings = Map::new();
    }
    let (_, config) = config::resolve::<RulesConfig>(of_training)?;
    ensure!(config.plugins.len() == 1, "the run has several rules; choose one with --plugin");
    Ok(config)
}

/// Describes the rule, for the form with its settings.
fn played_rule(config: &RulesConfig) -> Result<PlayedRule> {
    let plugin = &config.plugins[0].plugin;
    let AnyRule::Sentence(rule) = Loader::new(config)?.any(plugin)? else {
        bail!("{plugin} is a response rule; only sentence rules colour sentences");
    };
    let manifest = rule.manifest();
    if let Some(capability) = manifest.requires.first() {
        bail!("{} requires {capability}; the page has counts alone", manifest.name);
    }
    let schema = serde_json::from_str(&manifest.settings_schema)
        .with_context(|| format!("the settings schema of {}", manifest.name))?;
    Ok(PlayedRule {
        name: manifest.name.clone(),
        summary: manifest.summary.clone(),
        schema,
        settings: config.settings.clone(),
    })
}

/// Opens the recording, or the run's index. If the index cannot be opened, all counts in the run's
/// traces answer.
fn open_counter(
    args: &PlayArgs,
    of_training: Settings,
    run: &LoadedRun,
) -> Result<Box<dyn Counter>> {
    if let Some(path) = &args.replay {
        return Ok(Box::new(Recording::open(path)?));
    }
    let opened = config::resolve::<CorpusConfig>(of_training)
        .and_then(|(_, corpus)| parts::open_corpus(&corpus));
    let error = match opened {
        Ok((_, counter)) => return Ok(counter),
        Err(error) => error,
    };
    tracing::warn!("the counts are those of the traces: {error:#}");
    let mut lookups = Vec::new();
    run.for_each_trace(|_, trace| {
        for sentence in trace.sentences {
            lookups.extend(sentence.verdict.into_iter().flat_map(|verdict| verdict.lookups));
        }
    })?;
    Ok(Box::new(Recording::of_lookups(&run.path.join(TRACES), lookups)))
}

/// A rule, and the completions that it scores again with each change of its settings.
struct Played {
    rules: RulesConfig,
    backends: Backends<'static>,
    traces: Vec<Trace>,
    reward: RewardSettings,
}

impl Played {
    /// Returns the traces with the verdicts of the rule under these settings.
    fn score(&mut self, settings: Map<String, Value>) -> Result<Vec<Trace>> {
        self.rules.settings = settings;
        let mut rule = Loader::new(&self.rules)?.sentence_rules()?;
        let sentences: Vec<Vec<Sentence>> = self.traces.iter().map(sentences_of).collect();
        let mut completions = Vec::with_capacity(self.traces.len());
        for (index, trace) in self.traces.iter().enumerate() {
            completions.push(Completion {
                question: &trace.question,
                text: &trace.completion,
                sentences: &sentences[index],
                ..Completion::default()
            });
        }
        let verdicts =
            rule.score(&completions, &mut self.backends).map_err(anyhow::Error::from_boxed)?;
        let mut scored = self.traces.clone();
        for (trace, of_trace) in scored.iter_mut().zip(verdicts) {
            for (sentence, verdict) in trace.sentences.iter_mut().zip(of_trace) {
                sentence.verdict = Some(verdict);
            }
        }
        Ok(scored)
    }
}

fn sentences_of(trace: &Trace) -> Vec<Sentence> {
    let mut sentences = Vec::with_capacity(trace.sentences.len());
    for sentence in &trace.sentences {
        sentences.push(Sentence {
            text: sentence.text.clone(),
            section: sentence.section,
            span: None,
            triplets: sentence.triplets.clone(),
        });
    }
    sentences
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlayRequest {
    settings: Map<String, Value>,
}

#[derive(Serialize)]
struct PlayReply {
    html: String,
}

fn answer(played: &mut Played, request: PlayRequest) -> Result<PlayReply, HttpError> {
    let scored = played
        .score(request.settings)
        .map_err(|error| HttpError::bad_request(error_chain(error.as_ref())))?;
    Ok(PlayReply { html: sentences(&scored, &played.reward) })
}

fn serve(args: &PlayArgs, played: Played, page: String, json: bool) -> Result<()> {
    let mut server =
        HttpServer::bind(args.listen, ServerLimits::default(), None, Metrics::default())?;
    server.add_routes([
        Route::get("/", move || Ok(HttpReply::html(page.clone()))),
        Route::get(SCRIPT_PATH, || Ok(HttpReply::javascript(SCRIPT.to_owned()))),
        exclusive_route(SENTENCES_PATH, BODY_BYTES, FORM, played, answer),
    ]);
    let interrupted = server.interrupted()?;
    let url = format!("http://{}/", server.address());
    if json {
        output::json(&json!({"url": url}))?;
    } else {
        output::line(format_args!("{url} shows the page; Ctrl-C stops it"));
    }
    server.run(interrupted);
    Ok(())
}
