// Front door of interpolate: nearest by index maps, area by adaptive pooling, everything else by weights per axis.
//
// A weighted resampling is a product of one linear map per axis, applied one after the other; its derivative applies
// the transposed maps.
#include <cmath>

#include "../kernels/image.h"
#include "../python/registry.h"
#include "format.h"
#include "image.h"
#include "pool.h"

namespace wisp {
namespace {

enum class Filter : uint8_t { linear, cubic, lanczos };

// One axis: how the sizes and the filter give indices and weights.
struct Axis {
    int64_t in, out;
    double given_scale;  // 0: none, use the sizes
};
struct Resampling {
    Filter filter;
    bool align_corners, antialias, in_double;
    int dims;
    Axis axis[3];
};

struct Taps {
    int64_t count = 0;
    std::vector<int64_t> index;
    std::vector<double> weight;

    void reserve(int64_t outputs) {
        index.reserve(size_t(times(outputs, count)));
        weight.reserve(index.capacity());
    }
};

double cubic(double x, double a) {
    x = std::fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

double lanczos(double x) {  // a sinc in the window of a wider one
    auto sinc = [](double v) { return v == 0 ? 1.0 : std::sin(v * M_PI) / (v * M_PI); };
    return std::fabs(x) < 3 ? sinc(x) * sinc(x / 3) : 0;
}

// Positions are computed in float where PyTorch does, so that both round to the same neighbours.
template <class T> T step_of(const Axis& a, bool align_corners) {
    if (align_corners) return a.out > 1 ? T(a.in - 1) / T(a.out - 1) : T(0);
    return a.given_scale > 0 ? T(1.0 / a.given_scale) : T(a.in) / T(a.out);
}

template <class T> Taps plain_taps(const Resampling& r, const Axis& a) {
    Taps taps;
    taps.count = r.filter == Filter::linear ? 2 : 4;
    taps.reserve(a.out);
    const T step = step_of<T>(a, r.align_corners);
    for (int64_t o = 0; o < a.out; ++o) {
        T at = r.align_corners ? step * T(o) : step * (T(o) + T(0.5)) - T(0.5);
        if (r.filter == Filter::linear) {
            if (at < 0) at = 0;
            const int64_t low = std::min(int64_t(at), a.in - 1);
            const double upper = a.in == a.out ? 0 : std::clamp(double(at - T(low)), 0.0, 1.0);
            const int64_t first = a.in == a.out ? o : low;
            taps.index.insert(taps.index.end(), {first, std::min(first + 1, a.in - 1)});
            taps.weight.insert(taps.weight.end(), {1 - upper, upper});
            continue;
        }
        const T low = std::floor(at);
        const double t = double(at - low);
        for (int i = 0; i < 4; ++i) {
            taps.index.push_back(std::clamp<int64_t>(int64_t(low) - 1 + i, 0, a.in - 1));
            taps.weight.push_back(cubic(t - (i - 1), -0.75));
        }
    }
    return taps;
}

// Antialiased: the filter is as wide as an output pixel.
template <class T> Taps wide_taps(const Resampling& r, const Axis& a) {
    Taps taps;
    const T step = step_of<T>(a, r.align_corners);
    const T half = r.filter == Filter::linear ? T(1) : r.filter == Filter::cubic ? T(2) : T(3);
    const T support = step >= 1 ? half * step : half;
    const double inverse = step >= 1 ? 1.0 / double(step) : 1.0;
    taps.count = 2 * int64_t(std::ceil(support)) + 1;
    taps.reserve(a.out);
    for (int64_t o = 0; o < a.out; ++o) {
        const T center = step * (T(o) + T(0.5));
        const int64_t begin = std::max<int64_t>(int64_t(center - support + T(0.5)), 0);
        const int64_t end = std::max(begin, std::min(int64_t(center + support + T(0.5)), a.in));
        double total = 0;
        const size_t first = taps.weight.size();
        for (int64_t i = 0; i < taps.count; ++i) {
            const double x = (double(begin + i) - double(center) + 0.5) * inverse;
            const double value = r.filter == Filter::lanczos ? lanczos(x)
                                 : r.filter == Filter::cubic ? cubic(x, -0.5)
                                                             : std::max(0.0, 1 - std::fabs(x));
            const double w = begin + i < end ? value : 0;
            taps.index.push_back(std::min(begin + i, a.in - 1));
            taps.weight.push_back(w);
            total += w;
        }
        if (total != 0)
            for (int64_t i = 0; i < taps.count; ++i) taps.weight[first + size_t(i)] /= total;
    }
    return taps;
}

Taps taps_of(const Resampling& r, const Axis& a) {
    if (r.antialias) return r.in_double ? wide_taps<double>(r, a) : wide_taps<float>(r, a);
    return r.in_double ? plain_taps<double>(r, a) : plain_taps<float>(r, a);
}

bool is_identity(const Taps& t, const Axis& a) {
    if (a.in != a.out) return false;
    for (size_t i = 0; i < t.weight.size(); ++i)
        if (t.weight[i] != 0 && (t.weight[i] != 1 || t.index[i] != int64_t(i) / t.count)) return false;
    return true;
}

Tensor resample(const Resampling& r, const Tensor& input, bool backward, const char* name) {
    const DType wide = input.dtype() == DType::f64 ? DType::f64 : DType::f32;
    Tensor x = to(alias(input), wide);
    {
        GradMode off(false);
        x = contiguous(x);
        for (int i = 0; i < r.dims; ++i) {
            const int d = backward ? i : r.dims - 1 - i;  // the width first: it touches the smaller image
            const Axis& a = r.axis[d];
            const int64_t at = x.dim() - r.dims + d;
            Dims sizes = x.sizes();
            sizes[at] = backward ? a.in : a.out;
            // Sizes that no memory holds are refused before the taps, which are as many, and nothing needs taps where there is nothing.
            Tensor y = a.in == a.out ? Tensor() : empty(sizes, wide);
            if (product(sizes) == 0 || input.device().type == DeviceType::meta) {
                x = empty(sizes, wide);
                continue;
            }
            const Taps t = taps_of(r, a);
            if (is_identity(t, a)) continue;
            if (!y) y = empty(sizes, wide);
            kernels::ImageResample k{};
            k.outer = k.inner = 1;
            for (int64_t e = 0; e < at; ++e) k.outer *= x.size(e);
            for (int64_t e = at + 1; e < x.dim(); ++e) k.inner *= x.size(e);
            k.in = a.in;
            k.out = a.out;
            k.taps = t.count;
            k.index = t.index.data();
            k.weight = t.weight.data();
            {
                Unlocked unlocked(y.numel() * t.count);
                const kernels::ImageKernels& kernels = kernels::image();
                (backward ? kernels.resample_grad : kernels.resample)(wide, k, x.device_data(), y.device_data());
            }
            x = y;
        }
        if (x.storage() == input.storage()) x = clone(x);
        if (input.dtype() == DType::u8) x = minimum(maximum(round(x), Scalar(0.0)), Scalar(255.0));
        if (x.dtype() != input.dtype()) x = to(x, input.dtype());
        x = result_in(x, format_of(input));
    }
    if (needs_grad(input))
        record(x, name, {input}, {}, [r, backward, name](Backward& bw) { bw.set(0, resample(r, bw.grad(), !backward, name)); });
    return x;
}

Dims int_list(PyObject* o, int64_t n, const char* what) {
    if (PySequence_Check(o))
        for (Py_ssize_t i = 0, count = PySequence_Size(o); i < count; ++i) {
            Ref item(PySequence_GetItem(o, i));
            if (PyFloat_Check(item.get()) || (is_tensor(item.get()) && is_floating(as_tensor_object(item.get())->dtype)))
                throw TypeError("expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, int], but got ",
                                Py_TYPE(item.get())->tp_name, " at position ", int64_t(i));
        }
    Dims d = to_dims(o);
    if (d.size() == 1 && !PySequence_Check(o)) d = Dims(n, d[0]);
    if (d.size() != n)
        throw ValueError("Input and output must have the same number of spatial dimensions, but got input with ", n,
                         " spatial dimensions and ", what, " of ", d);
    return d;
}

std::vector<double> float_list(PyObject* o, int64_t n) {
    std::vector<double> v;
    if (!PySequence_Check(o)) return std::vector<double>(size_t(n), to_double(o));
    PyObject* items = PySequence_Fast(o, "scale_factor must be a number or a sequence of numbers");
    if (!items) throw PythonError();
    try {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) v.push_back(to_double(PySequence_Fast_GET_ITEM(items, i)));
    } catch (...) {
        Py_DECREF(items);
        throw;
    }
    Py_DECREF(items);
    if (int64_t(v.size()) != n)
        throw ValueError("Input and scale_factor must have the same number of spatial dimensions, but got input with ", n,
                         " spatial dimensions and scale_factor of ", int64_t(v.size()), " entries");
    return v;
}

Tensor interpolate(const Tensor& input, PyObject* size, PyObject* scale_factor, const std::string& mode, std::optional<bool> align_corners,
                   std::optional<bool> recompute_scale_factor, bool antialias) {
    const bool filtered = mode == "linear" || mode == "bilinear" || mode == "bicubic" || mode == "trilinear" || mode == "lanczos";
    const bool known = filtered || mode == "nearest" || mode == "nearest-exact" || mode == "area";
    if (!filtered && align_corners)
        throw ValueError("align_corners option can only be set with the interpolating modes: ", "linear | bilinear | bicubic | trilinear");
    const int64_t dims = input.dim() - 2;
    if (dims < 1 || dims > 3 || !known)
        throw NotImplemented("Input Error: Only 3D, 4D and 5D input Tensors supported (got ", input.dim(),
                             "D) for the modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | area | ",
                             "nearest-exact (got ", mode, ")");
    const char* needed = dims == 1 ? "linear" : dims == 2 ? "bilinear" : "trilinear";
    if (antialias && !(dims == 2 && (mode == "bilinear" || mode == "bicubic" || mode == "lanczos")))
        throw ValueError("Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input");
    if (filtered && mode != needed && !(dims == 2 && (mode == "bicubic" || mode == "lanczos")))
        throw NotImplemented("Got ", input.dim(), "D input, but ", mode, " mode needs ",
                             mode == "linear"      ? 3
                             : mode == "trilinear" ? 5
                                                   : 4,
                             "D input");
    if (size != Py_None && scale_factor != Py_None) throw ValueError("only one of size or scale_factor should be defined");
    if (size == Py_None && scale_factor == Py_None) throw ValueError("either size or scale_factor should be defined");
    if (mode == "lanczos" && align_corners.value_or(false)) throw ValueError("Lanczos mode does not support align_corners=True");
    if (mode == "lanczos" && !antialias) throw ValueError("Lanczos mode requires antialias=True");

    Dims out(dims, 0);
    std::vector<double> given(size_t(dims), 0.0);
    if (size != Py_None) {
        if (recompute_scale_factor.value_or(false)) throw ValueError("recompute_scale_factor is not meaningful with an explicit size.");
        out = int_list(size, dims, "output size");
    } else {
        const std::vector<double> factors = float_list(scale_factor, dims);
        for (int64_t d = 0; d < dims; ++d) {
            const double size = std::floor(double(input.size(2 + d)) * factors[size_t(d)]);
            if (!(size < 0x1p62))
                throw RuntimeError("interpolate: a scale_factor of ", factors[size_t(d)], " gives no size that can be addressed");
            out[d] = int64_t(std::max(size, 0.0));
            if (!recompute_scale_factor.value_or(false)) given[size_t(d)] = factors[size_t(d)];
        }
    }
    for (int64_t d = 0; d < dims; ++d)
        if (out[d] <= 0 || input.size(2 + d) <= 0)
            throw RuntimeError("Input and output sizes should be greater than 0, but got input ", input.sizes(), " and output size ", out);
    if (input.size(1) == 0)
        throw RuntimeError("Non-empty ", input.dim(), "D data tensor expected but got a tensor with sizes ", input.sizes());
    Dims sizes = input.sizes();
    for (int64_t d = 0; d < dims; ++d) sizes[2 + d] = out[d];
    if (product(sizes) > int64_t(1) << 28) empty(sizes, DType::u8);  // what has no room is refused before weights are made
    if (mode == "area") return adaptive_avg_pool(int(dims), input, out);
    const DType dtype = input.dtype();
    if (!is_floating(dtype) && !(dtype == DType::u8 && (dims == 2 || !filtered)))
        throw NotImplemented("\"upsample_", mode, "\" not implemented for '", type_name(dtype), "'");

    static constexpr const char* names[5][3] = {
        {"UpsampleNearest1DBackward0", "UpsampleNearest2DBackward0", "UpsampleNearest3DBackward0"},
        {"UpsampleNearestExact1DBackward0", "UpsampleNearestExact2DBackward0", "UpsampleNearestExact3DBackward0"},
        {"UpsampleLinear1DBackward0", "UpsampleBilinear2DBackward0", "UpsampleTrilinear3DBackward0"},
        {"", "UpsampleBicubic2DBackward0", ""},
        {"", "UpsampleLanczos2DAaBackward0", ""}};
    if (!filtered) {
        IndexMap m;
        m.kind = mode == "nearest" ? IndexMap::nearest : IndexMap::nearest_exact;
        for (int64_t d = 0; d < dims; ++d) {
            const int64_t at = 3 - dims + d;
            m.in[at] = input.size(2 + d);
            m.out[at] = out[d];
            m.scale[at] = given[size_t(d)] > 0 ? float(1.0 / given[size_t(d)]) : float(m.in[at]) / float(m.out[at]);
        }
        return apply_map(m, int(dims), input, false, names[m.kind == IndexMap::nearest ? 0 : 1][dims - 1]);
    }
    Resampling r{};
    r.filter = mode == "bicubic" ? Filter::cubic : mode == "lanczos" ? Filter::lanczos : Filter::linear;
    r.align_corners = align_corners.value_or(false);
    r.antialias = antialias;
    r.in_double = dtype == DType::f64;
    r.dims = int(dims);
    for (int64_t d = 0; d < dims; ++d) r.axis[d] = {input.size(2 + d), out[d], given[size_t(d)]};
    return resample(r, input, false, names[2 + int(r.filter)][dims - 1]);
}

}  // namespace

static const Operators operators = {
    {"nn.functional.interpolate(Tensor input, any size=None, any scale_factor=None, str mode='nearest', "
     "bool? align_corners=None, bool? recompute_scale_factor=None, bool antialias=False)",
     [](const Tensor& x, PyObject* size, PyObject* scale, std::string mode, std::optional<bool> align, std::optional<bool> recompute,
        bool antialias) { return interpolate(x, size, scale, mode, align, recompute, antialias); },
     function | cuda_float32,
     R"(Pictures, signals or volumes in another size, by the nearest element or by interpolation.
        >>> wisp.nn.functional.interpolate(wisp.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]]))"},
    {"nn.functional.upsample(Tensor input, any size=None, any scale_factor=None, str mode='nearest', "
     "bool? align_corners=None)",
     [](const Tensor& x, PyObject* size, PyObject* scale, std::string mode, std::optional<bool> align) {
         return interpolate(x, size, scale, mode, align, {}, false);
     },
     function | cuda_float32,
     R"(The older name of `interpolate`.
        >>> wisp.nn.functional.upsample(wisp.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]]))"},
    {"nn.functional.upsample_nearest(Tensor input, any size=None, any scale_factor=None)",
     [](const Tensor& x, PyObject* size, PyObject* scale) { return interpolate(x, size, scale, "nearest", {}, {}, false); }, function,
     R"(`interpolate` by the nearest element.
        >>> wisp.nn.functional.upsample_nearest(wisp.ones(1, 1, 2, 2), scale_factor=2).shape
        torch.Size([1, 1, 4, 4]))"},
    {"nn.functional.upsample_bilinear(Tensor input, any size=None, any scale_factor=None)",
     [](const Tensor& x, PyObject* size, PyObject* scale) { return interpolate(x, size, scale, "bilinear", true, {}, false); }, function,
     R"(`interpolate` with mode "bilinear" and corners aligned.
        >>> wisp.nn.functional.upsample_bilinear(wisp.ones(1, 1, 2, 2), scale_factor=2).shape
        torch.Size([1, 1, 4, 4]))"},
};

}  // namespace wisp
