//! Settings that are one text or a list of texts.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

/// A text or a list of texts, as a configuration writes it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum TextOrTexts {
    /// A text that is the only one.
    One(String),
    /// A list of texts, which may be empty.
    Many(Vec<String>),
}

/// Deserialises a text or a list of texts, none of which may be empty.
pub(crate) fn one_or_many<'de, D: Deserializer<'de>, T: From<String>>(
    value: D,
) -> Result<Vec<T>, D::Error> {
    let texts = match TextOrTexts::deserialize(value)? {
        TextOrTexts::One(text) => vec![text],
        TextOrTexts::Many(texts) => texts,
    };
    if texts.iter().any(String::is_empty) {
        return Err(serde::de::Error::custom("an empty text names nothing; leave the setting out"));
    }
    Ok(texts.into_iter().map(T::from).collect())
}
