// Steps of a model on the CPU, each in one pass over its numbers. As operations of libtorch they take
// longer to start than to compute when few rows are decoded. Sums are in f32, and results are rounded
// once.

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "guarded.h"

// A version of the function per instruction set; the processor selects one when the program starts.
#if defined(__x86_64__) && defined(__linux__)
#define CORVER_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CORVER_SIMD
#endif
#define CORVER_INLINE inline __attribute__((always_inline))

namespace {

using c10::BFloat16;

CORVER_INLINE float load(float x) { return x; }

CORVER_INLINE float load(BFloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.x) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

CORVER_INLINE void store(float& to, float value) { to = value; }

CORVER_INLINE void store(BFloat16& to, float value) {
  to.x = c10::detail::round_to_nearest_even(value);
}

// ---- RMS norm

// out = weight * x / rms(x), and 1 / rms(x).
template <typename T>
CORVER_INLINE float norm_row(const T* x, const T* weight, int64_t width, float eps, T* out) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < width; ++i) {
    squares += load(x[i]) * load(x[i]);
  }
  const float inverse = 1 / std::sqrt(squares / width + eps);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    store(out[i], load(x[i]) * inverse * load(weight[i]));
  }
  return inverse;
}

// With n = x / rms(x): the gradient by x is (weight * grad - n * mean(n * weight * grad)) / rms(x).
template <typename T>
CORVER_INLINE void norm_row_gradient(
    const T* x, const T* weight, const T* grad, float inverse, int64_t width, T* out) {
  float product = 0;
#pragma omp simd reduction(+ : product)
  for (int64_t i = 0; i < width; ++i) {
    product += load(x[i]) * load(weight[i]) * load(grad[i]);
  }
  const float share = product * inverse * inverse / width;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    store(out[i], inverse * (load(weight[i]) * load(grad[i]) - load(x[i]) * share));
  }
}

CORVER_SIMD float norm(const float* x, const float* weight, int64_t width, float eps, float* out) {
  return norm_row(x, weight, width, eps, out);
}
CORVER_SIMD float norm(
    const BFloat16* x, const BFloat16* weight, int64_t width, float eps, BFloat16* out) {
  return norm_row(x, weight, width, eps, out);
}
CORVER_SIMD void norm_gradient(
    const float* x, const float* weight, const float* grad, float inverse, int64_t width,
    float* out) {
  norm_row_gradient(x, weight, grad, inverse, width, out);
}
CORVER_SIMD void norm_gradient(
    const BFloat16* x, const BFloat16* weight, const BFloat16* grad, float inverse, int64_t width,
    BFloat16* out) {
  norm_row_gradient(x, weight, grad, inverse, width, out);
}

// Calls `body` with a value of the tensor's type.
template <typename F>
void by_kind(const at::Tensor& x, F body) {
  if (x.scalar_type() == at::kFloat) {
    body(float{});
  } else {
    TORCH_CHECK(x.scalar_type() == at::kBFloat16, "the kernel computes in f32 or bf16");
    body(BFloat16{});
  }
}

// Rows that a thread computes at least, so that starting threads pays.
int64_t rows_per_thread(int64_t width) { return 1 + 32768 / (width + 1); }

// The weight has no gradient: it is fixed while adapters learn.
struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(
      torch::autograd::AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
      double eps) {
    const auto x = input.contiguous();
    const auto w = weight.contiguous();
    const int64_t width = w.numel();
    const int64_t rows = x.numel() / width;
    auto out = at::empty_like(x);
    auto inverse = at::empty({rows}, x.options().dtype(at::kFloat));
    by_kind(x, [&](auto zero) {
      using T = decltype(zero);
      const T* from = x.const_data_ptr<T>();
      const T* factor = w.const_data_ptr<T>();
      T* to = out.mutable_data_ptr<T>();
      float* scale = inverse.mutable_data_ptr<float>();
      at::parallel_for(0, rows, rows_per_thread(width), [&](int64_t first, int64_t end) {
        for (int64_t row = first; row < end; ++row) {
          const int64_t at = row * width;
          scale[row] = norm(from + at, factor, width, static_cast<float>(eps), to + at);
        }
      });
    });
    context->save_for_backward({x, w, inverse});
    return out;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto grad = grads[0].contiguous();
    const int64_t width = saved[1].numel();
    auto out = at::empty_like(x);
    by_kind(x, [&](auto zero) {
      using T = decltype(zero);
      const T* from = x.const_data_ptr<T>();
      const T* factor = saved[1].const_data_ptr<T>();
      const float* scale = saved[2].const_data_ptr<float>();
      const T* gradient = grad.const_data_ptr<T>();
      T* to = out.mutable_data_ptr<T>();
      const int64_t rows = x.numel() / width;
      at::parallel_for(0, rows, rows_per_thread(width), [&](int64_t first, int64_t end) {
        for (int64_t row = first; row < end; ++row) {
          const int64_t at = row * width;
          norm_gradient(from + at, factor, gradient + at, scale[row], width, to + at);
        }
      });
    });
    return {out, at::Tensor(), at::Tensor()};
  }
};

