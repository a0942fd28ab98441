// Parts of the GPU's attention (csrc/kernels/attention.h).
#pragma once
#include "../kernels/attention.h"

namespace wisp::cuda {

// Whether the library is asked first: where keys and values lie does not matter.
bool may_be_for_library(const AttentionArgs& arguments);
// Forward by the library. False: nothing was done.
bool library_attention(const AttentionArgs& arguments, const AttentionTensor& out, void* logsumexp);

}  // namespace wisp::cuda
