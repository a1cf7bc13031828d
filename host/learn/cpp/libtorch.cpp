// Functions of libtorch that tch does not expose, mostly for a GPU. All calls go through libtorch's
// dispatcher, so this links against a libtorch without CUDA too. Each function returns null, or a
// message that the caller frees.

#include <string>

#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/autograd/custom_function.h>

#include "guarded.h"

namespace {

// SiLU(gate) * up. As two operations, the graph would save SiLU(gate) too, which is a tenth of a
// model's graph. Here the backward pass computes it again.
struct SwiGlu : torch::autograd::Function<SwiGlu> {
  static at::Tensor forward(
      torch::autograd::AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return at::silu(gate).mul_(up);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto& gate = saved[0];
    const auto& up = saved[1];
    return {at::silu_backward(grads[0].mul(up), gate), at::silu(gate).mul_(grads[0])};
  }
};

}  // namespace

extern "C" {

char* corver_swiglu(const at::Tensor* gate, const at::Tensor* up, at::Tensor** out) {
  return guarded([&] { *out = owned(SwiGlu::apply(*gate, *up)); });
}

char* corver_flash_attention(
    const at::Tensor* q, const at::Tensor* k, const at::Tensor* v, const at::Tensor* q_starts,
    const at::Tensor* k_starts, int64_t longest_q, int64_t longest_k, bool causal, at::Tensor** out,
    at::Tensor** normaliser) {
  return guarded([&] {
    auto result = at::_flash_attention_forward(
        *q, *k, *v, optional(q_starts), optional(k_starts), longest_q, longest_k, 0.0, causal,
        false);
    *out = owned(std::get<0>(result));
    *normaliser = owned(std::get<1>(result));
  });
}

char* corver_set_up_cuda(double memory_share) {
  return guarded([&] {
    // The allocator reads its limit once, when CUDA starts. A limit of the user's own remains.
    auto settings = c10::CachingAllocator::getAllocatorSettings();
    const std::string limit = "per_process_memory_fraction";
    if (settings.find(limit) == std::string::npos) {
      settings += (settings.empty() ? "" : ",") + limit + ":" + std::to_string(memory_share);
      c10::CachingAllocator::setAllocatorSettings(settings);
    }
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    at::globalContext().setSDPUseCuDNN(false);
    at::globalContext().setAllowTF32CuBLAS(true);
  });
}

char* corver_memory(int8_t device, uint64_t* free, uint64_t* peak) {
  return guarded([&] {
    auto* allocator = c10::getDeviceAllocator(c10::DeviceType::CUDA);
    const auto unused = allocator->getMemoryInfo(device).first;
    const auto stats = allocator->getDeviceStats(device);
    constexpr auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto& bytes = stats.allocated_bytes[aggregate];
    // Memory that the allocator reserves without using it is free for this process.
    *free = unused + (stats.reserved_bytes[aggregate].current - bytes.current);
    *peak = bytes.peak;
  });
}

char* corver_reset_peak(int8_t device) {
  return guarded([&] { c10::getDeviceAllocator(c10::DeviceType::CUDA)->resetPeakStats(device); });
}
}
