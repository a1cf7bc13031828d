#include "record.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace record {
namespace {

struct Section {
  std::map<std::string, long> launches;
  long products = 0;
  double flop = 0;
  std::size_t peak = 0;
};

std::mutex lock;
std::size_t held = 0;

// Never destroyed, since libtorch frees memory while the process exits.
Section& section() {
  static Section& section = *new Section;
  return section;
}

std::string readable(const std::string& kernel) {
  int status = 0;
  char* name = abi::__cxa_demangle(kernel.c_str(), nullptr, nullptr, &status);
  std::string text = name ? name : kernel;
  std::free(name);
  for (char& c : text) {
    if (c == '"' || c == '\\') c = '\'';
  }
  return text.substr(0, 1000);
}

// Writes the kernels with the most launches, as many as CUDA_STUB_KERNELS says.
void write_kernels(std::FILE* file) {
  const char* setting = std::getenv("CUDA_STUB_KERNELS");
  const std::size_t wanted = setting ? std::strtoul(setting, nullptr, 10) : 0;
  std::vector<std::pair<long, std::string>> kernels;
  for (const auto& [name, launches] : section().launches) kernels.emplace_back(launches, name);
  std::sort(kernels.rbegin(), kernels.rend());
  kernels.resize(std::min(kernels.size(), wanted));
  const char* separator = "";
  for (const auto& [launches, name] : kernels) {
    std::fprintf(file, "%s\"%s\":%ld", separator, readable(name).c_str(), launches);
    separator = ",";
  }
}

}  // namespace

void launch(const std::string& kernel) {
  std::lock_guard<std::mutex> guard(lock);
  section().launches[kernel]++;
}

void product(double m, double n, double k, double batch) {
  std::lock_guard<std::mutex> guard(lock);
  section().products++;
  section().flop += 2 * m * n * k * batch;
}

void memory(std::size_t bytes) {
  std::lock_guard<std::mutex> guard(lock);
  held = bytes;
  section().peak = std::max(section().peak, held);
}

void end_section() {
  std::lock_guard<std::mutex> guard(lock);
  const char* path = std::getenv("CUDA_STUB_LOG");
  if (std::FILE* file = path ? std::fopen(path, "a") : nullptr) {
    long launches = 0;
    for (const auto& [name, count] : section().launches) launches += count;
    std::fprintf(file, "{\"launches\":%ld,\"products\":%ld,\"flop\":%.0f,\"peak\":%zu,\"kernels\":{", launches,
                 section().products, section().flop, section().peak);
    write_kernels(file);
    std::fprintf(file, "}}\n");
    std::fclose(file);
  }
  section() = Section{};
  section().peak = held;
}

}  // namespace record
