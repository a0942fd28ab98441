// Front doors of convolution and transposed convolution in one to three dimensions.
//
// A convolution is bilinear. With F(input, weight) the output, I(grad, weight) the gradient of the input and
// W(input, grad) that of the weight, the derivatives of each of the three are the other two, so derivatives of any
// order need nothing else. A transposed convolution is I with its input in the place of the gradient.
#include "conv.h"

#include "../autograd/told.h"
#include "../compile/tape.h"
#include "../kernels/conv.h"
#include "../python/registry.h"
#include "format.h"

namespace wisp {
namespace {

using Product = kernels::ConvProduct;

Dims sizes_of(Product product, const ConvGeometry& g) {
    if (product == Product::output) return g.output_sizes();
    return product == Product::input ? g.input_sizes() : g.weight_sizes();
}

Tensor conjugate(const Tensor& t) { return is_complex(t.dtype()) ? conj(t) : t; }

// Contiguous, without history.
Tensor plain(const Tensor& t) { return !t.defined() || t.is_contiguous() ? t : contiguous(alias(t)); }

// Whether a product of images in half precision is computed with the channels last, though its operands and its result seem contiguous:
// in a compiled region on a GPU. Not where the device has kernels of its own.
bool is_turned_product(const ConvGeometry& g, const Tensor& a, const Tensor& b) {
    const kernels::ConvShape& s = g.shape;
    if (!noting || g.dims != 2 || !is_reduced(a.dtype()) || s.groups != 1 || !a.is_cuda() || !compile::turns(a.device())) return false;
    const bool patches = s.kernel[1] == s.stride[1] && s.kernel[2] == s.stride[2] && s.kernel[1] > 1;
    return !patches && format_of(a) == MemoryFormat::contiguous && format_of(b) == MemoryFormat::contiguous;
}
Tensor turned_product(Product product, const ConvGeometry& g, const Tensor& a, const Tensor& b, const Tensor& bias) {
    const Tensor left = compile::by_channels(a), right = compile::by_channels(b);
    const Tensor out = empty_in(sizes_of(product, g), a.dtype(), MemoryFormat::channels_last);
    if (out.numel() == 0) return empty(out.sizes(), a.dtype());
    const void *from_left = compile::peek(left), *from_right = compile::peek(right);
    kernels::conv().product(product, a.dtype(), g.shape, true, from_left, from_right, nullptr, out.device_data());
    const Tensor y = compile::turned(out);
    return bias.defined() ? y + reshape(alias(bias), {1, bias.numel(), 1, 1}) : y;
}

// The layout is changed once for all products with it.
Tensor turned_gradient(const Tensor& g) {
    const Tensor values = compile::by_channels(g);
    return values.storage() == g.storage() ? g : compile::turned(values);
}

// The product without a gradient. Where the kernels take no half precision it is computed in float and rounded once, and
// smaller integers in int64.
Tensor compute(Product product, const ConvGeometry& g, const Tensor& a, const Tensor& b, const Tensor& bias) {
    const DType dtype = a.dtype();
    const bool by_channels = is_turned_product(g, a, b);
    GradMode off(false);
    if (by_channels) return turned_product(product, g, a, b, bias);
    if (!is_complex(dtype)) {
        if (a.device().type == DeviceType::meta)
            return empty_in(sizes_of(product, g), dtype, g.dims > 1 ? format_of(a) : MemoryFormat::contiguous);
        const kernels::ConvKernels& conv = kernels::conv();
        const DType wide = is_integral(dtype) ? DType::i64 : is_reduced(dtype) && !conv.any_float ? DType::f32 : dtype;
        // The result's format follows the operands; kernels of any_float work in it, others on contiguous memory.
        MemoryFormat wanted = MemoryFormat::contiguous;
        if (g.dims > 1 && (dtype != DType::f64 || (!conv.any_float && g.dims == 2))) {
            wanted = format_of(a);
            if (wanted == MemoryFormat::contiguous) wanted = format_of(b);
        }
        const MemoryFormat format = conv.any_float && !is_integral(dtype) ? wanted : MemoryFormat::contiguous;
        const Tensor out = empty_in(sizes_of(product, g), wide, format);
        if (out.numel() > 0) {
            const Tensor left = values_in(to(a, wide), format), right = values_in(to(b, wide), format);
            const Tensor added = bias.defined() ? plain(to(bias, wide)) : bias;
            const kernels::ConvShape& s = g.shape;
            const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2] * s.in_channels / s.groups;
            Unlocked unlocked(s.batch * s.out_channels * s.out[0] * s.out[1] * s.out[2] * std::max<int64_t>(1, taps) / 16);
            conv.product(product, wide, s, format != MemoryFormat::contiguous, left.device_data(), right.device_data(),
                         added.defined() ? added.device_data() : nullptr, out.device_data());
        }
        return result_in(to(out, dtype), wanted);
    }
    const Tensor ar = contiguous(real(alias(a))), ai = contiguous(imag(alias(a)));
    const Tensor br = contiguous(real(alias(b))), bi = contiguous(imag(alias(b)));
    const Tensor bias_r = bias.defined() ? contiguous(real(alias(bias))) : bias;
    const Tensor bias_i = bias.defined() ? contiguous(imag(alias(bias))) : bias;
    const Tensor out_r = compute(product, g, ar, br, bias_r) - compute(product, g, ai, bi, {});
    const Tensor out_i = compute(product, g, ar, bi, bias_i) + compute(product, g, ai, br, {});
    return view_as_complex(stack({out_r, out_i}, -1));
}

Tensor bias_grad(const ConvGeometry& g, const Tensor& grad, bool of_input, bool create_graph) {
    const auto kernel = kernels::conv().bias_grad;
    if (!create_graph && !of_input && kernel && (grad.dtype() == DType::f32 || grad.dtype() == DType::f64)) {
        const Tensor from = plain(grad), out = empty({g.shape.out_channels}, grad.dtype());
        kernel(grad.dtype(), g.shape, from.device_data(), out.device_data());
        return out;
    }
    Dims dims{0};
    for (int d = 0; d < g.dims; ++d) dims.push_back(2 + d);
    return sum(grad, dims);
}

// The gradients of weight and bias together, where the device has kernels for that. No history.
bool small_gradients(Backward& bw, const ConvGeometry& g, const Tensor& grad) {
    const auto gradients = kernels::conv().gradients;
    if (!gradients || grad.dtype() != DType::f32 || grad.numel() == 0) return false;
    const Tensor input = bw.saved(0);
    if (needs_grad(input, grad) || !grad.is_contiguous() || format_of(input) != MemoryFormat::contiguous) return false;
    const Tensor weight = empty(g.weight_sizes(), DType::f32), bias = empty({g.shape.out_channels}, DType::f32);
    if (!gradients(g.shape, plain(input).device_data(), grad.device_data(), weight.device_data(), bias.device_data())) return false;
    bw.set(1, weight);
    bw.set(2, bias);
    return true;
}

}  // namespace

