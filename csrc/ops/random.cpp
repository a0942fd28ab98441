// Front doors of random numbers: rand, randn, randint, randperm, the in-place samplers and sampling from distributions.
//
// A call takes one offset from its generator; element i then depends on (seed, offset, i) alone. Samplers that need an
// unknown number of draws per element (Poisson, binomial) start a small sequence of their own from element i.
#include "random.h"

#include <cmath>
#include <tuple>
#include <vector>

#include "../core/threads.h"
#include "../kernels/random.h"
#include "../kernels/index.h"
#include "../kernels/sort.h"
#include "../python/registry.h"
#include "reduce.h"

namespace wisp {
namespace {

using kernels::Distribution;

kernels::RandomStream draw(Generator& g) { return {g.seed, g.next()}; }

// Fills contiguous memory of float or double.
void uniform_fill(void* to, int64_t n, DType dtype, kernels::RandomStream stream, double from, double range) {
    if (n == 0) return;
    Unlocked unlocked(n);
    if (dtype == DType::f64) kernels::random().uniform_f64(static_cast<double*>(to), n, stream, 0, from, range);
    else kernels::random().uniform_f32(static_cast<float*>(to), n, stream, 0, float(from), float(range));
}
void normal_fill(void* to, int64_t n, DType dtype, kernels::RandomStream stream, double mean, double deviation) {
    if (n == 0) return;
    Unlocked unlocked(n);
    if (dtype == DType::f64) kernels::random().normal_f64(static_cast<double*>(to), n, stream, 0, mean, deviation);
    else kernels::random().normal_f32(static_cast<float*>(to), n, stream, 0, float(mean), float(deviation));
}

// Runs fill on contiguous memory of `dtype` in self's shape: self's own where it is that, else a copy of it.
template <class F> void fill_values(const Tensor& self, DType dtype, F&& fill) {
    if (self.device().type == DeviceType::meta) return;
    if (self.dtype() == dtype && self.is_contiguous()) return fill(self);
    Tensor t = empty(self.sizes(), dtype);
    fill(t);
    copy_values(self, t);
}

// RuntimeError, on the GPU at the next synchronisation, unless all elements are true.
void must_hold(const Tensor& condition, const char* message) {
    const Tensor c = contiguous(condition);
    if (!kernels::index().holds(c.device_data<bool>(), c.numel(), message)) throw RuntimeError(message);
}

void must_lie_within(const Tensor& t, double low, double high, const char* message) {
    if (!kernels::random().within) return must_hold(logical_and(ge(t, Scalar(low)), le(t, Scalar(high))), message);
    const Tensor x = contiguous(to(t, DType::f64));
    if (!kernels::random().within(x.device_data<double>(), x.numel(), low, high)) throw RuntimeError(message);
}

DType sampled_dtype(DType d) { return is_narrow(d) ? compute_dtype(d) : d; }

// The largest number of a short type that is less than `to`.
double below(DType d, double to) {
    const int bits = d == DType::f16 ? 11 : 8;
    const double tiny = std::ldexp(1, d == DType::f16 ? -24 : -133);
    if (to == 0) return -tiny;
    int exponent;
    const double part = std::frexp(to, &exponent);
    const double spacing = std::max(std::ldexp(1, exponent - bits), tiny), rounded = std::nearbyint(to / spacing) * spacing;
    if (rounded < to) return rounded;
    return rounded - (part == 0.5 ? std::max(spacing / 2, tiny) : spacing);
}

void uniform_values(const Tensor& self, double from, double to, Generator& g) {
    if (self.dtype() == DType::c32) return uniform_values(view_as_real(alias(self)), from, to, g);
    OnDevice on(self.device());
    const kernels::RandomStream stream = draw(g);
    fill_values(self, sampled_dtype(self.dtype()), [&](const Tensor& t) {
        const int64_t n = t.numel() * (is_complex(t.dtype()) ? 2 : 1);
        if (!is_reduced(self.dtype())) return uniform_fill(t.device_data(), n, real_of(t.dtype()), stream, from, to - from);
        if (!(from == 0 && to == 1) && from < to) {  // all values of the short type that lie in the range
            uniform_fill(t.device_data(), n, DType::f32, stream, from, to - from);
            GradMode off(false);
            copy_values(t, minimum(t, scalar_tensor(Scalar(std::max(from, below(self.dtype(), to))), DType::f32)));
            return;
        }
        // As many bits as the short type holds: rounding more of them could give `to` itself.
        uniform_fill(t.device_data(), n, DType::f32, stream, 0, 1);
        GradMode off(false);
        const double steps = self.dtype() == DType::f16 ? 2048 : 256;
        copy_values(t, trunc(t * Scalar(steps)) / Scalar(steps) * Scalar(double(float(to - from))) + Scalar(double(float(from))));
    });
}

void normal_values(const Tensor& self, double mean, double deviation, Generator& g) {
    OnDevice on(self.device());
    const kernels::RandomStream stream = draw(g);
    fill_values(self, sampled_dtype(self.dtype()), [&](const Tensor& t) {
        const bool complex = is_complex(t.dtype());  // real and imaginary part share the variance
        const int64_t n = t.numel() * (complex ? 2 : 1);
        normal_fill(t.device_data(), n, real_of(t.dtype()), stream, mean, complex ? deviation * std::sqrt(0.5) : deviation);
    });
}

// Integers in [from, from + range); range 0 stands for 2^64.
void integer_values(const Tensor& self, int64_t from, uint64_t range, Generator& g) {
    OnDevice on(self.device());
    const kernels::RandomStream stream = draw(g);
    fill_values(self, DType::i64, [&](const Tensor& t) {
        Unlocked unlocked(t.numel());
        kernels::random().integers(t.device_data<int64_t>(), t.numel(), stream, from, range);
    });
}

// Numbers of a distribution, made in double but for exponential floats, into any dtype.
void distributed_values(const Tensor& self, Generator& g, Distribution distribution, double a, double b) {
    OnDevice on(self.device());
    const kernels::RandomStream stream = draw(g);
    if (self.dtype() == DType::f32 && distribution == Distribution::exponential)
        return fill_values(self, DType::f32, [&](const Tensor& t) {
            Unlocked unlocked(t.numel());
            kernels::random().exponential_f32(t.device_data<float>(), t.numel(), stream, float(1 / a));
        });
    if (self.dtype() == DType::f32 && distribution != Distribution::log_normal && kernels::random().drawn_f32) {
        fill_values(self, DType::f32,
                    [&](const Tensor& t) { kernels::random().drawn_f32(distribution, t.device_data<float>(), t.numel(), stream, a, b); });
        return;
    }
    fill_values(self, DType::f64, [&](const Tensor& t) {
        auto* p = t.device_data<double>();
        if (distribution == Distribution::log_normal) normal_fill(p, t.numel(), DType::f64, stream, a, b);
        else uniform_fill(p, t.numel(), DType::f64, stream, 0, 1);
        Unlocked unlocked(t.numel());
        kernels::random().transform(distribution, p, t.numel(), a, b);
    });
}

// Where the gradient is differentiated further it hangs together with the incoming one, so that samples have tangents: zeros.
void set_zero(Backward& bw, const Dims& sizes, DType dtype) { bw.set(0, bw.create_graph ? bw.grad() * Scalar(0) : zeros(sizes, dtype)); }

// An in-place sampler: checks, writes, and cuts self off from its past (the gradient is zero).
template <class F> Tensor sample_inplace(const Tensor& self, const char* name, const char* node, F&& write) {
    const bool recording = needs_grad(self);
    check_inplace(self, name, recording);
    write();
    bump_version(self);
    if (recording) record_inplace(self, node, {self}, {}, [](Backward& bw) { set_zero(bw, bw.grad().sizes(), bw.grad().dtype()); });
    return self;
}
// A sampler that is differentiable in name: the gradient is zero.
Tensor with_zero_gradient(Tensor out, const char* node, const Tensor& input) {
    if (needs_grad(input))
        record(out, node, {input}, {}, [sizes = input.sizes(), dtype = input.dtype()](Backward& bw) { set_zero(bw, sizes, dtype); });
    return out;
}

void check_floating(const char* kernel, DType d) {
    if (is_integral(d)) throw NotImplemented('"', kernel, "\" not implemented for '", type_name(d), "'");
}
void check_continuous(const char* what, DType d) {
    if (!is_floating(d))
        throw RuntimeError(what,
                           " distribution is a continuous probability distribution. dtype must be a floating point but you specified ",
                           type_name(d));
}
void check_deviation(double deviation) {
    if (!(deviation >= 0)) throw RuntimeError("normal expects std >= 0.0, but found std ", deviation);
}

// ---- bounds of random_ and randint ----

struct Bounds {
    int64_t low, high;  // both included
};
Bounds bounds_of(DType d) {
    switch (d) {
    case DType::boolean: return {0, 1};
    case DType::u8: return {0, 255};
    case DType::i8: return {-128, 127};
    case DType::i16: return {-32768, 32767};
    case DType::u16: return {0, 65535};
    case DType::i32: return {INT32_MIN, INT32_MAX};
    case DType::u32: return {0, UINT32_MAX};
    case DType::f16: return {-2048, 2048};
    case DType::bf16: return {-256, 256};
    case DType::f32: return {-(1 << 24), 1 << 24};
    case DType::f64: return {-(int64_t(1) << 53), int64_t(1) << 53};
    case DType::u64: return {0, INT64_MAX};
    default: return {INT64_MIN, INT64_MAX};
    }
}
const char* element_text(DType d) {
    switch (d) {
    case DType::boolean: return "bool";
    case DType::u8: return "unsigned char";
    case DType::i8: return "signed char";
    case DType::i16: return "short";
    case DType::i32: return "int";
    default: return name_of(d);
    }
}

// Integers in [from, to); `to` missing: up to the largest that self's dtype holds.
void random_values(const Tensor& self, int64_t from, std::optional<int64_t> to, Generator& g) {
    const DType d = self.dtype();
    if (is_complex(d)) throw RuntimeError("check_random_bounds handles only integral, floating-point and boolean types");
    const Bounds bounds = bounds_of(d);
    if (!to) {
        integer_values(self, from, uint64_t(bounds.high) - uint64_t(from) + 1, g);
        return;
    }
    if (from >= *to) throw RuntimeError("random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", *to);
    if (is_floating(d)) {
        if (d == DType::f16 && (from < -65504 || from > 65504)) throw RuntimeError("from is out of bounds for Half");
        if (d == DType::f16 && (*to - 1 < -65504 || *to - 1 > 65504)) throw RuntimeError("to - 1 is out of bounds for Half");
        auto heed = [&](const char* what, int64_t v) {
            if (v < bounds.low || v > bounds.high)
                warn(str(what, " is out of bounds [", bounds.low, ", ", bounds.high, "]. Due to precision limitations ", type_name(d),
                         " can support discrete uniform distribution only within this range."));
        };
        heed("from", from);
        heed("to - 1", *to - 1);
    }
    if (is_integral(d)) {
        if (from < bounds.low || from > bounds.high) throw RuntimeError("from is out of bounds for ", element_text(d));
        if (*to - 1 < bounds.low || *to - 1 > bounds.high) throw RuntimeError("to - 1 is out of bounds for ", element_text(d));
    }
    integer_values(self, from, uint64_t(*to) - uint64_t(from), g);
}

// ---- factories ----

Tensor new_tensor(const Dims& sizes, DType dtype, const std::optional<Device>& device) {
    for (int64_t s : sizes)
        if (s < 0) throw RuntimeError("Trying to create tensor with negative dimension ", s, ": ", sizes);
    return empty(sizes, dtype, device ? *device : current_device());
}
Tensor new_like(const Tensor& t, std::optional<DType> dtype, std::optional<Device> device, std::optional<MemoryFormat> format) {
    const DType d = dtype.value_or(t.dtype());
    const Device where = device ? *device : t.device();
    if (format && *format != MemoryFormat::preserve) return empty_strided(t.sizes(), strides_for(t.sizes(), *format), d, where);
    return t.is_contiguous() ? empty(t.sizes(), d, where) : empty_strided(t.sizes(), strides_like(t.layout()), d, where);
}
Tensor finish(Tensor t, std::optional<bool> requires_grad) {
    if (requires_grad.value_or(false)) {
        if (!is_differentiable(t.dtype())) throw RuntimeError("Only Tensors of floating point and complex dtype can require gradients");
        t->requires_grad = true;
    }
    return t;
}

using MaybeDType = std::optional<DType>;
using MaybeDevice = std::optional<Device>;
using MaybeBool = std::optional<bool>;
using MaybeFormat = std::optional<MemoryFormat>;

Tensor uniform_into(Tensor t, MaybeBool requires_grad, Generator& g) {
    check_floating("check_uniform_bounds", t.dtype());
    uniform_values(t, 0, 1, g);
    return finish(t, requires_grad);
}
Tensor normal_into(Tensor t, MaybeBool requires_grad, Generator& g) {
    check_floating("normal_kernel_cpu", t.dtype());
    normal_values(t, 0, 1, g);
    return finish(t, requires_grad);
}
Tensor integers_into(Tensor t, int64_t low, int64_t high, MaybeBool requires_grad, Generator& g) {
    random_values(t, low, high, g);
    return finish(t, requires_grad);
}

constexpr int64_t shuffled_at_once = 1 << 17;

Tensor randperm(int64_t n, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool, MaybeBool requires_grad) {
    const DType d = dtype.value_or(DType::i64);
    const Device target = device ? resolve(*device) : current_device();
    if (n < 0) throw RuntimeError("Trying to create tensor with negative dimension ", n, ": ", Dims{n});
    if (is_complex(d) || d == DType::boolean) throw NotImplemented("\"randperm\" not implemented for '", type_name(d), "'");
    if (n > 0 && uint64_t(n - 1) > uint64_t(bounds_of(d).high))
        throw RuntimeError("value cannot be converted to type ", is_integral(d) ? std::string(name_of(d)) + "_t" : name_of(d),
                           " without overflow");
    if (n > shuffled_at_once) {  // the order of random numbers, which the GPU finds as well
        OnDevice on(target);
        GradMode off(false);
        const Tensor bits = empty({n}, DType::u64);
        kernels::random().bits64(bits.device_data<uint64_t>(), n, draw(g), 0);
        return finish(to(argsort(bits, 0, false), d), requires_grad);
    }
    OnDevice host(Device{});
    Tensor t = empty({n}, DType::i64);
    std::vector<uint64_t> bits(static_cast<size_t>(n));
    cpu::random.bits64(bits.data(), n, draw(g), 0);
    int64_t* p = t.data<int64_t>();
    {
        Unlocked unlocked(n);
        for (int64_t i = 0; i < n; i++) {  // the inside-out shuffle
            const int64_t j = int64_t((unsigned __int128)bits[size_t(i)] * uint64_t(i + 1) >> 64);
            p[i] = p[j];
            p[j] = i;
        }
    }
    return finish(to(to(t, d), target), requires_grad);
}

// ---- distributions ----

constexpr const char* bad_probability =
    "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  If so, please report an "
    "enhancement request to PyTorch.)";

Tensor bernoulli_of(const Tensor& probabilities, const Tensor& self, Generator& g) {
    OnDevice on(self.device());
    const Tensor p = contiguous(to(expanded(detach(probabilities), self.sizes()), self.device()));
    GradMode off(false);
    const kernels::RandomStream stream = draw(g);
    bool good = true;
    fill_values(self, p.dtype(), [&](const Tensor& t) {
        Unlocked unlocked(t.numel());
        good = kernels::random().bernoulli_of(p.dtype(), t.device_data(), p.device_data(), t.numel(), stream, bad_probability);
    });
    if (!good) throw RuntimeError(bad_probability);
    return self;
}

void bernoulli_values(const Tensor& self, double p, Generator& g) {
    if (!(p >= 0 && p <= 1)) throw RuntimeError("bernoulli_ expects p to be in [0, 1], but got p=", p);
    OnDevice on(self.device());
    const kernels::RandomStream stream = draw(g);
    const bool wide = p != double(float(p)) || p * 0x1p24 != std::floor(p * 0x1p24);
    fill_values(self, wide && self.dtype() == DType::f64 ? DType::f64 : DType::f32, [&](const Tensor& t) {
        if (t.dtype() == DType::f64) {
            uniform_fill(t.device_data(), t.numel(), DType::f64, stream, 0, 1);
            GradMode off(false);
            return copy_values(t, lt(t, Scalar(p)));
        }
        const uint64_t limit = uint64_t(std::ldexp(p, 32));
        Unlocked unlocked(t.numel());
        kernels::random().bernoulli(t.device_data<float>(), t.numel(), stream, limit);
    });
}

Tensor multinomial(const Tensor& input, int64_t samples, bool replacement, Generator& g) {
    if (input.dim() < 1 || input.dim() > 2) throw RuntimeError("prob_dist must be 1 or 2 dim");
    if (!is_floating(input.dtype()))
        throw RuntimeError("multinomial only supports floating-point dtypes for input, got: ", type_name(input.dtype()));
    if (samples <= 0) throw RuntimeError("cannot sample n_sample <= 0 samples");
    const int64_t categories = input.size(-1), rows = input.dim() == 2 ? input.size(0) : 1;
    if (!replacement && samples > categories) throw RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    if (categories > (1 << 24)) throw RuntimeError("number of categories cannot exceed 2^24");
    GradMode off(false);
    static constexpr const char *wrong = "probability tensor contains either `inf`, `nan` or element < 0",
                                *nothing = "invalid multinomial distribution (sum of probabilities <= 0)";
    const Tensor given = contiguous(input->requires_grad || input->dual ? detach(input) : input);
    const Tensor out = empty(input.dim() == 2 ? Dims{rows, samples} : Dims{samples}, DType::i64);
    auto largest = [&](double* best, const double* keys) {
        kernels::sort().topk(best, out.device_data<int64_t>(), keys, DType::f64, rows, categories, samples, true);
    };
    if (const auto race_winners = kernels::random().race_winners; race_winners && !replacement && samples == 1) {
        race_winners(given.dtype(), out.device_data<int64_t>(), given.device_data(), rows, categories, draw(g), wrong, nothing);
        return out;
    }
    if (const auto race = kernels::random().race; race && !replacement) {
        const Tensor keys = empty({rows, categories}, DType::f64);
        if (!race(given.dtype(), keys.device_data<double>(), given.device_data(), keys.numel(), draw(g), wrong)) throw RuntimeError(wrong);
        const Tensor best = empty({rows, samples}, DType::f64);
        largest(best.device_data<double>(), keys.device_data<double>());
        must_hold(gt(narrow(best, 1, 0, 1), Scalar(0.0)), nothing);  // not even the winner has a chance
        return out;
    }
    const int64_t draws = replacement ? samples : categories;
    const Tensor p = to(given, DType::f64), work = empty({rows * (draws + categories)}, DType::f64);
    double *const uniform = work.device_data<double>(), *const keys = uniform + rows * draws;
    uniform_fill(uniform, rows * draws, DType::f64, draw(g), 0x1p-54, 1);
    const kernels::Weights weights = kernels::random().weighted(replacement ? out.device_data<int64_t>() : nullptr, keys,
                                                                p.device_data<double>(), uniform, rows, categories, draws, wrong, nothing);
    if (weights == kernels::Weights::fine) {
        if (!replacement) largest(uniform, keys);  // the uniform numbers have been used
    } else if (weights != kernels::Weights::too_many) {
        throw RuntimeError(weights == kernels::Weights::wrong ? wrong : nothing);
    } else {
        must_hold(logical_and(ge(p, Scalar(0.0)), isfinite(p)), wrong);
        const Tensor each = reshape(p, {rows, categories}), u = reshape(narrow(work, 0, 0, rows * draws), {rows, draws});
        const Tensor sums = cumsum(each, 1), total = narrow(sums, 1, categories - 1, 1);
        must_hold(gt(total, Scalar(0.0)), nothing);
        const Tensor last = amax(where(gt(each, Scalar(0.0)), arange(categories), Scalar(0)), {1}, true);  // that can be drawn
        copy_values(reshape(out, {rows, samples}), minimum(searchsorted(sums, mul(u, total), true), last));
    }
    return out;
}

Tensor poisson(const Tensor& rates, Generator& g) {
    if (!is_floating(rates.dtype())) throw NotImplemented("\"poisson_cpu\" not implemented for '", type_name(rates.dtype()), "'");
    static constexpr const char* bad = "invalid Poisson rate, expected rate to be non-negative";
    const Tensor r = contiguous(detach(rates)), out = empty(r.sizes(), r.dtype());
    bool good;
    {
        Unlocked unlocked(16 * out.numel());
        good = kernels::random().poisson(r.dtype(), out.device_data(), r.device_data(), out.numel(), draw(g), bad);
    }
    if (!good) throw RuntimeError(bad);
    return with_zero_gradient(out, "PoissonBackward0", rates);
}

Tensor binomial(const Tensor& count, const Tensor& probability, Generator& g) {
    if (!is_floating(count.dtype()))
        throw ValueError("binomial only supports floating-point dtypes for count, got: ", type_name(count.dtype()));
    if (!is_floating(probability.dtype()))
        throw ValueError("binomial only supports floating-point dtypes for prob, got: ", type_name(probability.dtype()));
    const Dims sizes = broadcast(count.sizes(), probability.sizes());
    const Tensor ns = contiguous(to(expanded(detach(count), sizes), DType::f64)),
                 ps = contiguous(to(expanded(detach(probability), sizes), DType::f64));
    const Tensor out = empty(sizes, DType::f64);
    {
        Unlocked unlocked(16 * out.numel());
        kernels::random().binomial(out.device_data<double>(), ns.device_data<double>(), ps.device_data<double>(), out.numel(), draw(g));
    }
    return with_zero_gradient(to(out, count.dtype()), "BinomialBackward0", count);
}

// ---- normal ----

Tensor drawn_normal(const Tensor& mean, const Tensor& deviation, Generator& g, const char* node) {
    const Tensor d = detach(deviation);
    if (is_complex(d.dtype())) throw RuntimeError("normal expects standard deviation to be non-complex");
    must_lie_within(d, 0, HUGE_VAL, "normal expects all elements of std >= 0.0");
    const Dims sizes = broadcast(mean.sizes(), deviation.sizes());
    Tensor z = empty(sizes, is_differentiable(mean.dtype()) ? mean.dtype() : default_dtype());
    check_floating("normal_kernel_cpu", mean.dtype());
    normal_values(z, 0, 1, g);
    Tensor out = to(z * d + detach(mean), mean.dtype());
    return with_zero_gradient(out, node, wants_grad(mean) ? mean : deviation);
}
Tensor normal_tensors(const Tensor& mean, const Tensor& deviation, Generator& g) {
    return drawn_normal(mean, deviation, g, "NormalBackward3");
}
Tensor normal_mean(const Tensor& mean, double deviation, Generator& g) {
    check_deviation(deviation);
    check_floating("normal_kernel_cpu", mean.dtype());
    Tensor z = empty(mean.sizes(), mean.dtype());
    normal_values(z, 0, deviation, g);
    return with_zero_gradient(z + detach(mean), "NormalBackward1", mean);
}
Tensor normal_deviation(double mean, const Tensor& deviation, Generator& g) {
    return drawn_normal(full(deviation.sizes(), Scalar(mean), deviation.dtype()), deviation, g, "NormalBackward2");
}

#define OPTIONS "dtype? dtype=None, any layout=None, device? device=None, bool? pin_memory=None, bool? requires_grad=False"
#define LIKE                                                                                                              \
    "dtype? dtype=None, any layout=None, device? device=None, bool? pin_memory=None, bool? requires_grad=False, format? " \
    "memory_format=None"

const Operators operators = {
    {"rand(int... size, *, Generator? generator=None, Tensor? out=None, " OPTIONS ")",
     [](Dims sizes, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool, MaybeBool grad) {
         return uniform_into(new_tensor(sizes, dtype.value_or(default_dtype()), device), grad, g);
     },
     complex_half | function,
     R"(Numbers evenly distributed from 0 (included) to 1 (not included).
        >>> wisp.rand(2, 3).shape
        torch.Size([2, 3]))"},
    {"randn(int... size, *, Generator? generator=None, Tensor? out=None, " OPTIONS ")",
     [](Dims sizes, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool, MaybeBool grad) {
         return normal_into(new_tensor(sizes, dtype.value_or(default_dtype()), device), grad, g);
     },
     complex_half | function,
     R"(Numbers from the standard normal distribution.
        >>> wisp.randn(2, 3).shape
        torch.Size([2, 3]))"},
    {"rand_like(Tensor input, *, Generator? generator=None, " LIKE ")",
     [](const Tensor& t, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool, MaybeBool grad, MaybeFormat format) {
         return uniform_into(new_like(t, dtype, device, format), grad, g);
     },
     complex_half | function | elementwise,
     R"(Such numbers in the shape of another tensor.
        >>> wisp.rand_like(wisp.zeros(2, 3)).shape
        torch.Size([2, 3]))"},
    {"randn_like(Tensor input, *, Generator? generator=None, " LIKE ")",
     [](const Tensor& t, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool, MaybeBool grad, MaybeFormat format) {
         return normal_into(new_like(t, dtype, device, format), grad, g);
     },
     complex_half | function | elementwise,
     R"(Such numbers in the shape of another tensor.
        >>> wisp.randn_like(wisp.zeros(2, 3)).shape
        torch.Size([2, 3]))"},
    {"randint(int low, int high, int[] size, *, Generator? generator=None, Tensor? out=None, " OPTIONS ")",
     [](int64_t low, int64_t high, Dims sizes, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool, MaybeBool grad) {
         return integers_into(new_tensor(sizes, dtype.value_or(DType::i64), device), low, high, grad, g);
     },
     function,
     R"(Integers from `low` (included) to `high` (not included).
        >>> wisp.randint(3, 4, (2,))
        tensor([3, 3]))"},
    {"randint(int high, int[] size, *, Generator? generator=None, Tensor? out=None, " OPTIONS ")",
     [](int64_t high, Dims sizes, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool, MaybeBool grad) {
         return integers_into(new_tensor(sizes, dtype.value_or(DType::i64), device), 0, high, grad, g);
     },
     function},
    {"randint_like(Tensor input, int low, int high, *, Generator? generator=None, " LIKE ")",
     [](const Tensor& t, int64_t low, int64_t high, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool,
        MaybeBool grad, MaybeFormat format) { return integers_into(new_like(t, dtype, device, format), low, high, grad, g); },
     function | elementwise,
     R"(Such integers in the shape of another tensor.
        >>> wisp.randint_like(wisp.zeros(2), 3, 4)
        tensor([3., 3.]))"},
    {"randint_like(Tensor input, int high, *, Generator? generator=None, " LIKE ")",
     [](const Tensor& t, int64_t high, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool, MaybeBool grad,
        MaybeFormat format) { return integers_into(new_like(t, dtype, device, format), 0, high, grad, g); },
     function},
    {"randperm(int n, *, Generator? generator=None, Tensor? out=None, " OPTIONS ")", randperm, function,
     R"(The numbers from 0 to n - 1 in random order.
        >>> wisp.randperm(4).sort().values
        tensor([0, 1, 2, 3]))"},

    {"bernoulli(Tensor input, *, Generator? generator=None, Tensor~? out=None)",
     [](const Tensor& p, Generator& g) {
         check_floating("bernoulli_tensor_cpu_p_", p.dtype());
         return with_zero_gradient(bernoulli_of(p, empty(p.sizes(), p.dtype(), p.device()), g), "BernoulliBackward0", p);
     },
     function | method | elementwise,
     R"(0 or 1, with the elements as the probabilities of 1.
        >>> wisp.bernoulli(wisp.tensor([0.0, 1.0]))
        tensor([0., 1.]))"},
    {"bernoulli(Tensor input, float p, *, Generator? generator=None)",
     [](const Tensor& t, double p, Generator& g) {
         Tensor out = empty_like(t);
         bernoulli_values(out, p, g);
         return with_zero_gradient(out, "BernoulliBackward0", t);
     },
     function | method},
    {"bernoulli_(Tensor self, Tensor p, *, Generator? generator=None)",
     [](const Tensor& self, const Tensor& p, Generator& g) {
         check_floating("bernoulli_tensor_cpu_p_", p.dtype());
         return sample_inplace(self, "bernoulli_", "BernoulliBackward0", [&] { bernoulli_of(p, self, g); });
     },
     method | elementwise},
    {"bernoulli_(Tensor self, float p=0.5, *, Generator? generator=None)",
     [](const Tensor& self, double p, Generator& g) {
         return sample_inplace(self, "bernoulli_", "BernoulliBackward0", [&] { bernoulli_values(self, p, g); });
     },
     method},
    {"multinomial(Tensor input, int num_samples, bool replacement=False, *, Generator? generator=None, Tensor!? out=None)", multinomial,
     function | method,
     R"(Indices drawn with the elements of each row as weights.
        >>> wisp.multinomial(wisp.tensor([0.0, 1.0, 0.0]), 1)
        tensor([1]))"},
    {"poisson(Tensor input, Generator? generator=None)", poisson, function | elementwise,
     R"(Numbers from Poisson distributions with the elements as their rates.
        >>> wisp.poisson(wisp.zeros(2))
        tensor([0., 0.]))"},
    {"binomial(Tensor count, Tensor prob, Generator? generator=None)", binomial, function,
     R"(How many of `count` tries succeed, with probability `prob` each.
        >>> wisp.binomial(wisp.tensor([10.0]), wisp.tensor([1.0]))
        tensor([10.]))"},

    {"normal(Tensor mean, Tensor std, *, Generator? generator=None, Tensor? out=None)", normal_tensors,
     complex_half | function | elementwise,
     R"(Numbers from a normal distribution; mean and deviation are tensors or numbers.
        >>> wisp.normal(0.0, 1.0, (2, 3)).shape
        torch.Size([2, 3]))"},
    {"normal(Tensor mean, float std=1, *, Generator? generator=None, Tensor? out=None)", normal_mean, function},
    {"normal(float mean, Tensor std, *, Generator? generator=None, Tensor? out=None)", normal_deviation, function},
    {"normal(float mean, float std, int[] size, *, Generator? generator=None, Tensor? out=None, " OPTIONS ")",
     [](double mean, double deviation, Dims sizes, Generator& g, MaybeDType dtype, PyObject*, MaybeDevice device, MaybeBool,
        MaybeBool grad) {
         check_deviation(deviation);
         Tensor t = new_tensor(sizes, dtype.value_or(default_dtype()), device);
         check_floating("normal_kernel_cpu", t.dtype());
         normal_values(t, mean, deviation, g);
         return finish(t, grad);
     },
     function},

    {"normal_(Tensor self, float mean=0, float std=1, *, Generator? generator=None)",
     [](const Tensor& self, double mean, double deviation, Generator& g) {
         check_deviation(deviation);
         check_floating("normal_kernel_cpu", self.dtype());
         return sample_inplace(self, "normal_", "NormalBackward0", [&] { normal_values(self, mean, deviation, g); });
     },
     complex_half | method | elementwise},
    {"uniform_(Tensor self, float from=0, float to=1, *, Generator? generator=None)",
     [](const Tensor& self, double from, double to, Generator& g) {
         check_floating("check_uniform_bounds", self.dtype());
         if (from > to) throw RuntimeError("uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
         const DType d = real_of(self.dtype());
         const double largest = d == DType::f64   ? std::numeric_limits<double>::max()
                                : d == DType::f16 ? 65504.0
                                                  : double(std::numeric_limits<float>::max());
         if (to - from > largest)
             throw RuntimeError("uniform_ expects to-from <= std::numeric_limits<", name_of(d), ">::max(), but found to=", to,
                                " and from=", from, " which result in to-from to exceed the limit");
         return sample_inplace(self, "uniform_", "UniformBackward0", [&] { uniform_values(self, from, to, g); });
     },
     complex_half | method | elementwise,
     R"(Fills the tensor with numbers evenly distributed from `from` to `to`.
        >>> wisp.zeros(2).uniform_(3, 3)
        tensor([3., 3.]))"},
    {"random_(Tensor self, int from, int? to, *, Generator? generator=None)",
     [](const Tensor& self, int64_t from, std::optional<int64_t> to, Generator& g) {
         return sample_inplace(self, "random_", "RandomBackward0", [&] { random_values(self, from, to, g); });
     },
     method | elementwise,
     R"(Fills the tensor with random integers from `from` (included) to `to` (not included).
        >>> wisp.zeros(2).random_(3, 4)
        tensor([3., 3.]))"},
    {"random_(Tensor self, int to, *, Generator? generator=None)",
     [](const Tensor& self, int64_t to, Generator& g) {
         return sample_inplace(self, "random_", "RandomBackward0", [&] { random_values(self, 0, to, g); });
     },
     method},
    {"random_(Tensor self, *, Generator? generator=None)",
     [](const Tensor& self, Generator& g) {
         return sample_inplace(self, "random_", "RandomBackward0", [&] { random_values(self, 0, {}, g); });
     },
     method},
    {"exponential_(Tensor self, float lambd=1, *, Generator? generator=None)",
     [](const Tensor& self, double rate, Generator& g) {
         check_continuous("Exponential", self.dtype());
         if (!(rate > 0)) throw RuntimeError("exponential_ expects lambda > 0.0, but found lambda=", rate);
         return sample_inplace(self, "exponential_", "ExponentialBackward0",
                               [&] { distributed_values(self, g, Distribution::exponential, rate, 0); });
     },
     method | elementwise,
     R"(Fills the tensor with numbers from an exponential distribution.
        >>> (wisp.zeros(2).exponential_() >= 0).all()
        tensor(True))"},
    {"geometric_(Tensor self, float p, *, Generator? generator=None)",
     [](const Tensor& self, double p, Generator& g) {
         if (!(p > 0 && p < 1)) throw RuntimeError("geometric_ expects p to be in (0, 1), but got p=", p);
         if (is_complex(self.dtype()) || self.dtype() == DType::boolean)
             throw NotImplemented("\"geometric_cpu\" not implemented for '", type_name(self.dtype()), "'");
         return sample_inplace(self, "geometric_", "GeometricBackward0",
                               [&] { distributed_values(self, g, Distribution::geometric, std::log1p(-p), 0); });
     },
     method | elementwise,
     R"(Fills the tensor with numbers from a geometric distribution: tries until the first success.
        >>> (wisp.zeros(2).geometric_(0.5) >= 1).all()
        tensor(True))"},
    {"cauchy_(Tensor self, float median=0, float sigma=1, *, Generator? generator=None)",
     [](const Tensor& self, double median, double sigma, Generator& g) {
         check_continuous("Cauchy", self.dtype());
         if (!(sigma > 0)) throw RuntimeError("cauchy_ expects sigma > 0.0, but found sigma=", sigma);
         return sample_inplace(self, "cauchy_", "CauchyBackward0",
                               [&] { distributed_values(self, g, Distribution::cauchy, median, sigma); });
     },
     method | elementwise,
     R"(Fills the tensor with numbers from a Cauchy distribution.
        >>> wisp.zeros(2).cauchy_().shape
        torch.Size([2]))"},
    {"log_normal_(Tensor self, float mean=1, float std=2, *, Generator? generator=None)",
     [](const Tensor& self, double mean, double deviation, Generator& g) {
         if (!(deviation > 0)) throw RuntimeError("log_normal_ expects std > 0.0, but found std=", deviation);
         if (!is_floating(self.dtype())) throw NotImplemented("\"log_normal_cpu\" not implemented for '", type_name(self.dtype()), "'");
         return sample_inplace(self, "log_normal_", "LogNormalBackward0",
                               [&] { distributed_values(self, g, Distribution::log_normal, mean, deviation); });
     },
     method | elementwise,
     R"(Fills the tensor with numbers whose logarithms are normally distributed.
        >>> (wisp.zeros(2).log_normal_() > 0).all()
        tensor(True))"},
};

}  // namespace

Tensor rand(const Dims& sizes, DType dtype, Generator& generator) { return uniform_into(empty(sizes, dtype), false, generator); }

}  // namespace wisp
