// The product of few rows with a weight, as in a decoding step. BLAS copies a factor into the order in
// which it reads it, which takes as long as the product itself if few rows use the copy. This reads the
// weight once, in its own order. Sums are in f32.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>

#include "guarded.h"
#include "kernel.h"

namespace {

// Most rows for which a copy of the weight is too expensive.
constexpr int64_t FEW_ROWS = 256;
// Fewest numbers in a row for the kernels: for fewer, adding up the lanes takes as long as the product.
constexpr int64_t FEWEST_INPUTS = 192;

#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 11  // from which on AMX is known

using c10::BFloat16;

// y = x wᵀ + bias, all contiguous.
template <typename Number>
struct Product {
  const Number* x;     // [rows, in]
  const Number* w;     // [out, in]
  const Number* bias;  // [out], or null
  Number* y;           // [rows, out]
  int64_t rows, in, out;
};

// Numbers that one instruction multiplies and adds to f32 sums.
template <int LENGTH_>
struct Floats {
  using Number = float;
  static constexpr int LENGTH = LENGTH_;
  // Most numbers of a row that are multiplied before the next columns. Those of all rows stay in the cache.
  static constexpr int64_t LONGEST_PART = 640;
  typedef float Sums __attribute__((vector_size(LENGTH * sizeof(float))));
  typedef Sums Part;

  static CORVER_INLINE Sums add_product(Sums sums, Part a, Part b) { return sums + a * b; }
};

// Pairs of bf16, whose products are added to the same sum.
struct BFloat16Pairs {
  using Number = BFloat16;
  static constexpr int LENGTH = 32;
  static constexpr int64_t LONGEST_PART = INT64_MAX;  // the sum of a part would be rounded
  typedef float Sums __attribute__((vector_size(64)));
  typedef int32_t Part __attribute__((vector_size(64)));  // a pair in each number

