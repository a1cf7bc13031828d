//! Configuration of the capabilities that rules have in addition to counts.

use std::path::{Path, PathBuf};

use corver_backends::passages::PassageLocation;
use corver_data::hub;
use corver_settings::{ChatPrices, ChatSettings, DEMO, NliSettings, Settings};

use super::{DemoOr, DemoOrPath, Problems, Resolve, absolute, resolve_hub_path};

/// Capabilities of rules in addition to counts. Each is granted if its model or index is named.
#[derive(Debug, Clone, Default)]
pub struct BackendsConfig {
    /// NLI model, with its settings. `None`: not granted.
    pub nli: Option<(DemoOrPath, NliSettings)>,
    /// Chat model. `None`: not granted.
    pub chat: Option<DemoOr<ChatSettings>>,
    /// Indexes whose passages are searched. Empty: not granted.
    pub passages: Vec<DemoOr<PassageLocation>>,
    /// Share of NLI and chat requests that the demo's world answers wrongly, 0 to 1.
    pub error_rate: f64,
    /// Seed that selects the wrong answers.
    pub seed: u64,
}

impl Resolve for BackendsConfig {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let seed = settings.run.seed;
        let section = &mut settings.backends;
        let mut nli = Some(None);
        if let Some(text) = &mut section.nli.model {
            let place =
                problems.record("backends.nli.model", resolve_hub_path(hub::RepoKind::Model, text));
            if let Some(place) = &place {
                *text = place.to_setting(|path| path.display().to_string());
            }
            nli = place.map(|place| Some((place, section.nli.clone())));
        }
        problems.make_absolute("backends.chat.key_file", &mut section.chat.key_file);
        problems.make_absolute("backends.passages.dir", &mut section.passages.dir);
        let chat = chat(&section.chat, problems);
        let dir = section.passages.dir.clone();
        let mut passages = Some(Vec::new());
        for index in &mut section.passages.index {
            let place = passage_place(index, dir.as_deref(), problems);
            passages = passages.zip(place).map(|(known, place)| [known, vec![place]].concat());
        }
        Some(Self {
            nli: nli?,
            chat: chat?,
            passages: passages?,
            error_rate: section.demo.error_rate,
            seed,
        })
    }
}

/// Returns `Some(None)` if no chat model is named, and `None` if something about it is missing.
fn chat(settings: &ChatSettings, problems: &mut Problems) -> Option<Option<DemoOr<ChatSettings>>> {
    match (settings.endpoint.as_deref(), &settings.model) {
        (Some(DEMO), _) => return Some(Some(DemoOr::Demo)),
        (None, None) => return Some(None),
        (None, Some(_)) => {
            problems.add("backends.chat.endpoint", "not set, but `backends.chat.model` is")
        }
        (Some(_), None) => {
            problems.add("backends.chat.model", "not set, but `backends.chat.endpoint` is")
        }
        (Some(_), Some(_))
            if settings.max_cost.is_some() && settings.prices == ChatPrices::default() =>
        {
            problems.add("backends.chat.prices", "not set, but `backends.chat.max_cost` is");
        }
        (Some(_), Some(_)) => return Some(Some(DemoOr::Own(settings.clone()))),
    }
    None
}

fn passage_place(
    index: &mut PathBuf,
    dir: Option<&Path>,
    problems: &mut Problems,
) -> Option<DemoOr<PassageLocation>> {
    if index.as_os_str() == DEMO {
        return Some(DemoOr::Demo);
    }
    *index = problems.record("backends.passages.index", absolute(index))?;
    problems.record("backends.passages.index", PassageLocation::new(index, dir)).map(DemoOr::Own)
}
