// Front door of reductions of consecutive segments.
#include <limits>

#include "../kernels/each.h"
#include "../python/registry.h"
#include "ops.h"
#include "reduce.h"

namespace wisp {
namespace {

using kernels::SegmentFold;

SegmentFold fold_named(const std::string& name) {
    constexpr const char* names[] = {"sum", "mean", "max", "min", "prod"};
    for (int i = 0; i < 5; i++)
        if (name == names[i] || (name.size() == 4 && name[0] == 'a' && name.substr(1) == names[i])) return SegmentFold(i);  // amax is max
    throw RuntimeError("segment_reduce: reduce must be one of sum, mean, max, min, prod, got '", name, "'");
}

double start_of(SegmentFold fold) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    return fold == SegmentFold::prod ? 1 : fold == SegmentFold::max ? -inf : fold == SegmentFold::min ? inf : 0;
}

// What the kernels are told: data is [rows, length, inner], offsets [rows, segments + 1].
kernels::Segments segments_of(const Tensor& data, const Tensor& offsets, SegmentFold fold, std::optional<double> initial) {
    const int64_t axis = offsets.dim() - 1;
    int64_t inner = 1;
    for (int64_t d = axis + 1; d < data.dim(); d++) inner *= data.size(d);
    return {offsets.device_data<int64_t>(),   offsets.size(-1) - 1, data.size(axis), inner, fold,
            initial.value_or(start_of(fold)), bool(initial)};
}

Tensor reduced(const Tensor& data, const Tensor& offsets, SegmentFold fold, std::optional<double> initial);

// Zero where no segment reaches. Differentiable by the incoming gradient where the reduction is linear.
Tensor gradient(const Tensor& g, const Tensor& data, const Tensor& y, const Tensor& offsets, SegmentFold fold,
                std::optional<double> initial) {
    const Tensor dense = contiguous(g), dx = zeros(data.sizes(), data.dtype());
    kernels::each().segment_gradient(
        {segments_of(data, offsets, fold, initial), dense.device_data(), data.device_data(), y.device_data(), dx.device_data()},
        data.dtype(), y.numel());
    if (needs_grad(g)) {
        if (fold != SegmentFold::sum && fold != SegmentFold::mean)
            throw NotImplemented("the second derivative of segment_reduce is only implemented for 'sum' and 'mean'");
        record(dx, "SegmentReduceBackwardBackward0", {g}, {offsets},
               [fold](Backward& bw) { bw.set(0, reduced(bw.grad(), bw.saved(0), fold, 0.0)); });
    }
    return dx;
}

Tensor reduced(const Tensor& given, const Tensor& offsets, SegmentFold fold, std::optional<double> initial) {
    const Tensor data = contiguous(given);
    Dims sizes = offsets.sizes();
    sizes.back()--;
    for (int64_t d = offsets.dim(); d < data.dim(); d++) sizes.push_back(data.size(d));
    const Tensor y = empty(sizes, data.dtype());
    {
        Unlocked unlocked(data.numel());
        kernels::each().segment_reduce({segments_of(data, offsets, fold, initial), data.device_data(), y.device_data()}, data.dtype(),
                                       y.numel());
    }
    if (needs_grad(given))
        record(y, "SegmentReduceBackward0", {given}, {data, y, offsets},
               [fold, initial](Backward& bw) { bw.set(0, gradient(bw.grad(), bw.saved(0), bw.saved(1), bw.saved(2), fold, initial)); });
    return y;
}

// Where the segments begin and end, along the last dimension.
Tensor offsets_of(const Tensor& data, const Tensor& lengths, const Tensor& given, int64_t axis, bool unsafe) {
    const Tensor& shape = lengths ? lengths : given;
    bool fits = shape.dim() == axis + 1 && is_integral(shape.dtype()) && (lengths || given.size(-1) > 0);
    for (int64_t d = 0; fits && d < axis; d++) fits = shape.size(d) == data.size(d);
    if (!fits)
        throw RuntimeError("segment_reduce(): expected integers for the segments along dimension ", axis, " of a tensor of shape ",
                           data.sizes(), ", got ", shape.dtype(), " of shape ", shape.sizes());
    GradMode off(false);
    Dims one = shape.sizes();
    one.back() = 1;
    const Tensor offsets =
        contiguous(lengths ? cat({zeros(one, DType::i64), cumsum(to(lengths, DType::i64), axis)}, axis) : to(given, DType::i64));
    if (unsafe) return offsets;
    const int64_t segments = offsets.size(-1) - 1, length = data.size(axis);
    const Tensor start = narrow(offsets, axis, 0, 1), end = narrow(offsets, axis, segments, 1);
    if (is_nonzero(any(lt(narrow(offsets, axis, 1, segments), narrow(offsets, axis, 0, segments)))))
        throw RuntimeError("lengths contains negative value!");
    if (is_nonzero(any(lt(start, Scalar(0)))) || is_nonzero(any(lengths ? ne(end, Scalar(length)) : gt(end, Scalar(length)))))
        throw RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.");
    return offsets;
}

Tensor segment_reduce(const Tensor& data, const std::string& reduce, const Tensor& lengths, const Tensor&, const Tensor& offsets,
                      int64_t axis, bool unsafe, std::optional<double> initial) {
    const SegmentFold fold = fold_named(reduce);
    if (!lengths && !offsets) throw RuntimeError("segment_reduce(): Either lengths or offsets must be defined.");
    if (!is_floating(data.dtype())) throw NotImplemented("\"_segment_reduce_cpu\" not implemented for '", type_name(data.dtype()), "'");
    axis = wrap_dim(axis, data.dim());
    const Tensor ends = offsets_of(data, lengths, offsets, axis, unsafe);
    if (!is_reduced(data.dtype())) return reduced(data, ends, fold, initial);
    return to(reduced(to(data, DType::f32), ends, fold, initial), data.dtype());
}

}  // namespace

static const Operators operators = {
    {"segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, int axis=0, "
     "bool unsafe=False, float? initial=None)",
     segment_reduce, function,
     R"(The "sum", "mean", "max", "min" or "prod" of consecutive segments along `axis`, given by lengths or by offsets.
        >>> wisp.segment_reduce(wisp.tensor([1.0, 2.0, 3.0]), "sum", lengths=wisp.tensor([2, 1]))
        tensor([3., 3.]))"},
};

}  // namespace wisp
