// Parts of the kernels for the CPU.
#pragma once

#include <cstdint>

#define CORVER_INLINE inline __attribute__((always_inline))

// Returns the smallest number of items for one thread, if an item is `work` operations.
inline int64_t items_per_thread(int64_t work) { return 1 + 32768 / (work + 1); }
