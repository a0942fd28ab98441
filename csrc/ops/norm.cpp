// Front doors of layer_norm, rms_norm, group_norm and batch_norm.
//
// The backward pass is one kernel. Where it must itself be differentiable it is the formula, on tensors.
#include "../kernels/norm.h"

#include "../autograd/told.h"
#include "../compile/tape.h"

#include "../python/registry.h"
#include "format.h"
#include "fused.h"

#include "../python/autocast.h"

namespace wisp {
namespace {

// ---- the formula

struct Gradients {
    Tensor x, xhat;  // xhat: the normalised input, for the gradient of the weight
};
// The gradient of x through xhat = (x - mean) * rstd over `dims`, from the gradient of xhat; differentiable.
Gradients through_statistics(const Tensor& grad_xhat, const Tensor& x, const Dims& dims, double eps, bool centered) {
    const Tensor centre = centered ? x - mean(x, dims, true) : x;
    const Tensor rstd = rsqrt(mean(square(centre), dims, true) + Scalar(eps));
    const Tensor xhat = centre * rstd;
    Tensor inner = grad_xhat - xhat * mean(grad_xhat * xhat, dims, true);
    if (centered) inner = inner - mean(grad_xhat, dims, true);
    return {inner * rstd, xhat};
}

// ---- layer and RMS norm

// Checks as PyTorch does and returns the first normalised dimension.
int64_t normalized_start(const char* name, const Tensor& x, const Dims& shape, const Tensor& weight, const Tensor& bias) {
    if (shape.empty())
        throw RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., "
            "containing at least one element, but got normalized_shape = ",
            shape);
    if (weight && !(weight.sizes() == shape))
        throw RuntimeError("Expected weight to be of same shape as normalized_shape, but got weight of shape ", weight.sizes(),
                           " and normalized_shape = ", shape);
    if (bias && !(bias.sizes() == shape))
        throw RuntimeError("Expected bias to be of same shape as normalized_shape, but got bias of shape ", bias.sizes(),
                           " and normalized_shape = ", shape);
    const int64_t start = x.dim() - shape.size();
    bool fits = start >= 0;
    for (int64_t i = 0; fits && i < shape.size(); i++) fits = x.size(start + i) == shape[i];
    if (!fits) {
        std::string wanted = "[*";
        for (int64_t s : shape) wanted += str(", ", s);
        throw RuntimeError("Given normalized_shape=", shape, ", expected input with shape ", wanted,
                           "], "
                           "but got input of size",
                           x.sizes());
    }
    check_floating(name, x);
    return start;
}

Dims range(int64_t from, int64_t to) {
    Dims d;
    for (int64_t i = from; i < to; i++) d.push_back(i);
    return d;
}

struct LayerResult {
    Tensor y, mean, rstd;
};

// In a compiled region of a GPU a norm of rows that a block holds in registers is noted piece by piece, so that it is one program with
// what makes its rows and what uses them.
bool is_noted(const Tensor& x, int64_t start) {
    if (!noting || !x.is_cuda() || !x.is_contiguous() || x.numel() == 0 || start == 0 || start != x.dim() - 1 || x.dim() > 4) return false;
    const int64_t n = x.size(start);
    return n >= 64 && n <= 4096 && n % 4 == 0 && compute_dtype(x.dtype()) == DType::f32 && x.numel() < INT32_MAX;
}

LayerResult note_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, bool centered) {
    GradMode off(false);
    const DType d = x.dtype();
    const Dims last = {x.dim() - 1};
    Tensor y = to(x, DType::f32);
    LayerResult r;
    if (centered) {
        r.mean = mean(y, last, true);
        y = y - r.mean;
    }
    r.rstd = rsqrt(mean(y * y, last, true) + Scalar(eps));
    y = y * r.rstd;
    if (weight) y = y * to(weight, d);
    if (bias) y = y + to(bias, d);
    r.y = to(y, d);
    return r;
}

