// Scans for other front doors.
#pragma once
#include "ops.h"

namespace wisp {

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype);
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype);
Tensor logcumsumexp(const Tensor& x, int64_t dim);

}  // namespace wisp
