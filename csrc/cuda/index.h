// Small things on the GPU that front doors need.
#pragma once
#include <cstdint>

namespace wisp::cuda {

// RuntimeError with the message, which is static text, at the next synchronisation unless all elements are true.
void require(const bool* good, int64_t n, const char* message);

// out[i] = first + i * step
void count_up(int64_t* out, int64_t n, int64_t first, int64_t step);

}  // namespace wisp::cuda