void note_layer_norm_backward(Backward& bw, const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean_,
                              const Tensor& rstd) {
    GradMode off(false);
    const DType d = x.dtype();
    const int64_t start = x.dim() - 1;
    const Dims last = {start};
    const Tensor given = contiguous(to(grad, d)), g = to(given, DType::f32), wide = to(x, DType::f32);
    const Tensor xhat = (mean_ ? wide - mean_ : wide) * rstd;
    if (bw.needs(0)) {
        const Tensor scaled = weight ? g * to(weight, d) : g;
        Tensor inner = scaled - xhat * mean(scaled * xhat, last, true);
        if (mean_) inner = inner - mean(scaled, last, true);
        bw.set(0, to(inner * rstd, d));
    }
    if (bw.needs(1)) bw.set(1, sum(g * xhat, range(0, start), false, d));
    if (bw.needs(2)) bw.set(2, sum(given, range(0, start), false, d));
}

LayerResult layer_norm_of(const Tensor& x, const Dims& shape, const Tensor& weight, const Tensor& bias, double eps, bool centered) {
    const int64_t start = normalized_start(centered ? "LayerNormKernelImpl" : "RMSNormKernelImpl", x, shape, weight, bias);
    const int64_t n = product(shape), rows = x.numel() / (n ? n : 1);
    const DType d = x.dtype(), c = compute_dtype(d);
    Dims stat_sizes = x.sizes();
    for (int64_t i = start; i < x.dim(); i++) stat_sizes[i] = 1;
    LayerResult r;
    const bool noted = is_noted(x, start);
    if (noted) r = note_layer_norm(x, weight, bias, eps, centered);
    else r = {empty(x.sizes(), d), centered ? empty(stat_sizes, c) : Tensor(), empty(stat_sizes, c)};
    if (x.numel() && !noted) {
        const Tensor in = kernel_input(x), w = kernel_input(weight, d), b = kernel_input(bias, d);
        Unlocked unlocked(x.numel());
        kernels::norm().layer_norm(d, in.device_data(), pointer(w), pointer(b), r.y.device_data(), r.mean ? r.mean.device_data() : nullptr,
                                   r.rstd.device_data(), rows, n, eps);
    } else if (n == 0) {  // rows of nothing: PyTorch's statistics
        if (r.mean) fill_(r.mean, NAN);
        fill_(r.rstd, NAN);
    }
    if (needs_grad(x, weight, bias))
        record(r.y,
               centered      ? "NativeLayerNormBackward0"
               : x.is_cuda() ? "FusedRmsNormBackward0"
                             : "MulBackward0",
               {x, weight, bias}, {x, weight, r.mean, r.rstd},
               told<"| input weight result1 result2">([start, rows, n, eps, centered](Backward& bw) {
                   const Tensor g = bw.grad(), x = bw.saved(0), weight = bw.saved(1);
                   if (needs_grad(g, x, weight)) {
                       const Gradients inner = through_statistics(weight ? g * weight : g, x, range(start, x.dim()), eps, centered);
                       if (bw.needs(0)) bw.set(0, inner.x);
                       if (bw.needs(1)) bw.set(1, start ? sum(g * inner.xhat, range(0, start)) : g * inner.xhat);
                       if (bw.needs(2)) bw.set(2, start ? sum(g, range(0, start)) : g);
                       return;
                   }
                   const DType d = x.dtype();
                   const Tensor mean = bw.saved(2), rstd = bw.saved(3);
                   if (is_noted(x, start)) return note_layer_norm_backward(bw, g, x, weight, mean, rstd);
                   const Tensor grad = kernel_input(g, d), in = kernel_input(x), w = kernel_input(weight, d);
                   const Dims shape(x.sizes().data() + start, x.dim() - start);
                   Tensor dx = bw.needs(0) ? empty(x.sizes(), d) : Tensor();
                   Tensor dw = bw.needs(1) ? empty(shape, d) : Tensor(), db = bw.needs(2) ? empty(shape, d) : Tensor();
                   {
                       Unlocked unlocked(x.numel());
                       kernels::norm().layer_norm_backward(d, grad.device_data(), in.device_data(), pointer(w), pointer(mean),
                                                           rstd.device_data(), pointer(dx), pointer(dw), pointer(db), rows, n);
                   }
                   bw.set(0, dx);
                   bw.set(1, dw);
                   bw.set(2, db);
               }));
    return r;
}