  // As an intrinsic it could be inlined only into functions that are compiled for AVX512-BF16.
  static CORVER_INLINE Sums add_product(Sums sums, Part a, Part b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
    return sums;
  }
};

template <int LENGTH, typename Sums>
CORVER_INLINE float total(Sums sums) {
  if constexpr (LENGTH == 1) {
    return sums[0];
  } else {
    typedef float Half __attribute__((vector_size(LENGTH / 2 * sizeof(float))));
    Half halves[2];
    std::memcpy(halves, &sums, sizeof(sums));
    return total<LENGTH / 2>(halves[0] + halves[1]);
  }
}

// Computes ROWS x COLUMNS outputs from number `row`, `column`, or adds the part [first, end) of their sums.
template <typename Lanes, int ROWS, int COLUMNS>
CORVER_INLINE void multiply_tile(
    const Product<typename Lanes::Number>& p, int64_t row, int64_t column, int64_t first,
    int64_t end) {
  using Number = typename Lanes::Number;
  using Part = typename Lanes::Part;
  using Sums = typename Lanes::Sums;
  const Number* x = p.x + row * p.in;
  const Number* w = p.w + column * p.in;
  Sums sums[ROWS][COLUMNS] = {};
  int64_t i = first;
  for (; i + Lanes::LENGTH <= end; i += Lanes::LENGTH) {
    Part weights[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) {
      std::memcpy(&weights[c], w + c * p.in + i, sizeof(Part));
      __builtin_prefetch(w + (COLUMNS + c) * p.in + i);  // the next tile; no fault behind the last one
    }
    for (int r = 0; r < ROWS; ++r) {
      Part numbers;
      std::memcpy(&numbers, x + r * p.in + i, sizeof(Part));
      for (int c = 0; c < COLUMNS; ++c) {
        sums[r][c] = Lanes::add_product(sums[r][c], numbers, weights[c]);
      }
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int c = 0; c < COLUMNS; ++c) {
      float sum = total<sizeof(Sums) / sizeof(float)>(sums[r][c]);
      for (int64_t rest = i; rest < end; ++rest) {
        sum += static_cast<float>(x[r * p.in + rest]) * static_cast<float>(w[c * p.in + rest]);
      }
      Number& y = p.y[(row + r) * p.out + column + c];
      if (first > 0) {
        sum += static_cast<float>(y);
      } else if (p.bias) {
        sum += static_cast<float>(p.bias[column + c]);
      }
      y = static_cast<Number>(sum);
    }
  }
}

template <typename Lanes, int COLUMNS>
CORVER_INLINE void multiply_columns(
    const Product<typename Lanes::Number>& p, int64_t column, int64_t first, int64_t end) {
  int64_t row = 0;
  for (; row + 6 <= p.rows; row += 6) {
    multiply_tile<Lanes, 6, COLUMNS>(p, row, column, first, end);
  }
  if (row + 4 <= p.rows) {
    multiply_tile<Lanes, 4, COLUMNS>(p, row, column, first, end);
    row += 4;
  }
  if (row + 2 <= p.rows) {
    multiply_tile<Lanes, 2, COLUMNS>(p, row, column, first, end);
    row += 2;
  }
  if (row < p.rows) {
    multiply_tile<Lanes, 1, COLUMNS>(p, row, column, first, end);
  }
}

// Computes the outputs of the columns [first, end).
template <typename Lanes, int COLUMNS>
CORVER_INLINE void multiply(
    const Product<typename Lanes::Number>& p, int64_t first, int64_t end) {
  const int64_t parts = 1 + (p.in - 1) / Lanes::LONGEST_PART;
  const int64_t lanes = 1 + (p.in - 1) / parts / Lanes::LENGTH;  // of a part
  const int64_t length = lanes * Lanes::LENGTH;
  for (int64_t start = 0; start < p.in; start += length) {
    const int64_t stop = std::min(start + length, p.in);
    int64_t column = first;
    for (; column + COLUMNS <= end; column += COLUMNS) {
      multiply_columns<Lanes, COLUMNS>(p, column, start, stop);
    }
    for (; column < end; ++column) {
      multiply_columns<Lanes, 1>(p, column, start, stop);
    }
  }
}

// Tiles use most of the registers: 32 with AVX-512, 16 with AVX2.
__attribute__((target("avx2,fma"))) void multiply_avx2(
    const Product<float>& p, int64_t first, int64_t end) {
  multiply<Floats<8>, 2>(p, first, end);
}

__attribute__((target("avx512f"))) void multiply_avx512(
    const Product<float>& p, int64_t first, int64_t end) {
  multiply<Floats<16>, 4>(p, first, end);
}

__attribute__((target("avx512f"))) void multiply_avx512_bf16(
    const Product<BFloat16>& p, int64_t first, int64_t end) {
  multiply<BFloat16Pairs, 4>(p, first, end);
}

template <typename Number>
struct Kernel {
  void (*multiply)(const Product<Number>&, int64_t, int64_t);  // null: the processor has none
  int64_t most_rows;  // for which libtorch's product was not faster on an AMD EPYC with AVX-512
};

// Returns true if libtorch uses AVX-512, or AVX2: ATEN_CPU_CAPABILITY=avx2 excludes AVX-512.
bool has_capability(const std::string& name) { return at::get_cpu_capability() == name; }

Kernel<float> kernel_of(float) {
  if (has_capability("AVX512")) {
    return {multiply_avx512, FEW_ROWS};
  }
  return {has_capability("AVX2") ? multiply_avx2 : nullptr, FEW_ROWS};
}

// With AMX, libtorch's product uses it; which one is faster there was not measured.
Kernel<BFloat16> kernel_of(BFloat16) {
  const bool is_used = has_capability("AVX512") && __builtin_cpu_supports("avx512bf16") &&
      !__builtin_cpu_supports("amx-bf16");
  return {is_used ? multiply_avx512_bf16 : nullptr, 16};
}

// Returns nothing if there is no faster product of these rows.
template <typename Number>
std::optional<at::Tensor> multiply_few_rows(
    const at::Tensor& rows, const at::Tensor& weight, const at::Tensor* bias) {
  static const auto kernel = kernel_of(Number{});
  if (!kernel.multiply || rows.size(0) > kernel.most_rows) {
    return std::nullopt;
  }
  const auto x = rows.contiguous();
  const auto w = weight.contiguous();
  const auto b = bias ? bias->contiguous() : at::Tensor();
  auto y = at::empty({x.size(0), w.size(0)}, x.options());
  const Product<Number> product = {
      x.const_data_ptr<Number>(), w.const_data_ptr<Number>(),
      bias ? b.const_data_ptr<Number>() : nullptr, y.mutable_data_ptr<Number>(),
      x.size(0), x.size(1), w.size(0)};
  constexpr int64_t COLUMNS = 4;  // a multiple of those of a tile, so that no tile is divided
  const int64_t tiles = (product.out + COLUMNS - 1) / COLUMNS;
  const int64_t grain = items_per_thread(COLUMNS * product.rows * product.in);
  at::parallel_for(0, tiles, grain, [&](int64_t first, int64_t end) {
    kernel.multiply(product, first * COLUMNS, std::min(end * COLUMNS, product.out));
  });
  return y;
}

std::optional<at::Tensor> multiply_few_rows(
    const at::Tensor& rows, const at::Tensor& weight, const at::Tensor* bias) {
  const auto type = rows.scalar_type();
  const bool is_one_type =
      weight.scalar_type() == type && (!bias || bias->scalar_type() == type);
  if (!is_one_type || rows.size(1) < FEWEST_INPUTS) {
    return std::nullopt;
  }
  switch (type) {
    case at::kFloat:
      return multiply_few_rows<float>(rows, weight, bias);
    case at::kBFloat16:
      return multiply_few_rows<BFloat16>(rows, weight, bias);
    default:
      return std::nullopt;
  }
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
    return at::linear(x, weight, optional(bias));
  };
  const bool is_on_cpu = x.is_cpu() && weight.is_cpu() && (!bias || bias->is_cpu());
  const int64_t rows = x.size(-1) > 0 ? x.numel() / x.size(-1) : 0;
  if (at::GradMode::is_enabled() || !is_on_cpu || rows == 0 || rows > FEW_ROWS) {
    return plain();
  }
  const bool is_fitting = weight.dim() == 2 && weight.size(1) == x.size(-1) &&
      (!bias || (bias->dim() == 1 && bias->size(0) == weight.size(0)));
  if (!is_fitting) {
    return plain();  // libtorch's error
  }
  const auto matrix = x.reshape({rows, x.size(-1)});
  auto y = multiply_few_rows(matrix, weight, bias);
  if (!y && contiguous) {
    return plain();
  }
  if (!y) {  // (w xᵀ)ᵀ: BLAS copies the right factor, which is the rows and not the weight
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
