// Reductions for other front doors, beyond those of ops.h.
#pragma once
#include "../kernels/reduce.h"
#include "ops.h"

namespace wisp {

// The dims to reduce as bits; none given, or an empty list, means all of them.
uint64_t dims_mask(const Tensor& x, const std::optional<Dims>& dims);
Dims reduced_sizes(const Dims& sizes, uint64_t mask, bool keepdim);
int64_t reduced_count(const Dims& sizes, uint64_t mask);
// A result of a reduction seen as the shape that was reduced (a view, differentiable).
Tensor unreduced(const Tensor& y, const Dims& sizes, uint64_t mask, bool keepdim);

// max and min along dim, or over everything if there is none, with positions.
std::tuple<Tensor, Tensor> extreme(kernels::Reduction kind, const Tensor& x, std::optional<int64_t> dim, bool keepdim);
Tensor arg_extreme(kernels::Reduction kind, const Tensor& x, std::optional<int64_t> dim, bool keepdim);

std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);

// Records that y was selected from x along dim at `indices` (of y's shape).
void record_selection(const Tensor& y, const Tensor& indices, const char* name, const Tensor& x, int64_t dim, bool keepdim);

Tensor prod(const Tensor& x, std::optional<int64_t> dim, bool keepdim, std::optional<DType> dtype);
Tensor nansum(const Tensor& x, const std::optional<Dims>& dims, bool keepdim, std::optional<DType> dtype);
Tensor any(const Tensor& x, const std::optional<Dims>& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const std::optional<Dims>& dims = {}, bool keepdim = false);
Tensor count_nonzero(const Tensor& x, const std::optional<Dims>& dims);
Tensor vector_norm(const Tensor& x, double p, const std::optional<Dims>& dims, bool keepdim, std::optional<DType> dtype);
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim);
// (variance, or its root; mean). want_mean: else the mean is undefined.
std::tuple<Tensor, Tensor> variance(const Tensor& x, const std::optional<Dims>& dims, double correction, bool keepdim, bool root,
                                    bool want_mean);
bool equal(const Tensor& a, const Tensor& b);

}  // namespace wisp
