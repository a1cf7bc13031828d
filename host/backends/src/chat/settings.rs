//! Checks of a chat endpoint's settings, and its API key.

use corver_http::{Host, Token};
use corver_settings::{ChatSettings, InvalidSetting};

use crate::chat::ChatError;
use crate::chat::wire::OWN_FIELDS;

/// The host whose key is in `OPENAI_API_KEY`.
const OPENAI: &str = "api.openai.com";

/// The address of an API, and the model to use there.
pub(crate) struct EndpointModel {
    pub(crate) endpoint: String,
    pub(crate) name: String,
}

/// True if the cost of replies can be computed.
pub(crate) fn has_prices(settings: &ChatSettings) -> bool {
    settings.prices.prompt > 0.0 || settings.prices.completion > 0.0
}

/// Checks the settings and returns the configured model.
pub(crate) fn check(settings: &ChatSettings, section: &str) -> Result<EndpointModel, ChatError> {
    if let Some(problem) = corver_settings::check(section, settings).into_iter().next() {
        return Err(problem.into());
    }
    if let Some(field) = OWN_FIELDS.into_iter().find(|field| settings.extra.contains_key(*field)) {
        return Err(InvalidSetting {
            key: format!("{section}.extra.{field}"),
            got: "set".to_owned(),
            expected:
                "left out: `model`, `length_field`, `reasoning_tokens` and the prompts set it"
                    .to_owned(),
        }
        .into());
    }
    let not_set = |name: &str, expected: &str| InvalidSetting {
        key: format!("{section}.{name}"),
        got: "not set".to_owned(),
        expected: expected.to_owned(),
    };
    if settings.max_cost.is_some() && !has_prices(settings) {
        return Err(not_set("prices", "set if there is a `max_cost`").into());
    }
    let address = "the address of an API, such as https://api.openai.com/v1";
    let endpoint = settings.endpoint.clone().ok_or_else(|| not_set("endpoint", address))?;
    let name = settings
        .model
        .clone()
        .ok_or_else(|| not_set("model", "the name of a model of the endpoint"))?;
    Ok(EndpointModel { endpoint, name })
}

/// Returns the configured key, if any. Refuses to send one unencrypted over a network.
pub(crate) fn key(
    settings: &ChatSettings,
    endpoint: &str,
    section: &'static str,
) -> Result<Option<Token>, ChatError> {
    let host =
        Host::from_url(endpoint).map_err(|error| ChatError::InvalidArgument(error.to_string()))?;
    let key = Token::load(settings.key_file.as_deref(), variable_for(settings, &host))
        .map_err(|error| ChatError::InvalidArgument(error.to_string()))?;
    if key.is_some() && !host.is_encrypted && !host.is_loopback() {
        return Err(ChatError::InvalidArgument(format!(
            "the key ({section}.key_file, {section}.key_variable) would go to {endpoint} \
             unencrypted: use https://, or a tunnel from localhost"
        )));
    }
    Ok(key)
}

fn variable_for<'a>(settings: &'a ChatSettings, host: &Host) -> Option<&'a str> {
    settings.key_variable.as_deref().or((host.name == OPENAI).then_some("OPENAI_API_KEY"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openai_key_variable_applies_only_to_openai() {
        let variable = |settings: &ChatSettings, url: &str| {
            variable_for(settings, &Host::from_url(url).unwrap()).map(str::to_owned)
        };
        let default = ChatSettings::default();
        assert_eq!(
            variable(&default, "https://API.OpenAI.com/v1").as_deref(),
            Some("OPENAI_API_KEY")
        );
        let others = [
            "http://localhost:8000/v1",
            "https://api.openai.com.example.org/v1",
            "https://example.org/api.openai.com",
        ];
        for other in others {
            assert_eq!(variable(&default, other), None, "{other}");
        }
        let named = ChatSettings { key_variable: Some("OTHER_KEY".into()), ..default };
        assert_eq!(variable(&named, "https://example.org/v1").as_deref(), Some("OTHER_KEY"));
    }
}
