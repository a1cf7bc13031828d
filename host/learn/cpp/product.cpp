// The product of few rows with a weight, as in a decoding step. BLAS copies a factor into the order in
// which it reads it, which takes as long as the product itself if few rows use the copy. This reads the
// weight once, in its own order. Every sum has the same order whatever the number of rows.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>

#include "guarded.h"

namespace {

// Most rows for which a copy of the weight is too expensive.
constexpr int64_t FEW_ROWS = 256;

#if defined(__x86_64__) && !defined(__clang__)

#define CORVER_INLINE inline __attribute__((always_inline))

// y = x wᵀ + bias in f32, all contiguous.
struct Product {
  const float* x;     // [rows, in]
  const float* w;     // [out, in]
  const float* bias;  // [out], or null
  float* y;           // [rows, out]
  int64_t rows, in, out;
};

// Largest part of a sum that is computed before the next columns, so that the rows stay in the cache.
constexpr int64_t LONGEST_PART = 640;

template <int LANES>
struct Vector {
  typedef float Type __attribute__((vector_size(LANES * sizeof(float))));
};

template <int LANES>
CORVER_INLINE float sum(const typename Vector<LANES>::Type& x) {
  typename Vector<LANES / 2>::Type halves[2];
  std::memcpy(halves, &x, sizeof(x));
  return sum<LANES / 2>(halves[0] + halves[1]);
}

template <>
CORVER_INLINE float sum<2>(const Vector<2>::Type& x) {
  return x[0] + x[1];
}

// Computes ROWS x COLUMNS outputs from number `row`, `column`, or adds the part [first, end) of their sums.
template <int LANES, int ROWS, int COLUMNS>
CORVER_INLINE void multiply_tile(
    const Product& p, int64_t row, int64_t column, int64_t first, int64_t end) {
  typedef typename Vector<LANES>::Type Lanes;
  const float* x = p.x + row * p.in;
  const float* w = p.w + column * p.in;
  Lanes sums[ROWS][COLUMNS] = {};
  int64_t i = first;
  for (; i + LANES <= end; i += LANES) {
    Lanes weights[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) {
      std::memcpy(&weights[c], w + c * p.in + i, sizeof(Lanes));
      __builtin_prefetch(w + (COLUMNS + c) * p.in + i);  // the next tile; may be behind the weight
    }
    for (int r = 0; r < ROWS; ++r) {
      Lanes numbers;
      std::memcpy(&numbers, x + r * p.in + i, sizeof(Lanes));
      for (int c = 0; c < COLUMNS; ++c) {
        sums[r][c] += numbers * weights[c];
      }
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int c = 0; c < COLUMNS; ++c) {
      float total = sum<LANES>(sums[r][c]);
      for (int64_t rest = i; rest < end; ++rest) {
        total += x[r * p.in + rest] * w[c * p.in + rest];
      }
      float& y = p.y[(row + r) * p.out + column + c];
      y = first > 0 ? y + total : p.bias ? p.bias[column + c] + total : total;
    }
  }
}

template <int LANES, int COLUMNS>
CORVER_INLINE void multiply_columns(const Product& p, int64_t column, int64_t first, int64_t end) {
  int64_t row = 0;
  for (; row + 6 <= p.rows; row += 6) {
    multiply_tile<LANES, 6, COLUMNS>(p, row, column, first, end);
  }
  for (; row + 2 <= p.rows; row += 2) {
    multiply_tile<LANES, 2, COLUMNS>(p, row, column, first, end);
  }
  if (row < p.rows) {
    multiply_tile<LANES, 1, COLUMNS>(p, row, column, first, end);
  }
}

// Computes the outputs of the columns [first, end).
template <int LANES, int COLUMNS>
CORVER_INLINE void multiply(const Product& p, int64_t first, int64_t end) {
  const int64_t parts = (p.in + LONGEST_PART - 1) / LONGEST_PART;
  const int64_t length = (p.in / parts + LANES) / LANES * LANES;
  for (int64_t start = 0; start < p.in; start += length) {
    const int64_t stop = std::min(start + length, p.in);
    int64_t column = first;
    for (; column + COLUMNS <= end; column += COLUMNS) {
      multiply_columns<LANES, COLUMNS>(p, column, start, stop);
    }
    for (; column < end; ++column) {
      multiply_columns<LANES, 1>(p, column, start, stop);
    }
  }
}

// Tiles use most of the registers: 32 with AVX-512, 16 with AVX2.
__attribute__((target("avx512f"))) void multiply_avx512(
    const Product& p, int64_t first, int64_t end) {
  multiply<16, 4>(p, first, end);
}

__attribute__((target("avx2,fma"))) void multiply_avx2(
    const Product& p, int64_t first, int64_t end) {
  multiply<8, 2>(p, first, end);
}

using Multiply = void (*)(const Product&, int64_t, int64_t);

Multiply multiply_for_this_cpu() {
  if (__builtin_cpu_supports("avx512f")) {
    return multiply_avx512;
  }
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? multiply_avx2 : nullptr;
}

// Returns nothing if the processor or the type is not supported.
std::optional<at::Tensor> multiply_few_rows(
    const at::Tensor& rows, const at::Tensor& weight, const at::Tensor* bias) {
  static const Multiply function = multiply_for_this_cpu();
  const auto is_float = [](const at::Tensor& x) { return x.scalar_type() == at::kFloat; };
  if (!function || !is_float(rows) || !is_float(weight) || (bias && !is_float(*bias))) {
    return std::nullopt;
  }
  TORCH_CHECK(weight.dim() == 2 && weight.size(1) == rows.size(1), rows.sizes(), weight.sizes());
  TORCH_CHECK(!bias || bias->numel() == weight.size(0), "bias ", bias->sizes());
  const auto x = rows.contiguous();
  const auto w = weight.contiguous();
  const auto b = bias ? bias->contiguous() : at::Tensor();
  auto y = at::empty({x.size(0), w.size(0)}, x.options());
  const Product product = {
      x.const_data_ptr<float>(), w.const_data_ptr<float>(),
      bias ? b.const_data_ptr<float>() : nullptr, y.mutable_data_ptr<float>(),
      x.size(0), x.size(1), w.size(0)};
  constexpr int64_t COLUMNS = 4;  // of every tile, so that threads share none
  const int64_t tiles = (product.out + COLUMNS - 1) / COLUMNS;
  const int64_t grain = 1 + 32768 / (COLUMNS * product.rows * product.in + 1);
  at::parallel_for(0, tiles, grain, [&](int64_t first, int64_t end) {
    function(product, first * COLUMNS, std::min(end * COLUMNS, product.out));
  });
  return y;
}

#else

std::optional<at::Tensor> multiply_few_rows(
    const at::Tensor&, const at::Tensor&, const at::Tensor*) {
  return std::nullopt;
}

#endif

at::Tensor linear(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor* bias, bool contiguous) {
  const auto plain = [&] {
    return at::linear(x, weight, bias ? std::optional<at::Tensor>(*bias) : std::nullopt);
  };
  const int64_t rows = x.size(-1) > 0 ? x.numel() / x.size(-1) : 0;
  const bool has_gradients = at::GradMode::is_enabled();
  if (has_gradients || !x.is_cpu() || !weight.is_cpu() || rows == 0 || rows > FEW_ROWS) {
    return plain();
  }
  const auto matrix = x.reshape({rows, x.size(-1)});
  auto y = multiply_few_rows(matrix, weight, bias);
  if (!y && contiguous) {
    return plain();
  }
  if (!y) {  // (w xᵀ)ᵀ, so that the left factor is copied: the rows
    const auto columns = matrix.t();
    y = (bias ? at::addmm(bias->unsqueeze(1), weight, columns) : at::mm(weight, columns)).t();
  }
  auto size = x.sizes().vec();
  size.back() = weight.size(0);
  return y->view(size);
}

}  // namespace

extern "C" {

char* corver_linear(
    const at::Tensor* x, const at::Tensor* weight, const at::Tensor* bias, bool contiguous,
    at::Tensor** out) {
  return guarded([&] { *out = owned(linear(*x, *weight, bias, contiguous)); });
}
}
