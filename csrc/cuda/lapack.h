// The routines of csrc/cpu/lapack.h on the GPU, by cuSOLVER and cuBLAS; pointers are to its memory.
#pragma once
#include "../cpu/lapack.h"

namespace wisp::cuda { const cpu::LapackKernels& lapack(DType dtype); }  // namespace wisp::cuda
