// The record of a process's GPU work. One JSON object per section; a cudaDeviceSynchronize ends a section.
#pragma once

#include <cstddef>
#include <string>

namespace record {

void launch(const std::string& kernel);
// A product of [m, k] and [k, n] matrices, `batch` times.
void product(double m, double n, double k, double batch);
// `bytes` of memory that the process holds on the device.
void memory(std::size_t bytes);
// Appends the section to the file CUDA_STUB_LOG, and begins the next one.
void end_section();

}  // namespace record