// ---- Attention of a decoding step

// Numbers of one head, `step` apart.
template <typename T>
struct Head {
  const T* data;
  int64_t step;
};

// Rotates a head; dimension i is paired with i + width / 2. Sines are negated in the first half.
template <typename T>
CORVER_INLINE void rotate_head(Head<T> x, const T* cos, const T* sin, int64_t width, T* out) {
  const int64_t half = width / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float low = load(x.data[i * x.step]);
    const float high = load(x.data[(i + half) * x.step]);
    store(out[i], low * load(cos[i]) + high * load(sin[i]));
    store(out[i + half], high * load(cos[i + half]) + low * load(sin[i + half]));
  }
}

// Softmax attention of `group` queries over `length` keys of their head, merged with their attention
// over the prompt.
template <typename T>
CORVER_INLINE void attend_head(
    const T* q, const T* keys, const T* values, int64_t group, int64_t length, int64_t width,
    const T* prompt, int64_t prompt_step, const float* prompt_normaliser, float* buffer, T* out) {
  float* query = buffer;                  // [group, width]
  float* number = query + group * width;  // [width]
  float* scores = number + width;         // [group, length]
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  for (int64_t i = 0; i < group * width; ++i) {
    query[i] = load(q[i]) * scale;
  }
  for (int64_t key = 0; key < length; ++key) {
    for (int64_t i = 0; i < width; ++i) {
      number[i] = load(keys[key * width + i]);
    }
    for (int64_t g = 0; g < group; ++g) {
      float product = 0;
#pragma omp simd reduction(+ : product)
      for (int64_t i = 0; i < width; ++i) {
        product += query[g * width + i] * number[i];
      }
      scores[g * length + key] = product;
    }
  }
  float* mixed = query;  // the queries are not needed any more
  for (int64_t g = 0; g < group; ++g) {
    float* weights = scores + g * length;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t key = 0; key < length; ++key) {
      largest = std::max(largest, weights[key]);
    }
    float sum = 0;
    for (int64_t key = 0; key < length; ++key) {
      weights[key] = std::exp(weights[key] - largest);
      sum += weights[key];
    }
    for (int64_t i = 0; i < width; ++i) {
      number[i] = 0;
    }
    for (int64_t key = 0; key < length; ++key) {
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        number[i] += weights[key] * load(values[key * width + i]);
      }
    }
    // exp(a) / (exp(a) + exp(b)) = sigmoid(a - b): the prompt's part of the softmax.
    const float normaliser = largest + std::log(sum);
    const float share = 1 / (1 + std::exp(normaliser - prompt_normaliser[g]));
    for (int64_t i = 0; i < width; ++i) {
      mixed[g * width + i] =
          number[i] / sum * (1 - share) + load(prompt[g * prompt_step + i]) * share;
    }
  }
  for (int64_t i = 0; i < group * width; ++i) {
    store(out[i], mixed[i]);
  }
}

CORVER_SIMD void attend(
    const float* q, const float* keys, const float* values, int64_t group, int64_t length,
    int64_t width, const float* prompt, int64_t prompt_step, const float* prompt_normaliser,
    float* buffer, float* out) {
  attend_head(
      q, keys, values, group, length, width, prompt, prompt_step, prompt_normaliser, buffer, out);
}
CORVER_SIMD void attend(
    const BFloat16* q, const BFloat16* keys, const BFloat16* values, int64_t group, int64_t length,
    int64_t width, const BFloat16* prompt, int64_t prompt_step, const float* prompt_normaliser,
    float* buffer, BFloat16* out) {
  attend_head(
      q, keys, values, group, length, width, prompt, prompt_step, prompt_normaliser, buffer, out);
}