Tensor conv_output(const ConvGeometry& g, const Tensor& input, const Tensor& weight, const Tensor& bias) {
    const Tensor out = compute(Product::output, g, input, weight, bias);
    if (needs_grad(input, weight, bias))
        record(out, "ConvolutionBackward0", {input, weight, bias}, {input, weight},
               told<"groups transposed | input weight">(
                   [g](Backward& bw) {
                       // The layout is changed once for all three.
                       const bool keep = bw.grad().device().type != DeviceType::meta && kernels::conv().any_float;
                       const bool turned = !bw.create_graph && is_turned_product(g, bw.grad(), bw.saved(1));
                       const Tensor grad = turned ? turned_gradient(bw.grad())
                                           : keep ? contiguous(bw.grad(), format_of(bw.saved(0)))
                                                  : contiguous(bw.grad());
                       // the input's gradient last: it is what the next node reads
                       if (bw.needs(1) && bw.needs(2) && small_gradients(bw, g, grad)) {
                           if (bw.needs(0)) bw.set(0, conv_input(g, grad, bw.saved(1), {}));
                           return;
                       }
                       if (bw.needs(2)) bw.set(2, bias_grad(g, grad, false, bw.create_graph));
                       if (bw.needs(1)) bw.set(1, conv_weight(g, conjugate(bw.saved(0)), grad));
                       if (bw.needs(0)) bw.set(0, conv_input(g, grad, conjugate(bw.saved(1)), {}));
                   },
                   g.shape.groups, false));
    return out;
}

