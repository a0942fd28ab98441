// Front doors of the losses: cross_entropy and nll_loss with their own kernels, the others as formulas.
#include "../kernels/loss.h"

#include "../autograd/told.h"
#include "../kernels/pointwise_call.h"
#include "../kernels/reduce.h"
#include "../autograd/whole.h"
#include "../compile/tape.h"
#include "../python/autocast.h"
#include "../python/registry.h"
#include "fused.h"

namespace wisp {
namespace {

// ---- reductions

enum class Reduction { none, mean, sum };

Reduction reduction_of(const std::string& name, std::optional<bool> size_average = {}, std::optional<bool> reduce = {}) {
    if (size_average || reduce) {  // PyTorch's older spelling
        const Reduction r = !reduce.value_or(true) ? Reduction::none : size_average.value_or(true) ? Reduction::mean : Reduction::sum;
        warn(str("size_average and reduce args will be deprecated, please use reduction='",
                 r == Reduction::none   ? "none"
                 : r == Reduction::mean ? "mean"
                                        : "sum",
                 "' instead."));
        return r;
    }
    if (name == "none") return Reduction::none;
    if (name == "mean") return Reduction::mean;
    if (name == "sum") return Reduction::sum;
    throw ValueError(name, " is not a valid value for reduction");
}

Dims all_dims(const Tensor& t) {
    Dims d;
    for (int64_t i = 0; i < t.dim(); i++) d.push_back(i);
    return d;
}
Tensor reduced(const Tensor& t, Reduction r) { return r == Reduction::none ? t : r == Reduction::sum ? sum(t) : mean(t, all_dims(t)); }

// ---- class indices

struct Samples {
    int64_t outer, classes, inner;
    Dims sizes;  // of the per-sample losses
};

Samples samples_of(const Tensor& x, const Tensor& target, const Tensor& weight) {
    if (x.dim() < 1) throw ValueError("Expected 1 or more dimensions (got 0)");
    if (x.dim() != 1 && (target.dim() == 0 || x.size(0) != target.size(0)))
        throw ValueError("Expected input batch_size (", x.size(0), ") to match target batch_size (", target.dim() ? target.size(0) : 0,
                         ").");
    if (x.dim() <= 2 && target.dim() > 1)
        throw RuntimeError(
            "0D or 1D target tensor expected, "
            "multi-target not supported");
    Samples s{1, x.dim() == 1 ? x.size(0) : x.size(1), 1, target.sizes()};
    if (x.dim() == 1) {
        if (target.numel() != 1) throw ValueError("For 1D input, 1D target must have size 1, but got target size: ", target.size(0));
    } else {
        Dims expected = x.sizes();
        expected.erase(1);
        if (!(expected == target.sizes())) throw RuntimeError("Expected target size ", expected, ", got ", target.sizes());
        s.outer = x.size(0);
        for (int64_t i = 2; i < x.dim(); i++) s.inner *= x.size(i);
    }
    if (target.dtype() != DType::i64 && target.dtype() != DType::u8)
        throw RuntimeError("expected target dtype to be Long or Byte, but got ", type_name(target.dtype()),
                           is_floating(target.dtype()) ? ": class indices are integers (target.long())" : "; convert it with target.long()",
                           is_floating(target.dtype())
                               ? str("; probabilities of classes, which cross_entropy takes, have the input's shape ", x.sizes())
                               : "");
    if (weight && (weight.dim() != 1 || weight.numel() != s.classes))
        throw RuntimeError("weight tensor should be defined either for all ", s.classes,
                           " classes or no classes but got weight tensor of shape: ", weight.sizes());
    if (weight && weight.dtype() != x.dtype())
        throw RuntimeError("expected scalar type ", type_name(x.dtype()), " but found ", type_name(weight.dtype()));
    return s;
}

// What a node remembers of a loss.
struct LossKind {
    int64_t outer, classes, inner, ignore_index;
    double smoothing;
    Reduction reduction;
    bool entropy;  // cross entropy, not nll
};

// Floats that are a copy of halves, which a compiled region has not made yet, are read as those.
Tensor halves_of(const LossKind& k, const Tensor& x, const Tensor& weight) {
    if (!(noting && k.entropy && k.inner == 1 && k.classes % 8 == 0 && !weight && x.dtype() == DType::f32)) return {};
    const Tensor s = compile::source_of(x);
    return s && is_reduced(s.dtype()) && uintptr_t(compile::peek(s)) % 16 == 0 ? s : Tensor();
}

kernels::LossArgs loss_args(const LossKind& k, const Tensor& x, const Tensor& target, const Tensor& weight) {
    if (const Tensor s = halves_of(k, x, weight))
        return {s.dtype(), k.outer,        k.classes,   1,    compile::peek(s), target.device_data<int64_t>(),
                nullptr,   k.ignore_index, k.smoothing, true, x.dtype()};
    return {x.dtype(),       k.outer,        k.classes,   k.inner,  x.device_data(), target.device_data<int64_t>(),
            pointer(weight), k.ignore_index, k.smoothing, k.entropy};
}

// PyTorch's cross entropy is this node after a LogSoftmaxBackward0; here it is one.
const char* node_name(const Tensor& x) { return x.dim() > 2 ? "NllLoss2DBackward0" : "NllLossBackward0"; }

// t, as something that also depends on x, with a gradient of zero: PyTorch keeps the path though nothing flows.
Tensor tied_to(const Tensor& t, const Tensor& x) {
    Tensor tied = alias(t);
    if (needs_grad(x))
        record(tied, "NllLossBackwardBackward0", {t, x}, {}, [sizes = x.sizes(), d = x.dtype()](Backward& bw) {
            if (bw.needs(0)) bw.set(0, bw.grad());
            if (bw.needs(1)) bw.set(1, zeros(sizes, d));
        });
    return tied;
}

// What the kernels work with, in one tensor, which backward gets: the sum of the weights, which a mean divides by, the logarithms of
// the sums of exponentials, two numbers each, and, unless they are the result, the losses, one for each sample. What is not wanted is null.
struct Kept {
    Tensor memory;
    bool has_total, has_lse;
    Kept(bool total, bool lse, bool losses, int64_t samples, DType c) : has_total(total), has_lse(lse) {
        if (total || lse || losses) memory = empty({two + (2 * lse + losses) * wide(samples, c)}, DType::f64);
    }
    Kept(Tensor memory, bool total, bool lse) : memory(std::move(memory)), has_total(total), has_lse(lse) {}
    double* total() const { return has_total ? memory.device_data<double>() : nullptr; }
    void* lse() const { return has_lse ? memory.device_data<double>() + two : nullptr; }
    void* losses(int64_t samples, DType c) const { return memory.device_data<double>() + two + 2 * has_lse * wide(samples, c); }

private:
    static constexpr int64_t two = 2;  // parts begin at 16 bytes, as kernels like it
    static int64_t wide(int64_t samples, DType c) { return (samples * item_size(c) + 15) / 16 * two; }
};

// The gradient as a formula. `constant` is what each sample's loss gives per unit of log-probability.
Tensor differentiable_gradient(const LossKind& k, const Tensor& g_, const Tensor& x, const Tensor& target, const Tensor& weight,
                               const Kept& kept) {
    const int64_t class_dim = x.dim() == 1 ? 0 : 1;
    Tensor constant = empty(x.sizes(), x.dtype());
    {
        const Tensor one = full({1}, 1.0, compute_dtype(x.dtype()));
        LossKind plain = k;
        plain.entropy = false;
        kernels::loss().backward(loss_args(plain, kernel_input(x), target, weight), nullptr, one.device_data(), true, nullptr,
                                 constant.device_data());
    }
    auto per_sample = [&](const Tensor& t) { return t.dim() == 0 || x.dim() == 1 ? t : unsqueeze(t, class_dim); };
    if (k.smoothing != 0) {
        Tensor even = per_sample(to(ne(target, Scalar(k.ignore_index)), x.dtype())) * Scalar(-k.smoothing / double(k.classes));
        if (x.dim() == 1) even = expand(reshape(even, {1}), x.sizes());
        if (weight) {
            Dims along(x.dim(), 1);
            along[class_dim] = k.classes;
            even = even * reshape(weight, along);
        }
        constant = constant * Scalar(1 - k.smoothing) + even;
    }
    const Tensor g = per_sample(kept.has_total ? g_ * Scalar(1 / item(select(kept.memory, 0, 0)).to_double()) : g_);
    const Tensor through = constant * g;
    if (!k.entropy) return tied_to(through, x);
    return through - softmax(x, class_dim) * sum(through, {class_dim}, true);
}

Tensor class_loss(const Tensor& x, const Tensor& target_, const Tensor& weight, Reduction reduction, int64_t ignore_index, double smoothing,
                  bool entropy) {
    check_floating(entropy ? "log_softmax_lastdim_kernel_impl" : "nll_loss_out_frame", x);
    const Samples s = samples_of(x, target_, weight);
    const DType d = x.dtype(), c = compute_dtype(d);
    const Tensor in = kernel_input(x), target = kernel_input(target_, DType::i64), w = kernel_input(weight);
    const LossKind kind{s.outer, s.classes, s.inner, ignore_index, smoothing, reduction, entropy};
    const kernels::LossArgs args = loss_args(kind, in, target, w);
    const bool recording = needs_grad(x), reduced = reduction != Reduction::none;
    const int64_t samples = s.outer * s.inner;
    const Kept kept(reduction == Reduction::mean, entropy && recording, reduced, samples, c);
    Tensor result = empty(reduced ? Dims{} : s.sizes, c);
    int64_t bad;
    {
        Unlocked unlocked(x.numel());
        bad = kernels::loss().forward(args, reduced ? kept.losses(samples, c) : result.device_data(), kept.lse(),
                                      reduced ? result.device_data() : nullptr, kept.total());
    }
    if (bad >= 0) throw IndexError("Target ", target.data<int64_t>()[bad], " is out of bounds.");
    if (!(entropy && autocast_enabled())) {  // under autocast losses are float32, as they are computed
        GradMode off(false);
        result = to(result, d);
    }
    if (recording) {
        TensorList saved{x, target, kept.memory};
        if (w) saved.push_back(w);
        record_many({&result, 1}, node_name(x), {&x, 1}, spanned(saved), told<"| self target - weight">([kind](Backward& bw) {
                        const Tensor g = bw.grad(), x = bw.saved(0), target = bw.saved(1),
                                     weight = bw.node.saved.size() > 3 ? bw.saved(3) : Tensor();
                        const Kept kept(bw.saved(2), kind.reduction == Reduction::mean, kind.entropy);
                        if (needs_grad(g, x)) return bw.set(0, differentiable_gradient(kind, g, x, target, weight, kept));
                        const Tensor grad = kernel_input(g, compute_dtype(x.dtype())), in = kernel_input(x);
                        Tensor dx = empty(x.sizes(), x.dtype());
                        // Its gradient is mostly rounded to halves again, and better never made in floats.
                        if (const Tensor halves = halves_of(kind, in, weight)) {
                            const kernels::ProgramStep step =
                                compile::loss_step(loss_args(kind, in, target, weight), kind.reduction != Reduction::none, kept.has_total);
                            const Arg operands[] = {Arg(halves), Arg(target), Arg(kept.memory), Arg(grad)};
                            if (compile::note(dx, step, operands, 4)) return bw.set(0, dx);
                        }
                        {
                            Unlocked unlocked(x.numel());
                            kernels::loss().backward(loss_args(kind, in, target, weight), kept.lse(), grad.device_data(),
                                                     kind.reduction != Reduction::none, kept.total(), dx.device_data());
                        }
                        bw.set(0, dx);
                    }));
    }
    return result;
}

// ---- class probabilities

Tensor probability_loss(const Tensor& x, const Tensor& target_, const Tensor& weight, Reduction reduction, double smoothing) {
    const int64_t class_dim = x.dim() == 1 ? 0 : 1, classes = x.size(class_dim);
    if (weight && (weight.dim() != 1 || weight.numel() != classes))
        throw RuntimeError("cross_entropy: weight tensor should be defined either for all ", classes,
                           " classes or no classes but got weight tensor of shape: ", weight.sizes());
    Tensor target = target_;
    if (smoothing > 0) target = target * Scalar(1 - smoothing) + Scalar(smoothing / double(classes));
    Tensor terms = log_softmax(x, class_dim) * target;
    if (weight) {
        Dims along(x.dim(), 1);
        along[class_dim] = classes;
        terms = terms * reshape(weight, along);
    }
    if (reduction == Reduction::none) return -sum(terms, {class_dim});
    const Tensor total = -sum(terms);
    return reduction == Reduction::sum
               ? total
               : pointwise(Pointwise::div, total, Scalar(double(x.numel()) / double(classes)), {}, nullptr, "DivBackward1");
}

Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight, std::optional<bool> size_average, int64_t ignore_index,
                     std::optional<bool> reduce, const std::string& reduction_name, double smoothing) {
    const Reduction reduction = reduction_of(reduction_name, size_average, reduce);
    if (smoothing < 0 || smoothing > 1) throw RuntimeError("label_smoothing must be between 0.0 and 1.0. Got: ", smoothing);
    // Where autocast leaves it to us: the kernel for class indices reads lower precision itself, all else gets float32.
    if (is_reduced(x.dtype()) && (weight || x.sizes() == target.sizes()) && autocast_enabled())
        return cross_entropy(to(x, DType::f32), target, weight, size_average, ignore_index, reduce, reduction_name, smoothing);
    if (x.sizes() == target.sizes() && x.dim() > 0) {
        if (!is_floating(target.dtype()))
            throw RuntimeError("Expected floating point type for target with class probabilities, got ", type_name(target.dtype()));
        if (ignore_index >= 0) throw RuntimeError("ignore_index is not supported for floating point target");
        return probability_loss(x, target, weight, reduction, smoothing);
    }
    return class_loss(x, target, weight, reduction, ignore_index, smoothing, true);
}

// ---- differences between input and target

void warn_of_broadcast(const Tensor& x, const Tensor& target) {
    if (x.sizes() == target.sizes()) return;
    warn(str("Using a target size (torch.Size(", target.sizes(), ")) that is different to the input size (torch.Size(", x.sizes(),
             ")). This will likely lead to incorrect results due to broadcasting. ", "Please ensure they have the same size."));
}

// The sum or mean of a row of the table, in one pass over memory and with the same bits; nothing where the operands are not alike.
Tensor row_loss_at_once(Pointwise op, const Tensor& x, const Tensor& target, Reduction r, const Params& params) {
    const int64_t n = x.numel();
    const Device here = current_device();
    if (noting || here.type != DeviceType::cpu || !(x.device() == here) || !(target.device() == here)) return {};
    if (n <= 4096 || !(x.sizes() == target.sizes()) || x.dtype() != target.dtype() || !x.is_contiguous() || !target.is_contiguous() ||
        (x.dtype() != DType::f32 && x.dtype() != DType::f64))
        return {};
    const Tensor y = empty({}, x.dtype());
    const int64_t step = 1;
    const kernels::MadeElements made{
        cpu::pointwise_row(op).forward[kernels::compute_index(x.dtype())], {x.data(), target.data()}, params.data()};
    kernels::ReduceArguments a{x.data(), x.dtype(), &n, &step, 1, 1, y.data(), x.dtype()};
    a.divisor = r == Reduction::mean ? double(n) : 1;
    a.made = &made;
    Unlocked unlocked(n);
    kernels::reduce().reduce(kernels::Reduction::sum, a);
    return y;
}

// A row of the table between input and target, reduced: one node, and one pass over the memory to go back.
Tensor row_loss(Pointwise op, const Tensor& x, const Tensor& target, Reduction r, const Params& params = {}, const char* name = nullptr) {
    if (r == Reduction::none) return pointwise(op, x, target, {}, &params, name);
    Dims sizes;
    Tensor result;
    {
        GradMode off(false);
        result = row_loss_at_once(op, x, target, r, params);
        if (!result) {
            const Tensor each = pointwise(op, x, target, {}, &params);
            result = reduced(each, r);
        }
        sizes = broadcast(x.sizes(), target.sizes());
    }
    if (!needs_grad(x, target)) return result;
    record(result, name ? name : pointwise_info(op).grad_name.c_str(), {x, target}, {x, target},
           told<"reduction | self target">(
               [op, params, r, sizes, n = product(sizes)](Backward& bw) {
                   const Tensor abcy[4] = {bw.saved(0), bw.saved(1), {}, {}};
                   const Tensor g = expand(r == Reduction::mean ? bw.grad() / Scalar(double(n)) : bw.grad(), sizes);
                   for (int i = 0; i < 2; i++)
                       if (bw.needs(i)) bw.set(i, pointwise_gradient(op, i, g, abcy, params, bw.create_graph));
               },
               int64_t(r)));
    return result;
}

Tensor weighted(const Tensor& losses, const Tensor& x, const Tensor& weight, Reduction r) {
    if (!(weight.sizes() == x.sizes())) throw ValueError("Weights and input must have the same size.");
    const Tensor each = losses * weight;
    return r == Reduction::none ? each : r == Reduction::sum ? sum(each) : sum(each) / sum(weight);
}
Tensor row_loss(Pointwise op, const Tensor& x, const Tensor& target, const Tensor& weight, Reduction r, const Params& params = {}) {
    return weight ? weighted(row_loss(op, x, target, Reduction::none, params), x, weight, r) : row_loss(op, x, target, r, params);
}

// As PyTorch's nodes look from outside, who takes a difference, its absolute values and their mean or sum.
Tensor absolute_loss(const Tensor& x, const Tensor& target, Reduction r) {
    return row_loss(Pointwise::absolute_error, x, target, r, {},
                    r == Reduction::mean  ? "MeanBackward0"
                    : r == Reduction::sum ? "SumBackward0"
                                          : nullptr);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, std::optional<bool> size_average, std::optional<bool> reduce,
                const std::string& reduction, const Tensor& weight) {
    warn_of_broadcast(x, target);
    return row_loss(Pointwise::squared_error, x, target, weight, reduction_of(reduction, size_average, reduce));
}
Tensor l1_loss(const Tensor& x, const Tensor& target, std::optional<bool> size_average, std::optional<bool> reduce,
               const std::string& reduction, const Tensor& weight) {
    warn_of_broadcast(x, target);
    const Reduction r = reduction_of(reduction, size_average, reduce);
    if (is_complex(x.dtype()) || is_complex(target.dtype())) {
        const Tensor each = abs(x - target);
        return weight ? weighted(each, x, weight, r) : reduced(each, r);
    }
    return weight ? weighted(absolute_loss(x, target, Reduction::none), x, weight, r) : absolute_loss(x, target, r);
}
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, std::optional<bool> size_average, std::optional<bool> reduce,
                      const std::string& reduction, double beta) {
    warn_of_broadcast(x, target);
    if (beta < 0) throw RuntimeError("smooth_l1_loss does not support negative values for beta.");
    const Reduction r = reduction_of(reduction, size_average, reduce);
    return beta == 0 ? absolute_loss(x, target, r) : row_loss(Pointwise::smooth_error, x, target, r, params_of(beta));
}
Tensor huber_loss(const Tensor& x, const Tensor& target, const std::string& reduction, double delta, const Tensor& weight) {
    warn_of_broadcast(x, target);
    if (!(delta > 0)) throw RuntimeError("huber_loss does not support non-positive values for delta.");
    return row_loss(Pointwise::huber_error, x, target, weight, reduction_of(reduction), params_of(delta));
}

