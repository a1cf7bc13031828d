// Arguments, results and errors of functions that Rust calls.
#pragma once

#include <cstring>
#include <exception>
#include <optional>

#include <ATen/core/Tensor.h>

// Returns null, or the message of an exception, which the caller frees.
template <typename F>
char* guarded(F body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("an exception of an unknown kind");
  }
}

inline std::optional<at::Tensor> optional(const at::Tensor* tensor) {
  return tensor ? std::optional<at::Tensor>(*tensor) : std::nullopt;
}

inline at::Tensor* owned(const at::Tensor& tensor) { return new at::Tensor(tensor); }
