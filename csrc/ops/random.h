// Random values for other front doors: fresh tensors without history.
#pragma once
#include "../core/generator.h"
#include "ops.h"

namespace wisp { Tensor rand(const Dims& sizes, DType dtype, Generator& generator); }  // namespace wisp
