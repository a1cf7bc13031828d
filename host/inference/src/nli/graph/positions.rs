//! Relative positions: terms by distance, and their arrangement by query and key.

use crate::onnx::graph::ShapePart::{Fixed, Is};
use crate::onnx::graph::{Graph, Value};

/// Rows of the model's table of positions, and constants of [`Self::skew`].
pub(super) struct RelativePositions {
    /// Number of tokens per pair, N, `[1]`.
    columns: Value,
    /// Rows for the distances −(N−1) to N, `[2N]`.
    pub(super) rising: Value,
    /// Rows for the distances N−1 to −N, `[2N]`.
    pub(super) falling: Value,
    /// Rows for the distances 0 to −(N−1), which are those of the first token, `[N]`.
    pub(super) of_first: Value,
    /// Shape with one axis for the last two; it and the next three are for [`Self::skew`].
    flat: Value,
    skipped: Value,
    end: Value,
    narrow: Value,
}

impl RelativePositions {
    /// Adds the constants. `row_of` returns the table's row for a distance; `columns` is N, which is
    /// at most `max_tokens`.
    pub(super) fn new(
        graph: &mut Graph,
        columns: &Value,
        max_tokens: usize,
        row_of: impl Fn(i64) -> i64,
    ) -> Self {
        let longest = max_tokens as i64;
        let rows: Vec<i64> = (-longest..=longest).map(row_of).collect();
        let table = graph.ints("table", &[rows.len()], &rows);
        let one = graph.ints("number", &[1], &[1]);
        let two = graph.ints("number", &[1], &[2]);
        let middle = graph.ints("number", &[1], &[longest]);
        let twice = graph.op("Mul", &[columns, &two]);
        let steps = graph.range(&twice);
        let last = graph.op("Sub", &[columns, &one]); // N − 1
        let start = graph.op("Sub", &[&middle, &last]);
        let rising = graph.op("Add", &[&steps, &start]);
        let end_of_falling = graph.op("Add", &[&middle, &last]);
        let falling = graph.op("Sub", &[&end_of_falling, &steps]);
        let first_steps = graph.range(columns);
        let of_first = graph.op("Sub", &[&middle, &first_steps]);
        let [rising, falling, of_first] =
            [rising, falling, of_first].map(|at| graph.op("Gather", &[&table, &at]));

        let odd = graph.op("Sub", &[&twice, &one]); // 2N − 1
        let length = graph.op("Mul", &[columns, &odd]);
        let end = graph.op("Add", &[&length, &last]);
        let flat = graph.shape(&[Fixed(0), Fixed(0), Fixed(-1)]);
        let narrow = graph.shape(&[Fixed(0), Fixed(0), Is(columns), Is(&odd)]);
        Self {
            columns: columns.clone(),
            rising,
            falling,
            of_first,
            flat,
            skipped: last,
            end,
            narrow,
        }
    }

    /// Arranges `[B, H, N, 2N]`, whose row i has the values for the distances −(N−1) to N from i, as
    /// `[B, H, N, N]` by query and key.
    ///
    /// The value of row i for column j has the index j − i + N − 1 in its row, and so
    /// i(2N − 1) + j + N − 1 in the matrix. If the first N − 1 numbers are skipped and the rest is
    /// cut into rows of 2N − 1, its index in row i is j.
    pub(super) fn skew(&self, graph: &mut Graph, x: &Value) -> Value {
        let flat = graph.op("Reshape", &[x, &self.flat]);
        let axis = graph.ints("axis", &[1], &[2]);
        let flat = graph.op("Slice", &[&flat, &self.skipped, &self.end, &axis]);
        let rows = graph.op("Reshape", &[&flat, &self.narrow]);
        let zero = graph.ints("zero", &[1], &[0]);
        let column_axis = graph.ints("axis", &[1], &[3]);
        graph.op("Slice", &[&rows, &zero, &self.columns, &column_axis])
    }
}
