// Pointwise operators onto the memory of an operand that nobody else can see.
#pragma once
#include "pointwise.h"

namespace wisp {

// op(a, b), written over `own`, which is a or b and contiguous; undefined, and nothing done, if the result has another
// dtype or shape. On the plain CPU, without gradients: a new result in old memory, not an in-place operator.
Tensor pointwise_onto(Pointwise op, const Tensor& own, const Arg& a, const Arg& b);

}  // namespace wisp
