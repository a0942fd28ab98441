// Front doors for images: pad, unfold and fold, pixel and channel shuffles, grid_sample and affine_grid.
// Interpolation is in interpolate.cpp.
#include "../kernels/image.h"

#include <cmath>

#include "../compile/tape.h"
#include "../python/registry.h"
#include "format.h"
#include "grid_formula.h"
#include "image.h"
#include "second_order.h"

namespace wisp {

// --- maps of indices ---

static Tensor plain(const Tensor& t) { return t.is_contiguous() ? t : contiguous(alias(t)); }

using kernels::ImageMap;
static float floor_of(float x) { return std::floor(x); }
#define WISP_INLINE static inline
#include "../kernels/image_map_rules.h"
#undef WISP_INLINE

// Applies the map to the last `dims` dimensions, or, backward, adds every element to where the map took it from.
Tensor apply_map(const IndexMap& m, int dims, const Tensor& input, bool backward, const char* name) {
    Dims sizes = input.sizes();
    for (int d = 3 - dims; d < 3; ++d) sizes[input.dim() + d - 3] = backward ? m.in[d] : m.out[d];
    const bool sums = backward && is_reduced(input.dtype());
    // In a compiled region images may have their channels last: then those are one more dimension, which stays as it is.
    const bool turned = noting && dims == 2 && input.dim() == 4 && compile::turns(input.device()) && compile::is_turned(input);
    const Tensor values = sums ? to(alias(input), DType::f32) : input;
    const Tensor x = turned ? compile::by_channels(values) : plain(values);
    Tensor out = empty_in(sizes, x.dtype(), turned ? MemoryFormat::channels_last : MemoryFormat::contiguous);
    if (out.numel() > 0 && x.numel() > 0) {
        IndexMap map = m;
        for (int64_t d = 0; d < input.dim() - dims; ++d) map.planes *= input.size(d);
        if (turned) {
            map.planes = input.size(0);
            for (int d = 0; d < 2; d++)
                map.in[d] = m.in[d + 1], map.out[d] = m.out[d + 1], map.left[d] = m.left[d + 1], map.scale[d] = m.scale[d + 1];
            map.in[2] = map.out[2] = input.size(1), map.left[2] = 0, map.scale[2] = 1;
        }
        const kernels::ImageKernels& kernels = kernels::image();
        std::vector<int64_t> tables[3];
        for (int d = 0; d < 3 && (backward || !kernels.gather_by_rule); ++d) {
            tables[d].resize(size_t(map.out[d]));
            for (int64_t o = 0; o < map.out[d]; ++o) tables[d][size_t(o)] = source_of(map, d, o);
            map.map[d] = tables[d].data();
        }
        {
            const void* from = compile::peek(x);
            Unlocked unlocked(std::max(out.numel(), x.numel()));
            (backward ? kernels.gather_grad : kernels.gather)(x.dtype(), map, from, out.device_data());
        }
        if (turned) out = compile::turned(out);
    } else if (out.numel() > 0) {
        zeroed(out);
    }
    if (out.dtype() != input.dtype()) out = to(out, input.dtype());
    out = result_in(out, format_of(input));
    if (needs_grad(input))
        record(out, name, {input}, {}, [m, dims, backward, name](Backward& bw) {
            const Tensor gradient = apply_map(m, dims, bw.grad(), !backward, name);
            if (m.kind == IndexMap::reflect || m.kind == IndexMap::replicate) set_piecewise_linear(bw, 0, gradient, name);
            else bw.set(0, gradient);
        });
    return out;
}

// --- pad ---

Tensor constant_pad(const Tensor& input, const Dims& pad, const Scalar& value) {
    if (pad.size() % 2 != 0) throw RuntimeError("Length of pad must be even but instead it equals ", pad.size());
    const int64_t padded = pad.size() / 2, first = input.dim() - padded;
    if (first < 0)
        throw RuntimeError("Length of pad should be no more than twice the number of dimensions of the input. Pad ", "length is ",
                           pad.size(), " while the input has ", input.dim(), " dimensions.");
    Dims sizes = input.sizes(), opposite = pad;
    for (int64_t i = 0; i < padded; ++i) {
        const int64_t d = input.dim() - 1 - i, before = pad[2 * i], after = pad[2 * i + 1];
        sizes[d] = plus(plus(sizes[d], before), after);
        if (sizes[d] < 0)
            throw RuntimeError("The input size ", input.size(d), ", plus negative padding ", before, " and ", after,
                               ", resulted in a negative output size, which is invalid. Check dimension ", d, " of your input.");
    }
    for (int64_t& v : opposite) v = times(v, -1);
    const Tensor out = empty_in(sizes, input.dtype(), format_of(input));
    {
        GradMode off(false);
        filled(out, value);
        Tensor from = alias(input), to = out;
        for (int64_t i = 0; i < padded && out.numel() > 0; ++i) {
            const int64_t d = input.dim() - 1 - i, before = pad[2 * i], after = pad[2 * i + 1];
            const int64_t zero = 0, skip = std::max(zero, -before);
            const int64_t length = std::max(zero, input.size(d) - skip - std::max(zero, -after));
            from = narrow(from, d, std::min(skip, input.size(d)), length);
            to = narrow(to, d, std::max(zero, before), length);
        }
        if (out.numel() > 0 && from.numel() > 0) copy_values(to, from);
    }
    if (needs_grad(input))
        record(out, "ConstantPadNdBackward0", {input}, {}, [opposite](Backward& bw) { bw.set(0, constant_pad(bw.grad(), opposite, 0)); });
    return out;
}

static Tensor mapped_pad(const Tensor& input, const Dims& pad, const std::string& mode) {
    const int dims = int(pad.size() / 2);
    if (pad.size() % 2 != 0 || dims < 1 || dims > 3 || (input.dim() != dims + 1 && input.dim() != dims + 2))
        throw NotImplemented("Padding size ", pad.size(), " is not supported for ", input.dim(), "D input tensor in mode '", mode,
                             "'. Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: two numbers for each of the ",
                             "last one, two or three dimensions, and one or two dimensions before them");
    IndexMap m;
    m.kind = mode == "reflect" ? IndexMap::reflect : mode == "replicate" ? IndexMap::replicate : IndexMap::circular;
    for (int64_t d = input.dim() - dims - 1; d < input.dim(); ++d)
        if ((d > 0 || input.dim() == dims + 1) && input.size(d) == 0 && m.kind != IndexMap::circular)
            throw RuntimeError("Expected ", dims + 1, "D or ", dims + 2,
                               "D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for ",
                               "input, but got: ", input.sizes());
    for (int d = 0; d < dims; ++d) {
        const int at = 2 - d;
        const int64_t size = input.size(-1 - d), before = pad[2 * d], after = pad[2 * d + 1];
        m.in[at] = size;
        m.out[at] = plus(plus(size, before), after);
        m.left[at] = before;
        if (m.kind == IndexMap::reflect && (before >= size || after >= size))
            throw RuntimeError("Argument #", 4 + 2 * d, ": Padding size should be less than the corresponding input ",
                               "dimension, but got: padding (", before, ", ", after, ") at dimension ", input.dim() - 1 - d, " of input ",
                               input.sizes());
        // What is cut off is not there to be gone around.
        const int64_t left = plus(plus(size, std::min(before, int64_t(0))), std::min(after, int64_t(0)));
        if (m.kind == IndexMap::circular && m.out[at] > 0 && (before > left || after > left))
            throw RuntimeError("Padding value causes wrapping around more than once.");
        if (m.out[at] < (m.kind == IndexMap::circular ? 0 : 1))
            throw RuntimeError("input (size ", size, " of dimension ", input.dim() - 1 - d,
                               ") is too small. Calculated output size: ", m.out[at]);
    }
    static constexpr const char* names[3][3] = {{"ReflectionPad1DBackward0", "ReflectionPad2DBackward0", "ReflectionPad3DBackward0"},
                                                {"ReplicationPad1DBackward0", "ReplicationPad2DBackward0", "ReplicationPad3DBackward0"},
                                                {"CopySlices", "CopySlices", "CopySlices"}};
    return apply_map(m, dims, input, false, names[m.kind][dims - 1]);
}

static Tensor pad(const Tensor& input, const Dims& pad, const std::string& mode, const std::optional<Scalar>& value) {
    if (mode == "constant") return constant_pad(input, pad, value.value_or(Scalar(0)));
    if (value && !(*value == 0)) throw ValueError("Padding mode \"", mode, "\" doesn't take in value argument");
    if (mode != "reflect" && mode != "replicate" && mode != "circular") throw NotImplemented("Unrecognised padding mode ", mode);
    return mapped_pad(input, pad, mode);
}

// --- unfold and fold ---

namespace {

Dims two(const char* op, const char* name, const Dims& given) {
    if (given.size() == 2) return given;
    if (given.size() == 1) return Dims(2, given[0]);
    throw RuntimeError(op, ": ", name, " must be an int or a tuple of 2 ints, got ", given);
}

void check_least(const char* rule, const char* name, const Dims& d, int64_t least) {
    if (d[0] < least || d[1] < least) throw RuntimeError(rule, ", but got ", name, "_height: ", d[0], " ", name, "_width: ", d[1]);
}

struct Windows {
    kernels::ImageWindows w;
    Dims image, columns;  // sizes with the batch
};

Windows windows(const char* op, const Dims& size, const Dims& kernel_size, const Dims& dilation, const Dims& padding, const Dims& stride) {
    const Dims k = two(op, "kernel_size", kernel_size), l = two(op, "dilation", dilation), p = two(op, "padding", padding),
               s = two(op, "stride", stride);
    Windows r;
    for (int d = 0; d < 2; ++d) {
        check_least("kernel size should be greater than zero", "kernel", k, 1);
        check_least("dilation should be greater than zero", "dilation", l, 1);
        check_least("padding should be non-negative", "pad", p, 0);
        check_least("stride should be greater than zero", "stride", s, 1);
        r.w.in[d] = size[d];
        r.w.kernel[d] = k[d];
        r.w.dilation[d] = l[d];
        r.w.padding[d] = p[d];
        r.w.stride[d] = s[d];
        const int64_t room = plus(plus(size[d], times(2, p[d])), -times(l[d], k[d] - 1) - 1);
        r.w.out[d] = room < 0 ? 0 : room / s[d] + 1;
    }
    if (r.w.out[0] < 1 || r.w.out[1] < 1)
        throw RuntimeError("Given input with spatial size (", size[0], ", ", size[1], "), kernel_size=(", k[0], ", ", k[1], "), dilation=(",
                           l[0], ", ", l[1], "), padding=(", p[0], ", ", p[1], "), calculated shape of the array of sliding blocks as (",
                           r.w.out[0], ", ", r.w.out[1], "), but its components must be at least one.");
    return r;
}

void set_batch(Windows& r, int64_t batch, int64_t channels) {
    r.w.batch = batch;
    r.w.channels = channels;
    r.image = {batch, channels, r.w.in[0], r.w.in[1]};
    r.columns = {batch, times(channels, times(r.w.kernel[0], r.w.kernel[1])), times(r.w.out[0], r.w.out[1])};
}

// unfold, or, backward, fold; each is the derivative of the other.
Tensor move_windows(const Windows& r, const Tensor& input, bool fold) {
    const Tensor x = plain(fold && is_reduced(input.dtype()) ? to(alias(input), DType::f32) : input);
    Tensor out = empty(fold ? r.image : r.columns, x.dtype());
    if (out.numel() > 0) {
        Unlocked unlocked(std::max(out.numel(), x.numel()));
        const kernels::ImageKernels& kernels = kernels::image();
        (fold ? kernels.fold : kernels.unfold)(x.dtype(), r.w, x.device_data(), out.device_data());
    }
    if (out.dtype() != input.dtype()) out = to(out, input.dtype());
    if (needs_grad(input))
        record(out, fold ? "Col2ImBackward0" : "Im2ColBackward0", {input}, {},
               [r, fold](Backward& bw) { bw.set(0, move_windows(r, bw.grad(), !fold)); });
    return out;
}

Tensor unfold_image(const Tensor& input, const Dims& kernel_size, const Dims& dilation, const Dims& padding, const Dims& stride) {
    const bool valid = (input.dim() == 3 && input.size(0) > 0 && input.size(1) > 0 && input.size(2) > 0) ||
                       (input.dim() == 4 && input.size(1) > 0 && input.size(2) > 0 && input.size(3) > 0);
    if (!valid)
        throw RuntimeError("Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero ",
                           "dimensions for input, but got: ", input.sizes());
    Windows r = windows("unfold", {input.size(-2), input.size(-1)}, kernel_size, dilation, padding, stride);
    const Tensor x = input.dim() == 3 ? unsqueeze(input, 0) : input;
    set_batch(r, x.size(0), x.size(1));
    const Tensor y = move_windows(r, x, false);
    return input.dim() == 3 ? squeeze(y, {0}) : y;
}

Tensor fold_image(const Tensor& input, const Dims& output_size, const Dims& kernel_size, const Dims& dilation, const Dims& padding,
                  const Dims& stride) {
    if (!((input.dim() == 2 && input.size(0) > 0 && input.size(1) > 0) || (input.dim() == 3 && input.size(1) > 0 && input.size(2) > 0)))
        throw RuntimeError("Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero ",
                           "dimensions for input, but got: ", input.sizes());
    if (!is_floating(input.dtype()) && !is_complex(input.dtype()))
        throw NotImplemented("\"col2im_out_cpu\" not implemented for '", type_name(input.dtype()), "'");
    Windows r = windows("fold", two("fold", "output_size", output_size), kernel_size, dilation, padding, stride);
    const Tensor x = input.dim() == 2 ? unsqueeze(input, 0) : input;
    const int64_t taps = times(r.w.kernel[0], r.w.kernel[1]);
    if (x.size(1) % taps != 0)
        throw RuntimeError("Expected size of input's dimension 1 to be divisible by the product of kernel_size, but ",
                           "got input.size(1)=", x.size(1), " and kernel_size=(", r.w.kernel[0], ", ", r.w.kernel[1], ").");
    set_batch(r, x.size(0), x.size(1) / taps);
    if (x.size(2) != r.columns[2])
        throw RuntimeError("Given output_size=(", r.w.in[0], ", ", r.w.in[1], "), kernel_size=(", r.w.kernel[0], ", ", r.w.kernel[1],
                           "), dilation=(", r.w.dilation[0], ", ", r.w.dilation[1], "), padding=(", r.w.padding[0], ", ", r.w.padding[1],
                           "), stride=(", r.w.stride[0], ", ", r.w.stride[1],
                           "), expected size of input's dimension 2 to match the calculated number of sliding blocks ", r.w.out[0], " * ",
                           r.w.out[1], " = ", r.columns[2], ", but got input.size(2)=", x.size(2), ".");
    const Tensor y = move_windows(r, x, true);
    return input.dim() == 2 ? squeeze(y, {0}) : y;
}

// --- shuffles ---

// Puts elements into another order: the inverse takes the gradient back.
Tensor rearranged(const char* name, const Tensor& x, const Dims& split, const Dims& order, const Dims& sizes) {
    Tensor y;
    {
        GradMode off(false);
        y = alias(reshape(contiguous(permute(reshape(x, split), order)), sizes));
        if (y.storage() == x.storage()) y = clone(y);
        y = result_in(y, format_of(x));
    }
    if (needs_grad(x))
        record(y, name, {x}, {}, [split, order, own = x.sizes()](Backward& bw) {
            Dims moved, back(order.size());
            for (int64_t i = 0; i < order.size(); i++) {
                moved.push_back(split[order[i]]);
                back[order[i]] = i;
            }
            bw.set(0, reshape(permute(reshape(bw.grad(), moved), back), own));
        });
    return y;
}

Tensor pixel_shuffle(const Tensor& x, int64_t factor) {
    if (x.dim() < 3)
        throw RuntimeError("pixel_shuffle expects input to have at least 3 dimensions, but got input with ", x.dim(), " dimension(s)");
    if (factor <= 0) throw RuntimeError("pixel_shuffle expects a positive upscale_factor, but got ", factor);
    const int64_t c = x.size(-3), h = x.size(-2), w = x.size(-1), n = x.dim() - 3;
    int64_t square;
    if (__builtin_mul_overflow(factor, factor, &square))
        throw ValueError("pixel_shuffle: the square of upscale_factor ", factor, " does not fit into 64 bits");
    if (c % square != 0)
        throw RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of ",
                           "upscale_factor, but input.size(-3)=", c, " is not divisible by the square of ", factor);
    Dims split(x.sizes().data(), n), order, sizes = split;
    for (int64_t i = 0; i < n; ++i) order.push_back(i);
    for (int64_t v : {c / square, factor, factor, h, w}) split.push_back(v);
    for (int64_t v : {n, n + 3, n + 1, n + 4, n + 2}) order.push_back(v);
    for (int64_t v : {c / square, times(h, factor), times(w, factor)}) sizes.push_back(v);
    return rearranged("PixelShuffleBackward0", x, split, order, sizes);
}

Tensor pixel_unshuffle(const Tensor& x, int64_t factor) {
    if (x.dim() < 3)
        throw RuntimeError("pixel_unshuffle expects input to have at least 3 dimensions, but got input with ", x.dim(), " dimension(s)");
    if (factor <= 0) throw RuntimeError("pixel_unshuffle expects a positive downscale_factor, but got ", factor);
    const int64_t c = x.size(-3), h = x.size(-2), w = x.size(-1), n = x.dim() - 3;
    if (factor > (int64_t(1) << 30) || h % factor != 0 || w % factor != 0)
        throw RuntimeError("pixel_unshuffle expects height and width to be divisible by downscale_factor, but ", "input.size(-2)=", h,
                           " and input.size(-1)=", w, " are not divisible by ", factor);
    Dims split(x.sizes().data(), n), order, sizes = split;
    for (int64_t i = 0; i < n; ++i) order.push_back(i);
    for (int64_t v : {c, h / factor, factor, w / factor, factor}) split.push_back(v);
    for (int64_t v : {n, n + 2, n + 4, n + 1, n + 3}) order.push_back(v);
    for (int64_t v : {times(c, factor * factor), h / factor, w / factor}) sizes.push_back(v);
    return rearranged("PixelUnshuffleBackward0", x, split, order, sizes);
}

Tensor channel_shuffle(const Tensor& x, int64_t groups) {
    if (x.dim() <= 2) throw RuntimeError("channel_shuffle expects input with > 2 dims, but got input with sizes ", x.sizes());
    if (groups <= 0) throw RuntimeError("Number of groups to divide channels in must be positive. Value of groups:", groups);
    const int64_t c = x.size(1);
    if (c % groups != 0)
        throw RuntimeError("Number of channels must be divisible by groups. Got ", c, " channels and ", groups, " groups.");
    Dims split{x.size(0), groups, c / groups}, order{0, 2, 1};
    for (int64_t d = 2; d < x.dim(); ++d) {
        split.push_back(x.size(d));
        order.push_back(d + 1);
    }
    return rearranged("ChannelShuffleBackward0", x, split, order, x.sizes());
}

// --- grid_sample ---

void warn_about_alignment() {
    warn(
        "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
        "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details.");
}

struct GridGrads {
    Tensor input, grid;
};

GridGrads grid_sample_backward(const kernels::GridSample& g, const Tensor& grad, const Tensor& input, const Tensor& grid, bool want_input,
                               bool want_grid) {
    const DType dtype = input.dtype(), wide = is_reduced(dtype) ? DType::f32 : dtype;
    const Tensor d = plain(to(alias(grad), wide)), x = plain(to(alias(input), wide)), p = plain(to(alias(grid), wide));
    GridGrads r;
    if (want_input) r.input = zeros(input.sizes(), wide);
    if (want_grid) r.grid = zeros(grid.sizes(), wide);
    if (d.numel() > 0)
        kernels::image().grid_sample_grad(wide, g, d.device_data(), x.device_data(), p.device_data(),
                                          want_input ? r.input.device_data() : nullptr, want_grid ? r.grid.device_data() : nullptr);
    if (wide != dtype) {
        if (want_input) r.input = to(r.input, dtype);
        if (want_grid) r.grid = to(r.grid, dtype);
    }
    return r;
}

Tensor grid_sampler(const Tensor& input, const Tensor& grid, kernels::GridInterpolation interpolation, kernels::GridPadding padding,
                    bool align_corners) {
    kernels::GridSample g{};
    g.interpolation = interpolation;
    g.padding = padding;
    g.align_corners = align_corners;
    if ((input.dim() != 4 && input.dim() != 5) || input.dim() != grid.dim())
        throw RuntimeError("grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got ", "input with sizes ",
                           input.sizes(), " and grid with sizes ", grid.sizes());
    g.dims = int(input.dim() - 2);
    if (input.size(0) != grid.size(0))
        throw RuntimeError("grid_sampler(): expected grid and input to have same batch size, but got input with sizes ", input.sizes(),
                           " and grid with sizes ", grid.sizes());
    if (grid.size(-1) != g.dims)
        throw RuntimeError("grid_sampler(): expected grid to have size ", g.dims, " in last dimension, but got grid ", "with sizes ",
                           grid.sizes());
    for (int64_t d = 2; d < input.dim(); ++d)
        if (input.size(d) == 0)
            throw RuntimeError("grid_sampler(): expected input to have non-empty spatial dimensions, but input has ", "sizes ",
                               input.sizes(), " with dimension ", d, " being empty");
    if (g.dims == 3 && g.interpolation == kernels::GridInterpolation::bicubic)
        throw RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input");
    if (input.dtype() != grid.dtype())
        throw RuntimeError("grid_sampler(): expected input and grid to have same dtype, but input has ", name_of(input.dtype()),
                           " and grid has ", name_of(grid.dtype()));
    if (!is_floating(input.dtype())) throw NotImplemented("\"grid_sampler\" not implemented for '", type_name(input.dtype()), "'");
    g.batch = input.size(0);
    g.channels = input.size(1);
    Dims sizes{g.batch, g.channels};
    g.in[0] = g.out[0] = 1;
    for (int d = 0; d < g.dims; ++d) {
        g.in[3 - g.dims + d] = input.size(2 + d);
        g.out[3 - g.dims + d] = grid.size(1 + d);
        sizes.push_back(grid.size(1 + d));
    }
    const DType wide = is_reduced(input.dtype()) ? DType::f32 : input.dtype();
    const Tensor x = plain(to(alias(input), wide)), p = plain(to(alias(grid), wide));
    Tensor out = empty(sizes, wide);
    if (out.numel() > 0) {
        Unlocked unlocked(out.numel() * 8);
        kernels::image().grid_sample(wide, g, x.device_data(), p.device_data(), out.device_data());
    }
    if (wide != input.dtype()) out = to(out, input.dtype());
    if (needs_grad(input, grid))
        record(out, g.dims == 2 ? "GridSampler2DBackward0" : "GridSampler3DBackward0", {input, grid}, {input, grid}, [g](Backward& bw) {
            const Tensor x = bw.saved(0), p = bw.saved(1);
            if (bw.create_graph) {  // the gradient must be differentiable: take it from the formula
                BackwardRequest request;
                request.roots = {grid_sample_formula(g, x, p)};
                request.grads = {bw.grad()};
                request.create_graph = request.retain_graph = request.allow_unused = true;
                request.accumulate = false;
                for (int i = 0; i < 2; ++i)
                    if (bw.needs(i)) request.inputs.push_back(i == 0 ? x : p);
                const TensorList grads = run_backward(request);
                int64_t next = 0;
                for (int i = 0; i < 2; ++i) {
                    if (!bw.needs(i)) continue;
                    const Tensor gradient = grads[next++];
                    set_piecewise_linear(bw, i, gradient.defined() ? gradient : zeros_like(i == 0 ? x : p), "GridSamplerBackwardBackward0");
                }
                return;
            }
            const GridGrads r = grid_sample_backward(g, bw.grad(), x, p, bw.needs(0), bw.needs(1));
            if (bw.needs(0)) bw.set(0, r.input);
            if (bw.needs(1)) bw.set(1, r.grid);
        });
    return out;
}

Tensor grid_sample(const Tensor& input, const Tensor& grid, const std::string& mode, const std::string& padding_mode,
                   std::optional<bool> align_corners) {
    static constexpr const char *modes[] = {"bilinear", "nearest", "bicubic"}, *paddings[] = {"zeros", "border", "reflection"};
    int m = 0, p = 0;
    while (m < 3 && mode != modes[m]) ++m;
    while (p < 3 && padding_mode != paddings[p]) ++p;
    if (m == 3)
        throw ValueError("nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but ", "got: '", mode, "'");
    if (p == 3)
        throw ValueError("nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or ", "'reflection', but got: '",
                         padding_mode, "'");
    if (!align_corners) warn_about_alignment();
    return grid_sampler(input, grid, kernels::GridInterpolation(m), kernels::GridPadding(p), align_corners.value_or(false));
}

Tensor grid_sampler_numbered(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, bool align) {
    if (mode < 0 || mode > 2 || padding < 0 || padding > 2)
        throw RuntimeError("grid_sampler(): interpolation_mode and padding_mode must be 0, 1 or 2, got ", mode, " and ", padding);
    return grid_sampler(input, grid, kernels::GridInterpolation(mode), kernels::GridPadding(padding), align);
}

// The points that theta maps: homogeneous coordinates of a regular grid times theta^T.
Tensor affine_grid(const Tensor& theta, const Dims& size, std::optional<bool> align_corners) {
    if (!is_floating(theta.dtype())) throw ValueError("Expected theta to have floating point type, but got ", name_of(theta.dtype()));
    const int64_t dims = size.size() - 2;
    if (dims != 2 && dims != 3)
        throw NotImplemented("affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, ", "respectively. Got size ",
                             size);
    if (theta.dim() != 3 || theta.size(0) != size[0] || theta.size(1) != dims || theta.size(2) != dims + 1)
        throw ValueError("Expected a batch of ", dims, "D affine matrices of shape Nx", dims, "x", dims + 1, " for size ", size, ". Got ",
                         theta.sizes(), ".");
    for (int64_t v : size)
        if (v <= 0) throw ValueError("Expected non-zero, positive output size. Got ", size);
    if (!align_corners) warn_about_alignment();
    int64_t points = 1, shortest = size[2];
    for (int64_t d = 0; d < dims; ++d) {
        points = times(points, size[2 + d]);
        shortest = std::min(shortest, size[2 + d]);
    }
    if (align_corners.value_or(false) && shortest == 1)
        warn(
            "affine_grid: with align_corners=True a dimension of size 1 has a single point, at 0 and not at -1. "
            "See the documentation of affine_grid for details.");
    Tensor base = empty({points, dims + 1}, theta.dtype());
    {
        GradMode off(false);
        Dims shape;
        for (int64_t d = 0; d < dims; ++d) shape.push_back(size[2 + d]);
        for (int64_t d = 0; d < dims; ++d) {  // x is the last dimension
            const int64_t n = shape[dims - 1 - d];
            const Tensor k = to(arange(n), DType::f64);
            Tensor step = k * Scalar(2.0);
            if (!align_corners.value_or(false)) step = (step + Scalar(1.0)) / Scalar(double(n)) - Scalar(1.0);
            else if (n > 1) step = step / Scalar(double(n - 1)) - Scalar(1.0);
            Dims line(dims, 1);
            line[dims - 1 - d] = n;
            copy_values(reshape(select(base, 1, d), shape), expand(reshape(step, line), shape));
        }
        copy_values(select(base, 1, dims), ones({points}, theta.dtype()));
    }
    Dims sizes{size[0]};
    for (int64_t d = 0; d < dims; ++d) sizes.push_back(size[2 + d]);
    sizes.push_back(dims);
    return reshape(matmul(base, transpose(theta, 1, 2)), sizes);
}

}  // namespace

