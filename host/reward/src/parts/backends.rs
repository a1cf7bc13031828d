//! What answers a rule's questions, each verifier opened where the configuration grants it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use corver_backends::chat::Chat;
use corver_backends::passages::{
    BuildOptions, PassageError, Passages, Place as PassagePlace, build,
};
use corver_core::{Backends, Capability, Graders, SentenceScorer as _};
use corver_counts::Source;
use corver_demo::{DemoChat, DemoNli, Errors, demo_world};
use corver_inference::nli::Nli;

use super::{SentenceRules, demo_index, runtime_library};
use crate::config::{CorpusConfig, DemoOr, VerifierConfig};
use crate::folders;

/// The section that a chat model's settings stand in.
const CHAT: &str = "verify.chat";

/// What answers a rule's questions, and where its counts come from. Replies of a chat model are
/// kept for all runs of this user: equal prompts are paid for once.
///
/// # Errors
/// Where a verifier that is granted is not there or not usable.
pub fn backends(
    corpus: &CorpusConfig,
    others: &VerifierConfig,
) -> Result<(Vec<Source>, Backends<'static>)> {
    let (sources, counter) = super::corpus(corpus)?;
    Ok((sources, with_models(Backends::counting(counter), others)?))
}

fn with_models(
    mut backends: Backends<'static>,
    config: &VerifierConfig,
) -> Result<Backends<'static>> {
    let VerifierConfig { nli, chat, passages, error_rate, seed } = config;
    let errors = Errors::new(*error_rate, *seed).context("`verify.demo.error_rate`")?;
    backends = match nli {
        None => backends,
        Some((DemoOr::Demo, _)) => backends.with_nli(DemoNli::new(&demo_world(), errors)),
        Some((DemoOr::Own(folder), settings)) => {
            let model = Nli::open(folder, settings, &runtime_library()?);
            backends.with_nli(
                model.with_context(|| format!("opening the NLI model {}", folder.display()))?,
            )
        }
    };
    backends = match chat {
        None => backends,
        Some(DemoOr::Demo) => backends.with_chat(DemoChat::new(&demo_world(), errors)),
        Some(DemoOr::Own(settings)) => {
            let replies = folders::cache()?.join("chat/replies.jsonl");
            backends.with_chat(Chat::open(settings.clone(), CHAT, &replies)?)
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
pub fn open_passages(places: &[DemoOr<PassagePlace>]) -> Result<Passages> {
    let mut all = Vec::new();
    for place in places {
        all.push(match place {
            DemoOr::Demo => demo_passages()?,
            DemoOr::Own(place) => place.clone(),
        });
    }
    Ok(Passages::open(&all)?)
}

/// The passages of the demo's articles, made on first use.
fn demo_passages() -> Result<PassagePlace> {
    let place = PassagePlace::new(&demo_index()?, None)?;
    // Another process may be at work on the same.
    for attempt in 0.. {
        if place.folder().exists() {
            break;
        }
        match build(&place, &BuildOptions::default()) {
            Err(PassageError::Busy { .. }) if attempt < 100 => {
                std::thread::sleep(Duration::from_millis(100))
            }
            Err(_) if place.folder().exists() => {}
            built => drop(built.context("cutting the demo's articles into passages")?),
        }
    }
    Ok(place)
}

/// Refuses rules that ask what is not granted, before anything is computed.
///
/// # Errors
/// The first such rule, with the setting that grants what it asks.
pub fn check_granted(
    backends: &Backends<'_>,
    rules: &SentenceRules,
    graders: &Graders,
) -> Result<()> {
    let asked = [
        (format!("the rule {}", rules.name), rules.required_capabilities()),
        ("the judge".to_owned(), graders.judge.required_capabilities()),
        ("the format check".to_owned(), graders.format.required_capabilities()),
    ];
    for (who, asks) in asked {
        if let Some(verifier) = asks.into_iter().find(|verifier| !backends.grants(*verifier)) {
            bail!("{who} asks {verifier}, which is not granted: {}", grant(verifier));
        }
    }
    Ok(())
}

fn grant(verifier: Capability) -> &'static str {
    match verifier {
        Capability::Nli => {
            "add `verify.nli.model = \"FOLDER\"`, the folder of HHEM-2.1 or of a DeBERTa-v3 for MNLI, or \"demo\" for the demo's world"
        }
        Capability::Chat => {
            "add `verify.chat.endpoint = \"URL\"` and `verify.chat.model = \"NAME\"`, an OpenAI-compatible API and a model of it, or the endpoint \"demo\" for the demo's world"
        }
        Capability::Passages => {
            "add `verify.passages.index = [\"FOLDER\"]`, an index whose passages `corver-host index passages` made, or \"demo\" for the demo's"
        }
    }
}
