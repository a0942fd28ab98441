// Front doors of pooling: max, average, adaptive and power average.
//
// Every pool is linear in the gradient, so its backward is a front door whose own derivative is a pool again (average)
// or picks the chosen elements (max). Max pooling for training keeps one byte per output, the chosen element's place in
// its window; indices are made only for those who ask.
#include "../autograd/whole.h"
#include "../kernels/pool.h"

#include "../python/registry.h"
#include "format.h"
#include "gather.h"
#include "pool.h"
#include "pool_shape.h"
#include "second_order.h"

namespace wisp {
namespace {

using namespace pooling;
using kernels::AveragePool;

// Channels that come last stay there where the kernels take that; the shape says so.
MemoryFormat keep_format(const Tensor& input, int dims, PoolShape& s) {
    if (input.device().type == DeviceType::meta || !kernels::pool().any_format || input.dim() != dims + 2) return MemoryFormat::contiguous;
    const MemoryFormat format = format_of(input);
    if (format != MemoryFormat::contiguous) s.inner = input.size(1);
    return format;
}
MemoryFormat format_of(const PoolShape& s, const Dims& sizes) {
    return s.inner == 1 ? MemoryFormat::contiguous : sizes.size() == 5 ? MemoryFormat::channels_last_3d : MemoryFormat::channels_last;
}

// Volumes without a batch: as if there were one.
Tensor pooled_in(const Tensor& input, int dims, const Tensor& result, MemoryFormat format) {
    if (dims < 3 || input.dim() == dims + 2 || input.is_contiguous()) return result_in(result, format);
    constexpr MemoryFormat last = MemoryFormat::channels_last_3d;
    if (!input.layout().unsqueeze(0).is_contiguous(last)) return result;
    const Tensor batch = result_in(alias(result, result.layout().unsqueeze(0)), last);
    return alias(batch, batch.layout().select(0, 0));
}

PoolShape window_shape(const char* op, int dims, const Tensor& input, const Dims& kernel_size, const std::optional<Dims>& stride,
                       const Dims& padding, const Dims& dilation, bool ceil_mode) {
    const Dims k = expand_option(op, "kernel_size", kernel_size, dims);
    const Dims s = stride && !stride->empty() ? expand_option(op, "stride", *stride, dims) : k;
    const Dims p = expand_option(op, "padding", padding, dims), l = expand_option(op, "dilation", dilation, dims);
    for (int d = 0; d < dims; ++d) {
        for (int64_t v : {k[d], s[d], p[d], l[d]})
            if (v > INT32_MAX) throw RuntimeError("value cannot be converted to type int without overflow: ", v);
        if (s[d] == 0) throw RuntimeError("stride should not be zero");
        if (k[d] <= 0 || s[d] < 0)
            throw RuntimeError(op, ": ", k[d] <= 0 ? "kernel size" : "stride", " should be greater than zero, but got kernel_size=", k,
                               " stride=", s);
        if (l[d] <= 0) throw RuntimeError("dilation should be greater than zero, but got dilation=", l);
        if (p[d] < 0) throw RuntimeError("pad must be non-negative, but got pad: ", p[d]);
        if (p[d] > (wisp::times(k[d] - 1, l[d]) + 1) / 2)
            throw RuntimeError("pad should be at most half of effective kernel size, but got pad=", p[d], ", kernel_size=", k[d],
                               " and dilation=", l[d]);
    }
    check_input(op, dims, input);
    PoolShape shape = plane_shape(dims, input);
    bool fits = true;
    for (int d = 0; d < dims; ++d) {
        const int at = 3 - dims + d;
        const int64_t padded = plus(shape.in[at], wisp::times(2, p[d]));
        const int64_t room = plus(padded - wisp::times(l[d], k[d] - 1) - 1, ceil_mode ? s[d] - 1 : 0);
        int64_t out = room < 0 ? 0 : room / s[d] + 1;
        if (ceil_mode && wisp::times(out - 1, s[d]) >= shape.in[at] + p[d]) --out;  // windows begin inside of the input
        shape.out[at] = out;
        shape.kernel[at] = std::min(k[d], padded);  // what lies beyond is in no window
        shape.stride[at] = s[d];
        shape.padding[at] = p[d];
        shape.dilation[at] = l[d];
        fits = fits && out > 0;
    }
    if (!fits) {
        Dims before{input.size(-dims - 1)}, after = before;
        for (int d = 3 - dims; d < 3; ++d) before.push_back(shape.in[d]), after.push_back(shape.out[d]);
        throw RuntimeError("Given input size: (", times(before), "). Calculated output size: (", times(after),
                           "). Output size is too small");
    }
    return shape;
}

// Leaves out the places of a window that only ever meet padding: there may be billions of them.
void leave_out_padding(PoolShape& s) {
    for (int d = 0; d < 3; ++d) {
        const int64_t before = std::max<int64_t>(0, s.padding[d] - (s.out[d] - 1) * s.stride[d]);  // of the last window
        const int64_t first = (before + s.dilation[d] - 1) / s.dilation[d];
        const int64_t end = std::min(s.kernel[d], (s.padding[d] + s.in[d] - 1) / s.dilation[d] + 1);
        if (first >= end) continue;  // dilation passes over all elements
        s.kernel[d] = end - first;
        s.padding[d] -= first * s.dilation[d];
    }
}

// Where the windows along one dimension meet no element, which only dilation over a whole input makes: [out, 1...], or undefined.
Tensor empty_windows(const PoolShape& s, int d, const Device& device) {
    if (s.dilation[d] <= s.in[d] || s.padding[d] == 0 || s.in[d] == 0) return {};
    Tensor empties = empty({s.out[d]}, DType::boolean, Device());
    bool* const flags = empties.data<bool>();
    for (int64_t i = 0; i < s.out[d]; i++) {
        const int64_t start = i * s.stride[d] - s.padding[d];
        flags[i] = start < 0 && (s.dilation[d] - -start % s.dilation[d]) % s.dilation[d] >= s.in[d];
    }
    Dims sizes(3 - d, 1);
    sizes[0] = s.out[d];
    return to(reshape(empties, sizes), device);
}

int64_t work_of(const PoolShape& s) { return s.planes * s.out[0] * s.out[1] * s.out[2] * s.kernel[0] * s.kernel[1] * s.kernel[2]; }

// --- max ---

// The elements of x that a max pool chose; `chosen` holds indices, or places in the windows as bytes.
Tensor pick(const Tensor& x, const Tensor& chosen, const PoolShape& s) {
    Tensor indices = chosen;
    if (chosen.dtype() == DType::u8) {
        indices = empty_in(chosen.sizes(), DType::i64, format_of(s, chosen.sizes()));
        kernels::pool().indices_of_taps(s, chosen.device_data<uint8_t>(), indices.device_data<int64_t>());
    }
    const int64_t in_size = s.in[0] * s.in[1] * s.in[2];
    const int64_t count = s.planes == 0 ? 0 : chosen.numel() / s.planes;
    const Tensor picked = gather(reshape(x, {s.planes, in_size}), 1, reshape(indices, {s.planes, count}));
    return reshape(picked, chosen.sizes());
}

// Puts the gradient where the elements came from.
Tensor max_pool_backward(const Tensor& grad, const Tensor& chosen, const PoolShape& s, const Dims& input_sizes, const char* name) {
    const MemoryFormat format = format_of(s, input_sizes);
    const Tensor g = widened(grad, format), out = empty_in(input_sizes, g.dtype(), format), places = values_in(chosen, format);
    {
        Unlocked unlocked(out.numel());
        const bool bytes = chosen.dtype() == DType::u8;
        kernels::pool().max_grad(g.dtype(), s, g.device_data(), bytes ? nullptr : places.device_data<int64_t>(),
                                 bytes ? places.device_data<uint8_t>() : nullptr, out.device_data());
    }
    Tensor result = out.dtype() == grad.dtype() ? out : to(out, grad.dtype());
    if (needs_grad(grad)) record(result, name, {grad}, {chosen}, [s](Backward& bw) { bw.set(0, pick(bw.grad(), bw.saved(0), s)); });
    return result;
}

// Adaptive pooling to no elements at all: PyTorch computes it, and refuses its gradient.
void check_pooled_gradient(const Tensor& grad, const char* name, const PoolShape& s) {
    if (s.out[0] == 0 || s.out[1] == 0 || s.out[2] == 0)
        throw RuntimeError(name, ": Expected grad_output to have non-zero size for non-batch dimensions, but grad_output has sizes ",
                           grad.sizes());
}

}  // namespace

void pooling::record_max(const Tensor& out, const char* name, const Tensor& input, const Tensor& chosen, const PoolShape& s) {
    record(out, name, {input}, {chosen}, [s, name, sizes = input.sizes()](Backward& bw) {
        check_pooled_gradient(bw.grad(), name, s);
        set_piecewise_linear(bw, 0, max_pool_backward(bw.grad(), bw.saved(0), s, sizes, name), name);
    });
}

namespace {

constexpr const char* max_names[] = {"MaxPool2DWithIndicesBackward0", "MaxPool2DWithIndicesBackward0", "MaxPool3DWithIndicesBackward0"};
constexpr const char* max_ops[] = {"max_pool1d", "max_pool2d", "max_pool3d"};

MaxPooled max_pool_over(int dims, const Tensor& input, const Dims& kernel_size, const std::optional<Dims>& stride, const Dims& padding,
                        const Dims& dilation, bool ceil_mode, bool want_indices) {
    const char* op = max_ops[dims - 1];
    PoolShape s = window_shape(op, dims, input, kernel_size, stride, padding, dilation, ceil_mode);
    Tensor empties[3];
    if (needs_grad(input))
        for (int at = 0; at < 3; ++at) empties[at] = empty_windows(s, at, input.device());
    leave_out_padding(s);
    const MemoryFormat format = keep_format(input, dims, s);
    const DType d = input.dtype();
    if (is_complex(d) || d == DType::boolean || d == DType::u16 || d == DType::u32 || d == DType::u64)
        throw NotImplemented('"', op, "\" not implemented for '", type_name(d), "'");
    const Dims sizes = output_sizes(input, dims, s);
    const bool recording = needs_grad(input);
    const bool all_meet = !empties[0] && !empties[1] && !empties[2];
    const bool bytes = recording && !want_indices && all_meet && s.kernel[0] * s.kernel[1] * s.kernel[2] <= 256;
    const Tensor x = widened(input, format);
    Tensor out = empty_in(sizes, x.dtype(), format);
    const Tensor indices = want_indices || (recording && !bytes) ? empty_in(sizes, DType::i64, format) : Tensor();
    const Tensor taps = bytes ? empty_in(sizes, DType::u8, format) : Tensor();
    {
        Unlocked unlocked(work_of(s));
        kernels::pool().max(x.dtype(), s, x.device_data(), out.device_data(), indices.defined() ? indices.device_data<int64_t>() : nullptr,
                            taps.defined() ? taps.device_data<uint8_t>() : nullptr);
    }
    if (out.dtype() != d) out = to(out, d);
    const MemoryFormat wanted = format_for(input, dims);
    out = pooled_in(input, dims, out, wanted);
    Tensor chosen = bytes ? taps : indices;
    for (const Tensor& empty : empties)  // their index, as PyTorch has it, is that of no element, where a gradient must not go
        if (empty) chosen = masked_fill(chosen, empty, 0);
    if (recording) record_max(out, max_names[dims - 1], input, chosen, s);
    for (const Tensor& empty : empties)
        if (empty) out = masked_fill(out, empty, -std::numeric_limits<double>::infinity());
    return {out, indices.defined() ? pooled_in(input, dims, indices, wanted) : indices};
}

MaxPooled max_pool(int dims, const Tensor& input, const Dims& kernel_size, const std::optional<Dims>& stride, const Dims& padding,
                   const Dims& dilation, bool ceil_mode, bool want_indices) {
    if (dims > 1) return max_pool_over(dims, input, kernel_size, stride, padding, dilation, ceil_mode, want_indices);
    Tensor indices;
    const Tensor values = recorded_as_row(max_names[0], input, [&](const Tensor& x) {
        MaxPooled r = max_pool_over(1, x, kernel_size, stride, padding, dilation, ceil_mode, want_indices);
        indices = r.indices;
        return r.values;
    });
    return {values, indices};
}

// --- average ---

constexpr const char* average_names[] = {"AvgPool2DBackward0", "AvgPool2DBackward0", "AvgPool3DBackward0"};

using PoolKernel = void (*)(const PoolShape&, const AveragePool&, DType, const void*, void*);

// A linear map of planes given by a kernel, whose derivative is the kernel `back`, whose derivative is the map again.
struct LinearPool {
    PoolKernel forward, backward;
    PoolShape shape;
    AveragePool average;
    const char* name;
    MemoryFormat format;  // of the pooled
    bool reversed = false;

