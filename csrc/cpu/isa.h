// How a kernel file is compiled once per instruction set and chosen at load.
//
// A family's header (csrc/kernels) has a struct of function pointers:
//     struct GemmKernels { void (*sgemm)(...); };
// families.h declares the chosen one, `extern const GemmKernels& gemm;`.
// The kernel file is compiled with -DWISP_ISA=avx512, avx2 and base (AArch64: neon), and fills one table per set:
//     namespace wisp::cpu::WISP_ISA { namespace { ...kernels... }  extern const GemmKernels gemm_table = {&sgemm}; }
// select.cpp picks. Everything in a kernel file lives in the anonymous namespace of WISP_ISA: a shared inline
// function or std template that is not inlined would be merged by the linker into one copy, maybe of the wrong
// instruction set. `.ci/run` looks for such weak symbols.
#pragma once

#include <cstdint>

#define WISP_NUMBERS wisp::cpu::WISP_ISA  // where text that the GPU compiles too has its functions
#define WISP_INLINE inline __attribute__((always_inline))
#if defined(__AVX512F__)
#define WISP_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define WISP_VECTOR_BYTES 32
#else  // NEON or the baseline of x86-64
#define WISP_VECTOR_BYTES 16
#endif
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define WISP_FUSED  // products and sums are rounded once
#endif

namespace wisp::cpu {
bool tiles_allowed();  // whether the environment leaves AMX on
}

#if defined(WISP_ISA)
namespace wisp::cpu::WISP_ISA {
namespace {
WISP_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
WISP_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
WISP_INLINE int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }  // a >= 0
}  // namespace
}  // namespace wisp::cpu::WISP_ISA
#endif
