// Front doors that index along one dimension: gather, the scatters, index_select, index_add, index_copy, index_fill.
//
// The writers come in pairs, f and f_: one body writes into a clone or into self and records the same gradient.
#include <cmath>
#include <cstring>

#include "gather.h"

#include "../autograd/told.h"
#include "../autograd/whole.h"
#include "../kernels/index.h"
#include "../core/threads.h"
#include "../python/registry.h"
#include "reduce.h"
#include "views.h"

namespace wisp {

using kernels::Scatter;
using kernels::Slice;

Tensor as_index(const Tensor& index, const char* name) {
    if (index.dtype() == DType::i64) return index;
    if (index.dtype() == DType::i32 || (index.numel() == 0 && is_integral(index.dtype()))) return to(index, DType::i64);
    throw RuntimeError(name, "(): Expected dtype int32/int64 for index, but got ", type_name(index.dtype()));
}

void check_range(const Tensor& index, int64_t size, int64_t dim, bool wrap, const char* name) {
    const auto first_out_of_range = kernels::index().first_out_of_range;
    if (index.numel() == 0 || !first_out_of_range) return;
    Layout layout = index.layout();  // what is repeated needs one look
    for (int64_t i = 0; i < layout.dim(); i++)
        if (layout.strides[i] == 0) layout.sizes[i] = 1;
    const Tensor once = reshape(contiguous(alias(index, layout)), {-1});
    const int64_t at = first_out_of_range(once.device_data<int64_t>(), once.numel(), size, wrap);
    if (at < 0) return;
    const std::string text =
        str(name, "(): index ", item(select(once, 0, at)).to_int(), " is out of bounds for dimension ", dim, " with size ", size);
    // as PyTorch has it
    if (std::strstr(name, "scatter") || std::strstr(name, "gather")) throw RuntimeError(text);
    if (std::strcmp(name, "index_add") == 0) throw IndexError("index out of range in self (", text, ")");
    throw IndexError(text);
}

bool warn_repeated(const Tensor& self, const char* name) {
    if (!self.is_contiguous() && self.numel() > 1 && self.layout().may_overlap_itself())
        warn(str("Use of ", name,
                 " on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
                 "This also applies to advanced indexing e.g. tensor[indices] = tensor"));
    return true;
}

void check_fits(const Scalar& value, DType dtype) {
    refuse_large(dtype, value);
    if (value.is_large()) return;
    if (!is_integral(dtype) || dtype == DType::boolean || value.is_complex()) return;
    const int bits = int(8 * item_size(dtype));
    const double v = std::trunc(value.to_double()), top = std::ldexp(1.0, is_signed(dtype) ? bits - 1 : bits);
    // a negative number stands for the unsigned one of the same bits
    if (bits == 64 && v == top) return;  // the largest integer, as a float
    if (!(v < top && v >= (is_signed(dtype) ? -top : -top / 2)))
        throw RuntimeError("value cannot be converted to type ", dtype, " without overflow");
}

static void check_same_dtype(const char* name, const Tensor& self, const Tensor& source) {
    if (self.dtype() != source.dtype())
        throw RuntimeError(name, "(): Expected self.dtype to be equal to src.dtype, got ", type_name(self.dtype()), " and ",
                           type_name(source.dtype()));
}

// --- gather and scatter --------------------------------------------------------------------------------------------

static void check_shapes(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
    const int64_t n = std::max<int64_t>(x.dim(), 1);
    if (index.numel() == 0) return;
    if (std::max<int64_t>(index.dim(), 1) != n)
        throw RuntimeError(name, "(): Index tensor must have the same number of dimensions as self tensor, got ", index.dim(), " and ",
                           x.dim());
    if (source && std::max<int64_t>(source.dim(), 1) != n)
        throw RuntimeError(name, "(): Index tensor must have the same number of dimensions as src tensor, got ", index.dim(), " and ",
                           source.dim());
    for (int64_t i = 0; i < index.dim() && x.dim(); i++) {
        if (i != dim && index.size(i) > x.size(i))
            throw RuntimeError(name, "(): Size does not match at dimension ", i, " expected index ", index.sizes(),
                               " to be no larger than self ", x.sizes(), " apart from dimension ", dim);
        if (source && source.dim() && index.size(i) > source.size(i))
            throw RuntimeError(name, "(): Size does not match at dimension ", i, " expected index ", index.sizes(),
                               " to be no larger than src ", source.sizes());
    }
}
static void check_gather(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
    check_shapes(name, x, dim, index, source);
    check_range(index, x.dim() ? x.size(dim) : 1, dim, false, name);
}

// A 0-dim tensor indexed as one of one dimension.
static Tensor at_least_1d(const Tensor& t) { return t.dim() ? t : alias(t, Layout{Dims{1}, Dims{1}, t.offset()}); }

static Tensor gather_values(const Tensor& x, int64_t dim, const Tensor& index, bool wrap) {
    Tensor y = empty(index.sizes(), x.dtype());
    if (index.numel() == 0) return y;
    const Tensor from = at_least_1d(x), at = at_least_1d(index);
    bool good;
    {
        Unlocked unlocked(y.numel());
        good = kernels::index().gather(y.device_data(), from.device_data(), from.strides().data(), at.device_data<int64_t>(),
                                       at.strides().data(), at.sizes().data(), int(at.dim()), int(dim), x.item_size(), from.size(dim), wrap,
                                       "gather");
    }
    if (!good) check_range(index, from.size(dim), dim, wrap, "gather");  // tells which
    return y;
}

static Tensor scatter_sum(const Tensor& x, int64_t dim, const Tensor& given, const Tensor& source, bool in_place);

Tensor gather(const Tensor& x, int64_t dim, const Tensor& given) {
    dim = wrap_dim(dim, x.dim());
    const Tensor index = as_index(given, "gather");
    check_shapes("gather", x, dim, index, Tensor());
    Tensor y = gather_values(x, dim, index, false);
    if (needs_grad(x))
        record(y, "GatherBackward0", {x}, {index},
               told<"dim sparse_grad self_sym_sizes | index">(
                   [sizes = x.sizes(), dim](Backward& bw) {
                       bw.set(0, scatter_sum(zeros(sizes, bw.grad().dtype()), dim, bw.saved(0), bw.grad(), true));  // zeros of its own
                   },
                   dim, false));
    return y;
}

// Sums of half-precision numbers are kept in float until the end.
static void scatter_values(Scatter how, const Tensor& out, int64_t dim, const Tensor& index, const Tensor& source, const char* name) {
    if (index.numel() == 0) return;
    if (is_narrow(out.dtype()) && how != Scatter::set) {
        GradMode off(false);
        const Tensor wide = to(out, compute_dtype(out.dtype()));
        scatter_values(how, wide, dim, index, to(source, wide.dtype()), name);
        copy_values(out, wide);
        return;
    }
    const Tensor to_ = at_least_1d(out), at = at_least_1d(index), from = source.dim() || at.dim() == 1 ? at_least_1d(source) : source;
    const Dims none(at.dim());
    Unlocked unlocked(index.numel());
    kernels::index().scatter(how, to_.device_data(), out.dtype(), to_.strides().data(), at.device_data<int64_t>(), at.strides().data(),
                             from.device_data(), source.numel() == 1 && source.dim() == 0 ? none.data() : from.strides().data(),
                             at.sizes().data(), int(at.dim()), int(dim), to_.size(dim), name);
}

// A gradient of index's shape, for a source that may have been larger.
static Tensor padded(const Tensor& g, const Dims& sizes) {
    if (g.sizes() == sizes) return g;
    return embed(g, sizes, Layout{g.sizes(), contiguous_strides(sizes), 0});
}

static Tensor scatter_set(const Tensor& x, int64_t dim, const Tensor& given, const Tensor& source, bool in_place) {
    dim = wrap_dim(dim, x.dim());
    const Tensor index = as_index(given, "scatter");
    check_same_dtype("scatter", x, source);
    check_gather("scatter", x, dim, index, source);
    if (in_place) check_apart(x, given, "scatter_"), check_apart(x, source, "scatter_");
    return written(
        x, in_place, "scatter_", "ScatterBackward0", source, spanned({index}),
        [&](const Tensor& y) { scatter_values(Scatter::set, y, dim, index, source, "scatter"); },
        [dim, sizes = source.sizes()](Backward& bw) {
            const Tensor index = bw.saved(0);
            if (bw.needs(0)) bw.set(0, scatter(bw.grad(), dim, index, Scalar(0)));
            if (bw.needs(1)) bw.set(1, padded(gather(bw.grad(), dim, index), sizes));
        });
}
static Tensor scatter_value(const Tensor& x, int64_t dim, const Tensor& given, const Scalar& value, bool in_place) {
    dim = wrap_dim(dim, x.dim());
    const Tensor index = as_index(given, "scatter");
    check_gather("scatter", x, dim, index, Tensor());
    if (in_place) check_apart(x, given, "scatter_");
    refuse_large(x.dtype(), value);
    const Tensor source = scalar_tensor(value, x.dtype());
    return written(
        x, in_place, "scatter_", "ScatterBackward1", Tensor(), spanned({index}),
        [&](const Tensor& y) { scatter_values(Scatter::set, y, dim, index, source, "scatter"); },
        [dim](Backward& bw) { bw.set(0, scatter(bw.grad(), dim, bw.saved(0), Scalar(0))); });
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
    return scatter_set(x, dim, index, source, false);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value) {
    return scatter_value(x, dim, index, value, false);
}
void scatter_into(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value) { scatter_value(x, dim, index, value, true); }

static Tensor scatter_sum(const Tensor& x, int64_t dim, const Tensor& given, const Tensor& source, bool in_place) {
    dim = wrap_dim(dim, x.dim());
    const Tensor index = as_index(given, "scatter_add");
    check_same_dtype("scatter_add", x, source);
    check_gather("scatter_add", x, dim, index, source);
    if (in_place) check_apart(x, given, "scatter_add_"), check_apart(x, source, "scatter_add_");
    return written(
        x, in_place, "scatter_add_", "ScatterAddBackward0", source, spanned({index}),
        [&](const Tensor& y) { scatter_values(Scatter::add, y, dim, index, source, "scatter_add"); },
        [dim, sizes = source.sizes()](Backward& bw) {
            if (bw.needs(0)) bw.set(0, bw.grad());
            if (bw.needs(1)) bw.set(1, padded(gather(bw.grad(), dim, bw.saved(0)), sizes));
        });
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
    return scatter_sum(x, dim, index, source, false);
}

// --- scatter_reduce ------------------------------------------------------------------------------------------------

enum class How { sum, prod, mean, amax, amin };

static How how_of(const std::string& name) {
    if (name == "sum" || name == "add") return How::sum;
    if (name == "prod" || name == "multiply") return How::prod;
    if (name == "mean") return How::mean;
    if (name == "amax" || name == "max") return How::amax;
    if (name == "amin" || name == "min") return How::amin;
    throw RuntimeError("reduce argument must be either sum, prod, mean, amax or amin, got ", name, ".");
}

// How many elements end up in each place.
static Tensor contributions(const Tensor& like, int64_t dim, const Tensor& index, const Dims& sizes, bool include_self) {
    const Tensor start = full(like.sizes(), Scalar(int64_t(include_self)), like.dtype());
    const Tensor count = scatter_add(start, dim, index, ones(sizes, like.dtype()));
    return where(eq(count, Scalar(0)), Scalar(1), count);
}

static Tensor scatter_reduce_plain(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, How how, bool include_self) {
    GradMode off(false);
    if (is_reduced(x.dtype()))
        return to(scatter_reduce_plain(to(x, DType::f32), dim, index, to(source, DType::f32), how, include_self), x.dtype());
    Tensor y = clone(contiguous(x));
    if (!include_self) {
        alignas(16) Scalar start = how == How::prod ? Scalar(1) : Scalar(0);
        if (how == How::amax || how == How::amin) {  // any contribution is a start
            scatter_values(Scatter::set, y, dim, index, source, "scatter_reduce");
        } else {
            scatter_values(Scatter::set, y, dim, index, scalar_tensor(start, x.dtype()), "scatter_reduce");
        }
    }
    const Scatter way = how == How::prod   ? Scatter::multiply
                        : how == How::amax ? Scatter::maximum
                        : how == How::amin ? Scatter::minimum
                                           : Scatter::add;
    scatter_values(way, y, dim, index, source, "scatter_reduce");
    if (how == How::mean) {
        const Tensor count = contributions(y, dim, index, index.sizes(), include_self);
        y = is_integral(y.dtype()) ? div_floor(y, count) : div(y, count);
    }
    return y;
}

static void scatter_reduce_gradient(Backward& bw, int64_t dim, How how, bool include_self) {
    const Tensor g = bw.grad(), index = bw.saved(0), x = bw.saved(1), source = bw.saved(2), y = bw.saved(3);
    Tensor to_self, to_source;
    if (how == How::sum) {
        to_self = g;
        to_source = gather(g, dim, index);
    } else if (how == How::mean) {
        const Tensor share = div(g, contributions(g, dim, index, index.sizes(), include_self));
        to_self = share;
        to_source = gather(share, dim, index);
    } else if (how == How::prod) {
        const Tensor self_zero = eq(detach(x), Scalar(0)), self_safe = where(self_zero, Scalar(1), x);
        to_self = div(mul(g, scatter_reduce(self_safe, dim, index, source, "prod", include_self)), self_safe);
        const Tensor zero = eq(detach(source), Scalar(0));
        const Tensor zeros_there = gather(scatter_add(zeros_like(x), dim, index, to(zero, x.dtype())), dim, index);
        // With several zeros in one place the gradient is zero as a constant, so that its own gradient would be wrong.
        if (bw.create_graph && bw.needs(1) && is_nonzero(any(gt(zeros_there, Scalar(1)))))
            throw RuntimeError(
                "Double backward is unsupported for src when >1 zeros in src are scattered to the same position in self (prod)");
        const Tensor only = logical_and(zero, eq(zeros_there, Scalar(1)));
        const Tensor without = scatter_reduce(x, dim, index, where(only, Scalar(1), source), "prod", include_self);
        to_source = where(only, gather(mul(g, without), dim, index), div(gather(mul(g, y), dim, index), where(zero, Scalar(1), source)));
    } else {
        const Tensor value = gather(detach(y), dim, index);
        const Tensor here = to(eq(detach(source), value), g.dtype()), self_here = to(eq(detach(x), detach(y)), g.dtype());
        Tensor count = scatter_add(self_here, dim, index, here);
        const Tensor share = div(g, where(eq(count, Scalar(0)), Scalar(1), count));
        to_self = mul(self_here, share);
        to_source = mul(here, gather(share, dim, index));
    }
    if (!include_self) to_self = scatter(to_self, dim, index, Scalar(0));
    if (bw.needs(0)) bw.set(0, to_self);
    if (bw.needs(1)) bw.set(1, to_source);
}

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& given, const Tensor& all_source, const std::string& name,
                      bool include_self) {
    dim = wrap_dim(dim, x.dim());
    const How how = how_of(name);
    const Tensor index = as_index(given, "scatter_reduce");
    check_same_dtype("scatter_reduce", x, all_source);
    check_gather("scatter_reduce", x, dim, index, all_source);
    if (is_complex(x.dtype()) && (how == How::amax || how == How::amin))
        throw RuntimeError("scatter_reduce(): ", name, " is not defined for complex tensors");
    Tensor source = all_source;  // as much of it as index has
    if (index.numel() > 0)
        for (int64_t i = 0; i < index.dim() && source.dim(); i++)
            if (source.size(i) != index.size(i)) source = narrow(source, i, 0, index.size(i));
    Tensor y = scatter_reduce_plain(x, dim, index, source, how, include_self);
    if (is_differentiable(x.dtype()) && needs_grad(x, source))
        record(y, "ScatterReduceBackward0", {x, source}, {index, x, source, y},
               told<"dim include_self | index self src result">(
                   [dim, how, include_self, empty = index.numel() == 0](Backward& bw) {
                       if (!empty) return scatter_reduce_gradient(bw, dim, how, include_self);
                       if (bw.needs(0)) bw.set(0, bw.grad());
                   },
                   dim, include_self));
    return y;
}