// ---- binary cross entropy

Tensor clamp_least(const Tensor& x, double least) { return where(x < Scalar(least), Scalar(least), x); }

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight, std::optional<bool> size_average,
                            std::optional<bool> reduce, const std::string& reduction) {
    const Reduction r = reduction_of(reduction, size_average, reduce);
    if (!(x.sizes() == target.sizes()))
        throw ValueError("Using a target size (torch.Size(", target.sizes(), ")) that is different to the input size (torch.Size(",
                         x.sizes(), ")) is deprecated. Please ensure they have the same size.");
    check_floating("binary_cross_entropy", x);
    if (x.dtype() != target.dtype()) throw RuntimeError("Found dtype ", type_name(target.dtype()), " but expected ", type_name(x.dtype()));
    if (weight && needs_grad(weight)) return reduced(binary_cross_entropy(x, target, {}, {}, {}, "none") * weight, r);
    Tensor losses, result;
    {
        GradMode off(false);
        const Tensor outside = logical_or(logical_or(x<Scalar(0.0), x> Scalar(1.0)), isnan(x));
        if (x.numel() && x.device().type != DeviceType::meta && item(amax(to(outside, DType::u8), {})).to_bool())
            throw RuntimeError("all elements of input should be between 0 and 1");
        losses = (target - Scalar(1.0)) * clamp_least(log1p(-x), -100) - target * clamp_least(log(x), -100);
        result = reduced(weight ? losses * weight : losses, r);
    }
    if (needs_grad(x, target))
        record(result, "BinaryCrossEntropyBackward0", {x, target}, {x, target, weight},
               told<"reduction | self target weight">(
                   [r, n = losses.numel()](Backward& bw) {
                       const Tensor x = bw.saved(0), target = bw.saved(1), weight = bw.saved(2);
                       Tensor g = r == Reduction::mean ? bw.grad() / Scalar(double(n)) : bw.grad();
                       if (weight) g = g * weight;
                       if (bw.needs(0)) bw.set(0, g * (x - target) / clamp_least((Scalar(1.0) - x) * x, 1e-12));
                       if (bw.needs(1)) bw.set(1, g * (log1p(-x) - log(x)));
                   },
                   int64_t(r)));
    return result;
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight, std::optional<bool> size_average,
                                        std::optional<bool> reduce, const std::string& reduction, const Tensor& pos_weight) {
    const Reduction r = reduction_of(reduction, size_average, reduce);
    if (!(x.sizes() == target.sizes()))
        throw ValueError("Target size (torch.Size(", target.sizes(), ")) must be the same as input size (torch.Size(", x.sizes(), "))");
    if (!weight && !pos_weight && is_floating(x.dtype())) return row_loss(Pointwise::logits_error, x, target, r);
    return whole("BinaryCrossEntropyWithLogitsBackward0", {x, target}, [&] {
        const Tensor log_p = pointwise(Pointwise::logsigmoid, x);
        Tensor losses = (Scalar(1.0) - target) * x;
        losses = losses - (pos_weight ? ((pos_weight - Scalar(1.0)) * target + Scalar(1.0)) * log_p : log_p);
        return reduced(weight ? losses * weight : losses, r);
    });
}

}  // namespace

