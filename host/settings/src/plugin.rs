//! A rule's file with the weight of its rewards, as in `rule.plugin`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};

/// Rule file and weight of its rewards, written `FILE.wasm:WEIGHT`, or `FILE.wasm` for a weight of
/// 1.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedPlugin {
    /// Path of the file, or the name of a shipped rule.
    pub path: PathBuf,
    /// Factor of the rule's rewards, -1e6 to 1e6.
    pub weight: f64,
}

/// Largest absolute weight, as for `reward.lambda_corver`.
const MAX_WEIGHT: f64 = 1e6;

impl WeightedPlugin {
    /// True if the rule's rewards are recorded, and not added.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.weight == 0.0
    }
}

impl FromStr for WeightedPlugin {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut path = text;
        let mut weight: f64 = 1.0;
        if let Some((before, after)) = text.rsplit_once(':') {
            match after.parse() {
                Ok(number) => {
                    path = before;
                    weight = number;
                }
                Err(_) if before.ends_with(".wasm") => {
                    bail!("the weight of {before} is {after:?}; it must be a number")
                }
                // The colon is part of the path.
                Err(_) => {}
            }
        }
        if !(-MAX_WEIGHT..=MAX_WEIGHT).contains(&weight) {
            bail!("the weight of {path} is {weight:?}; it must be a number from -1e6 to 1e6");
        }
        Ok(Self { path: path.into(), weight })
    }
}

impl fmt::Display for WeightedPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display().to_string();
        f.write_str(&path)?;
        // The name of a file may end like a weight, which then has to be written.
        if path.parse().is_ok_and(|read: Self| read == *self) {
            Ok(())
        } else {
            write!(f, ":{}", self.weight)
        }
    }
}

impl WeightedPlugin {
    /// Returns the name of the file without its extension.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_weight_follows_last_colon() {
        let parse =
            |text: &str| text.parse::<WeightedPlugin>().map(|plugin| (plugin.path, plugin.weight));
        assert_eq!(parse("first.wasm").unwrap(), ("first.wasm".into(), 1.0));
        assert_eq!(parse("a/b.wasm:-0.3").unwrap(), ("a/b.wasm".into(), -0.3));
        assert_eq!(parse("c:/d.wasm").unwrap(), ("c:/d.wasm".into(), 1.0));
        for weight in ["inf", "-1e300", "nan"] {
            let error = parse(&format!("first.wasm:{weight}")).unwrap_err().to_string();
            assert!(error.ends_with("it must be a number from -1e6 to 1e6"), "{error}");
        }
        assert_eq!(
            "first.wasm:0.5".parse::<WeightedPlugin>().unwrap().to_string(),
            "first.wasm:0.5"
        );
    }

    #[test]
    fn plugin_argument_round_trips() {
        for text in ["first.wasm", "a/b.wasm:-0.3", "./r.wasm:0.5:1"] {
            let plugin: WeightedPlugin = text.parse().unwrap();
            assert_eq!(plugin.to_string().parse::<WeightedPlugin>().unwrap(), plugin, "{text}");
        }
    }
}