// scatter(..., reduce="add" | "multiply"), the older form.
static Tensor scatter_old(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const std::string& reduce) {
    if (reduce == "add") return scatter_add(x, dim, index, source);
    if (reduce == "multiply") return scatter_reduce(x, dim, index, source, "prod", true);
    throw RuntimeError("reduce argument must be either add or multiply, got ", reduce, ".");
}
static Tensor filled_source(const Tensor& x, const Tensor& index, const Scalar& value) {
    refuse_large(x.dtype(), value);
    return expand(scalar_tensor(value, x.dtype()), index.sizes());
}

// --- slices --------------------------------------------------------------------------------------------------------

// Layout of x without dim: what one index addresses.
struct Sliced {
    Dims sizes, strides;
    int64_t size, stride;
    Sliced(const Tensor& x, int64_t dim) {
        for (int64_t i = 0; i < x.dim(); i++) {
            if (i == dim) continue;
            sizes.push_back(x.size(i));
            strides.push_back(x.stride(i));
        }
        size = x.dim() ? x.size(dim) : 1;
        stride = x.dim() ? x.stride(dim) : 1;
    }
    Slice slice() const { return {int(sizes.size()), sizes.data(), strides.data()}; }
};

static Tensor check_slices(const char* name, const Tensor& x, int64_t dim, const Tensor& given, const char* named_in_range = nullptr) {
    if (given.dim() > 1) throw IndexError(name, "(): Index is supposed to be a vector, got shape ", given.sizes());
    const Tensor index = contiguous(as_index(given, name));
    check_range(index, x.dim() ? x.size(dim) : 1, dim, false, named_in_range ? named_in_range : name);
    return index;
}

