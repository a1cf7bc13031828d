//! References to rules' files, as in `rule.plugin`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Result, ensure};

/// Rule's file, written `LOCATION` or `LOCATION@blake3:HEX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginRef {
    /// Path, name of a shipped rule, or URL: `https://HOST/…` or `oci://REGISTRY/REPOSITORY[:TAG]`.
    pub location: String,
    /// BLAKE3 hash that the file must have: 64 lower-case hexadecimal digits. `None`: any file; a
    /// URL always has a hash.
    pub blake3: Option<String>,
}

/// Text between a location and the hash of its file.
const PIN: &str = "@blake3:";

impl PluginRef {
    /// Returns the reference to a file on this machine, whatever its hash.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self { location: path.display().to_string(), blake3: None }
    }

    /// True if the file comes from another machine.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        ["https://", "http://", "oci://"].iter().any(|scheme| self.location.starts_with(scheme))
    }

    /// Returns the path or name; `None` for a URL.
    #[must_use]
    pub fn local(&self) -> Option<&Path> {
        (!self.is_remote()).then(|| Path::new(&self.location))
    }

    /// Returns the name of the file without its extension, or the last part of a repository's name.
    #[must_use]
    pub fn name(&self) -> String {
        let mut location = self.location.as_str();
        if self.is_remote() {
            location = location.split(['?', '#']).next().unwrap_or_default();
        }
        let file = Path::new(location).file_name().unwrap_or_default().to_string_lossy();
        if location.starts_with("oci://") {
            return file.split(':').next().unwrap_or_default().to_owned();
        }
        Path::new(file.as_ref()).file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl FromStr for PluginRef {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (location, blake3) = match text.split_once(PIN) {
            Some((location, hash)) => {
                let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
                ensure!(
                    is_hash,
                    "the hash of {location} is {hash:?}; it must be 64 hexadecimal digits, as \
                     `corver-host plugin check` prints"
                );
                (location, Some(hash.to_ascii_lowercase()))
            }
            None => (text, None),
        };
        ensure!(!location.is_empty(), "a rule is a path, a name or a URL");
        let plugin = Self { location: location.to_owned(), blake3 };
        ensure!(
            !plugin.is_remote() || plugin.blake3.is_some(),
            "{location} comes from another machine and needs the hash of the file: \
             {location}{PIN}HEX, as `corver-host plugin check FILE.wasm` prints"
        );
        Ok(plugin)
    }
}

impl fmt::Display for PluginRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location)?;
        self.blake3.iter().try_for_each(|hash| write!(f, "{PIN}{hash}"))
    }
}

/// Rule's file and weight of its rewards, written `FILE:WEIGHT`, or `FILE` for a weight of 1.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedPlugin {
    /// Rule's file.
    pub plugin: PluginRef,
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

    /// Returns the name of the rule's file: see [`PluginRef::name`].
    #[must_use]
    pub fn name(&self) -> String {
        self.plugin.name()
    }
}

/// Splits `FILE:WEIGHT`; the weight is `None` if there is none. A weight comes after the hash, which
/// may itself have the form of a number.
fn split_weight(text: &str) -> (&str, Option<&str>) {
    let start = text.find(PIN).map_or(0, |start| start + PIN.len());
    match text[start..].rfind(':') {
        Some(colon) => {
            let (file, weight) = text.split_at(start + colon);
            (file, Some(&weight[1..]))
        }
        None => (text, None),
    }
}

impl FromStr for WeightedPlugin {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut file = text;
        let mut weight: f64 = 1.0;
        if let (before, Some(after)) = split_weight(text) {
            let number = after.parse();
            ensure!(
                number.is_ok() || !(before.ends_with(".wasm") || before.contains(PIN)),
                "the weight of {before} is {after:?}; it must be a number"
            );
            // A colon before anything else is part of the path.
            if let Ok(number) = number {
                file = before;
                weight = number;
            }
        }
        ensure!(
            (-MAX_WEIGHT..=MAX_WEIGHT).contains(&weight),
            "the weight of {file} is {weight:?}; it must be a number from -1e6 to 1e6"
        );
        Ok(Self { plugin: file.parse()?, weight })
    }
}

impl fmt::Display for WeightedPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plugin = self.plugin.to_string();
        f.write_str(&plugin)?;
        // The name of a file may end like a weight, which then has to be written.
        if plugin.parse().is_ok_and(|read: Self| read == *self) {
            Ok(())
        } else {
            write!(f, ":{}", self.weight)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash that is also a number, and one that is not.
    const HASHES: [&str; 2] = [
        "1234567890123456789012345678901234567890123456789012345678901234",
        "abcdef7890123456789012345678901234567890123456789012345678901234",
    ];

    #[test]
    fn plugin_weight_follows_last_colon() {
        let parse = |text: &str| {
            text.parse::<WeightedPlugin>().map(|parsed| (parsed.plugin.location, parsed.weight))
        };
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
        let pinned = HASHES.map(|hash| format!("oci://localhost:5000/rules/min:1.0@blake3:{hash}"));
        let mut texts =
            vec!["first.wasm".to_owned(), "a/b.wasm:-0.3".into(), "./r.wasm:0.5:1".into()];
        texts.extend(pinned.iter().flat_map(|text| [text.clone(), format!("{text}:-0.5")]));
        for text in texts {
            let plugin: WeightedPlugin = text.parse().unwrap();
            assert_eq!(plugin.to_string().parse::<WeightedPlugin>().unwrap(), plugin, "{text}");
        }
        let weighted: WeightedPlugin = format!("{}:-0.5", pinned[0]).parse().unwrap();
        assert_eq!((weighted.name().as_str(), weighted.weight), ("min", -0.5));
        assert_eq!(weighted.plugin.blake3.as_deref(), Some(HASHES[0]));
    }

    #[test]
    fn wrong_hash_and_unpinned_url_are_rejected() {
        let url = "https://example.org/rules/min.wasm?download=1";
        for (text, problem) in [
            (url.to_owned(), "needs the hash of the file"),
            ("oci://localhost:5000/min:1.0".into(), "needs the hash of the file"),
            (format!("{url}@blake3:12"), "must be 64 hexadecimal digits"),
            (format!("min.wasm@blake3:{}0", HASHES[0]), "must be 64 hexadecimal digits"),
            (format!("min.wasm@blake3:{}:x", HASHES[0]), "it must be a number"),
            (format!("@blake3:{}", HASHES[0]), "a path, a name or a URL"),
        ] {
            let error = text.parse::<WeightedPlugin>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        let plugin: PluginRef = format!("{url}@blake3:{}", HASHES[1]).parse().unwrap();
        assert_eq!(plugin.name(), "min");
    }
}
