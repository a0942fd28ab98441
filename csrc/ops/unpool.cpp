// Front doors of pools whose windows form no grid: fractional max pooling, and the inverse of max pooling.
#include "../kernels/pool.h"

#include "../python/registry.h"
#include "format.h"
#include "gather.h"
#include "pool_shape.h"
#include "random.h"

namespace wisp {
namespace {

using namespace pooling;

Tensor plain(const Tensor& t) { return t.is_contiguous() ? t : contiguous(alias(t)); }

// --- fractional ---

// Windows begin at the given fraction of a step and keep their distance on average.
MaxPooled fractional_max_pool(int dims, const Tensor& input, const Dims& kernel_size, const Dims& output_size, const Tensor& samples) {
    const char* op = dims == 2 ? "fractional_max_pool2d" : "fractional_max_pool3d";
    const Dims k = expand_option(op, "kernel_size", kernel_size, dims);
    const Dims o = expand_option(op, "output_size", output_size, dims);
    check_input(op, dims, input);
    check_floating(op, input);
    PoolShape s = plane_shape(dims, input);
    for (int d = 0; d < dims; ++d) {
        const int at = 3 - dims + d;
        s.kernel[at] = k[d];
        s.out[at] = o[d];
        if (k[d] <= 0 || o[d] < 0 || k[d] > s.in[at] || o[d] > s.in[at] - k[d] + 1)
            throw RuntimeError(op, ": kernel_size ", k[d], " and output_size ", o[d], " are too large relative to an input of size ",
                               s.in[at]);
    }
    if (samples.dim() == 0 || samples.size(-1) != dims || samples.numel() < s.planes * dims)
        throw RuntimeError(op, ": Expect _random_samples to have ", dims, " numbers for each of the ", s.planes, " channels, got shape ",
                           samples.sizes());
    const Dims sizes = output_sizes(input, dims, s);
    if (product(sizes) == 0 && s.planes > 0) return {empty(sizes, input.dtype()), empty(sizes, DType::i64)};
    Tensor starts[3];
    const int64_t* begin[3];
    {
        GradMode off(false);
        const DType d = input.dtype(), wide = is_reduced(d) ? DType::f32 : d;
        auto rounded = [&](const Tensor& t) { return to(to(t, d), wide); };  // every step in the precision of the input, as PyTorch does
        const Tensor fractions = to(narrow(reshape(alias(samples), {-1, dims}), 0, 0, s.planes), d);
        for (int axis = 0; axis < 3; ++axis) {
            if (axis < 3 - dims) starts[axis] = zeros({s.planes, s.out[axis]}, DType::i64);
            else {
                const int64_t count = s.out[axis], room = s.in[axis] - s.kernel[axis];
                // The samples are in the order width, height, depth in two dimensions, depth first in three.
                const Tensor fraction = to(narrow(fractions, 1, dims == 2 ? 2 - axis : axis, 1), wide);
                const Tensor last = full({s.planes, 1}, Scalar(room), DType::i64);
                if (count == 1) starts[axis] = last;
                else {
                    const Tensor step = rounded(full({}, Scalar(double(room) / double(count - 1)), DType::f64));
                    const Tensor place = to(rounded(rounded(to(arange(count - 1), wide) + fraction) * step), DType::i64);
                    starts[axis] = plain(cat({place - to(rounded(fraction * step), DType::i64), last}, 1));
                }
            }
            begin[axis] = starts[axis].device_data<int64_t>();
        }
    }
    const Tensor x = widened(input), indices = empty(sizes, DType::i64);
    Tensor out = empty(sizes, x.dtype());
    kernels::pool().fractional_max(x.dtype(), s, begin, x.device_data(), out.device_data(), indices.device_data<int64_t>());
    if (out.dtype() != input.dtype()) out = to(out, input.dtype());
    if (needs_grad(input)) record_max(out, dims == 2 ? "FractionalMaxPool2DBackward0" : "FractionalMaxPool3DBackward0", input, indices, s);
    return {out, indices};
}

MaxPooled fractional_max_pool_by(int dims, const Tensor& input, const Dims& kernel_size, std::optional<Dims> output_size,
                                 const std::optional<std::vector<double>>& ratios, const Tensor& samples) {
    const char* op = dims == 2 ? "fractional_max_pool2d" : "fractional_max_pool3d";
    if (!output_size && !ratios) throw ValueError(op, " requires specifying either an output_size or an output_ratio");
    if (input.dim() > dims && input.size(-dims - 1) == 0) throw RuntimeError(op, ": Expected input to have channels, got ", input.sizes());
    check_input(op, dims, input);
    if (!output_size) {
        if (ratios->size() != 1 && int(ratios->size()) != dims)
            throw ValueError(op, " requires output_ratio to either be a single Int or tuple of Ints. Expected 1 or ", dims, ", got ",
                             ratios->size());
        output_size = Dims();
        for (int d = 0; d < dims; ++d) {
            const double ratio = (*ratios)[ratios->size() == 1 ? 0 : size_t(d)], size = double(input.size(d - dims)) * ratio;
            if (!(std::abs(size) < 0x1p62)) throw ValueError(op, ": an output_ratio of ", ratio, " gives no size");
            output_size->push_back(int64_t(size));
        }
    }
    Tensor u = samples;
    if (!u.defined()) {
        const int64_t batch = input.dim() == dims + 1 ? 1 : input.size(0);
        u = rand({batch, input.size(-dims - 1), dims}, input.dtype() == DType::f64 ? DType::f64 : DType::f32, default_generator());
    }
    return fractional_max_pool(dims, input, kernel_size, *output_size, u);
}

// --- the inverse of max pooling ---

Tensor max_unpool_over(int dims, const Tensor& input, const Tensor& indices, const Dims& output_size) {
    constexpr const char* ops[] = {"max_unpool1d", "max_unpool2d", "max_unpool3d"};
    const char* op = ops[dims - 1];
    alert_undetermined(dims == 3 ? "max_unpooling3d_forward_out" : "max_unpooling2d_forward_out");  // indices may name a place twice
    if (indices.dtype() != DType::i64) throw RuntimeError("elements in indices should be type int64 but got: ", type_name(indices.dtype()));
    if (input.dim() != dims + 1 && input.dim() != dims + 2)
        throw RuntimeError("Input to ", op, " should be a ", dims + 1, "d or ", dims + 2, "d Tensor, but got a tensor with ", input.dim(),
                           " dimensions");
    if (!(input.sizes() == indices.sizes()))
        throw RuntimeError("Expected shape of indices to be same as that of the input tensor (", input.sizes(),
                           ") but got indices tensor with shape: ", indices.sizes());
    if (output_size.size() != dims)
        throw RuntimeError("There should be exactly ", dims, " elements in output_size, but got ", output_size.size(),
                           " elements in a list.");
    PoolShape s = plane_shape(dims, input);
    Dims sizes = input.sizes();
    int64_t size = 1, count = 1;
    for (int d = 0; d < dims; ++d) {
        if (output_size[d] < 0) throw RuntimeError(op, ": output_size must be non-negative, got ", output_size);
        count *= input.size(d - dims);
        sizes[input.dim() - dims + d] = output_size[d];
        size = wisp::times(size, output_size[d]);
    }
    if (size == 0) return empty(sizes, input.dtype());  // whatever the indices say
    const Tensor x = plain(input), at = plain(indices), planes = empty(sizes, input.dtype());
    const int64_t bad =
        kernels::pool().unpool(input.dtype(), s.planes, count, size, x.device_data(), at.device_data<int64_t>(), planes.device_data());
    if (bad >= 0)
        throw RuntimeError("Found an invalid max index: ", at.data<int64_t>()[bad], " (output volumes are of size ", times(output_size),
                           ")");
    const Tensor out = result_in(planes, format_for(input, dims));
    if (needs_grad(input))
        record(out, dims == 3 ? "MaxUnpool3DBackward0" : "MaxUnpool2DBackward0", {input}, {indices},
               [planes = s.planes, size, count, from = input.sizes()](Backward& bw) {
                   const Tensor flat = reshape(bw.grad(), {planes, size});
                   bw.set(0, reshape(gather(flat, 1, reshape(bw.saved(0), {planes, count})), from));
               });
    return out;
}

Tensor max_unpool(int dims, const Tensor& input, const Tensor& indices, const Dims& output_size) {
    if (dims > 1) return max_unpool_over(dims, input, indices, output_size);
    return recorded_as_row("MaxUnpool2DBackward0", input, [&](const Tensor& x) { return max_unpool_over(1, x, indices, output_size); });
}

// The size that max pooling was given, if windows neither overlapped nor left a rest; output_size may say otherwise
// within a stride.
Tensor max_unpool_by_window(int dims, const Tensor& input, const Tensor& indices, const Dims& kernel_size,
                            const std::optional<Dims>& stride, const Dims& padding, const std::optional<Dims>& size) {
    constexpr const char* ops[] = {"max_unpool1d", "max_unpool2d", "max_unpool3d"};
    const char* op = ops[dims - 1];
    if (kernel_size.empty()) throw RuntimeError("There should be exactly ", dims, " elements in kernel_size, but got none.");
    const Dims k = expand_option(op, "kernel_size", kernel_size, dims), p = expand_option(op, "padding", padding, dims);
    const Dims s = stride && !stride->empty() ? expand_option(op, "stride", *stride, dims) : k;
    if (input.dim() < dims) throw RuntimeError(op, ": expected at least ", dims, " dimensions, got ", input.sizes());
    Dims plain_size(dims, 0);
    for (int d = 0; d < dims; ++d) plain_size[d] = plus(plus(wisp::times(input.size(d - dims) - 1, s[d]), k[d]), wisp::times(-2, p[d]));
    for (int64_t n : size ? *size : plain_size)
        if (n < 0) throw ValueError(op, ": output_size needs non-negative spatial dimensions, got ", size ? *size : plain_size);
    if (!size) return max_unpool(dims, input, indices, plain_size);
    Dims asked = *size;
    while (asked.size() > dims && asked.size() <= dims + 2) asked.erase(0);
    if (asked.size() != dims)
        throw ValueError("output_size should be a sequence containing ", dims, " or ", dims + 2, " elements, but it has a length of '",
                         size->size(), "'");
    for (int d = 0; d < dims; ++d)
        if (!(plain_size[d] - s[d] < asked[d] && asked[d] < plain_size[d] + s[d]))
            throw ValueError("invalid output_size \"", asked, "\" (dim ", d, " must be between ", plain_size[d] - s[d], " and ",
                             plain_size[d] + s[d], ")");
    return max_unpool(dims, input, indices, asked);
}

}  // namespace

#define WISP_MAX_UNPOOL(n)                                                                                         \
    {"nn.functional.max_unpool" #n                                                                                 \
     "d(Tensor input, Tensor indices, int[] kernel_size, int[]? stride=None, "                                     \
     "int[] padding=0, int[]? output_size=None)",                                                                  \
     [](const Tensor& x, const Tensor& indices, Dims k, std::optional<Dims> s, Dims p, std::optional<Dims> size) { \
         return max_unpool_by_window(n, x, indices, k, s, p, size);                                                \
     },                                                                                                            \
     function}
#define WISP_FRACTIONAL(n)                                                                                                                \
    {"nn.functional.fractional_max_pool" #n                                                                                               \
     "d(Tensor input, int[] kernel_size, int[]? output_size=None, "                                                                       \
     "any output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",                                                   \
     [](const Tensor& x, Dims k, std::optional<Dims> o, std::optional<std::vector<double>> ratios, bool indices, const Tensor& samples) { \
         return as_asked(fractional_max_pool_by(n, x, k, o, ratios, samples), indices);                                                   \
     },                                                                                                                                   \
     function},                                                                                                                           \
    {                                                                                                                                     \
        "nn.functional.fractional_max_pool" #n                                                                                            \
        "d_with_indices(Tensor input, int[] kernel_size, "                                                                                \
        "int[]? output_size=None, any output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",                       \
            [](const Tensor& x, Dims k, std::optional<Dims> o, std::optional<std::vector<double>> ratios, bool, const Tensor& samples) {  \
                return as_asked(fractional_max_pool_by(n, x, k, o, ratios, samples), true);                                               \
            },                                                                                                                            \
            function                                                                                                                      \
    }

static const Operators operators = {
    WISP_FRACTIONAL(2),
    WISP_FRACTIONAL(3),
    WISP_MAX_UNPOOL(1),
    WISP_MAX_UNPOOL(2),
    WISP_MAX_UNPOOL(3),
    {"nn.functional.fractional_max_pool2d", draws | cpu_float32,
     R"(The largest elements of windows whose borders are drawn at random.
        >>> wisp.nn.functional.fractional_max_pool2d(wisp.ones(1, 1, 5, 5), 2, output_size=3).shape
        torch.Size([1, 1, 3, 3]))"},
    {"nn.functional.fractional_max_pool2d_with_indices",
     R"(As without indices, and where the elements are.
        >>> wisp.nn.functional.fractional_max_pool2d_with_indices(wisp.ones(1, 1, 5, 5), 2, output_size=3)[1].shape
        torch.Size([1, 1, 3, 3]))"},
    {"nn.functional.fractional_max_pool3d", draws | cpu_float32,
     R"(The largest elements of windows whose borders are drawn at random.
        >>> wisp.nn.functional.fractional_max_pool3d(wisp.ones(1, 1, 5, 5, 5), 2, output_size=3).shape
        torch.Size([1, 1, 3, 3, 3]))"},
    {"nn.functional.fractional_max_pool3d_with_indices",
     R"(As without indices, and where the elements are.
        >>> wisp.nn.functional.fractional_max_pool3d_with_indices(wisp.ones(1, 1, 5, 5, 5), 2, output_size=3)[1].shape
        torch.Size([1, 1, 3, 3, 3]))"},
    {"nn.functional.max_unpool1d",
     R"(Elements put back to where `max_pool1d` found them; the rest is 0.
        >>> wisp.nn.functional.max_unpool1d(wisp.tensor([[[5.0]]]), wisp.tensor([[[1]]]), 2)
        tensor([[[0., 5.]]]))"},
    {"nn.functional.max_unpool2d", cpu_float32,
     R"(Elements put back to where `max_pool2d` found them; the rest is 0.
        >>> wisp.nn.functional.max_unpool2d(wisp.tensor([[[[5.0]]]]), wisp.tensor([[[[3]]]]), 2)
        tensor([[[[0., 0.],
                  [0., 5.]]]]))"},
    {"nn.functional.max_unpool3d", cpu_float32,
     R"(Elements put back to where `max_pool3d` found them; the rest is 0.
        >>> wisp.nn.functional.max_unpool3d(wisp.ones(1, 1, 1, 1, 1), wisp.zeros(1, 1, 1, 1, 1, dtype=wisp.int64), 2).shape
        torch.Size([1, 1, 2, 2, 2]))"},
};

}  // namespace wisp
