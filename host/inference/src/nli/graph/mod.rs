//! Writes the graphs of the two encoders, up to the logits of the first token.
//!
//! Inputs: `input_ids` and `attention_mask` `[B, N]`, rows padded on the right. Output: `logits`
//! `[B, C]`. Both encoders use relative positions alone. A term that depends on a distance is
//! computed once for each of the 2N distances, and then arranged by query and key ([`positions`]).
//! In the last layer, the first token is the only query, because only its result is used.
//!
//! Sizes: B pairs, N tokens of each, hidden size D, H heads of width Dh, C classes.

mod batch;
mod deberta;
mod positions;
mod t5;

pub(crate) use deberta::deberta;
pub(crate) use t5::{T5Shape, t5};

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    /// The rows that `transformers` uses for the distances −700 to 700 (tests/peers/nli.py).
    #[derive(Deserialize)]
    struct Golden {
        t5: Vec<i64>,
        deberta: Vec<i64>,
    }

    #[test]
    fn relative_position_buckets_match_transformers() {
        let golden: Golden =
            serde_json::from_str(include_str!("../../../tests/nli/small/positions.json")).unwrap();
        let rows = |row_of: &dyn Fn(i64) -> i64| (-700..=700).map(row_of).collect::<Vec<i64>>();
        assert_eq!(rows(&|distance| super::t5::bucket(32, distance)), golden.t5);
        assert_eq!(rows(&|distance| super::deberta::bucket(256, 512, distance)), golden.deberta);
    }
}
