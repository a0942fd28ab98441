// Front doors of sorting and selection: sort, topk, kthvalue, median, mode, quantile, unique, searchsorted, histograms.
#include "../kernels/sort.h"

#include <cmath>

#include "../python/registry.h"
#include "gather.h"
#include "index.h"
#include "reduce.h"
#include "scan.h"
#include "views.h"

namespace wisp {

using kernels::Selection;

// --- rows ----------------------------------------------------------------------------------------------------------

static void check_sortable(const char* name, const Tensor& x) {
    if (is_complex(x.dtype()))
        throw RuntimeError(name, "(): Sort does not support complex dtypes on CPU or any other device, they have no order; got ",
                           x.dtype());
}

// x with dim last and contiguous, as the kernels take it.
struct Rows {
    Tensor x;
    int64_t dim, n, rows;
    Rows(const Tensor& given, int64_t d) {
        GradMode off(false);
        dim = wrap_dim(d, given.dim());
        n = given.dim() ? given.size(dim) : 1;
        x = given.dim() && dim != given.dim() - 1 ? contiguous(transpose(detach(given), dim, -1)) : contiguous(detach(given));
        rows = n ? given.numel() / n : 0;
    }
    // A result whose last dimension belongs at dim; with strides it gets those.
    Tensor back(const Tensor& t, const Dims* strides = nullptr) const {
        const bool in_place = t.dim() == 0 || dim == t.dim() - 1;
        if (in_place && (!strides || *strides == t.strides())) return t;
        const Tensor turned = in_place ? t : alias(t, t.layout().transpose(dim, t.dim() - 1));
        Tensor r = strides ? empty_strided(turned.sizes(), *strides, t.dtype()) : empty(turned.sizes(), t.dtype());
        copy_values(r, turned);
        return r;
    }
    Dims sizes(int64_t last) const {
        Dims s = x.sizes();
        if (x.dim()) s[x.dim() - 1] = last;
        return s;
    }
};

// The gradient goes back to where each value came from.
static void record_permutation(const Tensor& y, const Tensor& indices, const char* name, const Tensor& x, int64_t dim) {
    record_selection(y, indices, name, x, dim, true);
}

static std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending, const char* node = "SortBackward0") {
    check_sortable("sort", x);
    const Rows r(x, dim);
    Tensor values = empty(r.x.sizes(), x.dtype()), indices = empty(r.x.sizes(), DType::i64);
    {
        Unlocked unlocked(x.numel());
        kernels::sort().sort(values.device_data(), indices.device_data<int64_t>(), r.x.device_data(), x.dtype(), r.rows, r.n, descending);
    }
    const Dims strides = strides_like(x.layout());
    values = r.back(values, &strides);
    indices = r.back(indices, &strides);
    record_permutation(values, indices, node, x, r.dim);
    return {values, indices};
}

Tensor argsort(const Tensor& x, int64_t dim, bool descending) {
    check_sortable("argsort", x);
    const Rows r(x, dim);
    Tensor indices = empty(r.x.sizes(), DType::i64);
    {
        Unlocked unlocked(x.numel());
        kernels::sort().sort(nullptr, indices.device_data<int64_t>(), r.x.device_data(), x.dtype(), r.rows, r.n, descending);
    }
    return r.back(indices);
}

static std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest) {
    check_sortable("topk", x);
    const Rows r(x, dim);
    if (k < 0 || k > r.n) throw RuntimeError("topk(): selected index k out of range: k = ", k, " for dimension ", r.dim, " of size ", r.n);
    Tensor values = empty(r.sizes(k), x.dtype()), indices = empty(r.sizes(k), DType::i64);
    if (values.numel()) {
        Unlocked unlocked(x.numel());
        kernels::sort().topk(values.device_data(), indices.device_data<int64_t>(), r.x.device_data(), x.dtype(), r.rows, r.n, k, largest);
    }
    values = r.back(values);
    indices = r.back(indices);
    record_permutation(values, indices, "TopkBackward0", x, r.dim);
    return {values, indices};
}