static Tensor offsets_of(const Tensor& index, int64_t size, int64_t stride, const char* name, bool wrap = false) {
    Tensor offsets = empty({index.numel()}, DType::i64);
    const int64_t* one[] = {index.device_data<int64_t>()};
    kernels::index().offsets(offsets.device_data<int64_t>(), one, &size, &stride, 1, index.numel(), wrap, name);
    return offsets;
}

void take_slices(const Tensor& y, int64_t before, const Tensor& x, int64_t indexed, const Tensor& offsets, int64_t n) {
    // x is [before..., indexed..., after...], y is [before..., n, after...] in its memory.
    Dims sizes, from, to;
    int64_t inner = 1;
    for (int64_t i = before + indexed; i < x.dim(); i++) inner *= x.size(i);
    for (int64_t i = before + indexed; i < x.dim(); i++) {
        sizes.push_back(x.size(i));
        from.push_back(x.stride(i));
    }
    to = contiguous_strides(sizes);
    int64_t step = n * inner;
    for (int64_t i = before - 1; i >= 0; i--) {
        sizes.insert(0, x.size(i));
        from.insert(0, x.stride(i));
        to.insert(0, step);
        step *= x.size(i);
    }
    kernels::index().take(y.device_data(), inner, to.data(), x.device_data(), offsets.device_data<int64_t>(), n,
                          Slice{int(sizes.size()), sizes.data(), from.data()}, x.item_size());
}

