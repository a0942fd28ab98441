// Matrix products on the GPU through cuBLASLt, with the interface of csrc/kernels/gemm.h.
#pragma once
#include "../kernels/gemm.h"

namespace wisp::cuda {

// Either stride of A and of B must be 1 (or the dimension 1 long): the front door copies those that are not so.
void matmul(DType dtype, const GemmArgs& arguments);
void integer_matmul(DType dtype, const GemmArgs& arguments);  // any strides
bool takes(const GemmArgs& arguments, bool a);                // whether A (or B) can be read as it lies

// The same for one small float matrix or batch, by a kernel of ours in one launch. row_sums: gets the sum of each row of A, or
// is null. False: nothing was done.
bool small_matmul(DType dtype, const GemmArgs& arguments, void* row_sums);

// float32 products may use TF32 on tensor cores: faster, ten bits of fraction. Off by default, as in PyTorch.
void allow_tf32(bool allowed);
bool tf32_allowed();

}  // namespace wisp::cuda