// One element of each row, with its position.
template <class Run>
static std::tuple<Tensor, Tensor> selected(const char* name, const char* grad_name, const Tensor& x, int64_t dim, bool keepdim, Run&& run) {
    check_sortable(name, x);
    const Rows r(x, dim);
    if (r.n == 0 && product(reduced_sizes(x.sizes(), uint64_t(1) << r.dim, false)) > 0)
        throw IndexError(name, "(): Expected reduction dim ", r.dim, " to have non-zero size.");
    Tensor values = empty(r.sizes(1), x.dtype()), indices = empty(r.sizes(1), DType::i64);
    if (values.numel()) {
        Unlocked unlocked(x.numel());
        run(r, values.device_data(), indices.device_data<int64_t>());
    }
    values = r.back(values);
    indices = r.back(indices);
    if (!keepdim && x.dim()) {
        const Dims sizes = reduced_sizes(x.sizes(), uint64_t(1) << r.dim, false);
        values = alias(values, Layout{sizes, contiguous_strides(sizes), 0});
        indices = alias(indices, Layout{sizes, contiguous_strides(sizes), 0});
    }
    record_selection(values, indices, grad_name, x, r.dim, keepdim);
    return {values, indices};
}

static std::tuple<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
    return selected("kthvalue", "KthvalueBackward0", x, dim, keepdim, [&](const Rows& r, void* values, int64_t* indices) {
        if (k < 1 || k > r.n)
            throw RuntimeError("kthvalue(): selected number k out of range for dimension ", r.dim, ": k = ", k, ", size ", r.n);
        kernels::sort().select(Selection::kth, values, indices, r.x.device_data(), r.x.dtype(), r.rows, r.n, k - 1);
    });
}

static std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim, bool skip_nan) {
    return selected("median", skip_nan ? "NanmedianBackward1" : "MedianBackward1", x, dim, keepdim,
                    [&](const Rows& r, void* values, int64_t* indices) {
                        kernels::sort().select(skip_nan ? Selection::nanmedian : Selection::median, values, indices, r.x.device_data(),
                                               r.x.dtype(), r.rows, r.n, 0);
                    });
}

// Of all elements; the gradient is shared among equal ones.
static Tensor median_of_all(const Tensor& x, bool skip_nan) {
    check_sortable("median", x);
    if (x.numel() == 0) {
        if (!is_floating(x.dtype())) throw RuntimeError("median(): input has no elements");
        return full({}, Scalar(std::nan("")), x.dtype());
    }
    const Tensor flat = reshape(detach(x), {x.numel()});
    Tensor y = std::get<0>(median(flat, 0, false, skip_nan));
    if (needs_grad(x))
        record(y, skip_nan ? "NanmedianBackward0" : "MedianBackward0", {x}, {x, y}, [](Backward& bw) {
            const Tensor x = detach(bw.saved(0)), y = detach(bw.saved(1));
            const Tensor here = logical_or(eq(x, y), logical_and(isnan(x), isnan(y)));
            bw.set(0, mul(div(bw.grad(), sum(here)), here));
        });
    return y;
}

static std::tuple<Tensor, Tensor> mode(const Tensor& x, int64_t dim, bool keepdim) {
    return selected("mode", "ModeBackward0", x, dim, keepdim, [&](const Rows& r, void* values, int64_t* indices) {
        kernels::sort().mode(values, indices, r.x.device_data(), r.x.dtype(), r.rows, r.n);
    });
}

// --- quantiles -----------------------------------------------------------------------------------------------------

static Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim, const std::string& interpolation,
                       bool skip_nan) {
    const char* name = skip_nan ? "nanquantile()" : "quantile()";
    if (x.dtype() != DType::f32 && x.dtype() != DType::f64) throw RuntimeError(name, " input tensor must be either float or double dtype");
    if (x.numel() == 0) throw RuntimeError(name, " input tensor must be non-empty");
    if (q.dim() > 1) throw RuntimeError(name, " q must be a scalar or 1D tensor");
    if (q.dtype() != x.dtype()) throw RuntimeError(name, " q tensor must be same dtype as the input tensor");
    if (interpolation != "linear" && interpolation != "lower" && interpolation != "higher" && interpolation != "midpoint" &&
        interpolation != "nearest")
        throw RuntimeError(name, " interpolation must be one of linear, lower, higher, midpoint or nearest, but got ", interpolation);
    if (is_nonzero(any(logical_or(lt(detach(q), Scalar(0)), gt(detach(q), Scalar(1))))))
        throw RuntimeError(name, " q values must be in the range [0, 1]");
    const int64_t d = wrap_dim(dim.value_or(0), x.dim());
    // Sorted rows, [..., n].
    Tensor rows = !dim ? reshape(x, {x.numel()}) : x.dim() == 0 ? reshape(x, {1}) : transpose(x, d, -1);
    const Tensor sorted = std::get<0>(sort(rows, -1, false));
    const int64_t n = sorted.size(-1);
    Tensor rank;  // [..., q]
    const Tensor points = reshape(q, {q.numel()});
    if (skip_nan) {
        const Tensor present = sub(sum(logical_not(isnan(detach(sorted))), {-1}, true), Scalar(1));
        rank = mul(points, to(present, x.dtype()));
        rank = where(lt(rank, Scalar(0)), Scalar(0.0), rank);
    } else {
        const Tensor spoiled = any(isnan(detach(sorted)), Dims{-1}, true);
        rank = where(spoiled, Scalar(double(n - 1)), mul(points, Scalar(double(n - 1))));
    }
    if (interpolation == "lower") rank = floor(rank);
    else if (interpolation == "higher") rank = ceil(rank);
    else if (interpolation == "nearest") rank = round(rank);
    Dims shape = sorted.sizes();
    shape[shape.size() - 1] = points.numel();
    rank = expand(rank, shape);
    const Tensor below = to(floor(detach(rank)), DType::i64);
    Tensor y = gather(sorted, -1, below);
    if (interpolation == "linear" || interpolation == "midpoint") {
        const Tensor above = gather(sorted, -1, to(ceil(detach(rank)), DType::i64));
        const Tensor weight = interpolation == "midpoint" ? full_like(detach(rank), Scalar(0.5)) : sub(rank, to(below, x.dtype()));
        y = pointwise(Pointwise::lerp, y, above, weight);
    }
    // [..., q] -> [q, ...] with dim put back or dropped.
    if (keepdim) {
        if (!dim) {
            Dims ones_(x.dim(), 1);
            ones_.push_back(points.numel());
            y = reshape(y, ones_);
        } else if (x.dim()) {
            y = transpose(unsqueeze(y, -2), d, -2);  // the reduced dimension back to its place, q last
        }
    } else if (dim && x.dim() && d != x.dim() - 1) {
        // transpose swapped dim and the last one: the last dimension now stands at d
        Dims order;
        for (int64_t i = 0; i < x.dim() - 1; i++)
            if (i != d) order.push_back(i);
        order.push_back(d);
        order.push_back(x.dim() - 1);
        y = permute(y, order);
    }
    if (q.dim() == 0) return squeeze(y, {-1}, "SqueezeBackward4");
    return squeeze(transpose(unsqueeze(y, 0), 0, -1), {-1}, "SqueezeBackward4");
}

static Tensor quantile_at(const Tensor& x, const Arg& q, std::optional<int64_t> dim, bool keepdim, const std::string& interpolation,
                          bool skip_nan) {
    if (q.tensor) return quantile(x, *q.tensor, dim, keepdim, interpolation, skip_nan);
    return quantile(x, scalar_tensor(q.number, x.dtype()), dim, keepdim, interpolation, skip_nan);
}

// --- unique --------------------------------------------------------------------------------------------------------

// A new run starts at 0 and wherever row i differs from row i - 1.
static Tensor starts_of(const Tensor& rows) {
    const int64_t n = rows.size(0);
    if (rows.dim() == 1) {
        const Tensor in = contiguous(rows), starts = empty({n}, DType::boolean);
        kernels::sort().run_starts(starts.device_data<bool>(), in.device_data(), rows.dtype(), n);
        return starts;
    }
    Tensor change = ne(narrow(rows, 0, 1, n - 1), narrow(rows, 0, 0, n - 1));
    if (rows.dim() > 1) change = any(reshape(change, {n - 1, rows.numel() / n}), Dims{1}, false);
    return cat({full({1}, Scalar(true), DType::boolean), change}, 0);
}

