// Where an operator's result goes when the caller has a tensor for it: out=, or the one that an in-place form changes.
#pragma once
#include "../core/tensor.h"

namespace wisp {

struct Destination {
    bool taken = false;
    virtual Tensor take(const Dims& sizes, DType dtype) = 0;

protected:
    ~Destination() = default;
};

// For front doors whose kernels read an element of every operand before they write that of the result. One that has checked all else
// asks for the tensor, and makes a new one where none comes: there is none, or it does not suit; whoever called copies then.
struct Out {
    Destination* destination = nullptr;
    Tensor take(const Dims& sizes, DType dtype) const { return destination ? destination->take(sizes, dtype) : Tensor(); }
};

}  // namespace wisp
