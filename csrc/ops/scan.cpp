// Front doors of scans: cumsum, cumprod, cummax, cummin, logcumsumexp; diff.
#include "scan.h"

#include <cmath>

#include "../kernels/scan.h"
#include "../autograd/told.h"
#include "../python/registry.h"
#include "gather.h"
#include "reduce.h"

namespace wisp {

using kernels::Scan;

// Runs the kernel along dim of a contiguous tensor; half precision is widened and cut again.
static Tensor run_scan(Scan kind, const Tensor& x, int64_t dim, const Tensor& indices) {
    if (is_reduced(x.dtype())) return to(run_scan(kind, to(x, DType::f32), dim, indices), x.dtype());
    const Tensor in = contiguous(x);
    Tensor y = empty(x.sizes(), x.dtype());
    int64_t outer = 1, inner = 1;
    for (int64_t i = 0; i < x.dim(); i++) {
        if (i < dim) outer *= x.size(i);
        if (i > dim) inner *= x.size(i);
    }
    Unlocked unlocked(x.numel());
    kernels::scan().scan(kind, y.device_data(), indices ? indices.device_data<int64_t>() : nullptr, in.device_data(), x.dtype(), outer,
                         x.dim() ? x.size(dim) : 1, inner);
    return y;
}
static Tensor run_plain(Scan kind, const Tensor& x, int64_t dim, const Tensor& indices = {}) {
    GradMode off(false);
    return run_scan(kind, x, dim, indices);
}

static DType scan_dtype(const Tensor& x, std::optional<DType> dtype) {
    return dtype ? *dtype : is_integral(x.dtype()) ? DType::i64 : x.dtype();
}
// Integers run in int64 and are cut to what was asked for.
static Tensor run_sums(Scan kind, const Tensor& x, int64_t dim) {
    if (!is_integral(x.dtype()) || x.dtype() == DType::i64) return run_plain(kind, x, dim);
    return to(run_plain(kind, to(x, DType::i64), dim), x.dtype());
}

static Tensor from_the_end(const Tensor& x, int64_t dim) { return flip(cumsum(flip(x, {dim}), dim), {dim}); }

Tensor cumsum(const Tensor& x, int64_t dim) { return cumsum(x, dim, {}); }
Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
    dim = wrap_dim(dim, x.dim());
    if (const DType d = scan_dtype(x, dtype); d != x.dtype()) return cumsum(to(x, d), dim, d);
    Tensor y = run_sums(Scan::sum, x, dim);
    if (needs_grad(x))
        record(y, "CumsumBackward0", {x}, {},
               told<"dim">(
                   [dim](Backward& bw) {
                       const Tensor g = bw.grad();
                       bw.set(0, g.dim() == 0 ? g : from_the_end(g, dim));
                   },
                   dim));
    return y;
}

// dy_i/dx_k = the product of x_j over j <= i, j != k: y_i / x_k where that can be divided; at the first zero of a
// line the products without it; beyond it nothing.
static Tensor cumprod_gradient(const Tensor& g, const Tensor& x, const Tensor& y, int64_t dim, bool create_graph) {
    const Tensor zero = eq(detach(x), Scalar(0));
    if (!is_nonzero(any(zero))) return div(from_the_end(mul(g, conj(y)), dim), conj(x));
    if (create_graph) {  // element by element: products that leave x_k out, which can be differentiated anywhere
        const int64_t n = x.size(dim);
        TensorList parts;
        Tensor before = ones_like(narrow(x, dim, 0, 1));
        for (int64_t k = 0; k < n; k++) {
            Tensor others = before;
            if (k + 1 < n) others = cat({before, mul(before, cumprod(narrow(x, dim, k + 1, n - k - 1), dim, {}))}, dim);
            parts.push_back(sum(mul(narrow(g, dim, k, n - k), conj(others)), {dim}, true));
            before = mul(before, narrow(x, dim, k, 1));
        }
        return cat(parts, dim);
    }
    const Tensor first = logical_and(zero, eq(cumsum(zero, dim), Scalar(1)));
    const Tensor without = cumprod(where(first, Scalar(1), x), dim, {});
    const Tensor divided = div(from_the_end(mul(g, conj(y)), dim), conj(where(zero, Scalar(1), x)));
    return where(first, from_the_end(mul(g, conj(without)), dim), where(zero, Scalar(0), divided));
}

Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
    dim = wrap_dim(dim, x.dim());
    if (const DType d = scan_dtype(x, dtype); d != x.dtype()) return cumprod(to(x, d), dim, d);
    Tensor y = run_sums(Scan::prod, x, dim);
    if (needs_grad(x))
        record(y, "CumprodBackward0", {x}, {x, y},
               told<"dim | self result">(
                   [dim](Backward& bw) {
                       const Tensor g = bw.grad(), x = bw.saved(0);
                       bw.set(0, x.dim() == 0 || x.numel() == 0 ? g : cumprod_gradient(g, x, bw.saved(1), dim, bw.create_graph));
                   },
                   dim));
    return y;
}