struct Unique {
    Tensor values, inverse, counts;
};
// Of sorted rows, whose original positions are `order` (undefined: as they are).
static Unique runs_of(const Tensor& rows, const Tensor& order, bool inverse, bool counts) {
    const int64_t n = rows.size(0);
    if (n == 0) return {rows, empty({0}, DType::i64), empty({0}, DType::i64)};
    if (const auto values = kernels::sort().run_values; values && rows.dim() == 1 && !inverse && !counts) {
        const Tensor in = contiguous(rows), out = empty({n}, rows.dtype());
        const int64_t found = values(out.device_data(), in.device_data(), rows.dtype(), n);
        return {found < n ? clone(narrow(out, 0, 0, found)) : out, Tensor(), Tensor()};
    }
    const Tensor starts = starts_of(rows), first = reshape(nonzero(starts), {-1});
    Unique u;
    u.values = index_select(rows, 0, first);
    if (inverse) {
        const Tensor number = sub(cumsum(starts, 0), Scalar(1));
        u.inverse = order ? scatter(empty({n}, DType::i64), 0, order, number) : number;
    }
    if (counts) {
        const int64_t k = first.numel();
        u.counts = sub(cat({narrow(first, 0, 1, k - 1), full({1}, Scalar(n), DType::i64)}, 0), first);
    }
    return u;
}

// How often each number below n is in `at`.
static Tensor counted(const Tensor& at, int64_t n) {
    const Tensor in = contiguous(at), y = empty({n}, DType::i64);
    kernels::sort().count(y.device_data<int64_t>(), in.device_data<int64_t>(), in.numel(), n);
    return y;
}

// Integers in a range that is not longer than they are many: counted, not sorted.
static std::optional<Unique> counted_unique(const Tensor& x, bool inverse, bool counts) {
    const int64_t n = x.numel();
    if (n < 64 || !is_integral(x.dtype()) || x.dtype() == DType::boolean || x.dtype() == DType::u64 || x.device().is_cuda()) return {};
    const auto [low, high] = aminmax(x);
    const int64_t least = item(low).to_int();
    const uint64_t range = uint64_t(item(high).to_int()) - uint64_t(least);
    if (range >= uint64_t(n)) return {};
    Tensor at = to(x, DType::i64);
    if (least != 0) at = sub(at, Scalar(least));
    const int64_t bins = int64_t(range) + 1;
    const Tensor all = counted(at, bins), present = reshape(nonzero(all), {-1});
    Unique u;
    u.values = to(add(present, Scalar(least)), x.dtype());
    if (inverse) u.inverse = index_select(scatter(empty({bins}, DType::i64), 0, present, arange(present.numel())), 0, at);
    if (counts) u.counts = index_select(all, 0, present);
    return u;
}

// Rows ordered by their first element, then by the second, ...
static Tensor row_order(const Tensor& rows) {
    const int64_t n = rows.size(0);
    const Tensor columns = contiguous(transpose(reshape(rows, {n, n ? rows.numel() / n : 0}), 0, 1));
    Tensor order = arange(n);
    for (int64_t c = columns.size(0) - 1; c >= 0; c--)
        order = index_select(order, 0, argsort(index_select(select(columns, 0, c), 0, order), 0, false));
    return order;
}

static PyObject* unique_result(Unique u, bool inverse, bool counts) {
    if (!inverse && !counts) return ToPython{}(u.values);
    TensorList list{u.values};
    if (inverse) list.push_back(u.inverse);
    if (counts) list.push_back(u.counts);
    return ToPython{}(list);
}

