//! Which model is asked, and how.

use std::path::PathBuf;
use std::time::Duration;

use corver_http::{Host, Token};
use serde::{Deserialize, Serialize};

use crate::{ChatError, Prices};

/// Whose key `OPENAI_API_KEY` is.
const OPENAI: &str = "api.openai.com";

/// The section `chat` of a judge's file, and `verify.chat` of a run's. How long and how random replies are is said by each prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatSettings {
    /// The API's base, such as `https://api.openai.com/v1`; `/chat/completions` is added.
    pub endpoint: String,
    /// The model, by the endpoint's name for it.
    pub model: String,
    /// A file with the key; not set: what the environment variable `key_variable` holds, if anything. A key goes to addresses with
    /// https:// and to this machine.
    pub key_file: Option<PathBuf>,
    /// See `key_file`. Not set: `OPENAI_API_KEY` for OpenAI's own endpoint, and no key for others.
    pub key_variable: Option<String>,
    /// Requests under way at the same time.
    pub connections: usize,
    /// Requests begun per second; 0 sets no limit.
    pub requests_per_second: f64,
    /// Seconds that one attempt may take.
    pub timeout_s: f64,
    /// Seconds that a request is tried again and again.
    pub patience_s: f64,
    /// What tokens cost.
    pub prices: Prices,
    /// No request is begun once the replies cost so much, those kept from before included; requests under way end. Needs `prices`.
    pub max_cost: Option<f64>,
}

impl Default for ChatSettings {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            model: String::new(),
            key_file: None,
            key_variable: None,
            connections: 4,
            requests_per_second: 0.0,
            timeout_s: 60.0,
            patience_s: 180.0,
            prices: Prices::default(),
            max_cost: None,
        }
    }
}

impl ChatSettings {
    /// Whether money can be counted.
    pub(crate) fn has_prices(&self) -> bool {
        self.prices.prompt > 0.0 || self.prices.completion > 0.0
    }

    /// Refuses values that cannot work.
    pub(crate) fn check(&self, section: &'static str) -> Result<(), ChatError> {
        let seconds = |value: f64| Duration::try_from_secs_f64(value).is_ok_and(|value| !value.is_zero());
        let at_least_0 = |value: f64| value.is_finite() && value >= 0.0;
        let Prices { prompt, completion } = self.prices;
        let checks = [
            (!self.endpoint.is_empty(), "endpoint", "the address of an API, such as https://api.openai.com/v1"),
            (!self.model.is_empty(), "model", "the name of a model of the endpoint"),
            (self.connections > 0, "connections", "at least 1"),
            (at_least_0(self.requests_per_second), "requests_per_second", "0 or more"),
            (seconds(self.timeout_s), "timeout_s", "more than 0 seconds"),
            (seconds(self.patience_s), "patience_s", "more than 0 seconds"),
            (at_least_0(prompt) && at_least_0(completion), "prices", "0 or more for a million tokens"),
            (self.max_cost.is_none_or(at_least_0), "max_cost", "0 or more"),
            (self.max_cost.is_none() || self.has_prices(), "prices", "set where there is a `max_cost`"),
        ];
        match checks.into_iter().find(|(good, ..)| !good) {
            Some((_, setting, expected)) => Err(ChatError::Setting { section, setting, expected }),
            None => Ok(()),
        }
    }

    /// The key, where the endpoint may have one.
    pub(crate) fn key(&self, section: &'static str) -> Result<Option<Token>, ChatError> {
        let host = Host::of(&self.endpoint)?;
        let key = Token::load(self.key_file.as_deref(), self.variable_for(&host))?;
        if key.is_some() && !host.is_encrypted && !host.is_loopback() {
            return Err(ChatError::KeyInClear { section, endpoint: self.endpoint.clone() });
        }
        Ok(key)
    }

    fn variable_for(&self, host: &Host) -> Option<&str> {
        self.key_variable.as_deref().or((host.name == OPENAI).then_some("OPENAI_API_KEY"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openai_s_key_is_for_openai() {
        let variable =
            |settings: &ChatSettings, url: &str| settings.variable_for(&Host::of(url).unwrap()).map(str::to_owned);
        let default = ChatSettings::default();
        assert_eq!(variable(&default, "https://API.OpenAI.com/v1").as_deref(), Some("OPENAI_API_KEY"));
        for other in
            ["http://localhost:8000/v1", "https://api.openai.com.example.org/v1", "https://example.org/api.openai.com"]
        {
            assert_eq!(variable(&default, other), None, "{other}");
        }
        let named = ChatSettings { key_variable: Some("OTHER_KEY".into()), ..default };
        assert_eq!(variable(&named, "https://example.org/v1").as_deref(), Some("OTHER_KEY"));
    }
}
