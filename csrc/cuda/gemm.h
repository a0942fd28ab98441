// Matrix products on the GPU through cuBLASLt, with the interface of csrc/cpu/gemm.h.
#pragma once
#include "../cpu/gemm.h"

namespace wisp::cuda {

// Either stride of A and of B must be 1 (or the dimension 1 long): the front door copies those that are not so.
void matmul(DType dtype, const cpu::GemmArgs& arguments);
bool takes(const cpu::GemmArgs& arguments, bool a);  // whether A (or B) can be read as it lies

// float32 products may use TF32 on tensor cores: faster, ten bits of fraction. Off by default, as in PyTorch.
void allow_tf32(bool allowed);
bool tf32_allowed();

}  // namespace wisp::cuda