static PyObject* unique(const Tensor& given, bool inverse, bool counts, std::optional<int64_t> dim, bool consecutive) {
    Unique u;
    const bool recording = needs_grad(given);
    const GradState mode = grad_state();
    GradMode off(false);
    const Tensor x = detach(given);
    if (!consecutive) check_sortable("unique", x);
    if (!dim) {
        const Tensor flat = reshape(x, {x.numel()});
        if (consecutive) {
            u = runs_of(flat, Tensor(), inverse, counts);
        } else if (std::optional<Unique> few = counted_unique(flat, inverse, counts)) {
            u = *few;
        } else if (inverse) {
            auto [sorted, order] = sort(flat, 0, false);
            u = runs_of(sorted, order, inverse, counts);
        } else {
            const Tensor given_order = contiguous(flat), sorted = empty(flat.sizes(), x.dtype());
            {
                Unlocked unlocked(x.numel());
                kernels::sort().sort(sorted.device_data(), nullptr, given_order.device_data(), x.dtype(), 1, x.numel(), false);
            }
            u = runs_of(sorted, Tensor(), inverse, counts);
        }
        if (inverse) u.inverse = reshape(u.inverse, x.sizes());
    } else {
        const int64_t d = wrap_dim(*dim, x.dim());
        if (x.dim() == 0) throw RuntimeError("unique(): a 0-dim tensor has no dimension to compare along");
        for (int64_t i = 0; i < x.dim(); i++)
            if (x.size(i) == 0 && i != d && x.size(d) != 0)
                throw RuntimeError(
                    "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
                    "applied");
        const Tensor rows = contiguous(movedim(x, {d}, {0}));
        const Tensor order = consecutive ? Tensor() : row_order(rows);
        u = runs_of(order ? index_select(rows, 0, order) : rows, order, inverse, counts);
        u.values = contiguous(movedim(u.values, {0}, {d}));
    }
    if (recording) {  // in the graph, without a derivative, as in PyTorch
        GradMode on(mode);
        record(u.values,
               consecutive ? "UniqueConsecutiveBackward0"
               : dim       ? "UniqueDimBackward0"
                           : "Unique2Backward0",
               {given}, {}, [](Backward& bw) { throw NotImplemented("the derivative for '", bw.node.name, "' is not implemented."); });
    }
    return unique_result(u, inverse, counts);
}

// --- search and counting -------------------------------------------------------------------------------------------

static Tensor searchsorted(const Tensor& boundaries_, const Tensor& values_, bool narrow_result, bool right, const Tensor& sorter_) {
    check_sortable("searchsorted", boundaries_);
    const bool shared = boundaries_.dim() == 1;
    if (boundaries_.dim() == 0)
        throw RuntimeError(
            "boundaries tensor should have positive dimension, but got 0 "
            "dimension");
    if (!shared) {
        bool fits = boundaries_.dim() == values_.dim();
        for (int64_t i = 0; fits && i + 1 < values_.dim(); i++) fits = boundaries_.size(i) == values_.size(i);
        if (!fits)
            throw RuntimeError(
                "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
                "tensor and input value tensor must match, but "
                "we got boundaries tensor ",
                boundaries_.sizes(), " and input value tensor ", values_.sizes());
    }
    if (sorter_) {
        if (!(sorter_.sizes() == boundaries_.sizes()))
            throw RuntimeError("boundary and sorter must have the same size, but got boundary tensor ", boundaries_.sizes(),
                               " and got sorter tensor ", sorter_.sizes());
        if (sorter_.dtype() != DType::i64)
            throw RuntimeError("sorter must be a tensor of long dtype but got dtype ", type_name(sorter_.dtype()));
        check_range(sorter_, boundaries_.size(-1), boundaries_.dim() - 1, false, "searchsorted");
    }
    GradMode off(false);
    const DType dtype = promote(boundaries_.dtype(), values_.dtype());
    const Tensor boundaries = contiguous(to(boundaries_, dtype)), values = contiguous(to(values_, dtype));
    const Tensor sorter = sorter_ ? contiguous(sorter_) : Tensor();
    Tensor y = empty(values.sizes(), DType::i64);
    if (y.numel()) {
        Unlocked unlocked(y.numel() * 8);
        const int64_t n = shared ? y.numel() : values.size(-1), m = boundaries.size(-1);
        kernels::sort().searchsorted(y.device_data<int64_t>(), boundaries.device_data(), sorter ? sorter.device_data<int64_t>() : nullptr,
                                     values.device_data(), dtype, y.numel() / n, m, n, shared, right);
    }
    return narrow_result ? to(y, DType::i32) : y;
}

Tensor searchsorted(const Tensor& boundaries, const Tensor& values, bool right) {
    return searchsorted(boundaries, values, false, right, Tensor());
}

static bool is_right(bool right, const std::optional<std::string>& side) {
    if (!side) return right;
    if (*side != "left" && *side != "right") throw RuntimeError("torch.searchsorted(): side can only be 'left' or 'right' but got ", *side);
    if (*side == "left" && right)
        throw RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of "
            "left while right was True");
    return *side == "right";
}

