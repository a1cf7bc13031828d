//! What the section `verify` means.

use std::path::{Path, PathBuf};

use corver_chat::ChatSettings;
use corver_passages::{PassageSettings, Place as PassagePlace};
use corver_study::run::Prices;

use super::place::{DemoOr, Place, absolute, model};
use super::problems::Problems;
use crate::settings::{DEMO, DemoSection, PriceSection, VerifySection};

/// What rules may ask beside counts, and of whom.
#[derive(Debug, Clone, Default)]
pub struct Verification {
    /// The NLI model.
    pub nli: Option<Place>,
    /// How it is run.
    pub nli_settings: corver_nli::Settings,
    /// The chat model.
    pub chat: Option<DemoOr<ChatSettings>>,
    /// What is searched; nothing where searches are not granted.
    pub passages: Vec<DemoOr<PassagePlace>>,
    /// Share of the questions that the demo's world answers wrongly.
    pub error_rate: f64,
    /// What all of it costs.
    pub prices: Prices,
}

impl Verification {
    pub(super) fn understand(section: VerifySection, problems: &mut Problems) -> Self {
        let VerifySection { nli, chat, passages, demo: DemoSection { error_rate }, price } = section;
        let PriceSection { count, nli: per_pair, passages: per_search } = price;
        let corver_chat::Prices { prompt, completion } = chat.prices;
        problems.take("verify.nli", nli.check());
        let name = nli.model.as_deref().map_or_else(String::new, |path| path.display().to_string());
        Self {
            nli: problems.take("verify.nli.model", model(&name)).flatten(),
            nli_settings: nli,
            chat: chat_model(chat, problems),
            passages: places(&passages, problems),
            error_rate,
            prices: Prices { count, nli: per_pair, passages: per_search, prompt, completion },
        }
    }

    /// The settings that mean this in any folder.
    pub(super) fn to_section(&self) -> VerifySection {
        let Self { nli, nli_settings, chat, passages, error_rate, prices } = self;
        let Prices { count, nli: per_pair, passages: per_search, prompt, completion } = *prices;
        let unused = ChatSettings { prices: corver_chat::Prices { prompt, completion }, ..ChatSettings::default() };
        let model = nli.as_ref().map(|place| place.written(|path| path.display().to_string()).into());
        let chat = match chat {
            None => unused,
            Some(DemoOr::Demo) => ChatSettings { endpoint: DEMO.to_owned(), ..unused },
            Some(DemoOr::Own(settings)) => settings.clone(),
        };
        let index = |place: &DemoOr<PassagePlace>| place.written(|place| place.index().display().to_string()).into();
        let dir = passages.iter().find_map(|place| match place {
            DemoOr::Own(place) => place.dir().map(Path::to_owned),
            DemoOr::Demo => None,
        });
        VerifySection {
            nli: corver_nli::Settings { model, ..nli_settings.clone() },
            chat,
            passages: PassageSettings { index: passages.iter().map(index).collect(), dir },
            demo: DemoSection { error_rate: *error_rate },
            price: PriceSection { count, nli: per_pair, passages: per_search },
        }
    }
}

fn chat_model(settings: ChatSettings, problems: &mut Problems) -> Option<DemoOr<ChatSettings>> {
    if settings.endpoint == DEMO {
        return Some(DemoOr::Demo);
    }
    if settings.endpoint.is_empty() && settings.model.is_empty() {
        return None;
    }
    let key_file = settings.key_file.as_deref().map(absolute);
    let key_file = key_file.and_then(|path| problems.take("verify.chat.key_file", path));
    Some(DemoOr::Own(ChatSettings { key_file, ..settings }))
}

fn places(settings: &PassageSettings, problems: &mut Problems) -> Vec<DemoOr<PassagePlace>> {
    let dir = settings.dir.as_deref().map(absolute);
    let dir: Option<PathBuf> = dir.and_then(|dir| problems.take("verify.passages.dir", dir));
    let mut place = |index: &PathBuf| {
        if index.as_os_str() == DEMO {
            return Some(DemoOr::Demo);
        }
        let index = problems.take("verify.passages.index", absolute(index))?;
        problems.take("verify.passages.index", PassagePlace::new(&index, dir.as_deref())).map(DemoOr::Own)
    };
    settings.index.iter().filter_map(&mut place).collect()
}