Tensor rms_norm(const Tensor& x, const Dims& shape, const Tensor& weight, std::optional<double> given) {
    const bool wide = real_of(x.dtype()) == DType::f64;
    const double eps = given ? *given : wide ? 2.220446049250313e-16 : 1.1920928955078125e-07;
    if (!is_complex(x.dtype())) return layer_norm_of(x, shape, weight, Tensor(), eps, false).y;
    const Tensor y = x * rsqrt(mean(x * x, range(x.dim() - shape.size(), x.dim()), true) + Scalar(eps));
    return weight ? y * weight : y;
}

// ---- group norm

// The gradients as a formula.
void group_norm_formula(Backward& bw, int64_t batch, int64_t groups, int64_t channels, int64_t spatial, double eps) {
    const Tensor g = bw.grad(), x = bw.saved(0), weight = bw.saved(1);
    const Tensor flat = reshape(g, {batch, channels, spatial});
    const Tensor scaled = weight ? flat * reshape(weight, {channels, 1}) : flat;
    const Dims grouped = {batch, groups, channels / groups * spatial};
    const Gradients inner = through_statistics(reshape(scaled, grouped), reshape(to(x, g.dtype()), grouped), {2}, eps, true);
    if (bw.needs(0)) bw.set(0, to(reshape(inner.x, x.sizes()), x.dtype()));
    if (bw.needs(1)) bw.set(1, sum(flat * reshape(inner.xhat, {batch, channels, spatial}), {0, 2}));
    if (bw.needs(2)) bw.set(2, sum(flat, {0, 2}));
}

// By one kernel, on contiguous memory of one dtype.
void group_norm_backward(Backward& bw, int64_t batch, int64_t groups, int64_t channels, int64_t spatial) {
    const Tensor g = bw.grad(), x = bw.saved(0), weight = bw.saved(1), mean = bw.saved(2), rstd = bw.saved(3);
    const DType d = promote(x.dtype(), g.dtype());
    const Tensor grad = kernel_input(g, d), in = kernel_input(x, d), w = kernel_input(weight, d);
    const Tensor dx = bw.needs(0) ? empty(x.sizes(), d) : Tensor();
    const Tensor dw = bw.needs(1) ? empty({channels}, d) : Tensor(), db = bw.needs(2) ? empty({channels}, d) : Tensor();
    {
        Unlocked unlocked(x.numel());
        kernels::norm().group_norm_backward(d, grad.device_data(), in.device_data(), pointer(w), mean.device_data(), rstd.device_data(),
                                            pointer(dx), pointer(dw), pointer(db), batch, groups, channels / groups, spatial);
    }
    bw.set(0, dx ? to(dx, x.dtype()) : dx);
    bw.set(1, dw);
    bw.set(2, db);
}

// How the kernels that give factors take a call.
struct GroupNormCall {
    bool visibly_last;  // the strides of x say so
    kernels::GroupNorm shape;
    Tensor in, weight, bias;

    GroupNormCall(const Tensor& x, int64_t groups, DType w, const Tensor& weight_, const Tensor& bias_)
        : visibly_last(noting && format_of(x) == MemoryFormat::channels_last),
          weight(kernel_input(weight_, w)),
          bias(kernel_input(bias_, w)) {
        const bool last = visibly_last || (noting && compile::turns(x.device()) && compile::is_turned(x));
        in = last ? compile::by_channels(x) : kernel_input(x);
        shape = {x.dtype(), w, last, x.size(0), x.size(1), groups, x.numel() / (x.size(0) * x.size(1)), pointer(weight), pointer(bias)};
    }
};

