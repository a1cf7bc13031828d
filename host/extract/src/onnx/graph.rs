//! Writes an ONNX graph node by node.

use prost::Message;

use super::proto::{
    ATTRIBUTE_INT, ATTRIBUTE_INTS, AttributeProto, Dimension, DimensionProto, FLOAT, GraphProto, INT64, ModelProto,
    NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// The operators are those of this version of the standard.
const OPSET: i64 = 17;
/// The file format that goes with it.
const IR_VERSION: i64 = 8;

/// The name of a tensor in the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value(String);

/// A graph that grows.
#[derive(Default)]
pub(super) struct Graph {
    proto: GraphProto,
}

impl Graph {
    pub(super) fn input(&mut self, name: &str, elem_type: i32, shape: &[Dimension]) -> Value {
        self.proto.input.push(value_info(name, elem_type, shape));
        Value(name.to_owned())
    }

    /// Gives `value` a name that callers see.
    pub(super) fn output(&mut self, name: &str, value: &Value, shape: &[Dimension]) {
        self.push("Identity", &[value], vec![name.to_owned()], Vec::new());
        self.proto.output.push(value_info(name, FLOAT, shape));
    }

    /// A constant; `name` is for people who look into the file.
    pub(super) fn floats(&mut self, name: &str, dims: &[usize], data: &[f32]) -> Value {
        self.initializer(name, FLOAT, dims, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    pub(super) fn ints(&mut self, name: &str, dims: &[usize], data: &[i64]) -> Value {
        self.initializer(name, INT64, dims, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    fn initializer(&mut self, name: &str, data_type: i32, dims: &[usize], raw_data: Vec<u8>) -> Value {
        let dims = dims.iter().map(|&n| n as i64).collect();
        self.proto.initializer.push(TensorProto { dims, data_type, name: name.to_owned(), raw_data });
        Value(name.to_owned())
    }

    /// An operator with one output.
    pub(super) fn op(&mut self, op_type: &str, inputs: &[&Value]) -> Value {
        self.op_with(op_type, inputs, Vec::new())
    }

    pub(super) fn op_with(&mut self, op_type: &str, inputs: &[&Value], attributes: Vec<AttributeProto>) -> Value {
        let [output] = self.fresh(op_type);
        self.push(op_type, inputs, vec![output.0.clone()], attributes);
        output
    }

    /// The two halves along the last axis.
    pub(super) fn halves(&mut self, x: &Value) -> [Value; 2] {
        let outputs = self.fresh::<2>("Split");
        let names = outputs.iter().map(|value| value.0.clone()).collect();
        self.push("Split", &[x], names, vec![int("axis", -1)]);
        outputs
    }

    fn fresh<const N: usize>(&self, op_type: &str) -> [Value; N] {
        let number = self.proto.node.len();
        std::array::from_fn(|n| {
            Value(if n == 0 { format!("{op_type}_{number}") } else { format!("{op_type}_{number}_{n}") })
        })
    }

    fn push(&mut self, op_type: &str, inputs: &[&Value], output: Vec<String>, attribute: Vec<AttributeProto>) {
        self.proto.node.push(NodeProto {
            input: inputs.iter().map(|value| value.0.clone()).collect(),
            name: format!("node_{}", self.proto.node.len()),
            output,
            op_type: op_type.to_owned(),
            attribute,
        });
    }

    /// The content of an `.onnx` file.
    pub(super) fn encode(mut self, name: &str) -> Vec<u8> {
        self.proto.name = name.to_owned();
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "corver".to_owned(),
            graph: Some(self.proto),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        };
        model.encode_to_vec()
    }
}

pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i: Some(value), ints: Vec::new(), r#type: ATTRIBUTE_INT }
}

pub(super) fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i: None, ints: values.to_vec(), r#type: ATTRIBUTE_INTS }
}

pub(super) fn named(name: &str) -> Dimension {
    Dimension::Named(name.to_owned())
}

pub(super) fn fixed(size: usize) -> Dimension {
    Dimension::Fixed(size as i64)
}

fn value_info(name: &str, elem_type: i32, shape: &[Dimension]) -> ValueInfoProto {
    let dim = shape.iter().map(|dimension| DimensionProto { value: Some(dimension.clone()) }).collect();
    let tensor_type = TensorTypeProto { elem_type, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}
