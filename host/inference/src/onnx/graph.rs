//! Writes an ONNX graph node by node. ONNX Runtime's own operators may be used beside those of the
//! standard.

use half::bf16;
use ort::value::TensorElementType;
use prost::Message;

use crate::onnx::proto::{
    self, ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_INTS, AttributeProto, BFLOAT16, DimensionProto,
    EXTERNAL, FLOAT, GraphProto, INT64, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto,
};

/// The operators are those of this version of the standard.
const OPSET: i64 = 17;
/// The file format that goes with it.
const IR_VERSION: i64 = 8;
/// ONNX Runtime's own operators.
const MICROSOFT: &str = "com.microsoft";

/// The name of a tensor in the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value(String);

impl Value {
    /// In the place of an input that an operator can do without.
    #[must_use]
    pub fn none() -> Self {
        Self(String::new())
    }
}

/// The floating-point type that a graph computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    /// On a CPU.
    F32,
    /// On a GPU.
    Bf16,
}

impl Float {
    fn code(self) -> i32 {
        match self {
            Self::F32 => FLOAT,
            Self::Bf16 => BFLOAT16,
        }
    }

    /// As tensors have it.
    #[must_use]
    pub fn element_type(self) -> TensorElementType {
        match self {
            Self::F32 => TensorElementType::Float32,
            Self::Bf16 => TensorElementType::Bfloat16,
        }
    }

    fn bytes(self, data: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Self::Bf16 => data.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
        }
    }
}

/// A tensor that the graph does not hold: whoever loads it gives it to ONNX Runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outside {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
}

/// A graph that is complete.
#[derive(Debug)]
pub struct Written {
    /// The content of an `.onnx` file.
    pub(crate) bytes: Vec<u8>,
    pub(crate) outside: Vec<Outside>,
    pub(crate) float: Float,
}

/// A setting of an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute(AttributeProto);

/// A dimension of an input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension(proto::Dimension);

/// One dimension of a shape that a graph computes.
#[derive(Debug, Clone, Copy)]
pub enum Size<'a> {
    /// Known now; 0 keeps a dimension of what is reshaped, −1 takes what is left.
    Fixed(i64),
    /// A value `[1]`.
    Is(&'a Value),
}

/// A graph that grows.
pub struct Graph {
    proto: GraphProto,
    float: Float,
    outside: Vec<Outside>,
}

impl Graph {
    /// An empty one; `name` is for people who look into the file.
    #[must_use]
    pub fn new(name: &str, float: Float) -> Self {
        Self {
            proto: GraphProto { name: name.to_owned(), ..GraphProto::default() },
            float,
            outside: Vec::new(),
        }
    }

    /// An input of 64-bit integers.
    pub fn int_input(&mut self, name: &str, shape: &[Dimension]) -> Value {
        self.input(name, INT64, shape)
    }

    /// An input of the graph's floating-point type.
    pub fn float_input(&mut self, name: &str, shape: &[Dimension]) -> Value {
        self.input(name, self.float.code(), shape)
    }

    fn input(&mut self, name: &str, elem_type: i32, shape: &[Dimension]) -> Value {
        self.proto.input.push(value_info(name, elem_type, shape));
        Value(name.to_owned())
    }

    /// Has an operator's result under a name that callers see.
    pub fn output(
        &mut self,
        name: &str,
        op_type: &str,
        inputs: &[&Value],
        attributes: Vec<Attribute>,
        shape: &[Dimension],
    ) -> Value {
        self.push("", op_type, inputs, vec![name.to_owned()], attributes);
        self.proto.output.push(value_info(name, self.float.code(), shape));
        Value(name.to_owned())
    }

    /// A weight that comes from outside.
    pub fn weight(&mut self, name: &str, shape: &[usize]) -> Value {
        let value = Value(name.to_owned());
        let outside = Outside { name: name.to_owned(), shape: shape.to_vec() };
        if self.outside.contains(&outside) {
            return value;
        }
        let location =
            StringStringEntryProto { key: "location".to_owned(), value: "the program".to_owned() };
        self.proto.initializer.push(TensorProto {
            dims: shape.iter().map(|&n| n as i64).collect(),
            data_type: self.float.code(),
            name: name.to_owned(),
            raw_data: Vec::new(),
            external_data: vec![location],
            data_location: Some(EXTERNAL),
        });
        self.outside.push(outside);
        value
    }

    /// A constant; `name` is for people who look into the file.
    pub fn floats(&mut self, name: &str, dims: &[usize], data: &[f32]) -> Value {
        self.constant(name, self.float.code(), dims, self.float.bytes(data))
    }

