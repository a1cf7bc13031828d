// Parts of a model on the CPU, each in one call. As operations of libtorch they take longer to start
// than to compute when few rows are decoded. Sums are in f32.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "guarded.h"
#include "kernel.h"

// Compiles a version of the function per instruction set, of which the loader selects one.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define CORVER_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CORVER_SIMD
#endif

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

// Returns a key or value as f32; `buffer` has room for it.
CORVER_INLINE const float* as_floats(const float* x, int64_t, float*) { return x; }

CORVER_INLINE const float* as_floats(const BFloat16* x, int64_t width, float* buffer) {
  for (int64_t i = 0; i < width; ++i) {
    buffer[i] = load(x[i]);
  }
  return buffer;
}

// ---- RMS norm

// Computes out = weight * x / rms(x). Returns 1 / rms(x).
template <typename T>
CORVER_SIMD float norm_row(const T* x, const T* weight, int64_t width, float eps, T* out) {
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

// Computes the gradient by x: with n = x / rms(x), (weight * grad - n * mean(n * weight * grad)) / rms(x).
template <typename T>
CORVER_SIMD void norm_row_gradient(
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
      at::parallel_for(0, rows, items_per_thread(width), [&](int64_t first, int64_t end) {
        for (int64_t row = first; row < end; ++row) {
          const int64_t start = row * width;
          scale[row] = norm_row(from + start, factor, width, static_cast<float>(eps), to + start);
        }
      });
    });
    context->save_for_backward({x, w, inverse});
    return out;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "the fused RMS norm has no second derivative");
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
      at::parallel_for(0, rows, items_per_thread(width), [&](int64_t first, int64_t end) {
        for (int64_t row = first; row < end; ++row) {
          const int64_t start = row * width;
          norm_row_gradient(from + start, factor, gradient + start, scale[row], width, to + start);
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

// Computes the scores [group, length] of queries and keys of one head, less the largest of each query.
template <typename T>
CORVER_SIMD void score_head(
    const T* q, const T* keys, int64_t group, int64_t length, int64_t width, float* buffer,
    float* scores, float* largest) {
  float* query = buffer;  // [group, width]
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  for (int64_t i = 0; i < group * width; ++i) {
    query[i] = load(q[i]) * scale;
  }
  for (int64_t key = 0; key < length; ++key) {
    const float* vector = as_floats(keys + key * width, width, buffer + group * width);
    for (int64_t g = 0; g < group; ++g) {
      float product = 0;
#pragma omp simd reduction(+ : product)
      for (int64_t i = 0; i < width; ++i) {
        product += query[g * width + i] * vector[i];
      }
      scores[g * length + key] = product;
    }
  }
  for (int64_t g = 0; g < group; ++g) {
    float* own = scores + g * length;
    largest[g] = *std::max_element(own, own + length);
    for (int64_t key = 0; key < length; ++key) {
      own[key] -= largest[g];
    }
  }
}

// Mixes the values of one head with `weights` [group, length], the exponentials of the scores, and merges
// the result with the attention over the prompt.
template <typename T>
CORVER_SIMD void mix_head(
    const float* weights, const float* largest, const T* values, int64_t group, int64_t length,
    int64_t width, const T* prompt, int64_t prompt_step, const float* prompt_normaliser,
    float* buffer, T* out) {
  float* mixed = buffer;  // [group, width]
  std::fill(mixed, mixed + group * width, 0.0f);
  for (int64_t key = 0; key < length; ++key) {
    const float* vector = as_floats(values + key * width, width, buffer + group * width);
    for (int64_t g = 0; g < group; ++g) {
      const float weight = weights[g * length + key];
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        mixed[g * width + i] += weight * vector[i];
      }
    }
  }
  for (int64_t g = 0; g < group; ++g) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t key = 0; key < length; ++key) {
      sum += weights[g * length + key];
    }
    // exp(a) / (exp(a) + exp(b)) = sigmoid(a - b): the prompt's part of the softmax.
    const float normaliser = largest[g] + std::log(sum);
    const float share = 1 / (1 + std::exp(normaliser - prompt_normaliser[g]));
    for (int64_t i = 0; i < width; ++i) {
      const float own = mixed[g * width + i] / sum;
      store(out[g * width + i], own * (1 - share) + load(prompt[g * prompt_step + i]) * share);
    }
  }
}

