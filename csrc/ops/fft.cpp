// Front doors of discrete Fourier transforms. Three primitives are differentiable: complex to complex over any dims,
// and along the last dim real to half-complex and back; every public transform is made of these.
#include "../kernels/fft.h"

#include <cmath>

#include "../autograd/whole.h"
#include "../python/registry.h"
#include "ops.h"
#include "views.h"

namespace wisp {
namespace {

bool is_f64(const Tensor& t) { return t.dtype() == DType::f64 || t.dtype() == DType::c128; }

// Dimensions are transformed from the last to the first, as many at a time as the kernels take.
Tensor transform(const Tensor& x, Dims dims, bool forward, double scale) {
    const kernels::FftKernels& fft = kernels::fft();
    Tensor result = alias(x);
    bool in_place = false;  // whether it is contiguous memory of ours
    while (!dims.empty()) {
        Dims order, back(x.dim()), group;
        for (int i = 0; i < fft.most_dims && !dims.empty(); i++) {
            group.insert(0, dims[dims.size() - 1]);
            dims.erase(dims.size() - 1);
        }
        for (int64_t d = 0; d < x.dim(); d++)
            if (!group.contains(d)) order.push_back(d);
        int64_t sizes[3], count = x.numel();
        bool at_end = true;
        for (int64_t i = 0; i < group.size(); i++) {
            at_end = at_end && group[i] == order.size();
            order.push_back(group[i]);
            sizes[i] = x.size(group[i]);
            count /= sizes[i];
        }
        const double factor = dims.empty() ? scale : 1.0;
        auto rows = [&](const Tensor& from, const Tensor& to) {
            Unlocked u(from.numel() * 8);
            fft.rows(kernels::FftKind::complex, is_f64(x), int(group.size()), sizes, from.device_data(), to.device_data(), count, !forward,
                     factor);
        };
        if (at_end || (group.size() == 1 && fft.columns)) {
            const Tensor from = contiguous(result), to = in_place ? from : empty(x.sizes(), x.dtype());
            bool done = at_end;
            if (at_end) {
                rows(from, to);
            } else {
                int64_t inner = 1;
                for (int64_t i = group[0] + 1; i < x.dim(); i++) inner *= x.size(i);
                Unlocked u(from.numel() * 8);
                done = fft.columns(is_f64(x), from.device_data(), to.device_data(), count / inner, sizes[0], inner, !forward, factor);
            }
            if (done) {
                result = to, in_place = true;
                continue;
            }
        }
        for (int64_t i = 0; i < x.dim(); i++) back[order[i]] = i;
        const Tensor from = contiguous(permute(result, order)), to = from.storage() == x.storage() ? empty(from.sizes(), x.dtype()) : from;
        rows(from, to);
        result = permute(to, back), in_place = false;
    }
    return alias(contiguous(result));
}

// scale * the transform of complex x over dims.
Tensor complex_transform(const Tensor& x, const Dims& dims, bool forward, double scale) {
    Tensor y;
    if (dims.empty() || x.numel() == 0) {
        y = contiguous(clone(alias(x)));
    } else {
        y = transform(x, dims, forward, scale);
    }
    if (needs_grad(x))
        record(y, "FftC2CBackward0", {x}, {},
               [dims, forward, scale](Backward& bw) { bw.set(0, complex_transform(bw.grad(), dims, !forward, scale)); });
    return y;
}

// Real numbers that are `value` for the frequencies of a half spectrum that stand for two, and 1 for the others.
Tensor middle_weights(int64_t n, double value, DType dtype) {
    Tensor w = full({n / 2 + 1}, Scalar(value), dtype);
    if (n > 0) fill_(narrow(w, 0, 0, 1), Scalar(1));
    if (n % 2 == 0) fill_(narrow(w, 0, n / 2, 1), Scalar(1));
    return w;
}

Tensor half_to_real(const Tensor& x, int64_t n, double scale);

// scale * the first n / 2 + 1 points of the transform of real x along its last dim.
Tensor real_to_half(const Tensor& x, double scale) {
    const int64_t n = x.size(-1), half = n / 2 + 1, rows = n ? x.numel() / n : 0;
    Dims sizes = x.sizes();
    sizes[x.dim() - 1] = half;
    const bool f64 = is_f64(x);
    const kernels::FftKernels& fft = kernels::fft();
    Tensor y;
    if (rows > 0 && (n % 2 == 0 || fft.odd_real || (n <= fft.most_odd_pairs && rows >= 8))) {
        y = empty(sizes, complex_of(x.dtype()));
        const Tensor from = contiguous(alias(x));
        Unlocked u(from.numel() * 4);
        fft.rows(kernels::FftKind::real_to_half, f64, 1, &n, from.device_data(), y.device_data(), rows, false, scale);
    } else {
        const Tensor all = complex_transform(to(alias(x), complex_of(x.dtype())), {x.dim() - 1}, true, scale);
        y = contiguous(narrow(all, -1, 0, half));
    }
    if (needs_grad(x))
        record(y, "FftR2CBackward0", {x}, {}, [n, scale](Backward& bw) {
            const Tensor g = bw.grad();
            bw.set(0, half_to_real(mul(g, middle_weights(n, 0.5, is_f64(g) ? DType::f64 : DType::f32)), n, scale));
        });
    return y;
}

// scale * the inverse transform, of n real points, of a half spectrum of n / 2 + 1 points along the last dim.
Tensor half_to_real(const Tensor& x, int64_t n, double scale) {
    const int64_t half = n / 2 + 1, rows = x.numel() / half;
    Dims sizes = x.sizes();
    sizes[x.dim() - 1] = n;
    const bool f64 = is_f64(x);
    Tensor y;
    if (rows > 0 && (n % 2 == 0 || kernels::fft().odd_real)) {
        y = empty(sizes, f64 ? DType::f64 : DType::f32);
        const Tensor from = contiguous(alias(x));
        Unlocked u(from.numel() * 8);
        kernels::fft().rows(kernels::FftKind::half_to_real, f64, 1, &n, from.device_data(), y.device_data(), rows, true, scale);
    } else {
        const Tensor known = contiguous(alias(x));
        const Tensor mirrored = conj(flip(narrow(known, -1, 1, half - 1), {-1}));
        y = contiguous(real(complex_transform(cat({known, mirrored}, -1), {x.dim() - 1}, false, scale)));
    }
    if (needs_grad(x))
        record(y, "FftC2RBackward0", {x}, {}, [n, scale](Backward& bw) {
            const Tensor g = bw.grad();
            bw.set(0, mul(real_to_half(g, scale), middle_weights(n, 2.0, g.dtype())));
        });
    return y;
}

// ---- arguments

DType transform_dtype(DType d) {
    if (is_integral(d)) return default_dtype();
    if (d == DType::f16 || d == DType::bf16) throw RuntimeError("Unsupported dtype ", type_name(d));
    return d;
}
Tensor as_real(const Tensor& x, const char* name) {
    if (is_complex(x.dtype())) throw RuntimeError(name, " expects a real input tensor, but got ", type_name(x.dtype()));
    return to(x, transform_dtype(x.dtype()));
}
Tensor as_complex(const Tensor& x) {
    const DType d = transform_dtype(x.dtype());
    return to(x, is_complex(d) ? d : complex_of(d));
}

double scale_of(const std::optional<std::string>& norm, int64_t points, bool forward) {
    if (!norm || *norm == "backward") return forward ? 1.0 : 1.0 / double(points);
    if (*norm == "forward") return forward ? 1.0 / double(points) : 1.0;
    if (*norm == "ortho") return 1.0 / std::sqrt(double(points));
    throw RuntimeError("Invalid normalization mode: \"", *norm, "\"");
}

void check_points(int64_t n) {
    if (n < 1) throw RuntimeError("Invalid number of data points (", n, ") specified");
}

// x with `size` elements along dim: cut off, or filled up with zeros.
Tensor resized(const Tensor& x, int64_t dim, int64_t size) {
    if (x.size(dim) == size) return x;
    if (x.size(dim) > size) return narrow(x, dim, 0, size);
    Dims sizes = x.sizes();
    sizes[dim] = size;
    return embed(x, sizes, Layout{x.sizes(), contiguous_strides(sizes), 0});
}

using Norm = std::optional<std::string>;
using Shape = std::optional<Dims>;

// The dims of a transform and how many points it has along each.
struct Domain {
    Dims dims, sizes;
    int64_t points(int64_t last = -1) const {
        int64_t n = 1;
        for (int64_t i = 0; i < sizes.size(); i++) n = times(n, i == sizes.size() - 1 && last >= 0 ? last : sizes[i]);
        return n;
    }
};

Domain domain_of(const Tensor& x, const Shape& shape, const Shape& dim) {
    Domain d;
    if (dim) {
        for (int64_t i : *dim) {
            if (x.dim() == 0) throw IndexError("Dimension specified as ", i, " but tensor has no dimensions");
            d.dims.push_back(wrap_dim(i, x.dim()));
        }
        for (int64_t i = 0; i < d.dims.size(); i++)
            for (int64_t j = 0; j < i; j++)
                if (d.dims[i] == d.dims[j]) throw RuntimeError("FFT dims must be unique");
    }
    if (shape) {
        if (dim && dim->size() != shape->size()) throw RuntimeError("When given, dim and shape arguments must have the same length");
        if (shape->size() > x.dim())
            throw RuntimeError("Got shape with ", shape->size(), " values but input tensor only has ", x.dim(), " dimensions.");
        if (!dim)
            for (int64_t i = x.dim() - shape->size(); i < x.dim(); i++) d.dims.push_back(i);
    } else if (!dim) {
        for (int64_t i = 0; i < x.dim(); i++) d.dims.push_back(i);
    }
    for (int64_t i = 0; i < d.dims.size(); i++) {
        const int64_t n = shape && (*shape)[i] != -1 ? (*shape)[i] : x.size(d.dims[i]);
        check_points(n);
        d.sizes.push_back(n);
    }
    return d;
}

Tensor resized(Tensor x, const Domain& d) {
    for (int64_t i = 0; i < d.dims.size(); i++) x = resized(x, d.dims[i], d.sizes[i]);
    return x;
}

Dims without_last(const Dims& dims) {
    Dims rest;
    for (int64_t i = 0; i + 1 < dims.size(); i++) rest.push_back(dims[i]);
    return rest;
}

// f applied with `dim` moved to the end.
template <class F> Tensor along(const Tensor& x, int64_t dim, const char* name, F&& f) {
    if (dim == x.dim() - 1) return f(x);
    return whole(name, {x}, [&] { return contiguous(transpose(f(transpose(x, dim, -1)), dim, -1)); });
}

// ---- the public transforms

// The transform of real numbers over the last dims, of which half is computed; an empty tensor where that does not suit.
Tensor real_fftn(const Tensor& input, const Shape& shape, const Shape& dim, const Norm& norm) {
    const auto mirror = kernels::fft().mirror;
    if (!mirror || is_complex(input.dtype()) || needs_grad(input)) return {};
    Tensor x = to(input, transform_dtype(input.dtype()));
    const Domain d = domain_of(x, shape, dim);
    const int64_t rank = d.dims.size(), before = x.dim() - rank;
    if (rank == 0 || d.dims.back() != x.dim() - 1) return {};
    for (const int64_t i : d.dims)
        if (i < before) return {};
    x = resized(x, d);
    if (x.numel() == 0) return {};
    Tensor half = real_to_half(x, scale_of(norm, d.points(), true));
    if (rank > 1) half = complex_transform(half, without_last(d.dims), true, 1.0);
    const Tensor y = empty(x.sizes(), half.dtype());
    const Dims sizes(x.sizes().data() + before, rank);
    Unlocked u(x.numel() * 2);
    mirror(is_f64(x), half.device_data(), y.device_data(), x.numel() / product(sizes), int(rank), sizes.data());
    return y;
}

Tensor fftn(const char*, const Tensor& input, const Shape& shape, const Shape& dim, const Norm& norm, bool forward) {
    if (forward)
        if (const Tensor y = real_fftn(input, shape, dim, norm); y.defined()) return y;
    const Tensor x = as_complex(input);
    const Domain d = domain_of(x, shape, dim);
    return complex_transform(resized(x, d), d.dims, forward, scale_of(norm, d.points(), forward));
}

Tensor rfftn(const char* name, const Tensor& input, const Shape& shape, const Shape& dim, const Norm& norm, bool forward) {
    Tensor x = as_real(input, name);
    const Domain d = domain_of(x, shape, dim);
    if (d.dims.empty()) throw RuntimeError(name, " must transform at least one axis");
    const double scale = scale_of(norm, d.points(), forward);
    x = resized(x, d);
    const Dims rest = without_last(d.dims);
    auto half = [&] { return along(x, d.dims.back(), "FftR2CBackward0", [&](const Tensor& t) { return real_to_half(t, scale); }); };
    if (!forward) {
        const Tensor y = half();
        if (rest.empty()) return conj(y);
        return complex_transform(whole("ConjPhysicalBackward0", {y}, [&] { return conj(y); }), rest, false, 1.0);
    }
    return rest.empty() ? half() : whole("FftR2CBackward0", {x}, [&] { return complex_transform(half(), rest, true, 1.0); });
}

Tensor irfftn(const char* name, const Tensor& input, const Shape& shape, const Shape& dim, const Norm& norm, bool forward) {
    Tensor x = as_complex(input);
    Shape requested = shape;
    int64_t last = -1;
    Domain d;
    if (shape && !shape->empty() && shape->back() != -1) {
        last = shape->back();
        check_points(last);
        (*requested)[requested->size() - 1] = last / 2 + 1;
    }
    d = domain_of(x, requested, dim);
    if (d.dims.empty()) throw RuntimeError(name, " must transform at least one axis");
    if (last < 0) last = 2 * (x.size(d.dims.back()) - 1);
    check_points(last);
    const double scale = scale_of(norm, d.points(last), forward);
    x = resized(x, d);
    const Dims rest = without_last(d.dims);
    if (!rest.empty()) x = complex_transform(x, rest, forward, 1.0);
    if (forward) x = conj(x);
    return along(x, d.dims.back(), "FftC2RBackward0", [&](const Tensor& t) { return half_to_real(t, last, scale); });
}

using Transform = Tensor (*)(const char*, const Tensor&, const Shape&, const Shape&, const Norm&, bool);

template <Transform f>
Tensor one(const char* name, const Tensor& x, std::optional<int64_t> n, int64_t dim, const Norm& norm, bool forward) {
    Shape shape;
    if (n) {
        check_points(*n);
        shape = Dims{*n};
    }
    auto transformed = [&] { return f(name, x, shape, Dims{dim}, norm, forward); };
    // PyTorch transforms real numbers by themselves.
    if (f == fftn && !is_complex(x.dtype())) return whole(forward ? "FftR2CBackward0" : "ConjBackward0", {x}, transformed);
    return transformed();
}

#define WISP_TRANSFORM(NAME, FUNCTION, FORWARD)                                                                                       \
    {"fft." NAME "(Tensor input, int? n=None, int dim=-1, str? norm=None, *, Tensor? out=None)",                                      \
     [](const Tensor& x, std::optional<int64_t> n, int64_t dim, Norm norm) { return one<FUNCTION>(NAME, x, n, dim, norm, FORWARD); }, \
     function},                                                                                                                       \
        {"fft." NAME "2(Tensor input, int[]? s=None, int[] dim=[-2,-1], str? norm=None, *, Tensor? out=None)",                        \
         [](const Tensor& x, Shape s, Dims dim, Norm norm) { return FUNCTION(NAME "2", x, s, dim, norm, FORWARD); }, function},       \
    {                                                                                                                                 \
        "fft." NAME "n(Tensor input, int[]? s=None, int[]? dim=None, str? norm=None, *, Tensor? out=None)",                           \
            [](const Tensor& x, Shape s, Shape dim, Norm norm) { return FUNCTION(NAME "n", x, s, dim, norm, FORWARD); }, function     \
    }

const Operators operators = {
    WISP_TRANSFORM("fft", fftn, true),
    WISP_TRANSFORM("ifft", fftn, false),
    WISP_TRANSFORM("rfft", rfftn, true),
    WISP_TRANSFORM("ihfft", rfftn, false),
    WISP_TRANSFORM("irfft", irfftn, false),
    WISP_TRANSFORM("hfft", irfftn, true),
    {"fft.fft", cpu_float32,
     R"(The discrete Fourier transform along one dimension.
        >>> wisp.fft.fft(wisp.tensor([1.0, 0.0]))
        tensor([1.+0.j, 1.+0.j]))"},
    {"fft.fft2", cpu_float32,
     R"(The discrete Fourier transform of the last two dimensions.
        >>> wisp.fft.fft2(wisp.ones(2, 2)).real
        tensor([[4., 0.],
                [0., 0.]]))"},
    {"fft.fftn", cpu_float32,
     R"(The discrete Fourier transform along several dimensions.
        >>> wisp.fft.fftn(wisp.ones(2, 2)).real
        tensor([[4., 0.],
                [0., 0.]]))"},
    {"fft.hfft", cpu_float32,
     R"(The transform of half of a Hermitian signal: real results.
        >>> wisp.fft.hfft(wisp.tensor([1.0, 0.0]))
        tensor([1., 1.]))"},
    {"fft.hfft2",
     R"(The transform of half of a Hermitian signal in two dimensions.
        >>> wisp.fft.hfft2(wisp.ones(2, 2)).shape
        torch.Size([2, 2]))"},
    {"fft.hfftn",
     R"(The transform of half of a Hermitian signal in several dimensions.
        >>> wisp.fft.hfftn(wisp.ones(2, 2)).shape
        torch.Size([2, 2]))"},
    {"fft.ifft", cpu_float32,
     R"(The inverse of `fft`.
        >>> wisp.fft.ifft(wisp.fft.fft(wisp.tensor([1.0, 2.0]))).real
        tensor([1., 2.]))"},
    {"fft.ifft2", cpu_float32,
     R"(The inverse of `fft2`.
        >>> wisp.fft.ifft2(wisp.fft.fft2(wisp.ones(2, 2))).real
        tensor([[1., 1.],
                [1., 1.]]))"},
    {"fft.ifftn", cpu_float32,
     R"(The inverse of `fftn`.
        >>> wisp.fft.ifftn(wisp.fft.fftn(wisp.ones(2, 2))).real
        tensor([[1., 1.],
                [1., 1.]]))"},
    {"fft.ihfft", cpu_float32,
     R"(The inverse of `hfft`.
        >>> wisp.fft.ihfft(wisp.tensor([1.0, 1.0])).shape
        torch.Size([2]))"},
    {"fft.ihfft2",
     R"(The inverse of `hfft2`.
        >>> wisp.fft.ihfft2(wisp.ones(2, 2)).shape
        torch.Size([2, 2]))"},
    {"fft.ihfftn",
     R"(The inverse of `hfftn`.
        >>> wisp.fft.ihfftn(wisp.ones(2, 2)).shape
        torch.Size([2, 2]))"},
    {"fft.irfft", cpu_float32,
     R"(The inverse of `rfft`; `n` is the length of the result.
        >>> wisp.fft.irfft(wisp.fft.rfft(wisp.tensor([1.0, 2.0, 3.0])), n=3)
        tensor([1., 2., 3.]))"},
    {"fft.irfft2", cpu_float32,
     R"(The inverse of `rfft2`.
        >>> wisp.fft.irfft2(wisp.fft.rfft2(wisp.ones(2, 2)))
        tensor([[1., 1.],
                [1., 1.]]))"},
    {"fft.irfftn", cpu_float32,
     R"(The inverse of `rfftn`.
        >>> wisp.fft.irfftn(wisp.fft.rfftn(wisp.ones(2, 2)))
        tensor([[1., 1.],
                [1., 1.]]))"},
    {"fft.rfft", cpu_float32,
     R"(The first half of the transform of a real signal, which determines the rest.
        >>> wisp.fft.rfft(wisp.tensor([1.0, 1.0, 1.0]))
        tensor([3.+0.j, 0.+0.j]))"},
    {"fft.rfft2", cpu_float32,
     R"(The transform of real pictures, half of it.
        >>> wisp.fft.rfft2(wisp.ones(2, 4)).shape
        torch.Size([2, 3]))"},
    {"fft.rfftn", cpu_float32,
     R"(The transform of real data along several dimensions, half of it.
        >>> wisp.fft.rfftn(wisp.ones(2, 4)).shape
        torch.Size([2, 3]))"},
};

}  // namespace
}  // namespace wisp
