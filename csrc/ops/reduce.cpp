// Front doors of reductions: sum, mean, prod, max, min, any, all, var, std, norms, logsumexp and what is made of them.
#include "reduce.h"

#include <cmath>

#include "../autograd/told.h"
#include "../autograd/whole.h"
#include "../compile/tape.h"
#include "../kernels/reduce.h"
#include "../python/registry.h"
#include "gather.h"
#include "scan.h"

namespace wisp {

using kernels::ReduceArguments;
using kernels::Reduction;

uint64_t dims_mask(const Tensor& x, const std::optional<Dims>& dims) {
    const int64_t n = x.dim();
    if (n > 64) throw RuntimeError("only tensors with up to 64 dims are supported by reductions, got one of ", n);
    if (!dims || dims->empty()) return n >= 64 ? ~uint64_t(0) : (uint64_t(1) << n) - 1;
    uint64_t mask = 0;
    for (int64_t d : wrap_dims(*dims, n))
        if (n > 0) mask |= uint64_t(1) << d;
    return mask;
}

Dims reduced_sizes(const Dims& sizes, uint64_t mask, bool keepdim) {
    Dims r;
    for (int64_t i = 0; i < sizes.size(); i++) {
        if (!(mask >> i & 1)) r.push_back(sizes[i]);
        else if (keepdim) r.push_back(1);
    }
    return r;
}

int64_t reduced_count(const Dims& sizes, uint64_t mask) {
    int64_t n = 1;
    for (int64_t i = 0; i < sizes.size(); i++)
        if (mask >> i & 1) n *= sizes[i];
    return n;
}

Tensor unreduced(const Tensor& y, const Dims& sizes, uint64_t mask, bool keepdim) {
    return expand(keepdim || y.dim() == 0 ? y : view(y, reduced_sizes(sizes, mask, true)), sizes);
}

// y kept as it is used in formulas: with the reduced dimensions as ones.
static Tensor with_ones(const Tensor& y, const Dims& sizes, uint64_t mask, bool keepdim) {
    return keepdim || y.dim() == 0 ? y : view(y, reduced_sizes(sizes, mask, true));
}

// Runs the kernel; `arguments` has what is particular to the operation.
static void run_reduction(Reduction kind, const Tensor& x, uint64_t mask, const Tensor& out, DType out_dtype,
                          ReduceArguments arguments = {}) {
    arguments.in = noting ? compile::peek(x) : x.device_data();  // notes that read it too can wait
    arguments.in_dtype = x.dtype();
    arguments.sizes = x.sizes().data();
    arguments.strides = x.strides().data();
    arguments.ndim = int(x.dim());
    arguments.reduced = mask;
    arguments.out = out ? out.device_data() : nullptr;
    arguments.out_dtype = out_dtype;
    if (x.device().type == DeviceType::meta) return;
    Unlocked unlocked(x.numel());
    kernels::reduce().reduce(kind, arguments);
}

// In a compiled region sums and maxima can wait: those of rows become part of the program that makes the rows.
static bool note_reduction(const Tensor& y, Reduction kind, const Tensor& x, uint64_t mask, double divisor) {
    if ((kind != Reduction::sum && kind != Reduction::max) || x.numel() == 0 || x.dim() == 0 || mask == 0) return false;
    const int64_t n = x.size(-1);
    // A few long rows are summed in pieces on the CPU (over_batches in cpu/reduce.cpp), which a program does not do.
    const bool in_pieces =
        kind == Reduction::sum && x.device() == Device{} && x.numel() >= 65536 && x.numel() < 8 * 65536 + n && n >= 8 * (x.numel() / n);
    const bool by_row =
        n >= 64 && n <= 16384 && mask == uint64_t(1) << (x.dim() - 1) && x.is_contiguous() && !is_complex(x.dtype()) && !in_pieces;
    kernels::ProgramStep step;
    step.kind = kernels::StepKind::reduce;
    step.compute = step.block = step.result = y.dtype();
    step.reduction = kind;
    step.divisor = divisor;
    const Arg operand(x);
    return compile::note(y, step, &operand, 1, by_row ? 0 : mask);
}

// In a compiled region on a GPU a sum of a few slices is their sum one by one, which is fused with what makes and what uses them. An
// empty tensor: it is none.
static Tensor sum_of_few(const Tensor& x, uint64_t mask, bool keepdim, DType dtype) {
    if (!x.is_cuda() || x.dim() < 2 || x.dim() > 5 || !is_floating(x.dtype()) || !is_floating(dtype) || x.numel() == 0) return {};
    int64_t dim = -1;
    for (int64_t i = 0; i < x.dim(); i++)
        if (mask >> i & 1 && x.size(i) > 1) {
            if (dim >= 0) return {};
            dim = i;
        }
    if (dim < 0 || dim == x.dim() - 1 || x.size(dim) > 8) return {};
    GradMode off(false);
    const DType wide = promote(compute_dtype(x.dtype()), compute_dtype(dtype));
    Tensor sum;
    for (int64_t i = 0; i < x.size(dim); i++) {
        const Tensor next = to(alias(x, x.layout().select(dim, i)), wide);
        sum = sum ? add(sum, next) : next;
    }
    return alias(contiguous(to(sum, dtype)),
                 Layout{reduced_sizes(x.sizes(), mask, keepdim), contiguous_strides(reduced_sizes(x.sizes(), mask, keepdim)), 0});
}

static Tensor reduce(Reduction kind, const Tensor& x, uint64_t mask, bool keepdim, DType dtype, ReduceArguments arguments = {},
                     Out out = {}) {
    if (noting && kind == Reduction::sum && arguments.divisor == 1)
        if (Tensor y = sum_of_few(x, mask, keepdim, dtype)) return y;
    const Dims sizes = reduced_sizes(x.sizes(), mask, keepdim);
    Tensor y = noting ? Tensor() : out.take_apart(sizes, dtype, lies_as_new);
    if (!y) y = empty(sizes, dtype);
    if (noting && note_reduction(y, kind, x, mask, arguments.divisor)) return y;
    run_reduction(kind, x, mask, y, dtype, arguments);
    return y;
}

// --- sums ---------------------------------------------------------------------------------------------------------

static DType sum_dtype(const Tensor& x, std::optional<DType> dtype) {
    return dtype ? *dtype : is_integral(x.dtype()) ? DType::i64 : x.dtype();
}
// All of a few floats, in PyTorch's order: eight lanes with four accumulators, then what is left over, then lane by lane.
// Iterations that amplify rounding (L-BFGS) then take the same path as there.
static float short_sum(const float* x, int64_t n) {
    const int64_t lanes = n < 8 ? 1 : 8, rows = n / lanes;
    float sums[4][8] = {};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < lanes; k++) sums[i < rows / 4 * 4 ? i % 4 : 0][k] += x[i * lanes + k];
    float rest = 0, total = 0;
    for (int64_t i = rows * lanes; i < n; i++) rest += x[i];
    for (int64_t k = 0; k < lanes; k++) {
        const float lane = sums[0][k] + sums[1][k] + sums[2][k] + sums[3][k];
        total = k ? total + lane : lane + rest;
    }
    return total;
}

