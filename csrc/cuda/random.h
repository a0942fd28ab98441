// Random integers on the GPU; the rest has the interface of csrc/cpu/random.h (see tables.h).
#pragma once
#include "../cpu/random.h"

namespace wisp::cuda {

// Integers in [from, from + range); range 0 stands for 2^64.
void random_integers(int64_t* out, int64_t n, cpu::RandomStream stream, int64_t from, uint64_t range);

}  // namespace wisp::cuda