static std::tuple<Tensor, Tensor> running_extreme(Scan kind, const Tensor& x, int64_t dim) {
    const char* name = kind == Scan::max ? "cummax" : "cummin";
    if (is_complex(x.dtype())) throw RuntimeError(name, "(): not supported for complex tensors, got ", x.dtype());
    if (x.dim() == 0 && dim != 0 && dim != -1) throw IndexError(name, "(): Expected reduction dim -1 or 0 for scalar but got ", dim);
    dim = wrap_dim(dim, x.dim());
    Tensor indices = empty(x.sizes(), DType::i64);
    Tensor y = run_plain(kind, x, dim, indices);
    if (needs_grad(x))
        record(y, kind == Scan::max ? "CummaxBackward0" : "CumminBackward0", {x}, {indices},
               told<"dim | indices">(
                   [dim](Backward& bw) {
                       const Tensor g = bw.grad();
                       bw.set(0, g.dim() == 0 || g.numel() == 0 ? g : scatter_add(zeros(g.sizes(), g.dtype()), dim, bw.saved(0), g));
                   },
                   dim));
    return {y, indices};
}

Tensor logcumsumexp(const Tensor& x, int64_t dim) {
    if (is_integral(x.dtype())) throw RuntimeError("logcumsumexp: expected a floating point or complex tensor, got ", x.dtype());
    dim = wrap_dim(dim, x.dim());
    Tensor y = run_plain(Scan::logsumexp, x, dim);
    if (needs_grad(x))
        record(y, "LogcumsumexpBackward0", {x}, {x, y},
               told<"dim | self result">(
                   [dim](Backward& bw) {
                       const Tensor g = bw.grad(), x = bw.saved(0), y = bw.saved(1);
                       if (g.dim() == 0 || g.numel() == 0) return bw.set(0, g);
                       auto reversed = [&](const Tensor& t) { return flip(logcumsumexp(flip(t, {dim}), dim), {dim}); };
                       if (bw.create_graph || is_complex(x.dtype())) {
                           // exp(x_k) * sum over i >= k of g_i exp(-y_i), shifted by the line's largest value.
                           Tensor high = amax(detach(is_complex(x.dtype()) ? real(x) : x), {dim}, true);
                           high = where(isfinite(high), high, Scalar(0.0));
                           return bw.set(0, mul(conj(exp(sub(x, high))), from_the_end(mul(g, conj(exp(sub(high, y)))), dim)));
                       }
                       // In logarithms, positive and negative parts apart, so that nothing overflows.
                       const Tensor size = log(abs(g));
                       const Scalar nothing(-HUGE_VAL);
                       const Tensor up = where(gt(g, Scalar(0)), size, nothing), down = where(lt(g, Scalar(0)), size, nothing);
                       bw.set(0, sub(exp(add(reversed(sub(up, y)), x)), exp(add(reversed(sub(down, y)), x))));
                   },
                   dim));
    return y;
}

