// Random integers on the GPU; the rest has the interface of csrc/kernels/random.h.
#pragma once
#include "../kernels/random.h"

namespace wisp::cuda {

// Integers in [from, from + range); range 0 stands for 2^64.
void random_integers(int64_t* out, int64_t n, RandomStream stream, int64_t from, uint64_t range);

// value where a word of 32 bits is below limit, else 0.
void random_bernoulli(float* out, int64_t n, RandomStream stream, uint64_t limit);
void random_poisson(double* out, const double* rate, int64_t n, RandomStream stream);
void random_binomial(double* out, const double* count, const double* probability, int64_t n, RandomStream stream);

// While a graph is captured: two words of device memory that replays write, what the seed changes by (xor) and what is
// added to the offsets of draws. Null: no capture.
void set_capture_cell(const void* cell);
const void* capture_cell();

}  // namespace wisp::cuda
