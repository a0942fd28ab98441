// grid_sample as a formula of other operators, for derivatives of its gradient.
#pragma once
#include <vector>

#include "../kernels/image.h"
#include "ops.h"

namespace wisp { Tensor grid_sample_formula(const kernels::GridSample& g, const Tensor& input, const Tensor& grid); }  // namespace wisp