// Slots for the rows of the prompts, each of which has as many as the prompt with the most rows.
struct Slots {
  int64_t prompts;
  int64_t per_prompt;
  const int64_t* of_row;  // null: slot n has row n

  Slots(int64_t prompts, int64_t per_prompt, const at::Tensor* of_row, int64_t rows)
      : prompts(prompts),
        per_prompt(per_prompt),
        of_row(of_row ? of_row->const_data_ptr<int64_t>() : nullptr) {
    if (of_row) {
      TORCH_CHECK(of_row->is_contiguous() && of_row->numel() == rows, "a slot per row");
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t slot = this->of_row[row];
        TORCH_CHECK(0 <= slot && slot < prompts * per_prompt, "the slots are of the prompts");
      }
    } else {
      TORCH_CHECK(rows == prompts * per_prompt, "a slot per row");
    }
  }

  // Place of a row's key head in [prompts * key heads, slots per prompt].
  std::pair<int64_t, int64_t> place(int64_t row, int64_t kv_head, int64_t kv_heads) const {
    const int64_t slot = of_row ? of_row[row] : row;
    return {slot / per_prompt * kv_heads + kv_head, slot % per_prompt};
  }
};

void check_tables(
    const at::Tensor& keys, const at::Tensor& values, int64_t all, int64_t width, int64_t length) {
  TORCH_CHECK(keys.is_contiguous() && values.is_contiguous(), "tables are contiguous");
  TORCH_CHECK(keys.sizes() == values.sizes() && keys.dim() == 3, "tables have one shape");
  TORCH_CHECK(keys.size(0) == all && keys.size(2) == width, "tables have the rows of the queries");
  TORCH_CHECK(0 < length && length <= keys.size(1), "the column is in the tables");
}

}  // namespace