static Tensor index_add_any(const Tensor& x, int64_t dim, const Tensor& given, const Tensor& source, const Scalar& alpha, bool in_place);

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& given) {
    dim = wrap_dim(dim, x.dim());
    const int64_t n = given.numel();
    if (!x.dim() && n != 1) throw RuntimeError("index_select(): Index to scalar can have only 1 value, got ", n, " value(s)");
    if (x.dim() && n && x.size(dim) == 0)
        throw RuntimeError("index_select(): self indexing axis dim should be positive: dimension ", dim, " of shape ", x.sizes(),
                           " is empty");
    const Tensor index = check_slices("index_select", x, dim, given);
    Dims sizes = x.sizes();
    if (x.dim()) sizes[dim] = n;
    Tensor y = empty(sizes, x.dtype());
    if (y.numel() > 0) {
        const Sliced s(x, dim);
        const Tensor offsets = offsets_of(index, s.size, s.stride, "index_select");  // a tensor: made with the interpreter's lock held
        Unlocked unlocked(y.numel());
        take_slices(y, dim, x, x.dim() ? 1 : 0, offsets, n);
    }
    if (needs_grad(x))
        record(y, "IndexSelectBackward0", {x}, {index},
               told<"dim self_sym_sizes | index">(
                   [sizes = x.sizes(), dim](Backward& bw) {
                       bw.set(0, index_add_any(zeros(sizes, bw.grad().dtype()), dim, bw.saved(0), bw.grad(), Scalar(1), true));
                   },
                   dim));
    return y;
}

