//! Capabilities of rules beside counts.

use std::path::{Path, PathBuf};

use corver_passages::Place as PassagePlace;
use corver_settings::{ChatSettings, DEMO, NliSettings, Settings};

use super::{DemoOr, Place, Problems, Resolve, absolute, hub_place};
use crate::hub;

/// Capabilities of rules beside counts. Each is granted if its model or index is named.
#[derive(Debug, Clone, Default)]
pub struct VerifierConfig {
    /// NLI model, with its settings. `None`: not granted.
    pub nli: Option<(Place, NliSettings)>,
    /// Chat model. `None`: not granted.
    pub chat: Option<DemoOr<ChatSettings>>,
    /// Indexes whose passages are searched. Empty: not granted.
    pub passages: Vec<DemoOr<PassagePlace>>,
    /// Share of the NLI and chat questions that the demo's world answers wrongly, 0 to 1.
    pub error_rate: f64,
    /// Seed of these errors.
    pub seed: u64,
}

impl Resolve for VerifierConfig {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let seed = settings.run.seed;
        let verify = &mut settings.verify;
        let mut nli = None;
        if let Some(text) = &mut verify.nli.model {
            let place = problems.record("verify.nli.model", hub_place(hub::Kind::Model, text))?;
            *text = place.written(|path| path.display().to_string());
            nli = Some((place, verify.nli.clone()));
        }
        problems.make_absolute("verify.chat.key_file", &mut verify.chat.key_file);
        problems.make_absolute("verify.passages.dir", &mut verify.passages.dir);
        let dir = verify.passages.dir.clone();
        let mut passages = Vec::new();
        for index in &mut verify.passages.index {
            passages.push(passage_place(index, dir.as_deref(), problems)?);
        }
        Some(Self { nli, chat: chat(&verify.chat), passages, error_rate: verify.demo.error_rate, seed })
    }
}

fn chat(settings: &ChatSettings) -> Option<DemoOr<ChatSettings>> {
    match (&settings.endpoint, &settings.model) {
        (Some(endpoint), _) if endpoint == DEMO => Some(DemoOr::Demo),
        (None, None) => None,
        _ => Some(DemoOr::Own(settings.clone())),
    }
}

fn passage_place(index: &mut PathBuf, dir: Option<&Path>, problems: &mut Problems) -> Option<DemoOr<PassagePlace>> {
    if index.as_os_str() == DEMO {
        return Some(DemoOr::Demo);
    }
    *index = problems.record("verify.passages.index", absolute(index))?;
    problems.record("verify.passages.index", PassagePlace::new(index, dir)).map(DemoOr::Own)
}
