// Views for other front doors: a layout function applied to a tensor, with the gradient scattered back.
#pragma once
#include "ops.h"

namespace wisp {

// The values of a tensor for one that was just made, which in a compiled region may come later (copy.cpp).
void copy_to_new(const Tensor& to, const Tensor& from);

// Zeros of `sizes` with g written at `layout` (relative to a contiguous tensor of those sizes, without overlap).
Tensor embed(const Tensor& g, const Dims& sizes, const Layout& layout);

Tensor squeeze(const Tensor& t, const Dims& dims, const char* name);  // `name`: of the node

struct PartBackward {
    static constexpr bool adds_part = true;
    Dims sizes;
    Layout part;
    void operator()(Backward& bw) const {
        if (!bw.add_part(part)) bw.set(0, embed(bw.grad(), sizes, part));
    }
};

// A view whose layout is f(layout of t); f must be pure index arithmetic.
template <class F> Tensor view_through(const Tensor& t, const char* name, F&& f) {
    Tensor v = make_view(t, f(t.layout()));
    if (needs_grad(t)) record(v, name, {t}, {}, PartBackward{t.sizes(), f(Layout{t.sizes(), contiguous_strides(t.sizes()), 0})});
    return v;
}

}  // namespace wisp
