// Front doors of pooling for other front doors.
#pragma once
#include "ops.h"

namespace wisp { Tensor adaptive_avg_pool(int dims, const Tensor& input, const Dims& output_size); }  // namespace wisp
