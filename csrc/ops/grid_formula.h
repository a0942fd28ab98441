// grid_sample as a formula of other operators, for derivatives of its gradient.
#pragma once
#include <vector>

#include "../cpu/image.h"
#include "ops.h"

namespace wisp { Tensor grid_sample_formula(const cpu::GridSample& g, const Tensor& input, const Tensor& grid); }  // namespace wisp
