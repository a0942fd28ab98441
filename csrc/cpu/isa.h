// How a kernel file is compiled once per instruction set and chosen at load.
//
// A kernel header declares a struct of function pointers and a reference to the chosen one:
//     struct GemmKernels { void (*sgemm)(...); };
//     extern const GemmKernels& gemm;
// The kernel file is compiled with -DWISP_ISA=avx512, avx2 and base, and fills one table per set:
//     namespace wisp::cpu::WISP_ISA { namespace { ...kernels... }  extern const GemmKernels gemm_table = {&sgemm}; }
// select.cpp picks. Everything in a kernel file lives in the anonymous namespace of WISP_ISA: a shared inline
// function or std template that is not inlined would be merged by the linker into one copy, maybe of the wrong
// instruction set. A test looks for such weak symbols.
#pragma once

#define WISP_INLINE inline __attribute__((always_inline))
#if defined(__AVX512F__)
#define WISP_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define WISP_VECTOR_BYTES 32
#else
#define WISP_VECTOR_BYTES 16
#endif
