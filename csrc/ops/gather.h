// Indexing for other front doors, beyond what ops.h has.
#pragma once
#include "../kernels/index.h"
#include "ops.h"
#include "sharing.h"

namespace wisp {

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value);
void scatter_into(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value);  // in place
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const std::string& how, bool include_self);
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha = 1);
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value);

// Indices as int64; anything but an integral dtype is refused.
Tensor as_index(const Tensor& index, const char* name);
// IndexError unless every index is in [0, size), or in [-size, size) if wrap.
void check_range(const Tensor& index, int64_t size, int64_t dim, bool wrap, const char* name);

// Refuses a number that an integral dtype cannot hold; the fraction of a float is dropped.
void check_fits(const Scalar& value, DType dtype);

// Fills y, [before..., n, after...] and contiguous, from x, [before..., `indexed` dimensions, after...], at n offsets.
void take_slices(const Tensor& y, int64_t before, const Tensor& x, int64_t indexed, const Tensor& offsets, int64_t n);

// The body of a writer f and its in-place form: write(y) changes y, which is self or a contiguous clone of it, and the
// gradient is recorded for (self, source), or for self if there is no source.
// For operators that PyTorch still lets write to a tensor that has one element in several places: warns if `self` is one. Returns true.
bool warn_repeated(const Tensor& self, const char* name);

template <class Write, class Gradient> Tensor written(const Tensor& self, bool in_place, const char* name, const char* grad_name,
                                                      const Tensor& source, std::span<const Tensor> saved, Write&& write,
                                                      Gradient&& gradient, bool repeated = false) {
    const bool recording = is_differentiable(self.dtype()) && needs_grad(self, source);
    Tensor y = self;
    if (in_place) {
        check_inplace(self, name, recording, repeated && warn_repeated(self, name));
        write(self);
        bump_version(self);
    } else {
        y = empty(self.sizes(), self.dtype());
        copy_values(y, self);
        write(y);
    }
    if (!recording) return y;
    NodePtr node = NodePtr::steal(new_node(grad_name));
    auto add_inputs = [&] {
        add_input(*node, self);
        if (source) add_input(*node, source);
    };
    if (in_place) {
        BeforeWrite before(self);
        add_inputs();
    } else {
        add_inputs();
    }
    set_closure(*node, std::forward<Gradient>(gradient));
    if (in_place) rebase_history(self, *node);
    else add_output(*node, y);
    for (const Tensor& t : saved) save(*node, t, in_place && t.same(self) && self->base);
    const Tensor inputs[] = {self, source};
    end_record(*node, {inputs, source ? 2u : 1u}, {&y, 1}, in_place);
    return y;
}

// x with x[indices] = values, or += if accumulate; see index.h for the in-place form.
Tensor index_put(const Tensor& x, const TensorList& indices, const Tensor& values, bool accumulate);

Tensor nonzero(const Tensor& x);            // [count, dims]
TensorList nonzero_tuple(const Tensor& x);  // [count] for each dim
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Arg& value);
Tensor masked_fill_(const Tensor& self, const Tensor& mask, const Arg& value);
Tensor masked_select(const Tensor& x, const Tensor& mask, const char* node = "MaskedSelectBackward0");
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
Tensor take(const Tensor& x, const Tensor& index);

}  // namespace wisp