static void put_slices(Scatter how, const Tensor& out, int64_t dim, const Tensor& index, const Tensor& values, const char* name,
                       bool wrap = false) {
    if (index.numel() == 0 || out.numel() == 0) return;
    if (is_narrow(out.dtype()) && how == Scatter::add) {
        GradMode off(false);
        const Tensor wide = to(out, compute_dtype(out.dtype()));
        put_slices(how, wide, dim, index, to(values, wide.dtype()), name, wrap);
        copy_values(out, wide);
        return;
    }
    const Sliced s(out, dim), v(values, dim);
    const bool single = values.dim() == 0;
    if (how == Scatter::add && !single && out.dim() && product(s.sizes) < kernels::index().scattered_below) {
        Dims along(out.dim());
        along[dim] = 1;
        kernels::index().scatter(how, out.device_data(), out.dtype(), out.strides().data(), index.device_data<int64_t>(), along.data(),
                                 values.device_data(), values.strides().data(), values.sizes().data(), int(out.dim()), int(dim),
                                 out.size(dim), name);
        return;
    }
    const Dims none(s.sizes.size());
    if (const auto put_one = kernels::index().put_one; put_one && how == Scatter::set && index.numel() == 1) {
        put_one(out.device_data(), index.device_data<int64_t>(), s.size, s.stride, wrap, name, s.slice(), values.device_data(),
                single ? none.data() : v.strides.data(), out.item_size());
        return;
    }
    const Tensor offsets = offsets_of(index, s.size, s.stride, name, wrap);
    Unlocked unlocked(index.numel() * product(s.sizes));
    kernels::index().put(how, out.device_data(), out.dtype(), offsets.device_data<int64_t>(), index.numel(), s.slice(),
                         values.device_data(), single ? 0 : v.stride, single ? none.data() : v.strides.data(), s.size * s.stride);
}

static void check_source(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
    check_same_dtype(name, x, source);
    if (x.dim() == 0 || source.dim() == 0) {
        if (source.dim() > 1 || x.dim() > 1 || (x.dim() == 1 && std::strcmp(name, "index_add") == 0))
            throw RuntimeError(name,
                               "(): source tensor shape must match self tensor shape, excluding the specified "
                               "dimension. Got self.shape = ",
                               x.sizes(), " source.shape = ", source.sizes());
        if (source.numel() != index.numel())
            throw IndexError(name, "(): Number of indices (", index.numel(), ") should be equal to source.size(dim): (", source.numel(),
                             ")");
        return;
    }
    if (source.dim() != x.dim())
        throw RuntimeError(name, "(): source of shape ", source.sizes(), " must have as many dimensions as self of shape ", x.sizes());
    for (int64_t i = 0; i < x.dim(); i++) {
        if (i == dim && source.size(i) != index.numel()) {
            const std::string text = str(name, "(): Number of indices (", index.numel(), ") should be equal to source.size(dim): (",
                                         source.size(i), "), for dim: ", dim);
            if (std::strcmp(name, "index_add") == 0) throw RuntimeError(text);  // as PyTorch has it
            throw IndexError(text);
        }
        if (i != dim && source.size(i) != x.size(i))
            throw RuntimeError(name, "(): Source/destination tensor must have same slice shapes. Destination slice shape: ", x.sizes(),
                               " at dimension ", dim, " and source slice shape: ", source.sizes(), " at dimension ", dim, ".");
    }
}