// The kernel computes in int64, so that a sum asked for in fewer bits is cut at the end, which is the same.
static Tensor sum_masked(const Tensor& x, uint64_t mask, bool keepdim, std::optional<DType> dtype, const char* name, Out out = {}) {
    const DType d = sum_dtype(x, dtype);
    if (is_complex(x.dtype()) && !is_complex(d)) return sum_masked(to(x, d), mask, keepdim, d, name);
    if (d == DType::boolean) return reduce(Reduction::any, x, mask, keepdim, d);
    Tensor y;
    if (is_integral(d) && !is_integral(x.dtype())) {
        y = reduce(Reduction::sum, to(x, d), mask, keepdim, d);
    } else if (x.numel() <= 64 && x.dtype() == DType::f32 && d == DType::f32 && x.is_contiguous() &&
               reduced_count(x.sizes(), mask) == x.numel() && x.numel() > 0 && x.device().type == DeviceType::cpu) {
        y = empty(reduced_sizes(x.sizes(), mask, keepdim), d);
        *y.data<float>() = short_sum(x.data<float>(), x.numel());
    } else {
        y = reduce(Reduction::sum, x, mask, keepdim, d, {}, out);
    }
    if (is_differentiable(d) && needs_grad(x))
        record(y, name, {x}, {},
               told<"dim keepdim self_sym_sizes">(batched<1>([sizes = x.sizes()](Backward& bw, ToldDims dims, bool keepdim) {
                                                      bw.set(0, bw.batch
                                                                    ? unreduced(bw.grad(), bw.with_batch(sizes), dims.mask << 1, keepdim)
                                                                    : unreduced(bw.grad(), sizes, dims.mask, keepdim));
                                                  }),
                                                  ToldDims{mask}, keepdim));
    return y;
}

Tensor sum(const Tensor& x) { return sum_masked(x, dims_mask(x, {}), false, {}, "SumBackward0"); }
Tensor sum(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
    return sum_masked(x, dims_mask(x, dims), keepdim, dtype, "SumBackward1");
}

static Tensor mean_masked(const Tensor& x, uint64_t mask, bool keepdim, std::optional<DType> dtype, const char* name, Out out = {}) {
    const DType d = dtype.value_or(x.dtype());
    if (!is_differentiable(d))
        throw RuntimeError("mean(): could not infer output dtype. ", dtype ? "Optional" : "Input",
                           " dtype must be either a floating point or complex dtype. Got: ", type_name(d));
    if (is_complex(x.dtype()) && !is_complex(d)) return mean_masked(to(x, d), mask, keepdim, d, name);
    ReduceArguments arguments{};
    const double n = double(reduced_count(x.sizes(), mask));
    arguments.divisor = n;
    Tensor y = reduce(Reduction::sum, x, mask, keepdim, d, arguments, out);
    if (needs_grad(x))
        record(y, name, {x}, {},
               told<"dim keepdim self_sym_numel self_sym_sizes">(
                   batched<1>([sizes = x.sizes()](Backward& bw, ToldDims dims, bool keepdim) {
                       const Tensor g = div(bw.grad(), Scalar(double(reduced_count(sizes, dims.mask))));
                       bw.set(0, bw.batch ? unreduced(g, bw.with_batch(sizes), dims.mask << 1, keepdim)
                                          : unreduced(g, sizes, dims.mask, keepdim));
                   }),
                   ToldDims{mask}, keepdim));
    return y;
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
    return mean_masked(x, dims_mask(x, dims), keepdim, dtype, "MeanBackward1");
}

Tensor nansum(const Tensor& x, const std::optional<Dims>& dims, bool keepdim, std::optional<DType> dtype) {
    if (is_complex(x.dtype())) throw RuntimeError("nansum does not support complex inputs");
    const uint64_t mask = dims_mask(x, dims);
    if (!is_floating(x.dtype())) return sum_masked(x, mask, keepdim, dtype, "SumBackward1");
    if (dtype && *dtype != x.dtype())
        return nansum(to(is_integral(*dtype) && is_floating(x.dtype()) ? where(isnan(x), Scalar(0), x) : x, *dtype), dims, keepdim, dtype);
    Tensor y = reduce(Reduction::nansum, x, mask, keepdim, x.dtype());
    if (needs_grad(x))
        record(y, "NansumBackward0", {x}, {x},
               told<"dim keepdim | self">(
                   [mask, keepdim](Backward& bw) {
                       const Tensor x = bw.saved(0);
                       bw.set(0, mul(unreduced(bw.grad(), x.sizes(), mask, keepdim), logical_not(isnan(x))));
                   },
                   ToldDims{mask}, keepdim));
    return y;
}

static Tensor nanmean(const Tensor& x, const std::optional<Dims>& dims, bool keepdim, std::optional<DType> dtype) {
    if (!is_differentiable(x.dtype()))
        throw RuntimeError(
            "nanmean(): expected input to have floating point or "
            "complex dtype but got ",
            type_name(x.dtype()));
    const Dims d = dims.value_or(Dims());
    return div(nansum(x, dims, keepdim, dtype), sum(logical_not(isnan(detach(x))), d, keepdim));
}

