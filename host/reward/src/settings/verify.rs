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
}

/// How the demo's world answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DemoSection {
    /// Share of the NLI and chat questions that it answers wrongly.
    pub error_rate: f64,
}