Tensor conv_input(const ConvGeometry& g, const Tensor& grad, const Tensor& weight, const Tensor& bias) {
    const Tensor out = compute(Product::input, g, grad, weight, bias);
    if (needs_grad(grad, weight, bias))
        record(out, "ConvolutionBackward0", {grad, weight, bias}, {grad, weight},
               told<"groups transposed | input weight">(
                   [g](Backward& bw) {
                       if (bw.needs(0)) bw.set(0, conv_output(g, bw.grad(), conjugate(bw.saved(1)), {}));
                       if (bw.needs(1)) bw.set(1, conv_weight(g, bw.grad(), conjugate(bw.saved(0))));
                       if (bw.needs(2)) bw.set(2, bias_grad(g, bw.grad(), true, bw.create_graph));
                   },
                   g.shape.groups, true));
    return out;
}

Tensor conv_weight(const ConvGeometry& g, const Tensor& input, const Tensor& grad) {
    const Tensor out = compute(Product::weight, g, input, grad, {});
    if (needs_grad(input, grad))
        record(out, "ConvolutionBackwardBackward0", {input, grad}, {input, grad}, [g](Backward& bw) {
            if (bw.needs(0)) bw.set(0, conv_input(g, conjugate(bw.saved(1)), bw.grad(), {}));
            if (bw.needs(1)) bw.set(1, conv_output(g, conjugate(bw.saved(0)), bw.grad(), {}));
        });
    return out;
}

