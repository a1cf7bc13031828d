//! Batches of queries within a server's limits.

/// A query whose count is requested.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PendingQuery {
    /// Index of the query in the caller's batch.
    pub(super) index: usize,
    /// Text of the query in the API's syntax.
    pub(super) text: String,
}

/// Splits queries, in order, into batches of at most `max_queries` queries and `max_bytes` of JSON.
/// A single query that exceeds `max_bytes` is a batch of its own, which the server refuses.
pub(super) fn split_into_batches(
    queries: Vec<PendingQuery>,
    max_queries: usize,
    max_bytes: usize,
) -> Vec<Vec<PendingQuery>> {
    let mut batches: Vec<Vec<PendingQuery>> = Vec::new();
    let mut batch_bytes = 0;
    for query in queries {
        let json = serde_json::to_string(&query.text).expect("a text is plain JSON");
        let query_bytes = json.len() + ",".len();
        match batches.last_mut() {
            Some(batch) if batch.len() < max_queries && batch_bytes + query_bytes <= max_bytes => {
                batch_bytes += query_bytes;
                batch.push(query);
            }
            _ => {
                batch_bytes = query_bytes;
                batches.push(vec![query]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(texts: &[&str], max_queries: usize, max_bytes: usize) -> Vec<usize> {
        let mut queries = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            queries.push(PendingQuery { index, text: (*text).to_owned() });
        }
        let batches = split_into_batches(queries, max_queries, max_bytes);
        let indices: Vec<usize> = batches.iter().flatten().map(|query| query.index).collect();
        assert_eq!(indices, (0..texts.len()).collect::<Vec<_>>());
        batches.iter().map(Vec::len).collect()
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
        assert_eq!(lengths(&["a", "b"], 0, 0), [1, 1], "the server reports that it takes none");
    }
}