static Tensor diff(const Tensor& x, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
    if (x.dim() == 0) throw RuntimeError("diff expects input to be at least one-dimensional");
    if (n < 0) throw RuntimeError("order must be non-negative but got ", n);
    dim = wrap_dim(dim, x.dim());
    for (const Tensor& t : {prepend, append}) {
        if (!t) continue;
        if (t.dim() != x.dim()) throw RuntimeError("diff expects prepend or append to be the same dimension as input");
        for (int64_t i = 0; i < x.dim(); i++)
            if (i != dim && t.size(i) != x.size(i))
                throw RuntimeError("diff expects the shape of tensor to prepend or append to match that of input except along the ",
                                   "differencing dimension; input.size(", i, ") = ", x.size(i), ", but got tensor.size(", i,
                                   ") = ", t.size(i));
    }
    if (n == 0) {
        Tensor y = zeros_like(x);
        return copy_(y, x);
    }
    Tensor y = x;
    if (prepend || append) {
        TensorList parts;
        if (prepend) parts.push_back(prepend);
        parts.push_back(x);
        if (append) parts.push_back(append);
        y = cat(parts, dim);
    }
    if (n >= y.size(dim) || y.numel() == 0) return clone(narrow(y, dim, 0, std::max<int64_t>(y.size(dim) - n, 0)));
    for (int64_t i = 0; i < n; i++) {
        const int64_t kept = y.size(dim) - 1;
        const Tensor later = narrow(y, dim, 1, kept), earlier = narrow(y, dim, 0, kept);
        y = x.dtype() == DType::boolean ? logical_xor(later, earlier) : sub(later, earlier);
    }
    return y;
}

static const Operators operators = {
    {"cumsum(Tensor input, int dim, dtype? dtype=None, *, Tensor^? out=None)",
     [](const Tensor& x, int64_t dim, std::optional<DType> dtype) { return cumsum(x, dim, dtype); },
     function | method | inplace | along_dim | cuda_float32,
     R"(The sums of the elements so far, along a dimension.
        >>> wisp.cumsum(wisp.tensor([1, 2, 3, 4]), dim=0)
        tensor([ 1,  3,  6, 10]))"},
    {"cumprod(Tensor input, int dim, dtype? dtype=None, *, Tensor^? out=None)",
     [](const Tensor& x, int64_t dim, std::optional<DType> dtype) { return cumprod(x, dim, dtype); },
     function | method | inplace | along_dim | cuda_float32,
     R"(The products of the elements so far, along a dimension.
        >>> wisp.cumprod(wisp.tensor([1, 2, 3, 4]), dim=0)
        tensor([ 1,  2,  6, 24]))"},
    {"cummax(Tensor input, int dim, *, Tensor!? out=None) -> (values, indices)",
     [](const Tensor& x, int64_t dim) { return running_extreme(Scan::max, x, dim); }, function | method | along_dim,
     R"(The largest element so far, along a dimension, and where it was.
        >>> wisp.cummax(wisp.tensor([1, 3, 2]), dim=0).values
        tensor([1, 3, 3]))"},
    {"cummin(Tensor input, int dim, *, Tensor!? out=None) -> (values, indices)",
     [](const Tensor& x, int64_t dim) { return running_extreme(Scan::min, x, dim); }, function | method | along_dim,
     R"(The smallest element so far, along a dimension, and where it was.
        >>> wisp.cummin(wisp.tensor([3, 1, 2]), dim=0).values
        tensor([3, 1, 1]))"},
    {"logcumsumexp(Tensor input, int dim, *, Tensor!? out=None)", [](const Tensor& x, int64_t dim) { return logcumsumexp(x, dim); },
     function | method | along_dim,
     R"(The logarithm of the sums of exponentials so far, without overflow.
        >>> wisp.logcumsumexp(wisp.tensor([0.0, 0.0, 0.0]), dim=0)
        tensor([0.0000, 0.6931, 1.0986]))"},
    {"diff(Tensor input, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None, *, Tensor? out=None)",
     [](const Tensor& x, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) { return diff(x, n, dim, prepend, append); },
     complex_half | function | method | along_dim,
     R"(The differences of neighbours along a dimension, `n` times.
        >>> wisp.diff(wisp.tensor([1, 4, 9, 16]))
        tensor([3, 5, 7]))"},
};

}  // namespace wisp
