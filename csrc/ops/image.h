// Parts that the front doors for images share.
#pragma once
#include "../kernels/image.h"
#include "ops.h"

namespace wisp {

using IndexMap = kernels::ImageMap;
Tensor apply_map(const IndexMap& m, int dims, const Tensor& input, bool backward, const char* name);

}  // namespace wisp