Tensor sum_to_size(const Tensor& x, const Dims& sizes) {
    if (x.sizes() == sizes) return x;
    if (!is_expandable(sizes, x.sizes())) throw RuntimeError("size {", sizes, "} is not expandable to size {", x.sizes(), "}.");
    const int64_t extra = x.dim() - sizes.size();
    uint64_t mask = 0;
    for (int64_t i = 0; i < x.dim(); i++)
        if (i < extra || (sizes[i - extra] == 1 && x.size(i) != 1)) mask |= uint64_t(1) << i;
    // Where all that is summed is in front, the result has its shape at once: a view would not be its memory's only owner.
    const bool in_front = mask == (uint64_t(1) << extra) - 1;
    Tensor y = mask ? sum_masked(x, mask, !in_front, {}, "SumBackward1") : x;
    return y.sizes() == sizes ? y : view(y, sizes);
}

// --- products -----------------------------------------------------------------------------------------------------

// The product of all the others at each place along dim.
static Tensor product_of_others(const Tensor& x, int64_t dim) {
    const int64_t n = x.size(dim);
    Dims one = x.sizes();
    one[dim] = 1;
    const Tensor start = ones(one, x.dtype());
    const Tensor before = cumprod(cat({start, narrow(x, dim, 0, n - 1)}, dim), dim, {});
    const Tensor after = flip(cumprod(cat({start, flip(narrow(x, dim, 1, n - 1), {dim})}, dim), dim, {}), {dim});
    return mul(before, after);
}

Tensor prod(const Tensor& x, std::optional<int64_t> dim, bool keepdim, std::optional<DType> dtype) {
    const DType d = sum_dtype(x, dtype);
    if (d != x.dtype() && !(is_integral(d) && is_integral(x.dtype()))) return prod(to(x, d), dim, keepdim, d);
    const uint64_t mask = dims_mask(x, dim ? std::optional<Dims>(Dims{*dim}) : std::nullopt);
    Tensor y = d == DType::boolean ? reduce(Reduction::all, x, mask, keepdim, d) : reduce(Reduction::prod, x, mask, keepdim, d);
    if (is_differentiable(d) && needs_grad(x))
        record(y, dim ? "ProdBackward1" : "ProdBackward0", {x}, {x, y},
               told<"dim keepdim | self result">(
                   [mask, keepdim, all = !dim](Backward& bw) {
                       const Tensor x = bw.saved(0), y = bw.saved(1);
                       const Tensor g = unreduced(bw.grad(), x.sizes(), mask, keepdim);
                       if (x.dim() == 0) {
                           bw.set(0, mul(g, pow(x, Scalar(0))));
                       } else if (x.numel() == 0) {
                           bw.set(0, mul(g, x));
                       } else if (!is_nonzero(any(eq(detach(x), Scalar(0))))) {
                           bw.set(0, mul(g, conj(div(unreduced(y, x.sizes(), mask, keepdim), x))));
                       } else if (all) {
                           const Tensor others = product_of_others(reshape(x, {x.numel()}), 0);
                           bw.set(0, mul(g, conj(reshape(others, x.sizes()))));
                       } else {
                           int64_t dim = 0;
                           while (!(mask >> dim & 1)) dim++;
                           bw.set(0, mul(g, conj(product_of_others(x, dim))));
                       }
                   },
                   dim.value_or(0), keepdim));
    return y;
}

// --- extremes -----------------------------------------------------------------------------------------------------

static const char* name_of_extreme(Reduction kind) { return kind == Reduction::max ? "max" : "min"; }

static void check_ordered(const char* name, const Tensor& x) {
    if (is_complex(x.dtype())) throw RuntimeError(name, "(): not supported for complex tensors, got ", x.dtype());
}
static void check_not_empty(const char* name, const Tensor& x, uint64_t mask) {
    if (product(reduced_sizes(x.sizes(), mask, false)) == 0) return;
    for (int64_t i = 0; i < x.dim(); i++)
        if ((mask >> i & 1) && x.size(i) == 0) throw IndexError(name, "(): Expected reduction dim ", i, " to have non-zero size.");
}

// Where x is the extreme y; NaN is itself there.
static Tensor at_extreme(const Tensor& x, const Tensor& y) {
    const Tensor here = eq(x, y);
    return is_floating(x.dtype()) ? logical_or(here, logical_and(isnan(x), isnan(y))) : here;
}

// The gradient of amax, amin and of max, min over everything is shared evenly among equal extremes.
static Tensor shared_gradient(const Tensor& g, const Tensor& x, const Tensor& y, uint64_t mask, bool keepdim) {
    const Tensor where_ = at_extreme(detach(x), with_ones(detach(y), x.sizes(), mask, keepdim));
    Dims dims;
    for (int64_t i = 0; i < x.dim(); i++)
        if (mask >> i & 1) dims.push_back(i);
    const Tensor count = x.dim() ? sum(where_, dims, true) : to(where_, DType::i64);
    return mul(div(with_ones(g, x.sizes(), mask, keepdim), count), where_);
}

static void record_extreme(const Tensor& y, const Tensor& x, uint64_t mask, bool keepdim, const char* grad_name) {
    if (needs_grad(x))
        record(y, grad_name, {x}, {x, y},
               [mask, keepdim](Backward& bw) { bw.set(0, shared_gradient(bw.grad(), bw.saved(0), bw.saved(1), mask, keepdim)); });
}

static Tensor extreme_value(Reduction kind, const Tensor& x, uint64_t mask, bool keepdim, const char* grad_name, Out out = {}) {
    const Tensor y = reduce(kind, x, mask, keepdim, x.dtype(), {}, out);
    record_extreme(y, x, mask, keepdim, grad_name);
    return y;
}

static Tensor extreme_of_all(Reduction kind, const Tensor& x) {
    const char* name = name_of_extreme(kind);
    check_ordered(name, x);
    if (x.numel() == 0)
        throw RuntimeError(name,
                           "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
                           "dim "
                           "with the 'dim' argument.");
    return extreme_value(kind, x, dims_mask(x, {}), false, kind == Reduction::max ? "MaxBackward1" : "MinBackward1");
}

