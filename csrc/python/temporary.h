// Results in the memory of dying operands: in `a * b + c` the product is seen by nobody, so the sum may overwrite it.
// That saves a third of the memory traffic of large operators and the allocation.
#pragma once
#include "../ops/pointwise.h"

namespace wisp {

constexpr int64_t reuse_bytes = int64_t(512) << 10;  // of operands that are worth the proof, which takes a microsecond

// A first look, for all calls: one reference, and large.
inline bool may_be_temporary(const Arg& a) {
    return a.tensor && Py_REFCNT(a.tensor->object()) == 1 && a.tensor->numel() * a.tensor->item_size() >= reuse_bytes;
}

// op(a, b) in the memory of an operand that the interpreter is about to drop; undefined where there is none. For number
// slots, which know that their operands are what Python passed.
Tensor pointwise_in_temporary(Pointwise op, const Arg& a, const Arg& b);

}  // namespace wisp
