//! Settings of a rule: a struct with defaults, read from JSON, strict about unknown keys.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{CompletionRule, ResponseRule};

/// A struct declared by [`crate::settings!`].
pub trait RuleSettings: Default + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// Reads a JSON object; absent keys have their defaults.
    ///
    /// # Errors
    /// A message that names the key that is wrong or unknown.
    fn from_json(json: &str) -> Result<Self, String> {
        // serde would read a list as a struct too, field by field.
        if !json.trim_start().starts_with('{') {
            return Err("invalid settings: a JSON object is expected".to_owned());
        }
        let settings: serde_json::Value =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        // The error names the key: the user may not have written this JSON, so a line and column
        // would not help.
        serde_path_to_error::deserialize(settings).map_err(|error| error.to_string())
    }

    /// Returns the JSON schema of these settings, with defaults and doc comments.
    #[must_use]
    fn schema() -> String {
        schemars::generate::SchemaSettings::default()
            .into_generator()
            .into_root_schema_for::<Self>()
            .to_value()
            .to_string()
    }
}

/// Returns a rule with these settings, a JSON object, validated by [`CompletionRule::validate`].
///
/// # Errors
/// A message that names the key that is wrong or unknown.
pub fn configured<R: CompletionRule>(json: &str) -> Result<R, String> {
    validated(json, R::validate)
}

/// Returns a response rule with these settings, a JSON object, validated by
/// [`ResponseRule::validate`].
///
/// # Errors
/// As [`configured`].
pub fn configured_response<R: ResponseRule>(json: &str) -> Result<R, String> {
    validated(json, R::validate)
}

pub(crate) fn validated<R: RuleSettings>(
    json: &str,
    validate: impl FnOnce(&R) -> Result<(), String>,
) -> Result<R, String> {
    let rule = R::from_json(json)?;
    validate(&rule)?;
    Ok(rule)
}

/// Rejects a reward that is not finite as a 32-bit float, which no verdict can carry.
///
/// # Errors
/// A message that names the setting.
pub fn finite(setting: &str, reward: f64) -> Result<(), String> {
    if (reward as f32).is_finite() {
        Ok(())
    } else {
        Err(format!("`{setting}` must be a finite 32-bit number; got {reward:e}"))
    }
}

/// Rejects a number outside 0 to 1.
///
/// # Errors
/// A message that names the setting.
pub fn probability(setting: &str, value: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(format!("`{setting}` must be 0 to 1; got {value}"))
    }
}

/// Rejects 0.
///
/// # Errors
/// A message that names the setting.
pub fn at_least_one(setting: &str, number: u64) -> Result<(), String> {
    if number > 0 { Ok(()) } else { Err(format!("`{setting}` must be at least 1")) }
}

/// The version of a method whose paper and published code differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// The method of the paper.
    #[default]
    Paper,
    /// The behaviour of the published code.
    Upstream,
}

impl<T: Default + DeserializeOwned + JsonSchema + Send + Sync + 'static> RuleSettings for T {}

/// Declares a rule and its settings: a struct whose every field has a default. Doc comments become
/// the descriptions in the JSON schema; unknown keys are rejected.
///
/// ```
/// use corver_sdk::{RuleSettings, settings};
///
/// settings! {
///     /// Rewards sentences with a high count.
///     pub struct Attested {
///         /// Lowest rewarded count, occurrences.
///         pub floor: u64 = 20,
///     }
/// }
///
/// assert_eq!(Attested::from_json("{}").unwrap().floor, 20);
/// assert!(Attested::from_json(r#"{"flor": 3}"#).unwrap_err().contains("unknown field `flor`, expected `floor`"));
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$about:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_about:meta])* $field_visibility:vis $field:ident: $type:ty = $default:expr),* $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, $crate::serde::Serialize, $crate::serde::Deserialize, $crate::schemars::JsonSchema)]
        #[serde(crate = "corver_sdk::serde", default, deny_unknown_fields)]
        #[schemars(crate = "corver_sdk::schemars")]
        $visibility struct $name {
            $($(#[$field_about])* $field_visibility $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}