extern "C" {

char* corver_rms_norm(
    const at::Tensor* x, const at::Tensor* weight, double eps, at::Tensor** out) {
  return guarded([&] {
    const auto kind = x->scalar_type();
    const bool is_fused = x->is_cpu() && kind == weight->scalar_type() &&
        (kind == at::kFloat || kind == at::kBFloat16) && x->size(-1) == weight->numel() &&
        !weight->requires_grad();
    *out = owned(
        is_fused ? RmsNorm::apply(*x, *weight, eps)
                 : at::rms_norm(*x, weight->sizes(), *weight, eps));
  });
}

char* corver_rotate_step(
    const at::Tensor* q, const at::Tensor* k, const at::Tensor* v, const at::Tensor* cos,
    const at::Tensor* sin, const at::Tensor* keys, const at::Tensor* values, int64_t column,
    int64_t prompts, int64_t slots_per_prompt, const at::Tensor* slot_of_row, at::Tensor** out) {
  return guarded([&] {
    const int64_t rows = q->size(0), heads = q->size(2), width = q->size(3);
    const int64_t kv_heads = k->size(2), group = heads / kv_heads, capacity = keys->size(1);
    const int64_t all = rows * kv_heads;
    TORCH_CHECK(width % 2 == 0 && heads == group * kv_heads, "heads of the queries");
    TORCH_CHECK(k->sizes() == v->sizes() && k->size(0) == rows && k->size(3) == width, "keys");
    TORCH_CHECK(cos->sizes() == sin->sizes() && cos->numel() == rows * width, "angles");
    TORCH_CHECK(cos->stride(-1) == 1 && sin->stride(-1) == 1, "angles of a head are contiguous");
    check_tables(*keys, *values, all, width, column + 1);
    const Slots slots(prompts, slots_per_prompt, slot_of_row, rows);
    const std::array<int64_t, 3> size = {prompts * kv_heads, slots_per_prompt * group, width};
    // An empty slot attends too, so it has to be finite.
    auto rotated = slot_of_row ? at::zeros(size, q->options()) : at::empty(size, q->options());
    by_kind(*q, [&](auto zero) {
      using T = decltype(zero);
      const auto head = [](const at::Tensor& x, int64_t row, int64_t n) {
        const T* data = x.const_data_ptr<T>() + row * x.stride(0) + n * x.stride(2);
        return Head<T>{data, x.stride(3)};
      };
      const auto angle = [](const at::Tensor& x, int64_t row) {
        return x.const_data_ptr<T>() + row * x.stride(0);
      };
      T* key_table = keys->mutable_data_ptr<T>();
      T* value_table = values->mutable_data_ptr<T>();
      T* to = rotated.template mutable_data_ptr<T>();
      const int64_t grain = rows_per_thread(8 * (group + 2) * width);
      at::parallel_for(0, all, grain, [&](int64_t first, int64_t end) {
        for (int64_t n = first; n < end; ++n) {
          const int64_t row = n / kv_heads, kv_head = n % kv_heads;
          const int64_t at = (n * capacity + column) * width;
          const T* c = angle(*cos, row);
          const T* s = angle(*sin, row);
          rotate_head(head(*k, row, kv_head), c, s, width, key_table + at);
          const auto value = head(*v, row, kv_head);
          for (int64_t i = 0; i < width; ++i) {
            value_table[at + i] = value.data[i * value.step];
          }
          const auto [prompt_head, slot] = slots.place(row, kv_head, kv_heads);
          T* queries = to + (prompt_head * slots_per_prompt + slot) * group * width;
          for (int64_t g = 0; g < group; ++g) {
            rotate_head(head(*q, row, kv_head * group + g), c, s, width, queries + g * width);
          }
        }
      });
    });
    *out = owned(rotated);
  });
}

char* corver_attend_step(
    const at::Tensor* q, const at::Tensor* keys, const at::Tensor* values, int64_t length,
    int64_t prompts, int64_t slots_per_prompt, const at::Tensor* slot_of_row,
    const at::Tensor* prompt_mixed, const at::Tensor* prompt_normaliser, at::Tensor** out) {
  return guarded([&] {
    TORCH_CHECK(prompts > 0 && slots_per_prompt > 0, "a prompt has a slot");
    const int64_t width = q->size(2), capacity = keys->size(1), all = keys->size(0);
    const int64_t kv_heads = q->size(0) / prompts, group = q->size(1) / slots_per_prompt;
    const int64_t rows = all / kv_heads;
    TORCH_CHECK(q->size(0) == prompts * kv_heads, "key heads of the slots");
    TORCH_CHECK(q->size(1) == slots_per_prompt * group, "queries of the slots");
    TORCH_CHECK(q->is_contiguous(), "queries are contiguous");
    TORCH_CHECK(prompt_mixed->sizes() == q->sizes(), "attention over the prompts");
    TORCH_CHECK(prompt_normaliser->numel() * width == q->numel(), "normalisers of the prompts");
    check_tables(*keys, *values, rows * kv_heads, width, length);
    const Slots slots(prompts, slots_per_prompt, slot_of_row, rows);
    TORCH_CHECK(prompt_mixed->stride(2) == 1, "values of a query are contiguous");
    const auto normaliser = prompt_normaliser->contiguous();
    auto mixed = at::empty({rows, 1, kv_heads * group * width}, q->options());
    by_kind(*q, [&](auto zero) {
      using T = decltype(zero);
      const T* queries = q->const_data_ptr<T>();
      const T* key_table = keys->const_data_ptr<T>();
      const T* value_table = values->const_data_ptr<T>();
      const T* prompt_values = prompt_mixed->const_data_ptr<T>();
      const int64_t head_step = prompt_mixed->stride(0), query_step = prompt_mixed->stride(1);
      const float* prompt_sums = normaliser.const_data_ptr<float>();
      T* to = mixed.template mutable_data_ptr<T>();
      const int64_t grain = rows_per_thread(2 * group * length * width);
      at::parallel_for(0, all, grain, [&](int64_t first, int64_t end) {
        std::vector<float> buffer((group + 1) * width + group * length);
        for (int64_t n = first; n < end; ++n) {
          const auto [head, slot] = slots.place(n / kv_heads, n % kv_heads, kv_heads);
          const int64_t query = (head * slots_per_prompt + slot) * group;
          const int64_t table = n * capacity * width;
          attend(
              queries + query * width, key_table + table, value_table + table, group, length, width,
              prompt_values + head * head_step + slot * group * query_step, query_step,
              prompt_sums + query, buffer.data(), to + n * group * width);
        }
      });
    });
    *out = owned(mixed);
  });
}
}
