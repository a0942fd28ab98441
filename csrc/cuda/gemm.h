// Parts of the GPU's matrix products (csrc/kernels/gemm.h), and the setting of TF32.
#pragma once
#include "../kernels/gemm.h"

namespace wisp::cuda {

// By the library: either stride of A and of B is 1 (or the dimension 1 long), and neither is conjugated.
void library_matmul(DType dtype, const GemmArgs& arguments);
void integer_matmul(DType dtype, const GemmArgs& arguments);  // any strides

// One small float matrix or batch, by a kernel of ours in one launch. row_sums: gets the sum of each row of A, or is null.
// False: nothing was done.
bool small_matmul(DType dtype, const GemmArgs& arguments, void* row_sums);

// Up to 16 rows in half precision, by a kernel of ours that reads B at the speed of memory. False: nothing was done.
bool few_rows_matmul(DType dtype, const GemmArgs& arguments);

// float32 products may use TF32 on tensor cores: faster, ten bits of fraction. Off by default, as in PyTorch.
void allow_tf32(bool allowed);
bool tf32_allowed();

}  // namespace wisp::cuda