// On a GPU kernels give factors, by which elements are mapped: in a compiled region that is noted, so that it is fused with what comes
// before and after. An empty tensor: not this one.
Tensor group_norm_by_factors(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps, DType result) {
    const auto factors = kernels::norm().group_norm_factors;
    if (!factors || !x.is_cuda() || x.numel() == 0 || x.numel() >= INT32_MAX || x.size(0) > 65535) return {};
    if (noting) {
        const bool last = x.dim() == 4 && x.layout().is_contiguous(MemoryFormat::channels_last) && compile::turns(x.device());
        if (x.dim() > 4 || !(x.is_contiguous() || last)) return {};
    } else if (x.numel() < 1 << 18) {
        return {};  // one kernel is quicker than three
    }
    const int64_t batch = x.size(0), channels = x.size(1), spatial = x.numel() / (batch * channels);
    const DType c = compute_dtype(x.dtype()), w = weight ? weight.dtype() : bias ? bias.dtype() : x.dtype();
    Dims each(x.dim(), 1);
    each[0] = batch, each[1] = channels;
    const Tensor mean = empty({batch, groups}, c), rstd = empty({batch, groups}, c), scale = empty(each, c), shift = empty(each, c);
    Tensor y;
    {
        GradMode off(false);
        const GroupNormCall call(x, groups, w, weight, bias);
        factors(call.shape, compile::peek(call.in), mean.device_data(), rstd.device_data(), scale.device_data(), shift.device_data(), eps);
        if (noting) {
            y = to(alias(x) * scale + shift, result);
            if (call.visibly_last) y = compile::turned(y);  // PyTorch's result is contiguous on a GPU
        } else {
            y = empty(x.sizes(), result);
            kernels::norm().group_norm_map(call.shape, call.in.device_data(), scale.device_data(), shift.device_data(), result,
                                           y.device_data());
        }
    }
    if (needs_grad(x, weight, bias))
        record(y, "NativeGroupNormBackward0", {x, weight, bias}, {x, weight, mean, rstd, scale, shift},
               told<"N C HxW group eps | input weight result1 result2">(
                   [batch, groups, channels, spatial, each, eps, c, w](Backward& bw) {
                       const Tensor g = bw.grad(), x = bw.saved(0), weight = bw.saved(1);
                       if (needs_grad(g, x, weight)) return group_norm_formula(bw, batch, groups, channels, spatial, eps);
                       const Tensor mean = bw.saved(2), rstd = bw.saved(3), slope = empty(each, c), shift = empty(each, c);
                       const Tensor dw = bw.needs(1) ? empty({channels}, w) : Tensor(), db = bw.needs(2) ? empty({channels}, w) : Tensor();
                       const GroupNormCall call(x, groups, w, weight, {});
                       const Tensor grad = call.shape.last ? compile::by_channels(g) : kernel_input(g);
                       kernels::norm().group_norm_gradients(call.shape, g.dtype(), compile::peek(grad), compile::peek(call.in),
                                                            mean.device_data(), rstd.device_data(), slope.device_data(),
                                                            shift.device_data(), pointer(dw), pointer(db));
                       const Tensor scale = bw.saved(4);
                       if (bw.needs(0) && noting) {
                           const Params one = params_of(Scalar(1));
                           bw.set(0, to(pointwise(Pointwise::addcmul, x * slope + shift, g, scale, &one), x.dtype()));
                       } else if (bw.needs(0)) {
                           const Tensor dx = empty(x.sizes(), x.dtype());
                           kernels::norm().group_norm_map_back(call.shape, g.dtype(), grad.device_data(), call.in.device_data(),
                                                               scale.device_data(), slope.device_data(), shift.device_data(),
                                                               dx.device_data());
                           bw.set(0, dx);
                       }
                       bw.set(1, dw);
                       bw.set(2, db);
                   },
                   batch, channels, spatial, groups, eps));
    return y;
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps, bool in_float = false) {
    if (x.dim() < 2) throw RuntimeError("Expected at least 2 dimensions for input tensor but received ", x.dim());
    const int64_t batch = x.size(0), channels = x.size(1);
    if (groups <= 0) throw RuntimeError("Expected num groups to be greater than 0, got ", groups);
    if (channels % groups)
        throw RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, "
            "but got input of shape ",
            x.sizes(), " and num_groups=", groups);
    if (weight && (weight.dim() != 1 || weight.numel() != channels))
        throw RuntimeError(
            "Expected weight to be a vector of size equal to the number of channels in input, "
            "but got weight of shape ",
            weight.sizes(), " and input of shape ", x.sizes());
    if (bias && (bias.dim() != 1 || bias.numel() != channels))
        throw RuntimeError(
            "Expected bias to be a vector of size equal to the number of channels in input, "
            "but got bias of shape ",
            bias.sizes(), " and input of shape ", x.sizes());
    check_floating("GroupNormKernelImpl", x);
    if (Tensor y = group_norm_by_factors(x, groups, weight, bias, eps, in_float ? DType::f32 : x.dtype())) return y;
    if (in_float && is_reduced(x.dtype())) return group_norm(to(x, DType::f32), groups, weight, bias, eps);
    const DType d = x.dtype(), c = compute_dtype(d);
    // Weights of more digits than the input are not rounded: the whole is computed in theirs.
    if (c != d && ((weight && weight.dtype() == c) || (bias && bias.dtype() == c)))
        return to(group_norm(to(x, c), groups, weight, bias, eps), d);
    int64_t spatial = 1;
    for (int64_t i = 2; i < x.dim(); i++) spatial *= x.size(i);
    const Tensor in = kernel_input(x), w = kernel_input(weight, d), b = kernel_input(bias, d);
    Tensor y = empty(x.sizes(), d), mean = empty({batch, groups}, c), rstd = empty({batch, groups}, c);
    if (x.numel()) {
        Unlocked unlocked(x.numel());
        kernels::norm().group_norm(d, in.device_data(), pointer(w), pointer(b), y.device_data(), mean.device_data(), rstd.device_data(),
                                   batch, groups, channels / groups, spatial, eps);
    }
    if (!x.is_cuda()) y = result_in(y, format_of(x));
    if (needs_grad(x, weight, bias))
        record(y, "NativeGroupNormBackward0", {x, weight, bias}, {x, weight, mean, rstd},
               told<"N C HxW group eps | input weight result1 result2">(
                   [batch, groups, channels, spatial, eps](Backward& bw) {
                       if (needs_grad(bw.grad(), bw.saved(0), bw.saved(1)))
                           return group_norm_formula(bw, batch, groups, channels, spatial, eps);
                       group_norm_backward(bw, batch, groups, channels, spatial);
                   },
                   batch, channels, spatial, groups, eps));
    return y;
}

