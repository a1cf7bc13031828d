//! sentences to triplets through ONNX Runtime.