static Tensor index_add_any(const Tensor& x, int64_t dim, const Tensor& given, const Tensor& source, const Scalar& alpha, bool in_place) {
    dim = wrap_dim(dim, x.dim());
    const bool scaled = !(alpha == 1.0);
    // PyTorch adds whole slices by scatter_add, and raises its error.
    const Tensor index = check_slices("index_add", x, dim, given, x.dim() > 1 && !scaled ? "scatter_add" : "index_add");
    check_source("index_add", x, dim, index, source);
    if (in_place) check_apart(x, given, "index_add_"), check_apart(x, source, "index_add_");
    return written(
        x, in_place, "index_add_", "IndexAddBackward0", source, spanned({index}),
        [&](const Tensor& y) {
            GradMode off(false);
            put_slices(Scatter::add, y, dim, index, scaled ? to(mul(source, alpha), x.dtype()) : source, "index_add");
        },
        [dim, alpha, scaled, flat = source.dim() == 0](Backward& bw) {
            if (bw.needs(0)) bw.set(0, bw.grad());
            if (!bw.needs(1)) return;
            Tensor g = index_select(bw.grad(), dim, bw.saved(0));
            if (flat && g.dim()) g = view(g, {});
            if (!scaled) return bw.set(1, g);
            const bool turn = is_complex(g.dtype()) && alpha.is_complex();
            bw.set(1, mul(g, turn ? Scalar(std::conj(alpha.to_complex())) : alpha));
        });
}
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) {
    return index_add_any(x, dim, index, source, alpha, false);
}

static Tensor index_copy_any(const Tensor& x, int64_t dim, const Tensor& given, const Tensor& source, bool in_place) {
    dim = wrap_dim(dim, x.dim());
    const Tensor index = check_slices("index_copy", x, dim, given);
    check_source("index_copy", x, dim, index, source);
    if (in_place) check_apart(x, given, "index_copy_"), check_apart(x, source, "index_copy_");
    return written(
        x, in_place, "index_copy_", "IndexCopyBackward0", source, spanned({index}),
        [&](const Tensor& y) { put_slices(Scatter::set, y, dim, index, source, "index_copy"); },
        [dim, sizes = source.sizes()](Backward& bw) {
            if (bw.needs(0)) bw.set(0, index_fill(bw.grad(), dim, bw.saved(0), Scalar(0)));
            if (bw.needs(1)) bw.set(1, reshape(index_select(bw.grad(), dim, bw.saved(0)), sizes));
        });
}
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
    return index_copy_any(x, dim, index, source, false);
}

// value: a 0-dim tensor of x's dtype, which may want a gradient.
static Tensor index_fill_any(const Tensor& x, int64_t dim, const Tensor& given, const Tensor& value, bool in_place, bool number = false) {
    dim = wrap_dim(dim, x.dim());
    if (value.dim() != 0)
        throw RuntimeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor "
            "with ",
            value.dim(), " dimension(s).");
    if (given.dim() > 1) throw IndexError("index_fill(): Index has to be a vector/scalar");
    if (in_place) check_apart(x, given, "index_fill_");
    Tensor index = contiguous(as_index(given, "index_fill"));
    check_range(index, x.dim() ? x.size(dim) : 1, dim, true, "index_fill");
    const Tensor filler = to(detach(value), x.dtype());
    return written(
        x, in_place, "index_fill_", number ? "IndexFillBackward0" : "IndexFillBackward1", number ? Tensor() : value, spanned({index}),
        [&](const Tensor& y) { put_slices(Scatter::set, y, dim, index, filler, "index_fill", true); },
        [dim, number](Backward& bw) {
            if (bw.needs(0)) bw.set(0, index_fill(bw.grad(), dim, bw.saved(0), Scalar(0)));
            if (number || !bw.needs(1)) return;
            // Each place counts once, however often it was named.
            const Tensor index = bw.saved(0);
            const int64_t n = bw.grad().dim() ? bw.grad().size(dim) : 1;
            const Tensor named = index_fill(zeros({n}, DType::boolean), 0, index, Scalar(true));
            bw.set(1, sum(index_select(bw.grad(), dim, reshape(nonzero(named), {-1}))));
        },
        true);
}
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value) {
    return index_fill_any(x, dim, index, scalar_tensor(value, x.dtype()), false, true);
}

static Tensor index_fill_number(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value, bool in_place) {
    if (value.is_complex() && !is_complex(x.dtype()))
        throw RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported");
    check_fits(value, x.dtype());
    return index_fill_any(x, dim, index, scalar_tensor(value, x.dtype()), in_place, true);
}

static Tensor index_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const std::string& reduce,
                           bool include_self) {
    dim = wrap_dim(dim, x.dim());
    Tensor at = index;
    if (x.dim() > 1) {
        Dims shape(x.dim(), 1);
        shape[dim] = index.numel();
        at = expand(view(index, shape), source.sizes());
    }
    return whole("IndexReduceBackward0", {x, source}, [&] { return scatter_reduce(x, dim, at, source, reduce, include_self); });
}

static Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::optional<int64_t> given) {
    if (indices.dtype() != DType::i64)
        throw RuntimeError("torch.take_along_dim(): dtype of indices should be Long but got ", type_name(indices.dtype()));
    if (!given) return gather(reshape(x, {x.numel()}), 0, reshape(indices, {indices.numel()}));
    if (x.dim() != indices.dim())
        throw RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but "
            "got ",
            x.dim(), " dimensions for input, and ", indices.dim(), " dimensions for indices");
    const int64_t dim = wrap_dim(*given, x.dim());
    Dims a = x.sizes(), b = indices.sizes();
    if (x.dim()) a[dim] = b[dim] = 1;
    Dims common = broadcast(a, b), xs = common, is = common;
    if (x.dim()) {
        xs[dim] = x.size(dim);
        is[dim] = indices.size(dim);
    }
    if (!needs_grad(x) && x.dim() && indices.dtype() == DType::i64) {
        const Tensor from = expand(x, xs), index = expand(indices, is);
        check_shapes("gather", from, dim, index, Tensor());
        return gather_values(from, dim, index, true);
    }
    const auto first_out_of_range = kernels::index().first_out_of_range;
    const bool plain = first_out_of_range && indices.is_contiguous() && x.dim() &&  // nothing counts from the end
                       first_out_of_range(indices.device_data<int64_t>(), indices.numel(), x.size(dim), false) < 0;
    const Tensor at = plain ? indices : where(lt(indices, Scalar(0)), add(indices, Scalar(x.dim() ? x.size(dim) : 1)), indices);
    return gather(expand(x, xs), dim, expand(at, is));
}

#define WISP_PAIR(NAME, SIGNATURE, PARAMETERS, ...)               \
    {#NAME "(Tensor input, " SIGNATURE ", *, Tensor!? out=None)", \
     [] PARAMETERS {                                              \
         [[maybe_unused]] const bool in_place = false;            \
         return __VA_ARGS__;                                      \
     },                                                           \
     function | method},                                          \
    {                                                             \
        #NAME "_(Tensor input, " SIGNATURE ")",                   \
            [] PARAMETERS {                                       \
                [[maybe_unused]] const bool in_place = true;      \
                return __VA_ARGS__;                               \
            },                                                    \
            method                                                \
    }