static Tensor values_of(const Arg& a, DType like) {
    if (a.tensor) return *a.tensor;
    return scalar_tensor(a.number, a.number.is_floating() && is_integral(like) ? default_dtype() : like);
}

static Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength) {
    if (x.dim() != 1 || !is_integral(x.dtype()) || x.dtype() == DType::boolean)
        throw RuntimeError("bincount only supports 1-d non-negative integral inputs.");
    if (minlength < 0) throw RuntimeError("minlength should be >= 0");
    if (weights && !(weights.dim() == 1 && weights.size(0) == x.size(0)))
        throw RuntimeError(
            "weights should be 1-d and have the same length as "
            "input");
    GradMode off(false);
    const Tensor at = to(x, DType::i64);
    int64_t n = minlength;
    if (at.numel()) {
        const auto [least, most] = aminmax(at);
        const Tensor ends = to(stack({least, most}, 0), Device{});
        if (ends.data<int64_t>()[0] < 0)
            throw RuntimeError(
                "bincount only supports 1-d non-negative integral "
                "inputs.");
        n = std::max(n, plus(ends.data<int64_t>()[1], 1));
    }
    if (!weights) return counted(at, n);
    const DType dtype = weights.dtype() == DType::f32 ? DType::f32 : DType::f64;
    return index_add(zeros({n}, dtype), 0, at, to(detach(weights), dtype));
}

static Tensor histc(const Tensor& x, int64_t bins, const Scalar& low_, const Scalar& high_) {
    if (bins <= 0) throw RuntimeError("torch.histogram(): bins must be > 0, but got ", bins);
    GradMode off(false);
    double low = low_.to_double(), high = high_.to_double();
    const Tensor flat = reshape(detach(x), {x.numel()});
    if (low == high && x.numel()) {
        const auto [least, most] = aminmax(flat);
        low = item(least).to_double();
        high = item(most).to_double();
    }
    if (low == high) {
        low -= 1;
        high += 1;
    }
    if (!std::isfinite(low) || !std::isfinite(high)) throw RuntimeError("range of [", low, ", ", high, "] is not finite");
    if (low > high) throw RuntimeError("max must be larger than min");
    const Tensor in = contiguous(flat), y = empty({bins}, DType::i64);
    kernels::sort().histogram(y.device_data<int64_t>(), in.device_data(), x.dtype(), in.numel(), bins, low, high);
    return to(y, x.dtype());
}

static Tensor isin(const Tensor& elements, const Tensor& tests, bool invert) {
    GradMode off(false);
    const DType dtype = promote(elements.dtype(), tests.dtype());
    const Tensor x = to(detach(elements), dtype);
    Tensor found;
    if (tests.numel() == 0) {
        found = full(x.sizes(), Scalar(false), DType::boolean);
    } else if (is_complex(dtype)) {
        throw RuntimeError("isin(): complex tensors are not supported");
    } else {
        const Tensor sorted = std::get<0>(sort(reshape(to(detach(tests), dtype), {tests.numel()}), 0, false));
        Tensor at = searchsorted(sorted, x, false, false, Tensor());
        at = where(ge(at, Scalar(sorted.numel())), Scalar(sorted.numel() - 1), at);
        found = eq(take(sorted, at), x);
    }
    return invert ? logical_not(found) : found;
}