static const Operators operators = {
    {"nn.functional.cross_entropy(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, "
     "int ignore_index=-100, bool? reduce=None, str reduction='mean', float label_smoothing=0.0)",
     cross_entropy, function | cpu_float32,
     R"(The loss of scores against class numbers (or probabilities of classes): `log_softmax` and `nll_loss` in one.
        >>> wisp.nn.functional.cross_entropy(wisp.tensor([[0.0, 0.0]]), wisp.tensor([1]))
        tensor(0.6931))"},
    {"nn.functional.nll_loss(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, "
     "int ignore_index=-100, bool? reduce=None, str reduction='mean')",
     [](const Tensor& x, const Tensor& target, const Tensor& weight, std::optional<bool> size_average, int64_t ignore_index,
        std::optional<bool> reduce, const std::string& reduction) {
         return class_loss(x, target, weight, reduction_of(reduction, size_average, reduce), ignore_index, 0, false);
     },
     function | in_float32,
     R"(The loss of logarithms of probabilities against class numbers.
        >>> wisp.nn.functional.nll_loss(wisp.tensor([[-1.0, -2.0]]), wisp.tensor([1]))
        tensor(2.))"},
    {"nn.functional.mse_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, "
     "str reduction='mean', Tensor? weight=None)",
     mse_loss, function | in_float32,
     R"(The mean squared error.
        >>> wisp.nn.functional.mse_loss(wisp.tensor([1.0, 3.0]), wisp.zeros(2))
        tensor(5.))"},
    {"nn.functional.l1_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, "
     "str reduction='mean', Tensor? weight=None)",
     l1_loss, complex_half | function | in_float32,
     R"(The mean absolute error.
        >>> wisp.nn.functional.l1_loss(wisp.tensor([1.0, 3.0]), wisp.zeros(2))
        tensor(2.))"},
    {"nn.functional.smooth_l1_loss(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, "
     "str reduction='mean', float beta=1.0)",
     smooth_l1_loss, function | in_float32,
     R"(The squared error below `beta`, the absolute error beyond.
        >>> wisp.nn.functional.smooth_l1_loss(wisp.tensor([0.5, 3.0]), wisp.zeros(2), reduction="none")
        tensor([0.1250, 2.5000]))"},
    {"nn.functional.huber_loss(Tensor input, Tensor target, str reduction='mean', float delta=1.0, "
     "Tensor? weight=None)",
     huber_loss, function | in_float32,
     R"(The squared error where it is small, the absolute error beyond `delta`.
        >>> wisp.nn.functional.huber_loss(wisp.tensor([0.5, 3.0]), wisp.zeros(2), reduction="none")
        tensor([0.1250, 2.5000]))"},
    {"nn.functional.binary_cross_entropy(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, "
     "bool? reduce=None, str reduction='mean')",
     binary_cross_entropy, function | cpu_float32 | cuda_refused,
     R"(The loss of probabilities against targets between 0 and 1.
        >>> wisp.nn.functional.binary_cross_entropy(wisp.tensor([0.5]), wisp.tensor([1.0]))
        tensor(0.6931))"},
    {"nn.functional.binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor? weight=None, "
     "bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? pos_weight=None)",
     binary_cross_entropy_with_logits, function | in_float32,
     R"(The same of numbers before `sigmoid`, exact for large ones.
        >>> wisp.nn.functional.binary_cross_entropy_with_logits(wisp.tensor([0.0]), wisp.tensor([1.0]))
        tensor(0.6931))"},
};

}  // namespace wisp