static Tensor amax_or_amin(Reduction kind, const Tensor& x, const Dims& dims, bool keepdim, Out out = {}) {
    const char* name = kind == Reduction::max ? "amax" : "amin";
    check_ordered(name, x);
    const uint64_t mask = dims_mask(x, dims);
    if (dims.empty() && x.numel() == 0)
        throw RuntimeError(name,
                           "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
                           "dim "
                           "with the 'dim' argument.");
    check_not_empty(name, x, mask);
    return extreme_value(kind, x, mask, keepdim, kind == Reduction::max ? "AmaxBackward0" : "AminBackward0", out);
}
Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) { return amax_or_amin(Reduction::max, x, dims, keepdim); }
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) { return amax_or_amin(Reduction::min, x, dims, keepdim); }

// The gradient goes to the element that was selected along dim.
void record_selection(const Tensor& y, const Tensor& indices, const char* name, const Tensor& x, int64_t dim, bool keepdim) {
    if (!needs_grad(x)) return;
    record(y, name, {x}, {indices},
           told<"dim keepdim self_sym_sizes | indices">(
               [sizes = x.sizes(), dim, keepdim](Backward& bw) {
                   const Tensor g = bw.grad(), indices = bw.saved(0);
                   if (sizes.empty()) return bw.set(0, g);
                   const bool flat = !keepdim;
                   bw.set(0, scatter(zeros(sizes, g.dtype()), dim, flat ? unsqueeze(indices, dim) : indices, flat ? unsqueeze(g, dim) : g));
               },
               dim, keepdim));
}

std::tuple<Tensor, Tensor> extreme(Reduction kind, const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
    const char* name = name_of_extreme(kind);
    check_ordered(name, x);
    const int64_t d = wrap_dim(dim.value_or(0), x.dim());
    const uint64_t mask = dims_mask(x, Dims{d});
    check_not_empty(name, x, mask);
    const Dims sizes = reduced_sizes(x.sizes(), mask, keepdim);
    Tensor values = empty(sizes, x.dtype()), indices = empty(sizes, DType::i64);
    ReduceArguments arguments{};
    arguments.indices = indices.device_data<int64_t>();
    run_reduction(kind, x, mask, values, x.dtype(), arguments);
    record_selection(values, indices, kind == Reduction::max ? "MaxBackward0" : "MinBackward0", x, d, keepdim);
    return {values, indices};
}

Tensor arg_extreme(Reduction kind, const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
    const char* name = kind == Reduction::max ? "argmax" : "argmin";
    check_ordered(name, x);
    const uint64_t mask = dims_mask(x, dim ? std::optional<Dims>(Dims{*dim}) : std::nullopt);
    if (!dim && x.numel() == 0)
        throw IndexError(name,
                         "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
                         "with the 'dim' argument.");
    check_not_empty(name, x, mask);
    Tensor indices = empty(reduced_sizes(x.sizes(), mask, keepdim), DType::i64);
    ReduceArguments arguments{};
    arguments.indices = indices.device_data<int64_t>();
    run_reduction(kind, x, mask, Tensor(), x.dtype(), arguments);
    return indices;
}

static Tensor trace(const Tensor& x) {
    Tensor y;
    {
        GradMode off(false);
        y = sum(diagonal(x));
    }
    if (needs_grad(x))
        record(y, "TraceBackward0", {x}, {}, [rows = x.size(0), columns = x.size(1)](Backward& bw) {
            const int64_t side = std::max(rows, columns);
            const Tensor all = diag_embed(expand(bw.grad(), {side}));
            bw.set(0, narrow(narrow(all, 0, 0, rows), 1, 0, columns));
        });
    return y;
}

std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
    check_ordered("aminmax", x);
    const uint64_t mask = dims_mask(x, dim ? Dims{*dim} : Dims());
    if (!dim && x.numel() == 0)
        throw RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the "
            "operation has no identity.");
    check_not_empty("aminmax", x, mask);
    return whole_of_many("AminmaxBackward0", {x}, [&] {
        const Dims sizes = reduced_sizes(x.sizes(), mask, keepdim);
        const Tensor low = empty(sizes, x.dtype()), high = empty(sizes, x.dtype());
        ReduceArguments arguments;
        arguments.mean = high.device_data();
        run_reduction(Reduction::extremes, x, mask, low, x.dtype(), arguments);
        record_extreme(low, x, mask, keepdim, "AminBackward0");
        record_extreme(high, x, mask, keepdim, "AmaxBackward0");
        return std::tuple{low, high};
    });
}

// --- truth --------------------------------------------------------------------------------------------------------

static Tensor truth(Reduction kind, const Tensor& x, const std::optional<Dims>& dims, bool keepdim) {
    const uint64_t mask = dims && dims->empty() ? 0 : dims_mask(x, dims);  // no dims: each element, unlike in other reductions
    return reduce(kind, x, mask, keepdim, x.dtype() == DType::u8 ? DType::u8 : DType::boolean);
}
Tensor any(const Tensor& x, const std::optional<Dims>& dims, bool keepdim) { return truth(Reduction::any, x, dims, keepdim); }
Tensor all(const Tensor& x, const std::optional<Dims>& dims, bool keepdim) { return truth(Reduction::all, x, dims, keepdim); }
Tensor count_nonzero(const Tensor& x, const std::optional<Dims>& dims) {
    return reduce(Reduction::count_nonzero, x, dims_mask(x, dims), false, DType::i64);
}

bool equal(const Tensor& a, const Tensor& b) {
    check_same_device("equal", a, b);
    if (!(a.sizes() == b.sizes())) return false;
    if (a.numel() == 0) return true;
    GradMode off(false);
    return is_nonzero(all(eq(a, b)));
}

static Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
    if (a.dtype() != b.dtype()) throw RuntimeError(type_name(a.dtype()), " did not match ", type_name(b.dtype()));
    if (rtol < 0) throw RuntimeError("rtol must be greater than or equal to zero, but got ", rtol);
    if (atol < 0) throw RuntimeError("atol must be greater than or equal to zero, but got ", atol);
    GradMode off(false);
    Tensor close = eq(a, b);
    const bool real = is_differentiable(a.dtype());
    if (equal_nan && real) close = logical_or(close, logical_and(ne(a, a), ne(b, b)));
    if (rtol == 0 && atol == 0) return close;
    const Tensor x = real ? a : to(a, DType::f64), y = real ? b : to(b, DType::f64);
    const Tensor allowed = add(mul(abs(y), Scalar(rtol)), Scalar(atol)), error = abs(sub(x, y));
    return logical_or(close, logical_and(isfinite(error), le(error, allowed)));
}

// --- spread -------------------------------------------------------------------------------------------------------

std::tuple<Tensor, Tensor> variance(const Tensor& x, const std::optional<Dims>& dims, double correction, bool keepdim, bool root,
                                    bool want_mean) {
    const char* name = want_mean ? (root ? "std_mean" : "var_mean") : root ? "std" : "var";
    if (!is_differentiable(x.dtype()))
        throw RuntimeError(name,
                           " only supports tensors of floating point or complex "
                           "dtypes, got ",
                           x.dtype());
    const uint64_t mask = dims_mask(x, dims);
    const Dims all_dims = dims.value_or(Dims());
    if (is_complex(x.dtype())) {  // of the real and the imaginary parts together
        Tensor v = add(std::get<0>(variance(real(x), dims, correction, keepdim, false, false)),
                       std::get<0>(variance(imag(x), dims, correction, keepdim, false, false)));
        return {root ? sqrt(v) : v, want_mean ? mean(x, all_dims, keepdim, {}) : Tensor()};
    }
    const Dims sizes = reduced_sizes(x.sizes(), mask, keepdim);
    Tensor v = empty(sizes, x.dtype()), m = want_mean ? empty(sizes, x.dtype()) : Tensor();
    const int64_t n = reduced_count(x.sizes(), mask);
    if (double(n) - correction <= 0)
        warn(str(name,
                 "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input "
                 "numel divided by output numel)."));
    ReduceArguments arguments{};
    arguments.mean = m ? m.device_data() : nullptr;
    arguments.parameter = correction;
    arguments.root = root;
    run_reduction(Reduction::variance, x, mask, v, x.dtype(), arguments);
    if (!needs_grad(x)) return {v, m};
    auto gradient = [mask, keepdim, correction, root](Backward& bw) {
        const Tensor x = bw.saved(0);
        const Dims& sizes = x.sizes();
        const int64_t n = reduced_count(sizes, mask);
        Dims dims;
        for (int64_t i = 0; i < x.dim(); i++)
            if (mask >> i & 1) dims.push_back(i);
        Tensor total;
        if (bw.has_grad(0)) {
            Tensor g = bw.grad(0);
            if (root) {
                const Tensor y = bw.saved(1);
                g = where(eq(detach(y), Scalar(0)), Scalar(0.0), div(g, mul(y, Scalar(2.0))));
            }
            const double scale = 2 / (double(n) - correction);
            const Tensor centred = x.dim() ? sub(x, mean(x, dims, true, {})) : sub(x, x);
            total = mul(mul(with_ones(g, sizes, mask, keepdim), Scalar(scale)), centred);
        }
        if (bw.node.outputs.size() > 1 && bw.has_grad(1)) {
            Tensor g = unreduced(div(bw.grad(1), Scalar(double(n))), sizes, mask, keepdim);
            total = total ? add(total, g) : g;
        }
        bw.set(0, total);
    };
    const char* grad_name = want_mean ? (root ? "StdMeanBackward0" : "VarMeanBackward0") : root ? "StdBackward0" : "VarBackward0";
    TensorList results{v};
    if (m) results.push_back(m);
    TensorList saved{x};
    if (root) saved.push_back(v);
    const Tensor inputs[] = {x};
    record_many(spanned(results), grad_name, inputs, spanned(saved),
                told<"dim keepdim correction | self result">(gradient, ToldDims{mask}, keepdim, Scalar(correction)));
    return {v, m};
}

// --- norms --------------------------------------------------------------------------------------------------------

static Tensor norm_gradient(const Tensor& x, const Tensor& g, const Tensor& y, double p, const Dims& dims) {
    const Scalar nought(0.0);
    // g divided by a power of the norm, and 0 where that is 0.
    auto over = [&](const Tensor& power) {
        const Tensor zero = eq(detach(y), Scalar(0));
        return mul(g, where(zero, nought, reciprocal(power)));
    };
    if (p == 0) return zeros_like(x);
    if (p == 1) return mul(sgn(x), g);
    if (p == 2) return mul(x, over(y));
    if (std::isinf(p)) {
        const Tensor here = at_extreme(abs(detach(x)), detach(y));
        const Tensor count = x.dim() ? sum(here, dims, true) : to(here, DType::i64);
        return mul(mul(sgn(x), here), div(g, count));
    }
    const Tensor size = abs(x);
    if (p < 1) {
        const Tensor part = where(eq(detach(size), Scalar(0)), nought, mul(sgn(x), pow(size, Scalar(p - 1))));
        return mul(part, mul(g, pow(y, Scalar(1 - p))));
    }
    const Tensor scale = over(pow(y, Scalar(p - 1)));
    if (p < 2) return mul(mul(sgn(x), pow(size, Scalar(p - 1))), scale);
    return mul(mul(x, pow(size, Scalar(p - 2))), scale);
}

