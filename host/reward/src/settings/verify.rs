//! The section `verify`.

use corver_chat::ChatSettings;
use corver_passages::PassageSettings;
use serde::{Deserialize, Serialize};

/// What rules may ask beside counts. A verifier is granted where its section names what answers; "demo" stands for the demo's world.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifySection {
    /// Does one text follow from another? `model` grants it.
    pub nli: corver_nli::Settings,
    /// What does a chat model reply? `endpoint` and `model` grant it.
    pub chat: ChatSettings,
    /// Which passages of the corpus fit best? `index` grants it.
    pub passages: PassageSettings,
    /// How the demo's world answers.
    pub demo: DemoSection,
    /// What the others cost, for a run to say what its reward cost; a chat model's prices are `chat.prices`.
    pub price: PriceSection,
}

/// In any currency, for a thousand each; nothing by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PriceSection {
    /// Counts.
    pub count: f64,
    /// Pairs of texts for the NLI model.
    pub nli: f64,
    /// Searches for passages.
    pub passages: f64,
}

/// How the demo's world answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DemoSection {
    /// Share of the NLI and chat questions that it answers wrongly.
    pub error_rate: f64,
}
