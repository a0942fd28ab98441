// Random values for other front doors: fresh tensors without history.
#pragma once
#include "../core/generator.h"
#include "ops.h"

namespace wisp {

Tensor rand(const Dims& sizes, DType dtype, Generator& generator);
Tensor randn(const Dims& sizes, DType dtype, Generator& generator);
// `scale` with probability `keep`, else 0: what dropout multiplies with.
Tensor bernoulli_mask(const Dims& sizes, DType dtype, double keep, double scale, Generator& generator);

}  // namespace wisp
