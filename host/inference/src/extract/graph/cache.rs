//! Creating caches of keys and values, and moving rows between them, on the device of the caches.

use crate::onnx::graph::{CompletedGraph, Float, Graph, Value, fixed, int, ints, named};

/// Writes the graph that creates a cache.
///
/// Input: `shape` `[4]`. Output: `zeros` of that shape.
pub(crate) fn zeros(float: Float) -> CompletedGraph {
    let mut graph = Graph::new("zeros", float);
    let shape = graph.int_input("shape", &[fixed(4)]);
    let zeros = graph.op("ConstantOfShape", &[&shape]); // f32
    graph.output(
        "zeros",
        "Cast",
        &[&zeros],
        vec![float.cast_attribute()],
        &["slots", "heads", "columns", "dim"].map(named),
    );
    graph.finish()
}

/// Writes the graph that shares a prompt, which is one row of a cache, with all rows.
///
/// Inputs: `key` and `value` `[1, Hkv, P, Dh]`. Outputs: `shared_key` `[Hkv, Dh, P]`, so that keys
/// are transposed once and not in every product with queries, and `shared_value` `[Hkv, P, Dh]`.
pub(crate) fn prompt_sharer(num_kv_heads: usize, head_dim: usize, float: Float) -> CompletedGraph {
    let mut graph = Graph::new("share", float);
    let [heads, dim] = [fixed(num_kv_heads), fixed(head_dim)];
    let row = [fixed(1), heads.clone(), named("prompt"), dim.clone()];
    let key = graph.float_input("key", &row);
    let value = graph.float_input("value", &row);
    let row_axis = graph.ints("axes", &[1], &[0]);
    let key = graph.op("Squeeze", &[&key, &row_axis]);
    graph.output(
        "shared_key",
        "Transpose",
        &[&key],
        vec![ints("perm", &[0, 2, 1])],
        &[heads.clone(), dim.clone(), named("prompt")],
    );
    let shape = [heads, named("prompt"), dim];
    graph.output("shared_value", "Squeeze", &[&value, &row_axis], Vec::new(), &shape);
    graph.finish()
}

/// Writes the graph that selects rows.
///
/// Inputs: `rows` `[R, H, T, Dh]`, `indices` `[M]`. Output: `selected` `[M, H, T, Dh]`.
pub(crate) fn row_selector(float: Float) -> CompletedGraph {
    let mut graph = Graph::new("select", float);
    let shape = |rows| [rows, "heads", "columns", "dim"].map(named);
    let rows = graph.float_input("rows", &shape("rows"));
    let indices = graph.int_input("indices", &[named("selected")]);
    let axis = vec![int("axis", 0)];
    graph.output("selected", "Gather", &[&rows, &indices], axis, &shape("selected"));
    graph.finish()
}

/// Writes the graph that moves rows.
///
/// Inputs: `into` `[S, Hkv, C, Dh]`, `rows` `[R, Hkv, W, Dh]`, `from` and `to` `[M]`, `width` `[1]`.
/// Output `placed`: `into` with the first `width` columns of row `from[i]` in row `to[i]`. If bound
/// to the memory of `into`, it is written in place.
pub(crate) fn row_mover(num_kv_heads: usize, head_dim: usize, float: Float) -> CompletedGraph {
    let mut graph = Graph::new("place", float);
    let heads = fixed(num_kv_heads);
    let dim = fixed(head_dim);
    let cache = |rows, columns| [named(rows), heads.clone(), named(columns), dim.clone()];
    let into = graph.float_input("into", &cache("slots", "columns"));
    let rows = graph.float_input("rows", &cache("rows", "old_columns"));
    let [from, to] = ["from", "to"].map(|name| graph.int_input(name, &[named("moved")]));
    let width = graph.int_input("width", &[fixed(1)]);

    let gathered = graph.op_with("Gather", &[&rows, &from], vec![int("axis", 0)]);
    let zero = graph.ints("zero", &[1], &[0]);
    let axis = graph.ints("column_axis", &[1], &[2]);
    let moved = graph.op("Slice", &[&gathered, &zero, &width, &axis]);
    let columns = graph.range(&width);
    let first_axis = graph.ints("axes", &[1], &[0]);
    let columns = graph.op("Unsqueeze", &[&columns, &first_axis]); // [1, width]
    let indices = scatter_indices(&mut graph, &to, num_kv_heads, &columns);
    graph.output(
        "placed",
        "ScatterND",
        &[&into, &indices, &moved],
        Vec::new(),
        &cache("slots", "columns"),
    );
    graph.finish()
}

/// Returns the indices `[M, Hkv, N, 3]` at which `ScatterND` writes the keys of each row, head and
/// token to a cache. `rows` `[M]`, `columns` `[M or 1, N]`.
pub(super) fn scatter_indices(
    graph: &mut Graph,
    rows: &Value,
    num_kv_heads: usize,
    columns: &Value,
) -> Value {
    let row_axes = graph.ints("axes", &[3], &[1, 2, 3]);
    let column_axes = graph.ints("axes", &[2], &[1, 3]);
    let rows = graph.op("Unsqueeze", &[rows, &row_axes]);
    let head_numbers: Vec<i64> = (0..num_kv_heads as i64).collect();
    let heads = graph.ints("heads", &[1, num_kv_heads, 1, 1], &head_numbers);
    let columns = graph.op("Unsqueeze", &[columns, &column_axes]);
    // A zero of the common shape broadcasts the three indices for the concatenation.
    let zero = graph.ints("zero", &[], &[0]);
    let sum = graph.op("Add", &[&rows, &heads]);
    let sum = graph.op("Add", &[&sum, &columns]);
    let zeros = graph.op("Mul", &[&sum, &zero]); // [M, Hkv, N, 1]
    let [rows, heads, columns] =
        [rows, heads, columns].map(|part| graph.op("Add", &[&zeros, &part]));
    graph.op_with("Concat", &[&rows, &heads, &columns], vec![int("axis", 3)])
}
