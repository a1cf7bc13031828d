//! Distances between tokens, and how what is known by distance comes to stand by query and key.

use crate::onnx::graph::{Graph, Size, Value};

/// What depends on the distance alone.
pub(super) struct Positions {
    /// N, `[1]`
    columns: Value,
    /// The table's rows for the distances −(N−1) to N, `[2N]`.
    pub(super) rising: Value,
    /// For N−1 to −N, `[2N]`.
    pub(super) falling: Value,
    /// For 0 to −(N−1), `[N]`.
    pub(super) of_first: Value,
    /// See [`Self::skew`].
    flat: Value,
    skipped: Value,
    end: Value,
    narrow: Value,
}

impl Positions {
    /// `row_of` says which row of the model's table belongs to a distance; `columns` is N, at most
    /// `most`.
    pub(super) fn new(
        graph: &mut Graph,
        columns: &Value,
        most: usize,
        row_of: impl Fn(i64) -> i64,
    ) -> Self {
        let most = most as i64;
        let rows: Vec<i64> = (-most..=most).map(row_of).collect();
        let table = graph.ints("table", &[rows.len()], &rows);
        let mut number = |n: i64| graph.ints("number", &[1], &[n]);
        let (one, two, middle) = (number(1), number(2), number(most));
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
        let kept = graph.op("Mul", &[columns, &odd]);
        let end = graph.op("Add", &[&kept, &last]);
        let (flat, narrow) = (
            graph.shape(&[Size::Fixed(0), Size::Fixed(0), Size::Fixed(-1)]),
            graph.shape(&[Size::Fixed(0), Size::Fixed(0), Size::Is(columns), Size::Is(&odd)]),
        );
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

    /// `[B, H, N, 2N]`, row i of which has what belongs to the distances −(N−1) to N from i ─▶ `[B,
    /// H, N, N]` by query and key.
    ///
    /// Row i's value for column j stands at j − i + N − 1, which is i(2N − 1) + j + N − 1 from the
    /// beginning of the matrix. So without the first N − 1 numbers, and in rows of 2N − 1, column j
    /// is column j.
    pub(super) fn skew(&self, graph: &mut Graph, x: &Value) -> Value {
        let flat = graph.op("Reshape", &[x, &self.flat]);
        let axis = graph.ints("axis", &[1], &[2]);
        let flat = graph.op("Slice", &[&flat, &self.skipped, &self.end, &axis]);
        let rows = graph.op("Reshape", &[&flat, &self.narrow]);
        let (zero, column_axis) = (graph.ints("zero", &[1], &[0]), graph.ints("axis", &[1], &[3]));
        graph.op("Slice", &[&rows, &zero, &self.columns, &column_axis])
    }
}