// Slots for the rows of the prompts. Every prompt has `per_prompt` slots, the most rows of any prompt.
struct Slots {
  int64_t per_prompt;
  const int64_t* of_row = nullptr;  // null: slot n has row n

  Slots(int64_t prompts, int64_t per_prompt, const at::Tensor* slot_of_row, int64_t rows)
      : per_prompt(per_prompt) {
    const int64_t slots = prompts * per_prompt;
    if (!slot_of_row) {
      TORCH_CHECK(rows == slots, slots, " slots for ", rows, " rows");
      return;
    }
    TORCH_CHECK(slot_of_row->is_cpu() && slot_of_row->is_contiguous(), "slots are not contiguous");
    TORCH_CHECK(slot_of_row->numel() == rows, "slots of ", slot_of_row->numel(), " of ", rows, " rows");
    of_row = slot_of_row->const_data_ptr<int64_t>();
    std::vector<bool> has_row(slots);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t slot = of_row[row];
      TORCH_CHECK(0 <= slot && slot < slots, "slot ", slot, " of ", slots);
      TORCH_CHECK(!has_row[slot], "slot ", slot, " has two rows");
      has_row[slot] = true;
    }
  }

  // Returns the place of a row's key head in [prompts * key heads, slots per prompt].
  std::pair<int64_t, int64_t> place(int64_t row, int64_t kv_head, int64_t kv_heads) const {
    const int64_t slot = of_row ? of_row[row] : row;
    return {slot / per_prompt * kv_heads + kv_head, slot % per_prompt};
  }
};

// Throws unless all tensors have the type of the first one, and are on the CPU.
void check_kinds(std::initializer_list<const at::Tensor*> tensors) {
  const auto kind = (*tensors.begin())->scalar_type();
  for (const auto* tensor : tensors) {
    TORCH_CHECK(tensor->is_cpu(), "a tensor is not on the CPU");
    TORCH_CHECK(tensor->scalar_type() == kind, tensor->scalar_type(), " beside ", kind);
  }
}

void check_tables(
    const at::Tensor& keys, const at::Tensor& values, int64_t all, int64_t width, int64_t length) {
  TORCH_CHECK(keys.is_contiguous() && values.is_contiguous(), "tables are not contiguous");
  TORCH_CHECK(keys.sizes() == values.sizes(), "tables of ", keys.sizes(), " and ", values.sizes());
  const bool is_fitting = keys.dim() == 3 && keys.size(0) == all && keys.size(2) == width;
  TORCH_CHECK(is_fitting, "tables of ", keys.sizes(), " for ", all, " heads of ", width);
  TORCH_CHECK(
      0 < length && length <= keys.size(1), "column ", length - 1, " of tables ", keys.sizes());
}

}  // namespace

