//! Moving rows of keys or values from one cache to another, on the device that holds them.

use crate::onnx::graph::{Float, Graph, Value, Written, fixed, int, named};

/// The graph. Inputs: `into` `[S, Hkv, C, Dh]`, `rows` `[R, Hkv, W, Dh]`, `from` and `to` `[M]`,
/// `width` `[1]`. Output `placed`: `into`, with the first `width` columns of row `from[i]` in row
/// `to[i]`. Bound to the memory of `into`, it is written in place.
pub(crate) fn place(num_kv_heads: usize, head_dim: usize, float: Float) -> Written {
    let mut graph = Graph::new("place", float);
    let (heads, dim) = (fixed(num_kv_heads), fixed(head_dim));
    let cache = |rows, columns| [named(rows), heads.clone(), named(columns), dim.clone()];
    let into = graph.float_input("into", &cache("slots", "columns"));
    let rows = graph.float_input("rows", &cache("rows", "old_columns"));
    let [from, to] = ["from", "to"].map(|name| graph.int_input(name, &[named("moved")]));
    let width = graph.int_input("width", &[fixed(1)]);

    let taken = graph.op_with("Gather", &[&rows, &from], vec![int("axis", 0)]);
    let (zero, axis) = (graph.ints("zero", &[1], &[0]), graph.ints("column_axis", &[1], &[2]));
    let taken = graph.op("Slice", &[&taken, &zero, &width, &axis]);
    let columns = graph.range(&width);
    let first_axis = graph.ints("axes", &[1], &[0]);
    let columns = graph.op("Unsqueeze", &[&columns, &first_axis]); // [1, width]
    let places = places(&mut graph, &to, num_kv_heads, &columns);
    graph.output(
        "placed",
        "ScatterND",
        &[&into, &places, &taken],
        Vec::new(),
        &cache("slots", "columns"),
    );
    graph.finish()
}

/// `[M, Hkv, N, 3]`: where `ScatterND` puts the keys of each row, head and token in a cache. `rows`
/// `[M]`, `columns` `[M or 1, N]`.
pub(super) fn places(
    graph: &mut Graph,
    rows: &Value,
    num_kv_heads: usize,
    columns: &Value,
) -> Value {
    let behind = graph.ints("axes", &[3], &[1, 2, 3]);
    let around = graph.ints("axes", &[2], &[1, 3]);
    let heads: Vec<i64> = (0..num_kv_heads as i64).collect();
    let rows = graph.op("Unsqueeze", &[rows, &behind]);
    let heads = graph.ints("heads", &[1, num_kv_heads, 1, 1], &heads);
    let columns = graph.op("Unsqueeze", &[columns, &around]);
    let zero = graph.ints("zero", &[], &[0]);
    let sum = graph.op("Add", &[&rows, &heads]);
    let sum = graph.op("Add", &[&sum, &columns]);
    let all = graph.op("Mul", &[&sum, &zero]); // [M, Hkv, N, 1]
    let [rows, heads, columns] = [rows, heads, columns].map(|part| graph.op("Add", &[&all, &part]));
    graph.op_with("Concat", &[&rows, &heads, &columns], vec![int("axis", 3)])
}