// Autocast on a GPU computes it in float, which halves are read for as they are.
Tensor group_norm_cast(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
    if (!x.is_cuda() || !autocast_enabled() || x.dtype() == DType::f64) return group_norm(x, groups, weight, bias, eps);
    auto wide = [](const Tensor& t) { return t && is_reduced(t.dtype()) ? to(t, DType::f32) : t; };
    return group_norm(x, groups, wide(weight), wide(bias), eps, is_reduced(x.dtype()));
}

// ---- batch norm

struct BatchStatistics {
    Tensor mean, rstd;
};

// With channels last, all positions are the batch. On the GPU weights keep their dtype.
// How the kernels of this device take a call, and the values of weight and bias for them.
struct BatchNormCall {
    MemoryFormat format = MemoryFormat::contiguous;
    Tensor weight, bias;
    kernels::BatchNorm shape;
    BatchNormCall(const Tensor& x, const Tensor& weight_, const Tensor& bias_) {
        const bool any = kernels::norm().any_batch_norm;
        format = format_of(x);
        const DType d = x.dtype(), w = any && weight_ ? weight_.dtype() : any && bias_ ? bias_.dtype() : d;
        weight = kernel_input(weight_, w), bias = kernel_input(bias_, w);
        int64_t spatial = 1;
        for (int64_t i = 2; i < x.dim(); i++) spatial *= x.size(i);
        const bool last = format != MemoryFormat::contiguous;
        shape = {d, w, last ? x.size(0) * spatial : x.size(0), x.size(1), last ? 1 : spatial, pointer(weight), pointer(bias)};
    }
};

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean, const Tensor& running_var,
                  bool training, double momentum, double eps, BatchStatistics* statistics = nullptr) {
    if (x.dim() < 2) {
        if (x.dim() == 1 && x.numel() == 0) return clone(x);  // PyTorch lets an empty vector pass
        throw RuntimeError("batch_norm: expected at least 2 dimensions (batch, channels, ...), got shape ", x.sizes());
    }
    const int64_t batch = x.size(0), channels = x.size(1);
    int64_t spatial = 1;
    for (int64_t i = 2; i < x.dim(); i++) spatial *= x.size(i);
    auto check = [&](const Tensor& t, const char* name) {
        if (t && t.numel() != channels) throw RuntimeError(name, " should contain ", channels, " elements not ", t.numel());
    };
    check(running_mean, "running_mean");
    check(running_var, "running_var");
    check(weight, "weight");
    check(bias, "bias");
    if (!training && (!running_mean || !running_var))
        throw RuntimeError("Expected running_mean and running_var to be defined when training=False");
    check_floating("batch_norm", x);
    const DType d = x.dtype(), c = compute_dtype(d);
    const BatchNormCall call(x, weight, bias);
    const Tensor in = values_in(x, call.format);
    Tensor y = empty_in(x.sizes(), d, call.format), mean = empty({channels}, c), rstd = empty({channels}, c);
    if (training) {
        // The kernel moves contiguous running statistics in place.
        const DType running = running_mean ? running_mean.dtype() : running_var ? running_var.dtype() : d;
        const Tensor moved_mean = kernel_input(running_mean, running), moved_var = kernel_input(running_var, running);
        if (x.numel()) {
            Unlocked unlocked(x.numel());
            kernels::norm().batch_norm_stats(call.shape, in.device_data(), mean.device_data(), rstd.device_data(), running,
                                             pointer(moved_mean), pointer(moved_var), momentum, eps);
        }
        for (auto [t, moved] : {std::pair{&running_mean, &moved_mean}, {&running_var, &moved_var}})
            if (*t) {
                if (!t->same(*moved)) copy_values(*t, *moved);
                bump_version(*t);
            }
    } else {
        const Tensor m = kernel_input(running_mean), v = kernel_input(running_var, running_mean.dtype());
        kernels::norm().batch_norm_from_running(call.shape, m.dtype(), m.device_data(), v.device_data(), mean.device_data(),
                                                rstd.device_data(), eps);
    }
    if (statistics) {
        *statistics = {mean, rstd};
        if (!training) *statistics = {empty({0}, c), empty({0}, c)};
    }
    if (x.numel()) {
        Unlocked unlocked(x.numel());
        kernels::norm().batch_norm_apply(call.shape, in.device_data(), mean.device_data(), rstd.device_data(), y.device_data());
    }
    if (needs_grad(x, weight, bias))
        record(y, "NativeBatchNormBackward0", {x, weight, bias}, {x, weight, mean, rstd},
               told<"eps training | input weight result1 result2">(
                   [batch, channels, spatial, eps, training](Backward& bw) {
                       const Tensor g = bw.grad(), x = bw.saved(0), weight = bw.saved(1), mean = bw.saved(2), rstd = bw.saved(3);
                       if (needs_grad(g, x, weight)) {
                           const Dims flat_sizes = {batch, channels, spatial};
                           const Tensor flat = reshape(g, flat_sizes);
                           const Tensor scaled = weight ? flat * reshape(weight, {channels, 1}) : flat;
                           Gradients inner;
                           if (training) {
                               inner = through_statistics(scaled, reshape(x, flat_sizes), {0, 2}, eps, true);
                           } else {
                               const Tensor r = to(reshape(rstd, {channels, 1}), x.dtype());
                               inner = {scaled * r, (reshape(x, flat_sizes) - to(reshape(mean, {channels, 1}), x.dtype())) * r};
                           }
                           if (bw.needs(0)) bw.set(0, reshape(inner.x, x.sizes()));
                           if (bw.needs(1)) bw.set(1, sum(flat * inner.xhat, {0, 2}));
                           if (bw.needs(2)) bw.set(2, sum(flat, {0, 2}));
                           return;
                       }
                       const BatchNormCall call(x, weight, {});
                       const DType d = x.dtype(), weights = call.shape.weight_dtype;
                       const Tensor grad = values_in(to(alias(g), d), call.format), in = values_in(x, call.format);
                       Tensor dx = bw.needs(0) ? empty_in(x.sizes(), d, call.format) : Tensor();
                       auto per_channel = [&] { return x.numel() ? empty({channels}, weights) : zeros({channels}, weights); };
                       Tensor dw = bw.needs(1) ? per_channel() : Tensor(), db = bw.needs(2) ? per_channel() : Tensor();
                       if (x.numel()) {
                           Unlocked unlocked(x.numel());
                           kernels::norm().batch_norm_backward(call.shape, grad.device_data(), in.device_data(), mean.device_data(),
                                                               rstd.device_data(), pointer(dx), pointer(dw), pointer(db), training);
                       }
                       bw.set(0, dx);
                       bw.set(1, dw);
                       bw.set(2, db);
                   },
                   eps, training));
    return y;
}