extern "C" {

char* corver_rms_norm(
    const at::Tensor* x, const at::Tensor* weight, double eps, at::Tensor** out) {
  return guarded([&] {
    const auto kind = x->scalar_type();
    const bool is_fused = x->is_cpu() && weight->is_cpu() && kind == weight->scalar_type() &&
        (kind == at::kFloat || kind == at::kBFloat16) && weight->numel() > 0 &&
        x->size(-1) == weight->numel() && !weight->requires_grad();
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
    check_kinds({q, k, v, cos, sin, keys, values});
    TORCH_CHECK(q->dim() == 4 && k->dim() == 4, "queries ", q->sizes(), ", keys ", k->sizes());
    const int64_t rows = q->size(0), heads = q->size(2), width = q->size(3);
    const int64_t kv_heads = k->size(2), capacity = keys->size(1), all = rows * kv_heads;
    TORCH_CHECK(kv_heads > 0 && heads % kv_heads == 0 && width % 2 == 0, "queries ", q->sizes());
    const int64_t group = heads / kv_heads;
    const at::IntArrayRef one_key = k->sizes();
    TORCH_CHECK(one_key == v->sizes(), "keys ", one_key, ", values ", v->sizes());
    TORCH_CHECK(
        q->size(1) == 1 && one_key[0] == rows && one_key[1] == 1 && one_key[3] == width,
        "queries ", q->sizes(), ", keys ", one_key);
    for (const auto* angles : {cos, sin}) {
      const bool is_fitting = angles->dim() > 1 && angles->size(0) == rows &&
          angles->size(-1) == width && angles->numel() == rows * width && angles->stride(-1) == 1;
      TORCH_CHECK(is_fitting, "angles ", angles->sizes(), " for ", rows, " rows of ", width);
    }
    check_tables(*keys, *values, all, width, column + 1);
    const Slots slots(prompts, slots_per_prompt, slot_of_row, rows);
    const std::array<int64_t, 3> size = {prompts * kv_heads, slots_per_prompt * group, width};
    // Empty slots attend too; nothing reads their results.
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
      const int64_t grain = items_per_thread(8 * (group + 2) * width);
      at::parallel_for(0, all, grain, [&](int64_t first, int64_t end) {
        for (int64_t n = first; n < end; ++n) {
          const int64_t row = n / kv_heads, kv_head = n % kv_heads;
          const int64_t place = (n * capacity + column) * width;
          const T* c = angle(*cos, row);
          const T* s = angle(*sin, row);
          rotate_head(head(*k, row, kv_head), c, s, width, key_table + place);
          const auto value = head(*v, row, kv_head);
          for (int64_t i = 0; i < width; ++i) {
            value_table[place + i] = value.data[i * value.step];
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
    check_kinds({q, keys, values, prompt_mixed});
    TORCH_CHECK(q->dim() == 3 && q->is_contiguous(), "queries ", q->sizes());
    TORCH_CHECK(prompts > 0 && slots_per_prompt > 0, prompts, " prompts of ", slots_per_prompt);
    const int64_t kv_heads = q->size(0) / prompts, group = q->size(1) / slots_per_prompt;
    const bool is_fitting = kv_heads > 0 && group > 0 && q->size(0) == prompts * kv_heads &&
        q->size(1) == slots_per_prompt * group;
    TORCH_CHECK(is_fitting, "queries ", q->sizes(), " for ", prompts, " x ", slots_per_prompt);
    const int64_t width = q->size(2), capacity = keys->size(1), all = keys->size(0);
    const int64_t rows = all / kv_heads;
    check_tables(*keys, *values, rows * kv_heads, width, length);
    const Slots slots(prompts, slots_per_prompt, slot_of_row, rows);
    TORCH_CHECK(
        prompt_mixed->sizes() == q->sizes() && prompt_mixed->stride(2) == 1,
        "attention over the prompts ", prompt_mixed->sizes(), " for queries ", q->sizes());
    TORCH_CHECK(
        prompt_normaliser->is_cpu() && prompt_normaliser->numel() * width == q->numel(),
        "normalisers of the prompts ", prompt_normaliser->sizes());
    const auto normaliser = prompt_normaliser->contiguous();
    const auto numbers = q->options().dtype(at::kFloat);
    auto scores = at::empty({all, group, length}, numbers);
    auto largest = at::empty({all, group}, numbers);
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
      float* weights = scores.mutable_data_ptr<float>();
      float* tops = largest.mutable_data_ptr<float>();
      const int64_t grain = items_per_thread(group * length * width);
      at::parallel_for(0, all, grain, [&](int64_t first, int64_t end) {
        std::vector<float> buffer((group + 1) * width);
        for (int64_t n = first; n < end; ++n) {
          const auto [head, slot] = slots.place(n / kv_heads, n % kv_heads, kv_heads);
          score_head(
              queries + (head * slots_per_prompt + slot) * group * width,
              key_table + n * capacity * width, group, length, width, buffer.data(),
              weights + n * group * length, tops + n * group);
        }
      });
      scores.exp_();
      at::parallel_for(0, all, grain, [&](int64_t first, int64_t end) {
        std::vector<float> buffer((group + 1) * width);
        for (int64_t n = first; n < end; ++n) {
          const auto [head, slot] = slots.place(n / kv_heads, n % kv_heads, kv_heads);
          mix_head(
              weights + n * group * length, tops + n * group, value_table + n * capacity * width,
              group, length, width,
              prompt_values + head * head_step + slot * group * query_step, query_step,
              prompt_sums + (head * slots_per_prompt + slot) * group, buffer.data(),
              to + n * group * width);
        }
      });
    });
    *out = owned(mixed);
  });
}
}
