//! A builder of ONNX graphs, from the operators of the standard and those of ONNX Runtime.

use half::{bf16, f16};
use ort::value::TensorElementType;
use prost::Message;

use crate::onnx::proto::{
    self, ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_INTS, AttributeProto, BFLOAT16, DimensionProto,
    EXTERNAL, FLOAT, FLOAT16, GraphProto, INT64, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto,
};

/// Version of the standard that defines the operators.
const OPSET: i64 = 17;
/// Version of the file format for that standard.
const IR_VERSION: i64 = 8;
/// Domain of ONNX Runtime's own operators.
const MICROSOFT: &str = "com.microsoft";

/// The name of a tensor in the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value(String);

impl Value {
    /// Returns the placeholder of an optional input that is absent.
    #[must_use]
    pub fn none() -> Self {
        Self(String::new())
    }
}

/// The floating-point type that a graph computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    /// Single precision, for the CPU.
    F32,
    /// Brain floating point, for a GPU.
    Bf16,
    /// Half precision, for caches of an exported graph.
    F16,
}

impl Float {
    fn code(self) -> i32 {
        match self {
            Self::F32 => FLOAT,
            Self::Bf16 => BFLOAT16,
            Self::F16 => FLOAT16,
        }
    }

    /// Returns the corresponding element type of tensors.
    #[must_use]
    pub fn element_type(self) -> TensorElementType {
        match self {
            Self::F32 => TensorElementType::Float32,
            Self::Bf16 => TensorElementType::Bfloat16,
            Self::F16 => TensorElementType::Float16,
        }
    }

    /// Returns the floating-point type of tensors with this element type. `None`: it is another
    /// one.
    pub(crate) fn of_tensors(ty: TensorElementType) -> Option<Self> {
        [Self::F32, Self::Bf16, Self::F16].into_iter().find(|float| float.element_type() == ty)
    }

    /// Returns the attribute of a `Cast` to this type.
    pub(crate) fn cast_attribute(self) -> Attribute {
        int("to", i64::from(self.code()))
    }

    fn bytes(self, data: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Self::Bf16 => data.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
            Self::F16 => data.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        }
    }
}

/// A weight that is not in the file: the session passes it to ONNX Runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExternalWeight {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
}

/// A complete graph, ready to be loaded.
#[derive(Debug)]
pub struct CompletedGraph {
    /// Content of an `.onnx` file.
    pub(crate) bytes: Vec<u8>,
    pub(crate) external_weights: Vec<ExternalWeight>,
    pub(crate) float: Float,
}

/// An attribute of an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute(AttributeProto);

/// The size of one axis of an input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisSize(proto::Dimension);

/// A dimension of a shape that a graph computes.
#[derive(Debug, Clone, Copy)]
pub enum ShapePart<'a> {
    /// A known size. In a reshape, 0 preserves a dimension and −1 infers it.
    Fixed(i64),
    /// A size that is a value `[1]` of the graph.
    Is(&'a Value),
}

/// A graph under construction.
pub struct Graph {
    proto: GraphProto,
    float: Float,
    external_weights: Vec<ExternalWeight>,
}

impl Graph {
    /// Returns an empty graph. `name` appears in the file and has no effect.
    #[must_use]
    pub fn new(name: &str, float: Float) -> Self {
        Self {
            proto: GraphProto { name: name.to_owned(), ..GraphProto::default() },
            float,
            external_weights: Vec::new(),
        }
    }

    /// Adds an input of 64-bit integers.
    pub fn int_input(&mut self, name: &str, shape: &[AxisSize]) -> Value {
        self.input(name, INT64, shape)
    }

    /// Adds an input of the graph's floating-point type.
    pub fn float_input(&mut self, name: &str, shape: &[AxisSize]) -> Value {
        self.input(name, self.float.code(), shape)
    }

    fn input(&mut self, name: &str, elem_type: i32, shape: &[AxisSize]) -> Value {
        self.proto.input.push(value_info(name, elem_type, shape));
        Value(name.to_owned())
    }

    /// Adds an operator whose result is an output of the graph, of its floating-point type.
    pub fn output(
        &mut self,
        name: &str,
        op_type: &str,
        inputs: &[&Value],
        attributes: Vec<Attribute>,
        shape: &[AxisSize],
    ) -> Value {
        self.typed_output(name, self.float.code(), op_type, inputs, attributes, shape)
    }

    /// Adds an operator whose result is an output of the graph, 64-bit integers.
    pub fn int_output(
        &mut self,
        name: &str,
        op_type: &str,
        inputs: &[&Value],
        attributes: Vec<Attribute>,
        shape: &[AxisSize],
    ) -> Value {
        self.typed_output(name, INT64, op_type, inputs, attributes, shape)
    }

    fn typed_output(
        &mut self,
        name: &str,
        elem_type: i32,
        op_type: &str,
        inputs: &[&Value],
        attributes: Vec<Attribute>,
        shape: &[AxisSize],
    ) -> Value {
        self.push("", op_type, inputs, vec![name.to_owned()], attributes);
        self.proto.output.push(value_info(name, elem_type, shape));
        Value(name.to_owned())
    }