namespace {

Dims expand_option(const char* name, const Dims& given, int dims) {
    if (given.size() == dims) return given;
    if (given.size() == 1) return Dims(dims, given[0]);
    throw RuntimeError("expected ", name, " to be a single integer value or a list of ", dims,
                       " values to match the convolution dimensions, but got ", name, "=", given);
}

const char* c_name(DType d) {
    switch (d) {
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::f16: return "c10::Half";
    case DType::bf16: return "c10::BFloat16";
    case DType::c64: return "c10::complex<float>";
    case DType::c128: return "c10::complex<double>";
    case DType::i64: return "long int";
    case DType::i32: return "int";
    default: return name_of(d);
    }
}

std::string times(const Dims& d) {
    std::string s;
    for (int64_t i = 0; i < d.size(); ++i) s += (i ? " x " : "") + std::to_string(d[i]);
    return s;
}

void check_operands(const Tensor& input, const Tensor& weight, const Tensor& bias) {
    if (input.dtype() != weight.dtype())
        throw RuntimeError("Input type (torch.", type_name(input.dtype()), "Tensor) and weight type (torch.", type_name(weight.dtype()),
                           "Tensor) should be the same");
    if (bias.defined() && bias.dtype() != input.dtype())
        throw RuntimeError("Input type (", c_name(input.dtype()), ") and bias type (", c_name(bias.dtype()), ") should be the same");
    const DType d = input.dtype();
    if (d == DType::boolean || d == DType::u16 || d == DType::u32 || d == DType::u64)
        throw NotImplemented("\"slow_conv2d_cpu\" not implemented for '", type_name(d), "'");
}

// Checks everything that concerns shapes, and puts the numbers together. `padding` holds the amounts before each axis,
// `padding_after` those behind.
ConvGeometry geometry(int dims, const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvOptions& o,
                      const Dims& padding_after) {
    auto any_below = [](const Dims& d, int64_t least) {
        for (int64_t v : d)
            if (v < least) return true;
        return false;
    };
    if (any_below(o.padding, 0) || any_below(padding_after, 0)) throw RuntimeError("negative padding is not supported");
    for (int64_t i = 0; i < o.padding.size(); i++)
        if (o.padding[i] > INT64_MAX / 2)
            throw RuntimeError("Given padding=", o.padding[i], " at dimension ", i, " , expected padding to be at most ", INT64_MAX / 2);
    if (any_below(o.output_padding, 0)) throw RuntimeError("negative output_padding is not supported");
    if (any_below(o.stride, 1)) throw RuntimeError("non-positive stride is not supported");
    if (any_below(o.dilation, 1)) throw RuntimeError("non-positive dilation is not supported");
    if (o.groups < 1) throw RuntimeError("non-positive groups is not supported");
    if (weight.dim() != dims + 2)
        throw RuntimeError("Expected ", dims + 2, "-dimensional weight for ", dims + 2, "-dimensional input ", input.sizes(), ", but got ",
                           weight.dim(), "-dimensional weight of size ", weight.sizes(), " instead");
    if (weight.size(0) < o.groups)
        throw RuntimeError("Given groups=", o.groups, ", expected weight to be at least ", o.groups,
                           " at dimension 0, but got weight of size ", weight.sizes(), " instead");
    if (weight.size(0) % o.groups != 0)
        throw RuntimeError("Given groups=", o.groups, ", expected weight to be divisible by ", o.groups,
                           " at dimension 0, but got weight of size [", weight.sizes(), "] instead");
    const int64_t expected = o.transposed ? weight.size(0) : wisp::times(weight.size(1), o.groups);
    const std::string given = o.transposed ? "Given transposed=1" : str("Given groups=", o.groups);
    if (input.size(1) != expected)
        throw RuntimeError(given, ", weight of size ", weight.sizes(), ", expected input", input.sizes(), " to have ", expected,
                           " channels, but got ", input.size(1), " channels instead");
    const int64_t result_channels = o.transposed ? wisp::times(weight.size(1), o.groups) : weight.size(0);
    if (bias.defined() && (bias.dim() != 1 || bias.size(0) != result_channels))
        throw RuntimeError(o.transposed ? "Given transposed=1, weight of size " : "Given weight of size ", weight.sizes(),
                           ", expected bias to be 1-dimensional with ", result_channels, " elements, but got bias of size ", bias.sizes(),
                           " instead");

    ConvGeometry g{};
    g.dims = dims;
    kernels::ConvShape& s = g.shape;
    s.batch = input.size(0);
    s.groups = o.groups;
    s.in_channels = o.transposed ? result_channels : input.size(1);
    s.out_channels = o.transposed ? input.size(1) : result_channels;
    for (int d = 0; d < 3; ++d) s.in[d] = s.out[d] = s.kernel[d] = s.stride[d] = s.dilation[d] = 1, s.padding[d] = 0;
    Dims padded, kernel;
    bool fits = true;
    for (int d = 0; d < dims; ++d) {
        const int at = 3 - dims + d;
        const int64_t size = input.size(2 + d), window = plus(wisp::times(o.dilation[d], weight.size(2 + d) - 1), 1);
        s.kernel[at] = weight.size(2 + d);
        s.stride[at] = o.stride[d];
        s.dilation[at] = o.dilation[d];
        s.padding[at] = o.padding[d];
        if (o.transposed) {
            s.out[at] = size;
            const int64_t whole = plus(plus(wisp::times(size - 1, o.stride[d]), window), o.output_padding[d]);
            s.in[at] = plus(whole, -plus(o.padding[d], padding_after[d]));
            continue;
        }
        padded.push_back(plus(size, plus(o.padding[d], padding_after[d])));
        kernel.push_back(window);
        fits = fits && padded[d] >= window;
        s.in[at] = size;
        s.out[at] = padded[d] >= window ? (padded[d] - window) / o.stride[d] + 1 : 0;
    }
    if (!fits)
        throw RuntimeError("Calculated padded input size per channel: (", times(padded), "). Kernel size: (", times(kernel),
                           "). Kernel size can't be greater than actual input size");
    if (o.transposed) {
        for (int d = 0; d < dims; ++d)
            if (o.output_padding[d] >= o.stride[d] && o.output_padding[d] >= o.dilation[d])
                throw RuntimeError(
                    "output padding must be smaller than either stride or dilation, but got "
                    "output_padding=",
                    o.output_padding, " stride=", o.stride, " dilation=", o.dilation);
        for (int d = 3 - dims; d < 3; ++d)
            if (s.in[d] <= 0)
                throw RuntimeError("Given input size per channel: (", times(Dims(s.out + 3 - dims, dims)),
                                   "). Calculated output size per channel: (", times(Dims(s.in + 3 - dims, dims)),
                                   "). Output size is too small");
    }
    for (int d = 0; d < dims; ++d)
        if (input.size(2 + d) == 0)
            throw RuntimeError("Only zero batch or zero channel inputs are supported, but got input shape: ", input.sizes());
    for (int d = 0; d < dims; ++d) {  // a stride beyond the only place says nothing, and kernels count with it
        const int at = 3 - dims + d;
        if (s.out[at] == 1) s.stride[at] = std::min(s.stride[at], plus(s.in[at], plus(o.padding[d], padding_after[d])));
    }
    return g;
}

// "Expected 3D (unbatched) or 4D (batched) input to conv2d"; an unbatched input becomes a batch of one.
Tensor batched(int dims, const Tensor& input, bool transposed) {
    if (input.dim() == dims + 2) return input;
    if (input.dim() != dims + 1)
        throw RuntimeError("Expected ", dims + 1, "D (unbatched) or ", dims + 2, "D (batched) input to conv",
                           transposed ? "_transpose" : "", dims, "d, but got input of size: ", input.sizes());
    return unsqueeze(input, 0);
}

Tensor convolve(int dims, const Tensor& input, const Tensor& weight, const Tensor& bias, ConvOptions o, const Dims& padding_after) {
    const Tensor x = batched(dims, input, o.transposed);
    check_operands(x, weight, bias);
    const ConvGeometry g = geometry(dims, x, weight, bias, o, padding_after);
    const Tensor y = o.transposed ? conv_input(g, x, weight, bias) : conv_output(g, x, weight, bias);
    return input.dim() == dims + 1 ? squeeze(y, {0}) : y;
}

Tensor conv_padded_as(int dims, const Tensor& input, const Tensor& weight, const Tensor& bias, const Dims& stride,
                      const std::string& padding, const Dims& dilation, int64_t groups) {
    ConvOptions o;
    o.stride = expand_option("stride", stride, dims);
    o.dilation = expand_option("dilation", dilation, dims);
    o.groups = groups;
    o.padding = Dims(dims, 0);
    o.output_padding = Dims(dims, 0);
    Dims after(dims, 0);
    if (padding == "same") {
        for (int64_t s : o.stride)
            if (s != 1) throw RuntimeError("padding='same' is not supported for strided convolutions");
        for (int d = 0; d < dims && weight.dim() == dims + 2; ++d) {
            const int64_t total = wisp::times(o.dilation[d], weight.size(2 + d) - 1);
            o.padding[d] = total / 2;
            after[d] = total - total / 2;
        }
    } else if (padding != "valid") {
        throw RuntimeError("Invalid padding string: '", padding, "'");
    }
    return convolve(dims, input, weight, bias, o, after);
}

}  // namespace