Tensor vector_norm(const Tensor& x, double p, const std::optional<Dims>& dims, bool keepdim, std::optional<DType> dtype) {
    if (!is_differentiable(x.dtype()))
        throw RuntimeError("linalg.vector_norm: Expected a floating point or complex tensor as input. Got ", type_name(x.dtype()));
    if (dtype && *dtype != x.dtype()) return vector_norm(to(x, *dtype), p, dims, keepdim, {});
    const uint64_t mask = dims_mask(x, dims);
    if ((p < 0 || p == HUGE_VAL) && reduced_count(x.sizes(), mask) == 0)
        throw RuntimeError("linalg.vector_norm cannot compute the ", p,
                           " norm on an empty tensor because the operation does not have an identity");
    ReduceArguments arguments{};
    arguments.parameter = p != 0 && reduced_count(x.sizes(), mask) == 1 ? 1 : p;  // of one element: no power that overflows
    Tensor y = reduce(Reduction::norm, x, mask, keepdim, real_of(x.dtype()), arguments);
    if (needs_grad(x))
        record(y, "LinalgVectorNormBackward0", {x}, {x, y},
               told<"dim keepdim ord | self result">(
                   [mask, keepdim, p](Backward& bw) {
                       const Tensor x = bw.saved(0);
                       Dims dims;
                       for (int64_t i = 0; i < x.dim(); i++)
                           if (mask >> i & 1) dims.push_back(i);
                       bw.set(0, norm_gradient(x, with_ones(bw.grad(), x.sizes(), mask, keepdim),
                                               with_ones(bw.saved(1), x.sizes(), mask, keepdim), p, dims));
                   },
                   ToldDims{mask}, keepdim, Scalar(p)));
    return y;
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
    if (is_integral(x.dtype())) return logsumexp(to(x, default_dtype()), dims, keepdim);
    const uint64_t mask = dims_mask(x, dims);
    if (is_complex(x.dtype())) {
        Tensor high = amax(detach(real(x)), dims, true);
        high = where(isfinite(high), high, Scalar(0.0));
        const Tensor total = log(sum(exp(sub(x, high)), dims, keepdim));
        return add(total, keepdim ? high : view(high, reduced_sizes(x.sizes(), mask, false)));
    }
    Tensor y = reduce(Reduction::logsumexp, x, mask, keepdim, x.dtype());
    if (needs_grad(x))
        record(y, "LogsumexpBackward0", {x}, {x, y},
               told<"dim keepdim | self result">(
                   [mask, keepdim](Backward& bw) {
                       const Tensor x = bw.saved(0), y = with_ones(bw.saved(1), x.sizes(), mask, keepdim);
                       const Tensor part = exp(sub(x, y));
                       bw.set(0, mul(with_ones(bw.grad(), x.sizes(), mask, keepdim),
                                     where(isinf(detach(y)), where(eq(detach(x), detach(y)), part, Scalar(0.0)), part)));
                   },
                   ToldDims{mask}, keepdim));
    return y;
}

static double correction_of(const std::optional<Scalar>& correction) { return correction ? correction->to_double() : 1; }

// var and std take `unbiased` in PyTorch's older forms and `correction` in the newer one.
#define WISP_SPREAD(NAME, ROOT)                                                                                                     \
    {#NAME "(Tensor input, bool unbiased, *, Tensor? out=None)",                                                                    \
     [](const Tensor& x, bool unbiased) { return std::get<0>(variance(x, {}, unbiased, false, ROOT, false)); }, function | method}, \
        {#NAME "(Tensor input, int[]? dim, bool unbiased, bool keepdim=False, *, Tensor? out=None)",                                \
         [](const Tensor& x, std::optional<Dims> dim, bool unbiased, bool keepdim) {                                                \
             return std::get<0>(variance(x, dim, unbiased, keepdim, ROOT, false));                                                  \
         },                                                                                                                         \
         function | method},                                                                                                        \
        {#NAME "(Tensor input, int[]? dim=None, *, Number? correction=None, bool keepdim=False, Tensor? out=None)",                 \
         [](const Tensor& x, std::optional<Dims> dim, std::optional<Scalar> correction, bool keepdim) {                             \
             return std::get<0>(variance(x, dim, correction_of(correction), keepdim, ROOT, false));                                 \
         },                                                                                                                         \
         function | method},                                                                                                        \
        {#NAME "_mean(Tensor input, bool unbiased)",                                                                                \
         [](const Tensor& x, bool unbiased) { return variance(x, {}, unbiased, false, ROOT, true); }, function},                    \
        {#NAME "_mean(Tensor input, int[]? dim, bool unbiased, bool keepdim=False)",                                                \
         [](const Tensor& x, std::optional<Dims> dim, bool unbiased, bool keepdim) {                                                \
             return variance(x, dim, unbiased, keepdim, ROOT, true);                                                                \
         },                                                                                                                         \
         function},                                                                                                                 \
    {                                                                                                                               \
        #NAME "_mean(Tensor input, int[]? dim=None, *, Number? correction=None, bool keepdim=False)",                               \
            [](const Tensor& x, std::optional<Dims> dim, std::optional<Scalar> correction, bool keepdim) {                          \
                return variance(x, dim, correction_of(correction), keepdim, ROOT, true);                                            \
            },                                                                                                                      \
            function                                                                                                                \
    }