    /// A constant of 64-bit integers.
    pub fn ints(&mut self, name: &str, dims: &[usize], data: &[i64]) -> Value {
        self.constant(name, INT64, dims, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    fn constant(&mut self, name: &str, data_type: i32, dims: &[usize], raw_data: Vec<u8>) -> Value {
        let name = format!("{name}_{}", self.proto.initializer.len());
        let dims = dims.iter().map(|&n| n as i64).collect();
        let (external_data, data_location) = (Vec::new(), None);
        self.proto.initializer.push(TensorProto {
            dims,
            data_type,
            name: name.clone(),
            raw_data,
            external_data,
            data_location,
        });
        Value(name)
    }

    /// An operator with one output.
    pub fn op(&mut self, op_type: &str, inputs: &[&Value]) -> Value {
        self.op_with(op_type, inputs, Vec::new())
    }

    /// An operator with one output, and settings.
    pub fn op_with(
        &mut self,
        op_type: &str,
        inputs: &[&Value],
        attributes: Vec<Attribute>,
    ) -> Value {
        self.op_of("", op_type, inputs, attributes)
    }

    /// One of ONNX Runtime's own operators.
    pub fn microsoft(
        &mut self,
        op_type: &str,
        inputs: &[&Value],
        attributes: Vec<Attribute>,
    ) -> Value {
        self.op_of(MICROSOFT, op_type, inputs, attributes)
    }

    fn op_of(
        &mut self,
        domain: &str,
        op_type: &str,
        inputs: &[&Value],
        attributes: Vec<Attribute>,
    ) -> Value {
        let [output] = self.fresh(op_type);
        self.push(domain, op_type, inputs, vec![output.0.clone()], attributes);
        output
    }

    /// Two pieces along the last axis, of the lengths in `sizes` `[2]`.
    pub fn split(&mut self, x: &Value, sizes: &Value) -> [Value; 2] {
        let outputs = self.fresh::<2>("Split");
        let names = outputs.iter().map(|value| value.0.clone()).collect();
        self.push("", "Split", &[x, sizes], names, vec![int("axis", -1)]);
        outputs
    }

    /// The size of one dimension of a value, `[1]`.
    pub fn dimension(&mut self, value: &Value, axis: i64) -> Value {
        let shape = self.op("Shape", &[value]);
        let axis = self.ints("axis", &[1], &[axis]);
        self.op("Gather", &[&shape, &axis])
    }

    /// A shape, as `Reshape` takes it.
    pub fn shape(&mut self, sizes: &[Size<'_>]) -> Value {
        let parts: Vec<Value> = sizes
            .iter()
            .map(|size| match size {
                Size::Fixed(size) => self.ints("size", &[1], &[*size]),
                Size::Is(value) => (*value).clone(),
            })
            .collect();
        self.op_with("Concat", &parts.iter().collect::<Vec<_>>(), vec![int("axis", 0)])
    }

    /// The integers from 0 to `length` `[1]`.
    pub fn range(&mut self, length: &Value) -> Value {
        let (zero, one) = (self.ints("zero", &[], &[0]), self.ints("one", &[], &[1]));
        let axis = self.ints("axes", &[1], &[0]);
        let length = self.op("Squeeze", &[length, &axis]);
        self.op("Range", &[&zero, &length, &one])
    }

    fn fresh<const N: usize>(&self, op_type: &str) -> [Value; N] {
        let number = self.proto.node.len();
        std::array::from_fn(|n| {
            Value(if n == 0 {
                format!("{op_type}_{number}")
            } else {
                format!("{op_type}_{number}_{n}")
            })
        })
    }

    fn push(
        &mut self,
        domain: &str,
        op_type: &str,
        inputs: &[&Value],
        output: Vec<String>,
        attributes: Vec<Attribute>,
    ) {
        self.proto.node.push(NodeProto {
            input: inputs.iter().map(|value| value.0.clone()).collect(),
            name: format!("node_{}", self.proto.node.len()),
            output,
            op_type: op_type.to_owned(),
            attribute: attributes.into_iter().map(|attribute| attribute.0).collect(),
            domain: domain.to_owned(),
        });
    }

    /// The graph as it is loaded.
    #[must_use]
    pub fn finish(self) -> Written {
        let operators =
            |domain: &str, version| OperatorSetIdProto { domain: domain.to_owned(), version };
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "corver".to_owned(),
            graph: Some(self.proto),
            opset_import: vec![operators("", OPSET), operators(MICROSOFT, 1)],
        };
        Written { bytes: model.encode_to_vec(), outside: self.outside, float: self.float }
    }
}

fn attribute(name: &str, r#type: i32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type, ..AttributeProto::default() }
}

/// A number as a setting.
#[must_use]
pub fn float(name: &str, value: f32) -> Attribute {
    Attribute(AttributeProto { f: Some(value), ..attribute(name, ATTRIBUTE_FLOAT) })
}

/// An integer as a setting.
#[must_use]
pub fn int(name: &str, value: i64) -> Attribute {
    Attribute(AttributeProto { i: Some(value), ..attribute(name, ATTRIBUTE_INT) })
}

/// Integers as a setting.
#[must_use]
pub fn ints(name: &str, values: &[i64]) -> Attribute {
    Attribute(AttributeProto { ints: values.to_vec(), ..attribute(name, ATTRIBUTE_INTS) })
}

/// A dimension that is free, and equal wherever it has this name.
#[must_use]
pub fn named(name: &str) -> Dimension {
    Dimension(proto::Dimension::Named(name.to_owned()))
}

/// A dimension that is known.
#[must_use]
pub fn fixed(size: usize) -> Dimension {
    Dimension(proto::Dimension::Fixed(size as i64))
}

fn value_info(name: &str, elem_type: i32, shape: &[Dimension]) -> ValueInfoProto {
    let dim =
        shape.iter().map(|dimension| DimensionProto { value: Some(dimension.0.clone()) }).collect();
    let tensor_type = TensorTypeProto { elem_type, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto { tensor_type: Some(tensor_type) }),
    }
}