#define WISP_REDUCED(NAME, SOURCE)                                                                                               \
    {#NAME "(Tensor input, int dim, Tensor index, Tensor " SOURCE ", str reduce, *, bool include_self=True, Tensor!? out=None)", \
     [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string reduce, bool include_self) {        \
         return NAME(x, dim, index, source, reduce, include_self);                                                               \
     },                                                                                                                          \
     function | method},                                                                                                         \
    {                                                                                                                            \
        #NAME "_(Tensor input, int dim, Tensor index, Tensor " SOURCE ", str reduce, *, bool include_self=True)",                \
            [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string reduce, bool include_self) { \
                check_apart(x, index, #NAME "_"), check_apart(x, source, #NAME "_");                                             \
                assign_inplace(x, NAME(before_write(x, source), dim, index, source, reduce, include_self), #NAME "_");           \
                return x;                                                                                                        \
            },                                                                                                                   \
            method                                                                                                               \
    }

static const Operators operators = {
    {"gather(Tensor input, int dim, Tensor index, *, bool sparse_grad=False, Tensor!? out=None)",
     [](const Tensor& x, int64_t dim, const Tensor& index, bool) { return gather(x, dim, index); }, function | method,
     R"(Elements picked along a dimension: `out[i][j] = input[i][index[i][j]]` for dim 1.
        >>> wisp.gather(wisp.tensor([[1, 2], [3, 4]]), 1, wisp.tensor([[1], [0]]))
        tensor([[2],
                [3]]))"},
    WISP_PAIR(scatter, "int dim, Tensor index, Tensor src", (const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source),
              scatter_set(x, dim, index, source, in_place)),
    WISP_PAIR(scatter, "int dim, Tensor index, Number value", (const Tensor& x, int64_t dim, const Tensor& index, Scalar value),
              scatter_value(x, dim, index, value, in_place)),
    {"scatter(Tensor input, int dim, Tensor index, Tensor src, *, str reduce, Tensor!? out=None)",
     [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string reduce) {
         return scatter_old(x, dim, index, source, reduce);
     },
     function | method,
     R"(A copy in which `src` is written along a dimension to the places that `index` names.
        >>> wisp.scatter(wisp.zeros(1, 3), 1, wisp.tensor([[2, 0]]), wisp.tensor([[5.0, 6.0]]))
        tensor([[6., 0., 5.]]))"},
    {"scatter(Tensor input, int dim, Tensor index, Number value, *, str reduce, Tensor!? out=None)",
     [](const Tensor& x, int64_t dim, const Tensor& index, Scalar value, std::string reduce) {
         return scatter_old(x, dim, index, filled_source(x, index, value), reduce);
     },
     function | method},
    {"scatter_(Tensor input, int dim, Tensor index, Tensor src, *, str reduce)",
     [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string reduce) {
         assign_inplace(x, scatter_old(before_write(x, source), dim, index, source, reduce), "scatter_");
         return x;
     },
     method},
    {"scatter_(Tensor input, int dim, Tensor index, Number value, *, str reduce)",
     [](const Tensor& x, int64_t dim, const Tensor& index, Scalar value, std::string reduce) {
         assign_inplace(x, scatter_old(before_write(x, x), dim, index, filled_source(x, index, value), reduce), "scatter_");
         return x;
     },
     method},
    WISP_PAIR(scatter_add, "int dim, Tensor index, Tensor src", (const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source),
              scatter_sum(x, dim, index, source, in_place)),
    WISP_REDUCED(scatter_reduce, "src"),
    {"scatter_reduce",
     R"(A copy in which `src` is combined by "sum", "prod", "mean", "amax" or "amin" at the places that `index` names.
        >>> wisp.scatter_reduce(wisp.zeros(2), 0, wisp.tensor([0, 0]), wisp.tensor([1.0, 3.0]), "amax")
        tensor([3., 0.]))"},
    {"index_select(Tensor input, int dim, Tensor index, *, Tensor!? out=None)",
     [](const Tensor& x, int64_t dim, const Tensor& index) { return index_select(x, dim, index); }, stored | function | method,
     R"(The slices that `index` names, along a dimension.
        >>> wisp.index_select(wisp.tensor([[1, 2], [3, 4]]), 1, wisp.tensor([1, 1]))
        tensor([[2, 2],
                [4, 4]]))"},
    {"index_add(Tensor input, int dim, Tensor index, Tensor source, *, Number alpha=1, Tensor!? out=None)",
     [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
         return index_add_any(x, dim, index, source, alpha, false);
     },
     complex_half | function | method,
     R"(A copy in which slices of `source` are added at the places that `index` names.
        >>> wisp.index_add(wisp.zeros(3), 0, wisp.tensor([0, 0]), wisp.tensor([1.0, 2.0]))
        tensor([3., 0., 0.]))"},
    {"index_add_(Tensor input, int dim, Tensor index, Tensor source, *, Number alpha=1)",
     [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
         return index_add_any(x, dim, index, source, alpha, true);
     },
     complex_half | method},
    WISP_PAIR(index_copy, "int dim, Tensor index, Tensor source|tensor2|tensor",
              (const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source), index_copy_any(x, dim, index, source, in_place)),
    WISP_PAIR(index_fill, "int dim, Tensor index, Tensor value", (const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value),
              index_fill_any(x, dim, index, value, in_place)),
    WISP_PAIR(index_fill, "int dim, Tensor index, Number value", (const Tensor& x, int64_t dim, const Tensor& index, Scalar value),
              index_fill_number(x, dim, index, value, in_place)),
    WISP_REDUCED(index_reduce, "source"),
    {"index_reduce",
     R"(A copy in which slices are combined with those of `source` by "prod", "mean", "amax" or "amin".
        >>> wisp.index_reduce(wisp.ones(2), 0, wisp.tensor([0, 0]), wisp.tensor([2.0, 3.0]), "prod")
        tensor([6., 1.]))"},
    {"take_along_dim(Tensor input, Tensor indices, int? dim=None, *, Tensor!? out=None)",
     [](const Tensor& x, const Tensor& indices, std::optional<int64_t> dim) { return take_along_dim(x, indices, dim); }, function | method,
     R"(Elements picked along a dimension, with broadcasting.
        >>> wisp.take_along_dim(wisp.tensor([[3, 1, 2]]), wisp.tensor([[1, 2, 0]]), dim=1)
        tensor([[1, 2, 3]]))"},
    {"index_copy", complex_half | in_widest,
     R"(A copy in which slices are replaced at the places that `index` names.
        >>> wisp.index_copy(wisp.zeros(3), 0, wisp.tensor([2]), wisp.tensor([5.0]))
        tensor([0., 0., 5.]))"},
    {"index_fill", complex_half,
     R"(A copy in which slices are filled with a number.
        >>> wisp.index_fill(wisp.zeros(3), 0, wisp.tensor([0, 2]), 1)
        tensor([1., 0., 1.]))"},
    {"scatter_add", cuda_widest,
     R"(A copy in which `src` is added along a dimension at the places that `index` names.
        >>> wisp.scatter_add(wisp.zeros(3), 0, wisp.tensor([1, 1]), wisp.ones(2))
        tensor([0., 2., 0.]))"},
    {"scatter_", documented_method("scatter_(dim, index, src, *, reduce=None)")},
    {"index_fill_", complex_half},
    {"index_copy_", complex_half | documented_method("index_copy_(dim, index, tensor)")},
};

}  // namespace wisp