Tensor convolution(int dims, const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
    ConvOptions o = options;
    o.stride = expand_option("stride", options.stride, dims);
    o.padding = expand_option("padding", options.padding, dims);
    o.dilation = expand_option("dilation", options.dilation, dims);
    o.output_padding = Dims(dims, 0);
    if (o.transposed) o.output_padding = expand_option("output_padding", options.output_padding, dims);
    return convolve(dims, input, weight, bias, o, o.padding);
}

#define WISP_CONV(name, dims)                                                                                                      \
    {name                                                                                                                          \
     "(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] dilation=1, "                        \
     "int groups=1)",                                                                                                              \
     [](const Tensor& input, const Tensor& weight, const Tensor& bias, Dims stride, Dims padding, Dims dilation, int64_t groups) { \
         return convolution(dims, input, weight, bias, {stride, padding, dilation, groups, false, {}});                            \
     },                                                                                                                            \
     function | by_complex64 | in_lower},                                                                                          \
    {                                                                                                                              \
        name "(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, str padding='valid', int[] dilation=1, "            \
             "int groups=1)",                                                                                                      \
            [](const Tensor& input, const Tensor& weight, const Tensor& bias, Dims stride, std::string padding, Dims dilation,     \
               int64_t groups) { return conv_padded_as(dims, input, weight, bias, stride, padding, dilation, groups); },           \
            function | by_complex64 | in_lower                                                                                     \
    }