    /// Adds a weight that is not in the file. Adding the same weight again has no effect.
    pub fn weight(&mut self, name: &str, shape: &[usize]) -> Value {
        let value = Value(name.to_owned());
        let external_weights = ExternalWeight { name: name.to_owned(), shape: shape.to_vec() };
        if self.external_weights.contains(&external_weights) {
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
        self.external_weights.push(external_weights);
        value
    }

    /// Adds a constant. `name` becomes a part of its unique name in the file.
    pub fn floats(&mut self, name: &str, dims: &[usize], data: &[f32]) -> Value {
        self.constant(name, self.float.code(), dims, self.float.bytes(data))
    }

    /// Adds a constant of 64-bit integers.
    pub fn ints(&mut self, name: &str, dims: &[usize], data: &[i64]) -> Value {
        self.constant(name, INT64, dims, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    fn constant(&mut self, name: &str, data_type: i32, dims: &[usize], raw_data: Vec<u8>) -> Value {
        let name = format!("{name}_{}", self.proto.initializer.len());
        self.proto.initializer.push(TensorProto {
            dims: dims.iter().map(|&n| n as i64).collect(),
            data_type,
            name: name.clone(),
            raw_data,
            external_data: Vec::new(),
            data_location: None,
        });
        Value(name)
    }

    /// Adds an operator with one output.
    pub fn op(&mut self, op_type: &str, inputs: &[&Value]) -> Value {
        self.op_with(op_type, inputs, Vec::new())
    }

    /// Adds an operator with one output and attributes.
    pub fn op_with(
        &mut self,
        op_type: &str,
        inputs: &[&Value],
        attributes: Vec<Attribute>,
    ) -> Value {
        self.op_in_domain("", op_type, inputs, attributes)
    }

    /// Adds one of ONNX Runtime's own operators.
    pub fn microsoft(
        &mut self,
        op_type: &str,
        inputs: &[&Value],
        attributes: Vec<Attribute>,
    ) -> Value {
        self.op_in_domain(MICROSOFT, op_type, inputs, attributes)
    }

    fn op_in_domain(
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

    /// Permutes the axes of a value.
    pub fn transpose(&mut self, x: &Value, axes: &[i64]) -> Value {
        self.op_with("Transpose", &[x], vec![ints("perm", axes)])
    }

    /// Splits a value in two along the last axis, at the lengths in `sizes` `[2]`.
    pub fn split(&mut self, x: &Value, sizes: &Value) -> [Value; 2] {
        let outputs = self.fresh::<2>("Split");
        let names = outputs.iter().map(|value| value.0.clone()).collect();
        self.push("", "Split", &[x, sizes], names, vec![int("axis", -1)]);
        outputs
    }

    /// Returns the size of one axis of a value, `[1]`.
    pub fn dimension(&mut self, value: &Value, axis: i64) -> Value {
        let shape = self.op("Shape", &[value]);
        let axis = self.ints("axis", &[1], &[axis]);
        self.op("Gather", &[&shape, &axis])
    }

    /// Returns a shape for `Reshape`.
    pub fn shape(&mut self, sizes: &[ShapePart<'_>]) -> Value {
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            parts.push(match size {
                ShapePart::Fixed(size) => self.ints("size", &[1], &[*size]),
                ShapePart::Is(value) => (*value).clone(),
            });
        }
        self.op_with("Concat", &parts.iter().collect::<Vec<_>>(), vec![int("axis", 0)])
    }

    /// Returns the integers from 0 up to `length` `[1]`, exclusive.
    pub fn range(&mut self, length: &Value) -> Value {
        let zero = self.ints("zero", &[], &[0]);
        let one = self.ints("one", &[], &[1]);
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

    /// Completes the graph and encodes it as a file.
    #[must_use]
    pub fn finish(self) -> CompletedGraph {
        let standard = OperatorSetIdProto { domain: String::new(), version: OPSET };
        let microsoft = OperatorSetIdProto { domain: MICROSOFT.to_owned(), version: 1 };
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "corver".to_owned(),
            graph: Some(self.proto),
            opset_import: vec![standard, microsoft],
        };
        CompletedGraph {
            bytes: model.encode_to_vec(),
            external_weights: self.external_weights,
            float: self.float,
        }
    }
}

fn attribute(name: &str, r#type: i32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type, ..AttributeProto::default() }
}

/// Returns a floating-point attribute.
#[must_use]
pub fn float(name: &str, value: f32) -> Attribute {
    Attribute(AttributeProto { f: Some(value), ..attribute(name, ATTRIBUTE_FLOAT) })
}

/// Returns an integer attribute.
#[must_use]
pub fn int(name: &str, value: i64) -> Attribute {
    Attribute(AttributeProto { i: Some(value), ..attribute(name, ATTRIBUTE_INT) })
}

/// Returns an attribute that is a list of integers.
#[must_use]
pub fn ints(name: &str, values: &[i64]) -> Attribute {
    Attribute(AttributeProto { ints: values.to_vec(), ..attribute(name, ATTRIBUTE_INTS) })
}

/// Returns a size that varies between runs, and is equal for all axes of this name.
#[must_use]
pub fn named(name: &str) -> AxisSize {
    AxisSize(proto::Dimension::Named(name.to_owned()))
}

/// Returns a size that is known.
#[must_use]
pub fn fixed(size: usize) -> AxisSize {
    AxisSize(proto::Dimension::Fixed(size as i64))
}

fn value_info(name: &str, elem_type: i32, shape: &[AxisSize]) -> ValueInfoProto {
    let dim =
        shape.iter().map(|dimension| DimensionProto { value: Some(dimension.0.clone()) }).collect();
    let tensor_type = TensorTypeProto { elem_type, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto { tensor_type: Some(tensor_type) }),
    }
}
