//! The tokenizer of the policy's model.

use std::path::Path;

use anyhow::Result;
use corver_pretrained::ChatTokenizer;
use corver_reward::parts;
use corver_settings::Settings;

/// Loads the tokenizer of the policy's model, with the chat template's switches and the stop texts of the
/// settings.
pub fn load_tokenizer(settings: &Settings, model: &Path) -> Result<ChatTokenizer> {
    let tokenizer =
        ChatTokenizer::load_with_child(model, parts::renderer(), settings.policy.chat.clone())?;
    Ok(tokenizer.with_stop_texts(settings.policy.stop.clone())?)
}
