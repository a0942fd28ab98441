// Where an operator's result goes when the caller has a tensor for it: out=, or the one that an in-place form changes.
#pragma once
#include "../core/tensor.h"

namespace wisp {

struct Destination {
    bool taken = false;
    virtual Tensor take(const Dims& sizes, DType dtype) = 0;
    virtual Tensor take_apart(const Dims& sizes, DType dtype, bool (*suits)(const Tensor&), const Tensor& own) = 0;

protected:
    ~Destination() = default;
};

// A front door that has checked all else asks for the tensor, and makes a new one where none comes: there is none, or it does not suit;
// whoever called copies then.
struct Out {
    Destination* destination = nullptr;
    // For kernels that read an element of every operand before they write that of the result.
    Tensor take(const Dims& sizes, DType dtype) const { return destination ? destination->take(sizes, dtype) : Tensor(); }
    // For kernels that do so with `own` alone: no other operand lies in its memory. suits(out): they can write to what lies so.
    Tensor take_apart(const Dims& sizes, DType dtype, bool (*suits)(const Tensor&), const Tensor& own = {}) const {
        return destination ? destination->take_apart(sizes, dtype, suits, own) : Tensor();
    }
};

// Whether it lies as a new tensor does: without gaps, and on a GPU where vectors may be written.
inline bool lies_as_new(const Tensor& t) {
    return t.is_contiguous() && (t.device() == Device{} || reinterpret_cast<uintptr_t>(t.device_data()) % 256 == 0);
}

}  // namespace wisp
