//! Settings that are one text or a list of texts.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

/// A text or a list of texts, as a configuration writes it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum OneOrMany {
    /// One text.
    One(String),
    /// Several texts.
    Many(Vec<String>),
}

/// Reads a text or a list of texts; none of them may be empty.
pub(crate) fn one_or_many<'de, D: Deserializer<'de>, T: From<String>>(
    value: D,
) -> Result<Vec<T>, D::Error> {
    let texts = match OneOrMany::deserialize(value)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    };
    if texts.iter().any(String::is_empty) {
        return Err(serde::de::Error::custom("an empty text names nothing; leave the setting out"));
    }
    Ok(texts.into_iter().map(T::from).collect())
}
