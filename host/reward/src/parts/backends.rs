//! Opens the backends that answer the requests of rules, if the configuration grants them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use corver_backends::chat::ChatClient;
use corver_backends::passages::{
    PassageError, PassageIndex, PassageLocation, PassageOptions, build,
};
use corver_core::{Backends, Capability, Graders, SentenceScorer as _};
use corver_counts::CorpusSource;
use corver_demo::{DemoChat, DemoNli, InjectedErrors, demo_world};
use corver_inference::nli::Nli;

use super::{SentenceRules, demo_index, runtime_library};
use crate::config::{BackendsConfig, CorpusConfig, DemoOr};
use crate::folders;

/// Section of the chat model's settings.
const CHAT: &str = "backends.chat";

/// Opens the corpus and the granted backends, and returns the sources of counts, too. Replies of a
/// chat model are cached for all runs of the user, so that equal prompts cost money once.
///
/// # Errors
/// If a granted backend is missing or not usable.
pub fn open_backends(
    corpus: &CorpusConfig,
    others: &BackendsConfig,
) -> Result<(Vec<CorpusSource>, Backends<'static>)> {
    let (sources, counter) = super::open_corpus(corpus)?;
    Ok((sources, with_models(Backends::counting(counter), others)?))
}

fn with_models(
    mut backends: Backends<'static>,
    config: &BackendsConfig,
) -> Result<Backends<'static>> {
    let BackendsConfig { nli, chat, passages, error_rate, seed } = config;
    let errors = InjectedErrors::new(*error_rate, *seed).context("`backends.demo.error_rate`")?;
    backends = match nli {
        None => backends,
        Some((DemoOr::Demo, _)) => backends.with_nli(DemoNli::new(&demo_world(), errors)),
        Some((DemoOr::Own(folder), settings)) => {
            let model = Nli::open(folder, settings, &runtime_library()?)
                .with_context(|| format!("opening the NLI model {}", folder.display()))?;
            backends.with_nli(model)
        }
    };
    backends = match chat {
        None => backends,
        Some(DemoOr::Demo) => backends.with_chat(DemoChat::new(&demo_world(), errors)),
        Some(DemoOr::Own(settings)) => {
            let replies = folders::cache()?.join("chat/replies.jsonl");
            backends.with_chat(ChatClient::open(settings.clone(), CHAT, &replies)?)
        }
    };
    if passages.is_empty() {
        return Ok(backends);
    }
    Ok(backends.with_passages(open_passages(passages)?))
}

/// Opens the passages of indexes; the demo's are cut on first use.
///
/// # Errors
/// If an index has no passages; the message has the command that makes them.
pub fn open_passages(places: &[DemoOr<PassageLocation>]) -> Result<PassageIndex> {
    let mut resolved = Vec::with_capacity(places.len());
    for place in places {
        resolved.push(match place {
            DemoOr::Demo => demo_passages()?,
            DemoOr::Own(place) => place.clone(),
        });
    }
    Ok(PassageIndex::open(&resolved)?)
}

/// Returns the passages of the demo's articles, cut on first use.
fn demo_passages() -> Result<PassageLocation> {
    let place = PassageLocation::new(&demo_index()?, None)?;
    // Another process may be cutting the same passages: wait for it.
    for attempt in 0.. {
        if place.folder().exists() {
            break;
        }
        match build(&place, &PassageOptions::default()) {
            Err(PassageError::Busy { .. }) if attempt < 100 => {
                std::thread::sleep(Duration::from_millis(100))
            }
            Err(_) if place.folder().exists() => {}
            result => drop(result.context("cutting the demo's articles into passages")?),
        }
    }
    Ok(place)
}

/// Checks that every capability that a rule requires is granted.
///
/// # Errors
/// If one is not; the message names the rule and the setting that grants it.
pub fn check_granted(
    backends: &Backends<'_>,
    rules: &SentenceRules,
    graders: &Graders,
) -> Result<()> {
    let required = [
        (format!("the rule {}", rules.name), rules.required_capabilities()),
        ("the judge".to_owned(), graders.judge.required_capabilities()),
        ("the format check".to_owned(), graders.format.required_capabilities()),
    ];
    for (rule, capabilities) in required {
        for capability in capabilities {
            if !backends.grants(capability) {
                let remedy = grant(capability);
                bail!("{rule} requires {capability}, which is not granted: {remedy}");
            }
        }
    }
    Ok(())
}

/// Returns the instruction that grants a capability.
fn grant(capability: Capability) -> &'static str {
    match capability {
        Capability::Nli => {
            "add `backends.nli.model = \"FOLDER\"`, the folder of HHEM-2.1 or of a DeBERTa-v3 for \
             MNLI, or \"demo\" for the demo's world"
        }
        Capability::Chat => {
            "add `backends.chat.endpoint = \"URL\"` and `backends.chat.model = \"NAME\"`, an \
             OpenAI-compatible API and a model of it, or the endpoint \"demo\" for the demo's \
             world"
        }
        Capability::Passages => {
            "add `backends.passages.index = [\"FOLDER\"]`, an index whose passages \
             `corver-host index passages` made, or \"demo\" for the demo's"
        }
    }
}