static const Operators operators = {
    {"sort(Tensor input, int dim=-1, bool descending=False, *, Tensor!? out=None) -> (values, indices)",
     [](const Tensor& x, int64_t dim, bool descending) { return sort(x, dim, descending); },
     function | method | along_dim | documented("sort(input, dim=-1, descending=False, *, stable=False, out=None)") |
         documented_method("sort(dim=-1, descending=False, stable=False)"),
     R"(The tensor sorted along a dimension, and the indices that sort it.
        >>> wisp.sort(wisp.tensor([3, 1, 2]), descending=True)
        torch.return_types.sort(
        values=tensor([3, 2, 1]),
        indices=tensor([0, 2, 1])))"},
    {"sort(Tensor input, *, bool? stable, int dim=-1, bool descending=False, Tensor!? out=None) -> (values, indices)",
     [](const Tensor& x, std::optional<bool>, int64_t dim, bool descending) { return sort(x, dim, descending, "SortBackward1"); },
     function | method},
    {"argsort(Tensor input, int dim=-1, bool descending=False, bool stable=False, *, Tensor? out=None)",
     [](const Tensor& x, int64_t dim, bool descending, bool) { return argsort(x, dim, descending); }, function | method | along_dim,
     R"(The indices that sort a tensor along a dimension.
        >>> wisp.argsort(wisp.tensor([3, 1, 2]))
        tensor([1, 2, 0]))"},
    {"msort(Tensor input, *, Tensor!? out=None)", [](const Tensor& x) { return std::get<0>(sort(x, 0, false)); }, function | method,
     R"(The tensor sorted along its first dimension.
        >>> wisp.msort(wisp.tensor([3, 1, 2]))
        tensor([1, 2, 3]))"},
    {"topk(Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True, *, Tensor!? out=None) -> (values, "
     "indices)",
     [](const Tensor& x, int64_t k, int64_t dim, bool largest, bool) { return topk(x, k, dim, largest); }, function | method | along_dim,
     R"(The k largest (or smallest) elements along a dimension, and their indices.
        >>> wisp.topk(wisp.tensor([3, 1, 4, 2]), 2)
        torch.return_types.topk(
        values=tensor([4, 3]),
        indices=tensor([2, 0])))"},
    {"kthvalue(Tensor input, int k, int dim=-1, bool keepdim=False, *, Tensor!? out=None) -> (values, indices)",
     [](const Tensor& x, int64_t k, int64_t dim, bool keepdim) { return kthvalue(x, k, dim, keepdim); }, function | method | along_dim,
     R"(The k-th smallest element along a dimension, and its index.
        >>> wisp.kthvalue(wisp.tensor([3, 1, 2]), 2)
        torch.return_types.kthvalue(
        values=tensor(2),
        indices=tensor(2)))"},
    {"median(Tensor input)", [](const Tensor& x) { return median_of_all(x, false); },
     function | method | reduces | documented_method("median(dim=None, keepdim=False)"),
     R"(The element in the middle, the lower one of two; along a dimension, with its index.
        >>> wisp.median(wisp.tensor([5.0, 1.0, 3.0]))
        tensor(3.))"},
    {"median(Tensor input, int dim, bool keepdim=False, *, Tensor!? out=None) -> (values, indices)",
     [](const Tensor& x, int64_t dim, bool keepdim) { return median(x, dim, keepdim, false); }, function | method},
    {"nanmedian(Tensor input)", [](const Tensor& x) { return median_of_all(x, true); },
     function | method | reduces | documented_method("nanmedian(dim=None, keepdim=False)"),
     R"(The median of the elements that are not NaN.
        >>> wisp.nanmedian(wisp.tensor([1.0, wisp.nan, 3.0]))
        tensor(1.))"},
    {"nanmedian(Tensor input, int dim, bool keepdim=False, *, Tensor!? out=None) -> (values, indices)",
     [](const Tensor& x, int64_t dim, bool keepdim) { return median(x, dim, keepdim, true); }, function | method},
    {"mode(Tensor input, int dim=-1, bool keepdim=False, *, Tensor!? out=None) -> (values, indices)",
     [](const Tensor& x, int64_t dim, bool keepdim) { return mode(x, dim, keepdim); }, function | method | along_dim,
     R"(The element that occurs most often along a dimension, and an index of it.
        >>> wisp.mode(wisp.tensor([1, 2, 2, 3])).values
        tensor(2))"},
    {"quantile(Tensor input, Operand q, int? dim=None, bool keepdim=False, *, str interpolation='linear', Tensor!? "
     "out=None)",
     [](const Tensor& x, const Arg& q, std::optional<int64_t> dim, bool keepdim, std::string how) {
         return quantile_at(x, q, dim, keepdim, how, false);
     },
     function | method | cpu_float32,
     R"(The values below which shares `q` of the elements lie; between two elements by `interpolation`.
        >>> wisp.quantile(wisp.tensor([1.0, 2.0, 3.0, 4.0]), wisp.tensor([0.25, 0.5]))
        tensor([1.7500, 2.5000]))"},
    {"nanquantile(Tensor input, Operand q, int? dim=None, bool keepdim=False, *, str interpolation='linear', Tensor!? "
     "out=None)",
     [](const Tensor& x, const Arg& q, std::optional<int64_t> dim, bool keepdim, std::string how) {
         return quantile_at(x, q, dim, keepdim, how, true);
     },
     function | method | cpu_float32,
     R"(Quantiles of the elements that are not NaN.
        >>> wisp.nanquantile(wisp.tensor([1.0, wisp.nan, 3.0]), 0.5)
        tensor(2.))"},
    {"unique(Tensor input, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None)",
     [](const Tensor& x, bool, bool inverse, bool counts, std::optional<int64_t> dim) { return unique(x, inverse, counts, dim, false); },
     function | method,
     R"(The different elements, sorted; on request also where each element went and how often each occurs.
        >>> wisp.unique(wisp.tensor([3, 1, 3]), return_counts=True)
        (tensor([1, 3]), tensor([1, 2])))"},
    {"unique_consecutive(Tensor input, bool return_inverse=False, bool return_counts=False, int? dim=None)",
     [](const Tensor& x, bool inverse, bool counts, std::optional<int64_t> dim) { return unique(x, inverse, counts, dim, true); },
     function | method,
     R"(The elements without repetitions of neighbours.
        >>> wisp.unique_consecutive(wisp.tensor([1, 1, 2, 1]))
        tensor([1, 2, 1]))"},
    {"searchsorted(Tensor sorted_sequence, Operand input|values, *, bool out_int32=False, bool right=False, str? side=None, "
     "Tensor? sorter=None, Tensor!? out=None)",
     [](const Tensor& b, const Arg& v, bool narrow, bool right, std::optional<std::string> side, const Tensor& sorter) {
         return searchsorted(b, values_of(v, b.dtype()), narrow, is_right(right, side), sorter);
     },
     function | documented("searchsorted(sorted_sequence, values, *, out_int32=False, right=False, side=None, sorter=None, out=None)"),
     R"(Where values would have to be inserted into a sorted sequence.
        >>> wisp.searchsorted(wisp.tensor([1, 3, 5]), wisp.tensor([2, 3, 6]))
        tensor([1, 1, 3]))"},
    {"bucketize(Operand input, Tensor boundaries, *, bool out_int32=False, bool right=False, Tensor!? out=None)",
     [](const Arg& v, const Tensor& b, bool narrow, bool right) {
         if (b.dim() != 1) throw RuntimeError("boundaries tensor must be 1 dimension, but got dim(", b.dim(), ")");
         return searchsorted(b, values_of(v, b.dtype()), narrow, right, Tensor());
     },
     function,
     R"(Which bucket between `boundaries` each element falls into.
        >>> wisp.bucketize(wisp.tensor([2, 3, 6]), wisp.tensor([1, 3, 5]))
        tensor([1, 1, 3]))"},
    {"bincount(Tensor input, Tensor? weights=None, int minlength=0)",
     [](const Tensor& x, const Tensor& weights, int64_t minlength) { return bincount(x, weights, minlength); }, function | method,
     R"(How often each number from 0 on occurs, or the sum of its weights.
        >>> wisp.bincount(wisp.tensor([0, 1, 1, 3]))
        tensor([1, 2, 0, 1]))"},
    {"histc(Tensor input, int bins=100, Number min=0, Number max=0, *, Tensor!? out=None)",
     [](const Tensor& x, int64_t bins, Scalar low, Scalar high) { return histc(x, bins, low, high); }, function | method,
     R"(How many elements fall into each of `bins` equal parts between `min` and `max`.
        >>> wisp.histc(wisp.tensor([1.0, 2.0, 2.5, 4.0]), bins=3, min=1, max=4)
        tensor([1., 2., 1.]))"},
    {"isin(Operand elements, Operand test_elements, *, bool assume_unique=False, bool invert=False, Tensor!? out=None)",
     [](const Arg& x, const Arg& tests, bool, bool invert) {
         return isin(values_of(x, tests.tensor ? tests.tensor->dtype() : DType::i64),
                     values_of(tests, x.tensor ? x.tensor->dtype() : DType::i64), invert);
     },
     function,
     R"(Which elements occur among others.
        >>> wisp.isin(wisp.tensor([1, 2, 3]), wisp.tensor([2, 3]))
        tensor([False,  True,  True]))"},
};

}  // namespace wisp
