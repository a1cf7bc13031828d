//! The table of a `Precompiled` normaliser, which SentencePiece writes: characters → other ones.
//!
//! The library follows its offsets without a check, and would panic on a damaged table.
//!
//! Layout: number of bytes of a trie, u32; the trie, u32 each; UTF-8 texts, each ended by a zero.
//! A leaf of the trie has the offset of its text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Returns the factor by which the table can lengthen a text.
///
/// # Errors
/// Fails if the table is damaged.
pub(crate) fn growth(table: &Value) -> Result<f64, String> {
    let damaged = |what: &str| format!("`precompiled_charsmap` is damaged: {what}");
    let text = table.as_str().ok_or_else(|| damaged("it is not a text"))?;
    let bytes = STANDARD.decode(text).map_err(|error| damaged(&error.to_string()))?;
    let (size, rest) = bytes.split_first_chunk().ok_or_else(|| damaged("it is too short"))?;
    let (trie, texts) = rest
        .split_at_checked(u32::from_le_bytes(*size) as usize / 4 * 4)
        .ok_or_else(|| damaged("its trie is too short"))?;
    let texts = std::str::from_utf8(texts).map_err(|error| damaged(&error.to_string()))?;
    let mut units = Vec::with_capacity(trie.len() / 4);
    for unit in trie.chunks_exact(4) {
        units.push(u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]) as usize);
    }
    check_trie(&units, texts).ok_or_else(|| damaged("an offset leads out of it"))?;
    let longest = texts.split('\0').map(str::len).max().unwrap_or(0);
    // A character of one byte may become any text.
    Ok(longest.max(1) as f64)
}

/// Follows every path of the trie; `None` if one leads out of the trie or of the texts.
fn check_trie(units: &[usize], texts: &str) -> Option<()> {
    let mut visited = vec![false; units.len()];
    let mut waiting = vec![0];
    while let Some(index) = waiting.pop() {
        let unit = *units.get(index)?;
        if std::mem::replace(&mut visited[index], true) {
            continue;
        }
        let base = index ^ offset(unit);
        if has_leaf(unit) && !texts.is_char_boundary(value(*units.get(base)?)) {
            return None;
        }
        for byte in 1..=255 {
            let child = base ^ byte;
            if label(*units.get(child)?) == byte {
                waiting.push(child);
            }
        }
    }
    Some(())
}

fn offset(unit: usize) -> usize {
    (unit >> 10) << ((unit & (1 << 9)) >> 6)
}

fn has_leaf(unit: usize) -> bool {
    (unit >> 8) & 1 == 1
}

fn label(unit: usize) -> usize {
    unit & ((1 << 31) | 0xFF)
}

fn value(unit: usize) -> usize {
    unit & ((1 << 31) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn table(units: &[u32], texts: &[u8]) -> Value {
        let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(texts);
        json!(STANDARD.encode(bytes))
    }

    /// A trie that maps “a” to the first text.
    fn small_trie() -> Vec<u32> {
        let mut units = vec![0; 512];
        units[0] = 256 << 10;
        units[256 ^ usize::from(b'a')] = u32::from(b'a') | 1 << 8 | (b'a' as u32 ^ 1) << 10;
        units
    }

    #[test]
    fn damaged_tables_are_refused() {
        assert!(growth(&json!(3)).is_err());
        assert!(growth(&json!("not base64!")).is_err());
        assert!(growth(&json!("AAA=")).is_err(), "two bytes");
        assert!(growth(&table(&[], b"")).is_err(), "an empty trie");
        assert!(growth(&table(&[1 << 10], b"")).is_err(), "an offset out of the trie");
        assert_eq!(growth(&table(&small_trie(), b"b\0")), Ok(1.0));
        let mut far = small_trie();
        far[257] = 9_999;
        assert!(growth(&table(&far, b"b\0")).is_err(), "a text that is not there");
        assert!(growth(&table(&small_trie(), &[0xFF])).is_err(), "no UTF-8");
        assert_eq!(growth(&table(&small_trie(), "b\0éé\0".as_bytes())), Ok(4.0));
    }

    proptest! {
        /// A table that is accepted can be used with any text.
        #[test]
        fn accepted_tables_do_not_panic(
            changes in proptest::collection::vec((0..512usize, any::<u32>()), 0..4),
            text in "[a-cé]{0,8}",
        ) {
            let mut units = small_trie();
            for (index, unit) in changes {
                units[index] = unit;
            }
            let table = table(&units, "b\0é\0".as_bytes());
            if growth(&table).is_ok() {
                let json = json!({"type": "Precompiled", "precompiled_charsmap": table});
                let normalizer: tokenizers::NormalizerWrapper =
                    serde_json::from_str(&json.to_string()).unwrap();
                let mut normalized = tokenizers::NormalizedString::from(text);
                let _ = tokenizers::Normalizer::normalize(&normalizer, &mut normalized);
            }
        }
    }
}