#define WISP_EXTREME(NAME, KIND, OTHER)                                                                                                    \
    {#NAME "(Tensor input, *, Tensor? out=None)", [](const Tensor& x) { return extreme_of_all(KIND, x); }, function | method},             \
        {#NAME "(Tensor input, Tensor other, *, Tensor? out=None)", [](const Tensor& a, const Tensor& b) { return OTHER(a, b); },          \
         function | method},                                                                                                               \
        {#NAME "(Tensor input, int dim, bool keepdim=False, *, Tensor!? out=None) -> (values, indices)",                                   \
         [](const Tensor& x, int64_t dim, bool keepdim) { return extreme(KIND, x, dim, keepdim); }, function | method},                    \
        {"arg" #NAME "(Tensor input, int? dim=None, bool keepdim=False, *, Tensor!? out=None)",                                            \
         [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) { return arg_extreme(KIND, x, dim, keepdim); }, function | method}, \
    {                                                                                                                                      \
        "a" #NAME "(Tensor input, int[]? dim=(), bool keepdim=False, *, Tensor!? out=None)",                                               \
            [](const Tensor& x, std::optional<Dims> dim, bool keepdim, Out out) {                                                          \
                return amax_or_amin(KIND, x, dim.value_or(Dims()), keepdim, out);                                                          \
            },                                                                                                                             \
            function | method                                                                                                              \
    }

static const Operators operators = {
    {"sum(Tensor input, *, dtype? dtype=None)",
     [](const Tensor& x, std::optional<DType> dtype) { return sum_masked(x, dims_mask(x, {}), false, dtype, "SumBackward0"); },
     function | method | reduces | cuda_float32 | documented_method("sum(dim=None, keepdim=False, dtype=None)"),
     R"(The sum, of all or along dimensions.
        >>> wisp.sum(wisp.tensor([[1, 2], [3, 4]]), dim=0)
        tensor([4, 6]))"},
    {"sum(Tensor input, int[]? dim, bool keepdim=False, dtype? dtype=None, *, Tensor^? out=None)",
     [](const Tensor& x, std::optional<Dims> dim, bool keepdim, std::optional<DType> dtype, Out out) {
         return sum_masked(x, dims_mask(x, dim), keepdim, dtype, "SumBackward1", out);
     },
     function | method},
    {"mean(Tensor input, *, dtype? dtype=None, Tensor^? out=None)",
     [](const Tensor& x, std::optional<DType> dtype) { return mean_masked(x, dims_mask(x, {}), false, dtype, "MeanBackward0"); },
     function | method | reduces | documented_method("mean(dim=None, keepdim=False, *, dtype=None)"),
     R"(The mean, of all or along dimensions.
        >>> wisp.mean(wisp.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=0)
        tensor([2., 3.]))"},
    {"mean(Tensor input, int[]? dim, bool keepdim=False, *, dtype? dtype=None, Tensor^? out=None)",
     [](const Tensor& x, std::optional<Dims> dim, bool keepdim, std::optional<DType> dtype, Out out) {
         return mean_masked(x, dims_mask(x, dim), keepdim, dtype, "MeanBackward1", out);
     },
     function | method},
    {"nansum(Tensor input, int[]? dim=None, bool keepdim=False, dtype? dtype=None, *, Tensor^? out=None)",
     [](const Tensor& x, std::optional<Dims> dim, bool keepdim, std::optional<DType> dtype) { return nansum(x, dim, keepdim, dtype); },
     function | method | reduces,
     R"(The sum of the elements that are not NaN.
        >>> wisp.nansum(wisp.tensor([1.0, wisp.nan, 3.0]))
        tensor(4.))"},
    {"nanmean(Tensor input, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None, Tensor^? out=None)",
     [](const Tensor& x, std::optional<Dims> dim, bool keepdim, std::optional<DType> dtype) { return nanmean(x, dim, keepdim, dtype); },
     function | method | reduces,
     R"(The mean of the elements that are not NaN.
        >>> wisp.nanmean(wisp.tensor([1.0, wisp.nan, 3.0]))
        tensor(2.))"},
    {"prod(Tensor input, *, dtype? dtype=None)", [](const Tensor& x, std::optional<DType> dtype) { return prod(x, {}, false, dtype); },
     function | method | reduces | in_float32 | documented_method("prod(dim=None, keepdim=False, dtype=None)"),
     R"(The product, of all or along a dimension.
        >>> wisp.prod(wisp.tensor([[1, 2], [3, 4]]), dim=1)
        tensor([ 2, 12]))"},
    {"prod(Tensor input, int dim, bool keepdim=False, dtype? dtype=None, *, Tensor^? out=None)",
     [](const Tensor& x, int64_t dim, bool keepdim, std::optional<DType> dtype) { return prod(x, dim, keepdim, dtype); },
     function | method},
    WISP_EXTREME(max, Reduction::max, maximum),
    WISP_EXTREME(min, Reduction::min, minimum),
    {"aminmax(Tensor input, *, int? dim=None, bool keepdim=False, Tensor!? out=None) -> (min, max)",
     [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) { return aminmax(x, dim, keepdim); }, function | method | reduces,
     R"(The smallest and the largest element together.
        >>> wisp.aminmax(wisp.tensor([3, 1, 2]))
        torch.return_types.aminmax(
        min=tensor(1),
        max=tensor(3)))"},
    {"any(Tensor input, int[]? dim=None, bool keepdim=False, *, Tensor&? out=None)",
     [](const Tensor& x, std::optional<Dims> dim, bool keepdim) { return any(x, dim, keepdim); }, stored | function | method | reduces,
     R"(Whether at least one element is true, in all or along dimensions.
        >>> wisp.any(wisp.tensor([[False, False], [True, False]]), dim=1)
        tensor([False,  True]))"},
    {"all(Tensor input, int[]? dim=None, bool keepdim=False, *, Tensor&? out=None)",
     [](const Tensor& x, std::optional<Dims> dim, bool keepdim) { return all(x, dim, keepdim); }, stored | function | method | reduces,
     R"(Whether all elements are true, in all or along dimensions.
        >>> wisp.all(wisp.tensor([[True, False], [True, True]]), dim=1)
        tensor([False,  True]))"},
    {"count_nonzero(Tensor input, int[]? dim=None)", [](const Tensor& x, std::optional<Dims> dim) { return count_nonzero(x, dim); },
     stored | function | method | reduces,
     R"(How many elements are not zero.
        >>> wisp.count_nonzero(wisp.tensor([[0, 1], [2, 3]]), dim=0)
        tensor([1, 2]))"},
    WISP_SPREAD(var, false),
    WISP_SPREAD(std, true),
    {"linalg.vector_norm(Tensor x, Number ord=2, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None, Tensor!? "
     "out=None)",
     [](const Tensor& x, Scalar p, std::optional<Dims> dim, bool keepdim, std::optional<DType> dtype) {
         if (p.is_complex()) throw RuntimeError("linalg.vector_norm: Expected a non-complex scalar as the order of norm.");
         return vector_norm(x, p.to_double(), dim, keepdim, dtype);
     },
     by_complex64 | function | reduces | cuda_float32,
     R"(The norm of the elements, of all or along dimensions: `ord` is a number, inf, -inf or 0.
        >>> wisp.linalg.vector_norm(wisp.tensor([3.0, 4.0]))
        tensor(5.))"},
    {"frobenius_norm(Tensor input, int[] dim, bool keepdim=False, *, Tensor!? out=None)",
     [](const Tensor& x, Dims dim, bool keepdim) { return vector_norm(x, 2, dim, keepdim, {}); },
     by_complex64 | function | reduces | cuda_float32,
     R"(The square root of the sum of squares, along dimensions.
        >>> wisp.frobenius_norm(wisp.tensor([[3.0, 4.0], [6.0, 8.0]]), 1)
        tensor([ 5., 10.]))"},
    {"logsumexp(Tensor input, int[] dim, bool keepdim=False, *, Tensor? out=None)",
     [](const Tensor& x, Dims dim, bool keepdim) { return logsumexp(x, dim, keepdim); }, function | method | reduces | cuda_float32,
     R"(The logarithm of the sum of exponentials along dimensions, without overflow.
        >>> wisp.logsumexp(wisp.tensor([1000.0, 1000.0]), dim=0)
        tensor(1000.6932))"},
    {"special.logsumexp(Tensor input, int[] dim, bool keepdim=False, *, Tensor? out=None)",
     [](const Tensor& x, Dims dim, bool keepdim) { return logsumexp(x, dim, keepdim); }, function | reduces | cuda_float32,
     R"(The logarithm of the sum of exponentials along dimensions.
        >>> wisp.special.logsumexp(wisp.tensor([0.0, 0.0]), 0)
        tensor(0.6931))"},
    {"equal(Tensor input, Tensor other)", [](const Tensor& a, const Tensor& b) { return equal(a, b); }, stored | function | method,
     R"(Whether two tensors have the same shape and the same elements.
        >>> wisp.equal(wisp.tensor([1, 2]), wisp.tensor([1, 2]))
        True)"},
    {"isclose(Tensor input, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)",
     [](const Tensor& a, const Tensor& b, double rtol, double atol, bool nan) { return isclose(a, b, rtol, atol, nan); },
     stored | function | method | elementwise,
     R"(Where `|input - other| <= atol + rtol * |other|`.
        >>> wisp.isclose(wisp.tensor([1.0, 2.0]), wisp.tensor([1.0 + 1e-9, 2.1]))
        tensor([ True, False]))"},
    {"allclose(Tensor input, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)",
     [](const Tensor& a, const Tensor& b, double rtol, double atol, bool nan) { return is_nonzero(all(isclose(a, b, rtol, atol, nan))); },
     stored | function | method,
     R"(Whether all elements are close: `|input - other| <= atol + rtol * |other|`.
        >>> wisp.allclose(wisp.tensor([1.0]), wisp.tensor([1.0 + 1e-7]))
        True)"},
    {"sum_to_size(Tensor input, int... size)", [](const Tensor& x, Dims size) { return size.empty() ? sum(x) : sum_to_size(x, size); },
     method,
     R"(The tensor summed to a shape that broadcasts to its own.
        >>> wisp.ones(2, 3).sum_to_size(1, 3)
        tensor([[2., 2., 2.]]))"},
    {"trace(Tensor input)",
     [](const Tensor& x) {
         if (x.dim() != 2) throw RuntimeError("trace: expected a matrix, but got tensor with dim ", x.dim());
         return trace(x);
     },
     function | method | cpu_float32,
     R"(The sum of a matrix's diagonal.
        >>> wisp.trace(wisp.tensor([[1, 2], [3, 4]]))
        tensor(5))"},
    {"amax", reduces,
     R"(The largest elements along dimensions; the gradient is shared among equal ones.
        >>> wisp.amax(wisp.tensor([[1, 5], [3, 2]]), dim=1)
        tensor([5, 3]))"},
    {"amin", reduces,
     R"(The smallest elements along dimensions; the gradient is shared among equal ones.
        >>> wisp.amin(wisp.tensor([[1, 5], [3, 2]]), dim=1)
        tensor([1, 2]))"},
    {"argmax", reduces,
     R"(The index of the largest element, in the flattened tensor or along a dimension.
        >>> wisp.argmax(wisp.tensor([[1, 5], [7, 2]]), dim=1)
        tensor([1, 0]))"},
    {"argmin", reduces,
     R"(The index of the smallest element, in the flattened tensor or along a dimension.
        >>> wisp.argmin(wisp.tensor([[1, 5], [7, 2]]), dim=1)
        tensor([0, 1]))"},
    {"max", reduces | documented_method("max(dim=None, keepdim=False)"),
     R"(The largest element; along a dimension, values and indices; of two tensors, the larger elements.
        >>> wisp.max(wisp.tensor([[1, 5], [7, 2]]), dim=1)
        torch.return_types.max(
        values=tensor([5, 7]),
        indices=tensor([1, 0])))"},
    {"min", reduces | documented_method("min(dim=None, keepdim=False)"),
     R"(The smallest element; along a dimension, values and indices; of two tensors, the smaller elements.
        >>> wisp.min(wisp.tensor([[1, 5], [7, 2]]), dim=1).values
        tensor([1, 2]))"},
    {"std",
     by_complex64 | reduces | documented("std(input, dim=None, *, correction=1, keepdim=False, out=None)") |
         documented_method("std(dim=None, *, correction=1, keepdim=False)"),
     R"(The standard deviation, of all or along dimensions; `correction=1` divides by n - 1.
        >>> wisp.std(wisp.tensor([1.0, 2.0, 3.0]))
        tensor(1.))"},
    {"std_mean", by_complex64 | reduces | documented("std_mean(input, dim=None, *, correction=1, keepdim=False, out=None)"),
     R"(The standard deviation and the mean together.
        >>> wisp.std_mean(wisp.tensor([1.0, 2.0, 3.0]))
        (tensor(1.), tensor(2.)))"},
    {"var",
     by_complex64 | reduces | documented("var(input, dim=None, *, correction=1, keepdim=False, out=None)") |
         documented_method("var(dim=None, *, correction=1, keepdim=False)"),
     R"(The variance, of all or along dimensions; `correction=1` divides by n - 1.
        >>> wisp.var(wisp.tensor([1.0, 2.0, 3.0]))
        tensor(1.))"},
    {"var_mean", by_complex64 | reduces | documented("var_mean(input, dim=None, *, correction=1, keepdim=False, out=None)"),
     R"(The variance and the mean together.
        >>> wisp.var_mean(wisp.tensor([1.0, 2.0, 3.0]))
        (tensor(1.), tensor(2.)))"},
};

}  // namespace wisp
