//! Many queries → requests that the server takes.

/// A query in words of the API.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Its place among those that were asked for together.
    pub(super) place: usize,
    pub(super) text: String,
}

/// Parts of at most so many queries and, where there are several in a part, so many bytes of JSON;
/// in order.
pub(super) fn divide(asked: Vec<Asked>, most: usize, most_bytes: usize) -> Vec<Vec<Asked>> {
    let mut parts: Vec<Vec<Asked>> = Vec::new();
    let mut bytes = 0;
    for query in asked {
        let text = serde_json::to_string(&query.text).expect("a text is plain JSON");
        let more = text.len() + ",".len();
        match parts.last_mut() {
            Some(part) if part.len() < most && bytes + more <= most_bytes => {
                bytes += more;
                part.push(query);
            }
            _ => {
                bytes = more;
                parts.push(vec![query]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(texts: &[&str], most: usize, most_bytes: usize) -> Vec<usize> {
        let asked = |(place, text): (usize, &&str)| Asked { place, text: (*text).to_owned() };
        let parts = divide(texts.iter().enumerate().map(asked).collect(), most, most_bytes);
        let places: Vec<usize> = parts.iter().flatten().map(|asked| asked.place).collect();
        assert_eq!(places, (0..texts.len()).collect::<Vec<_>>());
        parts.iter().map(Vec::len).collect()
    }

    #[test]
    fn batches_respect_request_count_and_byte_limits() {
        assert!(lengths(&[], 2, 100).is_empty());
        assert_eq!(lengths(&["a", "b", "c", "d", "e"], 2, 100), [2, 2, 1]);
        assert_eq!(
            lengths(&["a", "b", "c"], 9, 8),
            [2, 1],
            "each is four bytes with quotation marks and comma"
        );
        assert_eq!(lengths(&["\n", "b"], 9, 8), [1, 1], "as JSON writes it");
        assert_eq!(lengths(&["far too long", "b", "c"], 9, 8), [1, 2], "the server refuses it");
        assert_eq!(lengths(&["a", "b"], 0, 0), [1, 1], "a server that takes nothing says so");
    }
}