#define WISP_BOTH(name, arguments, f, facts) \
    {name arguments, f, function | facts}, { "nn.functional." name arguments, f, function | facts }

static const Operators operators = {
    {"nn.functional.pad(Tensor input, int[] pad, str mode='constant', Number? value=None)",
     [](const Tensor& x, Dims p, std::string mode, std::optional<Scalar> value) { return pad(x, p, mode, value); }, stored | function,
     R"(The tensor with something around it: a number, or its own elements mirrored, repeated or in a circle. `pad` has the widths from the last dimension on.
        >>> wisp.nn.functional.pad(wisp.tensor([[1.0, 2.0]]), (1, 1), mode="replicate")
        tensor([[1., 1., 2., 2.]]))"},
    {"constant_pad_nd(Tensor input, int[] pad, Number value=0)",
     [](const Tensor& x, Dims p, Scalar value) { return constant_pad(x, p, value); }, stored | function,
     R"(The tensor with a number around it; `pad` has the widths from the last dimension on.
        >>> wisp.constant_pad_nd(wisp.tensor([1, 2]), (1, 2), 9)
        tensor([9, 1, 2, 9, 9]))"},
    {"nn.functional.unfold(Tensor input, int[] kernel_size, int[] dilation=1, int[] padding=0, int[] stride=1)",
     [](const Tensor& x, Dims k, Dims d, Dims p, Dims s) { return unfold_image(x, k, d, p, s); }, function,
     R"(The windows of pictures as columns: [N, C, H, W] becomes [N, C * K * K, windows].
        >>> wisp.nn.functional.unfold(wisp.ones(1, 1, 3, 3), 2).shape
        torch.Size([1, 4, 4]))"},
    {"nn.functional.fold(Tensor input, int[] output_size, int[] kernel_size, int[] dilation=1, int[] padding=0, "
     "int[] stride=1)",
     [](const Tensor& x, Dims o, Dims k, Dims d, Dims p, Dims s) { return fold_image(x, o, k, d, p, s); }, function,
     R"(Blocks put together to pictures, overlaps added: the opposite of `unfold`.
        >>> wisp.nn.functional.fold(wisp.ones(1, 4, 1), (2, 2), 2)
        tensor([[[[1., 1.],
                  [1., 1.]]]]))"},
    WISP_BOTH(
        "pixel_shuffle", "(Tensor input, int upscale_factor)", [](const Tensor& x, int64_t n) { return pixel_shuffle(x, n); },
        takes_batches),
    WISP_BOTH(
        "pixel_unshuffle", "(Tensor input, int downscale_factor)", [](const Tensor& x, int64_t n) { return pixel_unshuffle(x, n); },
        takes_batches),
    WISP_BOTH(
        "channel_shuffle", "(Tensor input, int groups)", [](const Tensor& x, int64_t n) { return channel_shuffle(x, n); }, Facts()),
    {"nn.functional.grid_sample(Tensor input, Tensor grid, str mode='bilinear', str padding_mode='zeros', "
     "bool? align_corners=None)",
     [](const Tensor& x, const Tensor& grid, std::string mode, std::string padding, std::optional<bool> align) {
         return grid_sample(x, grid, mode, padding, align);
     },
     function | cpu_float32 | cuda_widest,
     R"(Samples of a picture at the points of a grid, whose corners are -1 and 1.
        >>> wisp.nn.functional.grid_sample(wisp.ones(1, 1, 2, 2), wisp.zeros(1, 1, 1, 2), align_corners=False)
        tensor([[[[1.]]]]))"},
#define WISP_GRID_SAMPLER(name)                                                                        \
    {name "(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners)", \
     [](const Tensor& x, const Tensor& grid, int64_t mode, int64_t padding, bool align) {              \
         return grid_sampler_numbered(x, grid, mode, padding, align);                                  \
     },                                                                                                \
     function}
    WISP_GRID_SAMPLER("grid_sampler"),
    WISP_GRID_SAMPLER("grid_sampler_2d"),
    WISP_GRID_SAMPLER("grid_sampler_3d"),
    {"nn.functional.affine_grid(Tensor theta, int[] size, bool? align_corners=None)",
     [](const Tensor& theta, Dims size, std::optional<bool> align) { return affine_grid(theta, size, align); }, function,
     R"(The grid of points that affine maps make of a picture, for `grid_sample`.
        >>> wisp.nn.functional.affine_grid(wisp.eye(2, 3)[None], (1, 1, 2, 2), align_corners=True).shape
        torch.Size([1, 2, 2, 2]))"},
    {"channel_shuffle",
     R"(The channels of `groups` groups, taken in turns.
        >>> wisp.channel_shuffle(wisp.arange(4.0).reshape(1, 4, 1), 2).flatten()
        tensor([0., 2., 1., 3.]))"},
    {"pixel_shuffle",
     R"(Channels spread into blocks of pixels: [C r², H, W] becomes [C, H r, W r].
        >>> wisp.pixel_shuffle(wisp.zeros(1, 8, 2, 2), 2).shape
        torch.Size([1, 2, 4, 4]))"},
    {"pixel_unshuffle",
     R"(Blocks of pixels gathered into channels: the opposite of `pixel_shuffle`.
        >>> wisp.pixel_unshuffle(wisp.zeros(1, 2, 4, 4), 2).shape
        torch.Size([1, 8, 2, 2]))"},
    {"grid_sampler", cuda_widest,
     R"(Samples of a picture at the points of a grid.
        >>> wisp.grid_sampler(wisp.ones(1, 1, 2, 2), wisp.zeros(1, 1, 1, 2), 0, 0, False)
        tensor([[[[1.]]]]))"},
    {"grid_sampler_2d",
     R"(Samples of a picture at the points of a grid.
        >>> wisp.grid_sampler_2d(wisp.ones(1, 1, 2, 2), wisp.zeros(1, 1, 1, 2), 0, 0, False)
        tensor([[[[1.]]]]))"},
    {"grid_sampler_3d",
     R"(Samples of a volume at the points of a grid.
        >>> wisp.grid_sampler_3d(wisp.ones(1, 1, 2, 2, 2), wisp.zeros(1, 1, 1, 1, 3), 0, 0, False).flatten()
        tensor([1.]))"},
};

}  // namespace wisp