void check_batch_of_one(const Tensor& x) {
    int64_t per_channel = x.dim() > 0 ? x.size(0) : 1;
    for (int64_t i = 2; i < x.dim(); i++) per_channel *= x.size(i);
    if (per_channel == 1)
        throw ValueError(
            "Expected more than 1 value per channel when training, "
            "got input size torch.Size(",
            x.sizes(), ")");
}

}  // namespace

static const Operators operators = {
    {"layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
     "bool cudnn_enable=True)",
     [](const Tensor& x, Dims shape, const Tensor& w, const Tensor& b, double eps, bool) {
         return layer_norm_of(x, shape, w, b, eps, true).y;
     },
     function | cuda_float32,
     R"(The last dimensions shifted and scaled to mean 0 and variance 1, then `weight` and `bias`.
        >>> wisp.layer_norm(wisp.tensor([[1.0, 3.0]]), (2,))
        tensor([[-1.0000,  1.0000]]))"},
    {"native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps)",
     [](const Tensor& x, Dims shape, const Tensor& w, const Tensor& b, double eps) {
         LayerResult r = layer_norm_of(x, shape, w, b, eps, true);
         return std::tuple<Tensor, Tensor, Tensor>(r.y, to(r.mean, x.dtype()), to(r.rstd, x.dtype()));
     },
     function | cuda_float32,
     R"(`layer_norm` with the mean and one over the deviation.
        >>> wisp.native_layer_norm(wisp.ones(2, 3), (3,), None, None, 1e-5)[1].shape
        torch.Size([2, 1]))"},
    {"nn.functional.layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
     "float eps=1e-05)",
     [](const Tensor& x, Dims shape, const Tensor& w, const Tensor& b, double eps) { return layer_norm_of(x, shape, w, b, eps, true).y; },
     function | cuda_float32},
    {"rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)",
     [](const Tensor& x, Dims shape, const Tensor& w, std::optional<double> eps) { return rms_norm(x, shape, w, eps); },
     function | cuda_float32,
     R"(The last dimensions divided by the root of their mean square, times `weight`.
        >>> wisp.rms_norm(wisp.tensor([3.0, 3.0]), (2,))
        tensor([1., 1.]))"},
    {"nn.functional.rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)",
     [](const Tensor& x, Dims shape, const Tensor& w, std::optional<double> eps) { return rms_norm(x, shape, w, eps); },
     function | cuda_float32},
    {"group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
     "bool cudnn_enabled=True)",
     [](const Tensor& x, int64_t groups, const Tensor& w, const Tensor& b, double eps, bool) {
         return group_norm_cast(x, groups, w, b, eps);
     },
     function,
     R"(Each of `num_groups` groups of channels shifted and scaled to mean 0 and variance 1, sample by sample.
        >>> wisp.group_norm(wisp.tensor([[1.0, 3.0]]), 1)
        tensor([[-1.0000,  1.0000]]))"},
    {"nn.functional.group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)",
     [](const Tensor& x, int64_t groups, const Tensor& w, const Tensor& b, double eps) {
         if (groups > 0 && x.numel() == groups && x.dim() >= 2 && x.size(0) == 1)
             throw ValueError("Expected more than 1 value per channel when training, got input size ", x.sizes(),
                              " and num_groups=", groups);
         return group_norm_cast(x, groups, w, b, eps);
     },
     function},
    {"batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
     "bool training, float momentum, float eps, bool cudnn_enabled)",
     [](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& m, const Tensor& v, bool training, double momentum, double eps,
        bool) { return batch_norm(x, w, b, m, v, training, momentum, eps); },
     function,
     R"(Each channel shifted and scaled to mean 0 and variance 1 over the batch (in training) or by running statistics.
        >>> wisp.batch_norm(wisp.tensor([[1.0], [3.0]]), None, None, None, None, True, 0.1, 0.0, False)
        tensor([[-1.],
                [ 1.]]))"},
    {"native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
     "bool training, float momentum, float eps, *, Tensor[]!? out=None)",
     [](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& m, const Tensor& v, bool training, double momentum, double eps) {
         BatchStatistics s;
         const Tensor y = batch_norm(x, w, b, m, v, training, momentum, eps, &s);
         return std::tuple<Tensor, Tensor, Tensor>(y, to(s.mean, x.dtype()), to(s.rstd, x.dtype()));
     },
     function,
     R"(`batch_norm` with the statistics of the batch.
        >>> wisp.native_batch_norm(wisp.ones(2, 1), None, None, None, None, True, 0.1, 1e-5)[0].shape
        torch.Size([2, 1]))"},
    {"nn.functional.batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, "
     "Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05)",
     [](const Tensor& x, const Tensor& m, const Tensor& v, const Tensor& w, const Tensor& b, bool training, double momentum, double eps) {
         if (training) check_batch_of_one(x);
         if (training && eps <= 0) throw ValueError("batch_norm eps must be positive during training, but got ", eps, eps == 0 ? ".0" : "");
         if (eps < 0) throw ValueError("batch_norm eps must be non-negative, but got ", eps);
         return batch_norm(x, w, b, m, v, training, momentum, eps);
     },
     function,
     R"(Each channel shifted and scaled to mean 0 and variance 1 over the batch (in training) or by running statistics.
        >>> wisp.nn.functional.batch_norm(wisp.tensor([[1.0], [3.0]]), None, None, training=True)
        tensor([[-1.0000],
                [ 1.0000]]))"},
};

}  // namespace wisp