    LinearPool turned() const {
        LinearPool p = *this;
        p.reversed = !reversed;
        return p;
    }
};

Tensor apply(const LinearPool& p, const Tensor& input, const Dims& sizes) {
    const MemoryFormat format = format_of(p.shape, sizes);
    const Tensor x = input.dtype() == DType::i64 ? values_in(to(alias(input), DType::f64), format) : widened(input, format);
    Tensor out = empty_in(sizes, x.dtype(), format);
    if (out.numel() > 0) {
        Unlocked unlocked(std::max(out.numel(), x.numel()));
        (p.reversed ? p.backward : p.forward)(p.shape, p.average, x.dtype(), x.device_data(), out.device_data());
    }
    if (out.dtype() != input.dtype()) out = to(out, input.dtype());
    if (!p.reversed) out = result_in(out, p.format);
    if (needs_grad(input))
        record(out, p.name, {input}, {}, [p, sizes = input.sizes()](Backward& bw) {
            if (!p.reversed) check_pooled_gradient(bw.grad(), p.name, p.shape);
            set_piecewise_linear(bw, 0, apply(p.turned(), bw.grad(), sizes), p.name);
        });
    return out;
}

Tensor avg_pool_over(int dims, const char* op, const Tensor& input, const Dims& kernel_size, const std::optional<Dims>& stride,
                     const Dims& padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
    if (divisor_override && *divisor_override == 0) throw RuntimeError("divisor must be not zero");
    LinearPool p;
    p.shape = window_shape(op, dims, input, kernel_size, stride, padding, {1}, ceil_mode);
    if (input.dtype() != DType::i64) check_floating(op, input);
    keep_format(input, dims, p.shape);
    p.format = format_for(input, dims);
    p.average = {count_include_pad, divisor_override.value_or(0)};
    p.name = average_names[dims - 1];
    p.forward = [](const PoolShape& s, const AveragePool& a, DType d, const void* x, void* y) { kernels::pool().average(d, s, a, x, y); };
    p.backward = [](const PoolShape& s, const AveragePool& a, DType d, const void* x, void* y) {
        kernels::pool().average_grad(d, s, a, x, y);
    };
    return apply(p, input, output_sizes(input, dims, p.shape));
}

Tensor avg_pool(int dims, const char* op, const Tensor& input, const Dims& kernel_size, const std::optional<Dims>& stride,
                const Dims& padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
    auto pool = [&](const Tensor& x) {
        return avg_pool_over(dims, op, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
    };
    return dims > 1 ? pool(input) : recorded_as_row(average_names[0], input, pool);
}

// --- adaptive ---

// An entry of None (here -1 from Python, checked before) keeps the input's size.
PoolShape adaptive_shape(const char* op, int dims, const Tensor& input, const Dims& output_size) {
    if (output_size.size() != dims && output_size.size() != 1) throw RuntimeError(op, ": output_size must be ", dims);
    if (input.dim() != dims + 1 && input.dim() != dims + 2)
        throw RuntimeError(op, "(): Expected ", dims + 1, "D or ", dims + 2, "D tensor, but got ", input.sizes());
    PoolShape s = plane_shape(dims, input);
    for (int d = 0; d < dims; ++d) {
        const int64_t size = output_size[output_size.size() == 1 ? 0 : d];
        if (size < 0) throw RuntimeError(op, ": elements of output_size must be greater than or equal to 0 but received ", output_size);
        s.out[3 - dims + d] = size;
    }
    for (int64_t d = input.dim() - dims - 1; d < input.dim(); ++d)
        if (d > 0 && input.size(d) == 0)
            throw RuntimeError(op, "(): Expected input to have non-zero size for non-batch dimensions, but input has ", "sizes ",
                               input.sizes(), " with dimension ", d, " being empty");
    return s;
}

// Sizes that are not given are the input's.
Dims adaptive_output_size(const OptionalSizes& given, int dims, const Tensor& input) {
    Dims sizes;
    for (int64_t i = 0; i < given.size(); ++i) {
        if (!given[i] && (given.size() != dims || input.dim() < dims))
            throw RuntimeError("output_size: None is only allowed in a tuple of ", dims, " entries");
        sizes.push_back(given[i] ? *given[i] : input.size(i - dims));
    }
    return sizes;
}

}  // namespace

static constexpr const char* adaptive_average_names[] = {"AdaptiveAvgPool2DBackward0", "AdaptiveAvgPool2DBackward0",
                                                         "AdaptiveAvgPool3DBackward0"};
static constexpr const char* adaptive_average_ops[] = {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"};

static Tensor adaptive_average_over(int dims, const Tensor& input, const Dims& output_size) {
    const char* op = adaptive_average_ops[dims - 1];
    LinearPool p;
    p.shape = adaptive_shape(op, dims, input, output_size);
    check_floating(op, input);
    keep_format(input, dims, p.shape);
    p.format = format_for(input, dims);
    bool all = dims < 3;  // PyTorch takes the mean of whole pictures
    for (int64_t n : output_size) all &= n == 1;
    p.name = all ? "MeanBackward1" : adaptive_average_names[dims - 1];
    p.forward = [](const PoolShape& s, const AveragePool&, DType d, const void* x, void* y) {
        kernels::pool().adaptive_average(d, s, x, y);
    };
    p.backward = [](const PoolShape& s, const AveragePool&, DType d, const void* x, void* y) {
        kernels::pool().adaptive_average_grad(d, s, x, y);
    };
    return apply(p, input, output_sizes(input, dims, p.shape));
}

Tensor adaptive_avg_pool(int dims, const Tensor& input, const Dims& output_size) {
    if (dims > 1) return adaptive_average_over(dims, input, output_size);
    const bool mean = output_size.size() == 1 && output_size[0] == 1;
    return recorded_as_row(mean ? "MeanBackward1" : adaptive_average_names[0], input,
                           [&](const Tensor& x) { return adaptive_average_over(1, x, output_size); });
}

namespace {

constexpr const char* adaptive_max_names[] = {"AdaptiveMaxPool2DBackward0", "AdaptiveMaxPool2DBackward0", "AdaptiveMaxPool3DBackward0"};
constexpr const char* adaptive_max_ops[] = {"adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"};

MaxPooled adaptive_max_over(int dims, const Tensor& input, const Dims& output_size) {
    const char* op = adaptive_max_ops[dims - 1];
    PoolShape s = adaptive_shape(op, dims, input, output_size);
    check_floating(op, input);
    const MemoryFormat format = keep_format(input, dims, s);
    const Dims sizes = output_sizes(input, dims, s);
    const Tensor x = widened(input, format), indices = empty_in(sizes, DType::i64, format);
    Tensor out = empty_in(sizes, x.dtype(), format);
    if (out.numel() > 0) kernels::pool().adaptive_max(x.dtype(), s, x.device_data(), out.device_data(), indices.device_data<int64_t>());
    if (out.dtype() != input.dtype()) out = to(out, input.dtype());
    const MemoryFormat wanted = format_for(input, dims);
    out = result_in(out, wanted);
    if (needs_grad(input)) record_max(out, adaptive_max_names[dims - 1], input, indices, s);
    return {out, result_in(indices, wanted)};
}

MaxPooled adaptive_max_pool(int dims, const Tensor& input, const Dims& output_size) {
    if (dims > 1) return adaptive_max_over(dims, input, output_size);
    Tensor indices;
    const Tensor values = recorded_as_row(adaptive_max_names[0], input, [&](const Tensor& x) {
        MaxPooled r = adaptive_max_over(1, x, output_size);
        indices = r.indices;
        return r.values;
    });
    return {values, indices};
}

// --- power average ---

Tensor lp_pool(int dims, const Tensor& input, double norm_type, const Dims& kernel_size, const std::optional<Dims>& stride,
               bool ceil_mode) {
    constexpr const char* ops[] = {"avg_pool1d", "avg_pool2d", "avg_pool3d"};
    const Dims k = expand_option(ops[dims - 1], "kernel_size", kernel_size, dims);
    if (std::isinf(norm_type)) {  // the largest, or the smallest
        const double sign = norm_type > 0 ? 1 : -1;
        return Scalar(sign) * max_pool(dims, Scalar(sign) * abs(input), k, stride, {0}, {1}, ceil_mode, false).values;
    }
    const Tensor powers = pow(input, Scalar(norm_type));
    const Tensor mean = avg_pool(dims, ops[dims - 1], powers, k, stride, {0}, ceil_mode, true, {});
    int64_t count = 1;
    for (int64_t v : k) count = wisp::times(count, v);
    return pow(sign(mean) * relu(abs(mean)) * Scalar(double(count)), Scalar(1.0 / norm_type));
}

}  // namespace

#define WISP_MAX_POOL(n)                                                                             \
    {"nn.functional.max_pool" #n                                                                     \
     "d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, "                      \
     "int[] dilation=1, bool ceil_mode=False, bool return_indices=False)",                           \
     [](const Tensor& x, Dims k, std::optional<Dims> s, Dims p, Dims d, bool ceil, bool indices) {   \
         return as_asked(max_pool(n, x, k, s, p, d, ceil, indices), indices);                        \
     },                                                                                              \
     function},                                                                                      \
        {"nn.functional.max_pool" #n                                                                 \
         "d_with_indices(Tensor input, int[] kernel_size, int[]? stride=None, "                      \
         "int[] padding=0, int[] dilation=1, bool ceil_mode=False, bool return_indices=False)",      \
         [](const Tensor& x, Dims k, std::optional<Dims> s, Dims p, Dims d, bool ceil, bool) {       \
             MaxPooled r = max_pool(n, x, k, s, p, d, ceil, true);                                   \
             return std::tuple(r.values, r.indices);                                                 \
         },                                                                                          \
         function},                                                                                  \
    {                                                                                                \
        "max_pool" #n                                                                                \
        "d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1, " \
        "bool ceil_mode=False)",                                                                     \
            [](const Tensor& x, Dims k, std::optional<Dims> s, Dims p, Dims d, bool ceil) {          \
                return max_pool(n, x, k, s, p, d, ceil, false).values;                               \
            },                                                                                       \
            function                                                                                 \
    }
#define WISP_AVG_POOL(n)                                                                                             \
    {"nn.functional.avg_pool" #n                                                                                     \
     "d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, "                                      \
     "bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None, *, Tensor!? out=None)",         \
     [](const Tensor& x, Dims k, std::optional<Dims> s, Dims p, bool ceil, bool include, std::optional<int64_t> d) { \
         return avg_pool(n, "avg_pool" #n "d", x, k, s, p, ceil, include, d);                                        \
     },                                                                                                              \
     function}
#define WISP_AVG_POOL_1D(name)                                                                       \
    {name                                                                                            \
     "(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, bool ceil_mode=False, " \
     "bool count_include_pad=True)",                                                                 \
     [](const Tensor& x, Dims k, std::optional<Dims> s, Dims p, bool ceil, bool include) {           \
         return avg_pool(1, "avg_pool1d", x, k, s, p, ceil, include, {});                            \
     },                                                                                              \
     function}
#define WISP_ADAPTIVE_POOL(n)                                                                                                  \
    {"nn.functional.adaptive_avg_pool" #n "d(Tensor input, any output_size)",                                                  \
     [](const Tensor& x, OptionalSizes size) { return adaptive_avg_pool(n, x, adaptive_output_size(size, n, x)); }, function}, \
        {"nn.functional.adaptive_max_pool" #n "d(Tensor input, any output_size, bool return_indices=False)",                   \
         [](const Tensor& x, OptionalSizes size, bool indices) {                                                               \
             return as_asked(adaptive_max_pool(n, x, adaptive_output_size(size, n, x)), indices);                              \
         },                                                                                                                    \
         function},                                                                                                            \
    {                                                                                                                          \
        "nn.functional.adaptive_max_pool" #n "d_with_indices(Tensor input, any output_size, bool return_indices=False)",       \
            [](const Tensor& x, OptionalSizes size, bool) {                                                                    \
                return as_asked(adaptive_max_pool(n, x, adaptive_output_size(size, n, x)), true);                              \
            },                                                                                                                 \
            function                                                                                                           \
    }
#define WISP_LP_POOL(n)                                                         \
    {"nn.functional.lp_pool" #n                                                 \
     "d(Tensor input, float norm_type, int[] kernel_size, int[]? stride=None, " \
     "bool ceil_mode=False)",                                                   \
     [](const Tensor& x, double p, Dims k, std::optional<Dims> s, bool ceil) { return lp_pool(n, x, p, k, s, ceil); }, function}

static const Operators operators = {
    WISP_MAX_POOL(1),
    WISP_MAX_POOL(2),
    WISP_MAX_POOL(3),
    WISP_AVG_POOL_1D("nn.functional.avg_pool1d"),
    WISP_AVG_POOL_1D("avg_pool1d"),
    WISP_AVG_POOL(2),
    WISP_AVG_POOL(3),
    WISP_ADAPTIVE_POOL(1),
    WISP_ADAPTIVE_POOL(2),
    WISP_ADAPTIVE_POOL(3),
    {"adaptive_avg_pool1d(Tensor input, int[] output_size)", [](const Tensor& x, Dims size) { return adaptive_avg_pool(1, x, size); },
     function,
     R"(Means of windows that are chosen to give `output_size` results.
        >>> wisp.adaptive_avg_pool1d(wisp.arange(4.0).reshape(1, 1, 4), 2)
        tensor([[[0.5000, 2.5000]]]))"},
    {"adaptive_max_pool1d(Tensor input, int[] output_size)",
     [](const Tensor& x, Dims size) {
         MaxPooled r = adaptive_max_pool(1, x, size);
         return std::tuple(r.values, r.indices);
     },
     function,
     R"(The largest elements of windows that are chosen to give `output_size` results.
        >>> wisp.adaptive_max_pool1d(wisp.arange(4.0).reshape(1, 1, 4), 2)
        (tensor([[[1., 3.]]]), tensor([[[1, 3]]])))"},
    {"max_pool1d_with_indices(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1, "
     "bool ceil_mode=False)",
     [](const Tensor& x, Dims k, std::optional<Dims> s, Dims p, Dims d, bool ceil) {
         MaxPooled r = max_pool(1, x, k, s, p, d, ceil, true);
         return std::tuple(r.values, r.indices);
     },
     function,
     R"(The largest element of each window, and where it is.
        >>> wisp.max_pool1d_with_indices(wisp.arange(4.0).reshape(1, 1, 4), 2)[1]
        tensor([[[1, 3]]]))"},
    WISP_LP_POOL(1),
    WISP_LP_POOL(2),
    WISP_LP_POOL(3),
    {"avg_pool1d",
     R"(The mean of each window.
        >>> wisp.avg_pool1d(wisp.arange(4.0).reshape(1, 1, 4), 2)
        tensor([[[0.5000, 2.5000]]]))"},
    {"max_pool1d",
     R"(The largest element of each window.
        >>> wisp.max_pool1d(wisp.arange(4.0).reshape(1, 1, 4), 2)
        tensor([[[1., 3.]]]))"},
    {"max_pool2d",
     R"(The largest element of each window.
        >>> wisp.max_pool2d(wisp.arange(4.0).reshape(1, 1, 2, 2), 2)
        tensor([[[[3.]]]]))"},
    {"max_pool3d",
     R"(The largest element of each window.
        >>> wisp.max_pool3d(wisp.arange(8.0).reshape(1, 1, 2, 2, 2), 2).flatten()
        tensor([7.]))"},
    {"nn.functional.max_pool3d", cpu_float32},
    {"nn.functional.adaptive_avg_pool2d",
     R"(Means of windows that are chosen to give `output_size` results.
        >>> wisp.nn.functional.adaptive_avg_pool2d(wisp.ones(1, 1, 4, 4), 1)
        tensor([[[[1.]]]]))"},
    {"nn.functional.adaptive_avg_pool3d", cpu_float32,
     R"(Means of windows that are chosen to give `output_size` results.
        >>> wisp.nn.functional.adaptive_avg_pool3d(wisp.ones(1, 1, 4, 4, 4), 1).shape
        torch.Size([1, 1, 1, 1, 1]))"},
    {"nn.functional.adaptive_max_pool1d_with_indices",
     R"(As without indices, and where the elements are.
        >>> wisp.nn.functional.adaptive_max_pool1d_with_indices(wisp.arange(4.0).reshape(1, 1, 4), 1)[1]
        tensor([[[3]]]))"},
    {"nn.functional.adaptive_max_pool2d",
     R"(The largest elements of windows that are chosen to give `output_size` results.
        >>> wisp.nn.functional.adaptive_max_pool2d(wisp.ones(1, 1, 4, 4), 1)
        tensor([[[[1.]]]]))"},
    {"nn.functional.adaptive_max_pool2d_with_indices",
     R"(As without indices, and where the elements are.
        >>> wisp.nn.functional.adaptive_max_pool2d_with_indices(wisp.arange(4.0).reshape(1, 1, 2, 2), 1)[1]
        tensor([[[[3]]]]))"},
    {"nn.functional.adaptive_max_pool3d", cpu_float32,
     R"(The largest elements of windows that are chosen to give `output_size` results.
        >>> wisp.nn.functional.adaptive_max_pool3d(wisp.ones(1, 1, 4, 4, 4), 1).shape
        torch.Size([1, 1, 1, 1, 1]))"},
    {"nn.functional.adaptive_max_pool3d_with_indices",
     R"(As without indices, and where the elements are.
        >>> wisp.nn.functional.adaptive_max_pool3d_with_indices(wisp.arange(8.0).reshape(1, 1, 2, 2, 2), 1)[1].flatten()
        tensor([7]))"},
    {"nn.functional.avg_pool2d",
     R"(The mean of each window.
        >>> wisp.nn.functional.avg_pool2d(wisp.arange(4.0).reshape(1, 1, 2, 2), 2)
        tensor([[[[1.5000]]]]))"},
    {"nn.functional.avg_pool3d", cpu_float32,
     R"(The mean of each window.
        >>> wisp.nn.functional.avg_pool3d(wisp.ones(1, 1, 2, 2, 2), 2).flatten()
        tensor([1.]))"},
    {"nn.functional.lp_pool1d",
     R"(The p-norm of each window.
        >>> wisp.nn.functional.lp_pool1d(wisp.tensor([[[3.0, 4.0]]]), 2, 2)
        tensor([[[5.]]]))"},
    {"nn.functional.lp_pool2d",
     R"(The p-norm of each window.
        >>> wisp.nn.functional.lp_pool2d(wisp.ones(1, 1, 2, 2), 2, 2)
        tensor([[[[2.]]]]))"},
    {"nn.functional.lp_pool3d",
     R"(The p-norm of each window.
        >>> wisp.nn.functional.lp_pool3d(wisp.ones(1, 1, 2, 2, 2), 2, 2).shape
        torch.Size([1, 1, 1, 1, 1]))"},
    {"nn.functional.max_pool2d_with_indices",
     R"(The largest element of each window, and where it is.
        >>> wisp.nn.functional.max_pool2d_with_indices(wisp.arange(4.0).reshape(1, 1, 2, 2), 2)[1]
        tensor([[[[3]]]]))"},
    {"nn.functional.max_pool3d_with_indices", cpu_float32,
     R"(The largest element of each window, and where it is.
        >>> wisp.nn.functional.max_pool3d_with_indices(wisp.arange(8.0).reshape(1, 1, 2, 2, 2), 2)[1].flatten()
        tensor([7]))"},
};

}  // namespace wisp
