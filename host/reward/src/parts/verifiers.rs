//! What answers a rule's questions, each verifier opened where the configuration grants it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use corver_backends::chat::ChatClient;
use corver_backends::passages::{
    PassageError, PassageIndex, PassageLocation, PassageOptions, build,
};
use corver_core::{Graders, SentenceScorer as _, Verifier, Verifiers};
use corver_counts::Source;
use corver_demo::{DemoChat, DemoNli, InjectedErrors, demo_world};
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
pub fn verifiers(
    corpus: &CorpusConfig,
    others: &VerifierConfig,
) -> Result<(Vec<Source>, Verifiers<'static>)> {
    let (sources, counter) = super::corpus(corpus)?;
    Ok((sources, with_models(Verifiers::counting(counter), others)?))
}

fn with_models(
    mut verifiers: Verifiers<'static>,
    config: &VerifierConfig,
) -> Result<Verifiers<'static>> {
    let VerifierConfig { nli, chat, passages, error_rate, seed } = config;
    let errors = InjectedErrors::new(*error_rate, *seed).context("`verify.demo.error_rate`")?;
    verifiers = match nli {
        None => verifiers,
        Some((DemoOr::Demo, _)) => verifiers.with_nli(DemoNli::new(&demo_world(), errors)),
        Some((DemoOr::Own(folder), settings)) => {
            let model = Nli::open(folder, settings, &runtime_library()?);
            verifiers.with_nli(
                model.with_context(|| format!("opening the NLI model {}", folder.display()))?,
            )
        }
    };
    verifiers = match chat {
        None => verifiers,
        Some(DemoOr::Demo) => verifiers.with_chat(DemoChat::new(&demo_world(), errors)),
        Some(DemoOr::Own(settings)) => {
            let replies = folders::cache()?.join("chat/replies.jsonl");
            verifiers.with_chat(ChatClient::open(settings.clone(), CHAT, &replies)?)
        }
    };
    if passages.is_empty() {
        return Ok(verifiers);
    }
    Ok(verifiers.with_passages(open_passages(passages)?))
}

/// Opens the passages of indexes; the demo's are cut on first use.
///
/// # Errors
/// If an index has no passages; the message has the command that makes them.
pub fn open_passages(places: &[DemoOr<PassageLocation>]) -> Result<PassageIndex> {
    let mut all = Vec::new();
    for place in places {
        all.push(match place {
            DemoOr::Demo => demo_passages()?,
            DemoOr::Own(place) => place.clone(),
        });
    }
    Ok(PassageIndex::open(&all)?)
}

/// The passages of the demo's articles, made on first use.
fn demo_passages() -> Result<PassageLocation> {
    let place = PassageLocation::new(&demo_index()?, None)?;
    // Another process may be at work on the same.
    for attempt in 0.. {
        if place.folder().exists() {
            break;
        }
        match build(&place, &PassageOptions::default()) {
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
    verifiers: &Verifiers<'_>,
    rules: &SentenceRules,
    graders: &Graders,
) -> Result<()> {
    let asked = [
        (format!("the rule {}", rules.name), rules.asks()),
        ("the judge".to_owned(), graders.judge.asks()),
        ("the format check".to_owned(), graders.format.asks()),
    ];
    for (who, asks) in asked {
        if let Some(verifier) = asks.into_iter().find(|verifier| !verifiers.grants(*verifier)) {
            bail!("{who} asks {verifier}, which is not granted: {}", grant(verifier));
        }
    }
    Ok(())
}

fn grant(verifier: Verifier) -> &'static str {
    match verifier {
        Verifier::Nli => {
            "add `verify.nli.model = \"FOLDER\"`, the folder of HHEM-2.1 or of a DeBERTa-v3 for MNLI, or \"demo\" for the demo's world"
        }
        Verifier::Chat => {
            "add `verify.chat.endpoint = \"URL\"` and `verify.chat.model = \"NAME\"`, an OpenAI-compatible API and a model of it, or the endpoint \"demo\" for the demo's world"
        }
        Verifier::Passages => {
            "add `verify.passages.index = [\"FOLDER\"]`, an index whose passages `corver-host index passages` made, or \"demo\" for the demo's"
        }
    }
}
