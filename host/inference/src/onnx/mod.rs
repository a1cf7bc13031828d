//! ONNX Runtime: the library, its sessions and tensors, and a builder of graphs.
//!
//! ```text
//! runtime, device     the shared library, and its devices
//! graph, proto        operators ─▶ the bytes of an .onnx file
//! weights             a Hugging Face folder ─▶ the tensors of that graph
//! session             graph and tensors ─▶ a session
//! tensor              operations on tensors between two runs
//! ```

mod device;
mod error;
pub mod graph;
mod proto;
mod runtime;
pub mod session;
pub mod tensor;
mod weights;

pub use corver_settings::Device;
pub use device::gpu;
pub use error::OnnxError;
pub use error::Result;
pub use error::is_out_of_memory;
pub use runtime::RuntimeLibrary;

pub use ort::Error as RunError;
pub use ort::Result as RunResult;
pub use ort::memory::MemoryInfo;
pub use ort::session::Session;
pub use ort::value::DynValue;
pub use ort::value::Outlet;
pub use ort::value::Tensor;
pub use ort::value::TensorElementType;