#define WISP_CONV_TRANSPOSE(name, dims)                                                                                                \
    {name                                                                                                                              \
     "(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] output_padding=0, "                      \
     "int groups=1, int[] dilation=1)",                                                                                                \
     [](const Tensor& input, const Tensor& weight, const Tensor& bias, Dims stride, Dims padding, Dims output_padding, int64_t groups, \
        Dims dilation) { return convolution(dims, input, weight, bias, {stride, padding, dilation, groups, true, output_padding}); },  \
     function | by_complex64 | in_lower}

static const Operators operators = {
    WISP_CONV("conv1d", 1),
    WISP_CONV("conv2d", 2),
    WISP_CONV("conv3d", 3),
    WISP_CONV("nn.functional.conv1d", 1),
    WISP_CONV("nn.functional.conv2d", 2),
    WISP_CONV("nn.functional.conv3d", 3),
    WISP_CONV_TRANSPOSE("conv_transpose1d", 1),
    WISP_CONV_TRANSPOSE("conv_transpose2d", 2),
    WISP_CONV_TRANSPOSE("conv_transpose3d", 3),
    WISP_CONV_TRANSPOSE("nn.functional.conv_transpose1d", 1),
    WISP_CONV_TRANSPOSE("nn.functional.conv_transpose2d", 2),
    WISP_CONV_TRANSPOSE("nn.functional.conv_transpose3d", 3),
    {"conv1d",
     R"(Convolution over one dimension: `input` [N, C, L], `weight` [O, C / groups, K].
        >>> wisp.conv1d(wisp.arange(5.0).reshape(1, 1, 5), wisp.ones(1, 1, 3))
        tensor([[[3., 6., 9.]]]))"},
    {"conv2d",
     R"(Convolution of images: `input` [N, C, H, W], `weight` [O, C / groups, KH, KW].
        >>> wisp.conv2d(wisp.ones(1, 1, 3, 3), wisp.ones(1, 1, 2, 2))
        tensor([[[[4., 4.],
                  [4., 4.]]]]))"},
    {"conv3d",
     R"(Convolution of volumes: `input` [N, C, D, H, W], `weight` [O, C / groups, KD, KH, KW].
        >>> wisp.conv3d(wisp.ones(1, 1, 2, 2, 2), wisp.ones(1, 1, 2, 2, 2)).flatten()
        tensor([8.]))"},
    {"conv_transpose1d",
     R"(The gradient of `conv1d` as an operator: each element spreads the kernel.
        >>> wisp.conv_transpose1d(wisp.ones(1, 1, 2), wisp.ones(1, 1, 2))
        tensor([[[1., 2., 1.]]]))"},
    {"conv_transpose2d",
     R"(The gradient of `conv2d` as an operator: each element spreads the kernel.
        >>> wisp.conv_transpose2d(wisp.ones(1, 1, 2, 2), wisp.ones(1, 1, 2, 2))
        tensor([[[[1., 2., 1.],
                  [2., 4., 2.],
                  [1., 2., 1.]]]]))"},
    {"conv_transpose3d",
     R"(The gradient of `conv3d` as an operator: each element spreads the kernel.
        >>> wisp.conv_transpose3d(wisp.ones(1, 1, 1, 1, 1), wisp.ones(1, 1, 2, 2, 2)).shape
        torch.Size([1, 1, 2, 2, 2]))"},
};

}  // namespace wisp
