// Making tensors: zeros, ones, full, empty, arange, linspace, logspace, eye, their _like and new_ forms, complex.
#include <cmath>
#include <type_traits>

#include "../autograd/whole.h"
#include "../core/threads.h"
#include "../kernels/index.h"
#include "../python/registry.h"
#include "format.h"
#include "ops.h"

namespace wisp {

bool fill_new_memory = false;
int undetermined = 0;

void alert_undetermined(const char* name) {
    if (!undetermined) return;
    const std::string text = str(name,
                                 " does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. "
                                 "You can turn off determinism just for this operation, or you can use the 'warn_only=True' option.");
    if (undetermined == 2) throw RuntimeError(text);
    warn(text);
}

Tensor fill_unset(const Tensor& t) {
    GradMode off(false);
    const DType d = t.dtype();
    const int bits = int(8 * t.item_size());
    if (is_complex(d)) return fill_(t, Scalar(std::complex<double>(NAN, NAN)));
    if (is_floating(d)) return fill_(t, Scalar(double(NAN)));
    if (d == DType::boolean) return fill_(t, Scalar(true));
    return fill_(t, Scalar(int64_t(is_signed(d) ? (uint64_t(1) << (bits - 1)) - 1 : ~uint64_t(0))));  // of u64: the same bits
}

namespace {

Tensor finish(Tensor t, bool requires_grad) {
    if (requires_grad) {
        if (!is_differentiable(t.dtype()))
            throw RuntimeError("Only Tensors of floating point and complex dtype can require gradients, got ", t.dtype());
        t->requires_grad = true;
    }
    return t;
}

// Works on the given device, on that of `like`, or on the default one.
struct Where : OnDevice {
    explicit Where(const std::optional<Device>& device) : OnDevice(device ? resolve(*device) : current_device()) {}
    Where(const std::optional<Device>& device, const Tensor& like) : OnDevice(device ? resolve(*device) : like.device()) {}
};

template <int value>
Tensor constant(Dims sizes, std::optional<DType> dtype, PyObject*, std::optional<Device> device, bool, bool requires_grad) {
    Where here(device);
    const DType d = dtype.value_or(default_dtype());
    return finish(value == 0 ? zeros(sizes, d) : ones(sizes, d), requires_grad);
}
Tensor unset(Tensor t) { return fill_new_memory ? fill_unset(t) : t; }
Tensor uninitialised(Dims sizes, std::optional<DType> dtype, PyObject*, std::optional<Device> device, bool, bool requires_grad,
                     std::optional<MemoryFormat> f) {
    Where here(device);
    const DType d = dtype.value_or(default_dtype());
    if (f && *f != MemoryFormat::contiguous && *f != MemoryFormat::preserve)
        return finish(unset(empty_strided(sizes, strides_for(sizes, *f), d)), requires_grad);
    return finish(unset(empty(sizes, d)), requires_grad);
}

// The result of a *_like operator before its values are set.
Tensor shaped_like(const Tensor& t, std::optional<DType> dtype, std::optional<Device> device, std::optional<MemoryFormat> format) {
    Where here(device, t);
    const DType d = dtype.value_or(t.dtype());
    const MemoryFormat f = format.value_or(MemoryFormat::preserve);
    return f == MemoryFormat::preserve ? (t.is_contiguous() ? empty(t.sizes(), d) : empty_strided(t.sizes(), strides_like(t.layout()), d))
                                       : empty_strided(t.sizes(), strides_for(t.sizes(), f), d);
}

// A sequence is counted out on the host, and moved.
template <class Make> Tensor counted(const std::optional<Device>& device, bool requires_grad, Make make) {
    const Device target = device ? resolve(*device) : current_device();
    OnDevice host(Device{});
    return finish(to(make(), target), requires_grad);
}

Tensor full_of(const Dims& sizes, const Arg& value, std::optional<DType> dtype) {
    const Scalar v = value.tensor ? item(*value.tensor) : value.number;
    const DType d = dtype.value_or(value.tensor ? value.tensor->dtype() : v.dtype());
    Tensor t = empty(sizes, d);
    return filled(t, v);
}

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, std::optional<DType> dtype, bool requires_grad) {
    const bool integral = start.is_integral() && end.is_integral() && step.is_integral();
    const DType d = dtype.value_or(integral ? DType::i64 : default_dtype());
    if (is_complex(d) || d == DType::boolean) throw RuntimeError("\"arange_cpu\" not implemented for '", type_name(d), "'");
    const double a = start.to_double(), b = end.to_double(), s = step.to_double();
    if (s == 0) throw RuntimeError("step must be nonzero");
    if (!std::isfinite(a) || !std::isfinite(b)) throw RuntimeError("unsupported range: ", start, " -> ", end);
    if ((s > 0 && b < a) || (s < 0 && b > a))
        throw RuntimeError("upper bound and lower bound inconsistent with step sign: arange(", start, ", ", end, ", ", step, ")");
    int64_t n;
    if (d == DType::i64 || (d == DType::u64 && integral)) {  // numbers are cut to integers before they are counted
        for (const Scalar* given : {&start, &end, &step}) refuse_large(d, *given);
        const auto exact = [](const Scalar& s) { return s.is_large() ? __int128(uint64_t(s.to_int())) : __int128(s.to_int()); };
        const __int128 k = exact(step);
        if (k == 0) throw RuntimeError("step must be nonzero");
        const __int128 count = (exact(end) - exact(start) + k - (k > 0 ? 1 : -1)) / k;
        n = int64_t(count);
        if (n != count) throw RuntimeError("invalid size, possible overflow? arange(", start, ", ", end, ", ", step, ")");
    } else {
        const double count = std::ceil((b - a) / s);
        if (!(count < 0x1p63)) throw RuntimeError("invalid size, possible overflow? arange(", start, ", ", end, ", ", step, ")");
        n = int64_t(count);
    }
    if (n < 0) n = 0;
    if (integral && d == DType::i64) {
        Tensor t = empty({n}, d);
        const int64_t first = start.to_int(), k = step.to_int();
        kernels::index().count_up(t.device_data<int64_t>(), n, first, k);
        return t;
    }
    Tensor wide = empty({n}, is_integral(d) ? DType::i64 : d == DType::f32 ? d : DType::f64);
    if (is_integral(d)) {
        kernels::index().count_up(wide.data<int64_t>(), n, start.to_int(), step.to_int());
    } else {
        auto count = [&](auto* out) {
            parallel_for(n, 1 << 16, [=](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; i++) out[i] = std::remove_pointer_t<decltype(out)>(a + s * double(i));
            });
        };
        if (d == DType::f32) count(wide.data<float>());
        else count(wide.data<double>());
    }
    return finish(to(wide, d), requires_grad);
}

// Integers are counted out where they are wanted.
Tensor arange_on(const std::optional<Device>& device, const Scalar& start, const Scalar& end, const Scalar& step,
                 std::optional<DType> dtype, bool requires_grad) {
    const Device target = device ? resolve(*device) : current_device();
    const bool there = target.type != DeviceType::meta && start.is_integral() && end.is_integral() && step.is_integral() &&
                       dtype.value_or(DType::i64) == DType::i64;
    if (!there) return counted(device, requires_grad, [&] { return arange(start, end, step, dtype, false); });
    OnDevice on(target);
    return finish(arange(start, end, step, dtype, false), requires_grad);
}

Tensor linspace(const Arg& start_, const Arg& end_, int64_t steps, std::optional<DType> dtype, bool requires_grad) {
    auto value = [](const Arg& a) {
        if (a.tensor && a.tensor->dim() != 0)
            throw RuntimeError("linspace only supports 0-dimensional start and end tensors, but got a tensor of shape ", a.tensor->sizes());
        return a.tensor ? item(*a.tensor) : a.number;
    };
    const Scalar start = value(start_), end = value(end_);
    if (steps < 0) throw RuntimeError("number of steps must be non-negative, got ", steps);
    const bool complex = start.is_complex() || end.is_complex();
    const DType d = dtype.value_or(complex ? complex_of(default_dtype()) : default_dtype());
    if (complex && !is_complex(d))
        throw RuntimeError("torch.linspace(): inferred dtype ", complex_of(default_dtype()), " can't be safely cast to passed dtype ", d);
    if (is_complex(d)) {
        Tensor t = empty({steps}, DType::c128);
        const c128 a = start.to_complex(), b = end.to_complex(), s = steps > 1 ? (b - a) / double(steps - 1) : c128(0);
        for (int64_t i = 0; i < steps; i++) t.data<c128>()[i] = i < steps / 2 ? a + s * double(i) : b - s * double(steps - 1 - i);
        if (steps == 1) t.data<c128>()[0] = a;
        return finish(to(t, d), requires_grad);
    }
    refuse_large(d, start), refuse_large(d, end);
    const auto bound = [&](const Scalar& s) { return is_integral(d) && !s.is_large() ? double(s.to_int()) : s.to_double(); };
    const double a = bound(start), b = bound(end);
    Tensor t = empty({steps}, DType::f64);
    double* p = t.data<double>();
    if (d == DType::f32) {
        const float fa = float(a), fb = float(b), s = steps > 1 ? (fb - fa) / float(steps - 1) : 0;
        for (int64_t i = 0; i < steps; i++) p[i] = double(i < steps / 2 ? fa + s * float(i) : fb - s * float(steps - 1 - i));
    } else {
        const double s = steps > 1 ? (b - a) / double(steps - 1) : 0;
        for (int64_t i = 0; i < steps; i++) p[i] = i < steps / 2 ? a + s * double(i) : b - s * double(steps - 1 - i);
        if (is_integral(d))
            for (int64_t i = 0; i < steps; i++) p[i] = std::trunc(p[i]);
    }
    if (steps == 1) p[0] = a;
    return finish(to(t, d), requires_grad);
}

Tensor logspace(const Arg& start, const Arg& end, int64_t steps, double base, std::optional<DType> dtype, bool requires_grad) {
    auto is_complex_end = [](const Arg& a) { return a.tensor ? is_complex(a.tensor->dtype()) : a.number.is_complex(); };
    const bool complex = is_complex_end(start) || is_complex_end(end);
    const DType d = dtype.value_or(complex ? complex_of(default_dtype()) : default_dtype());
    if (complex && !is_complex(d))
        throw RuntimeError("torch.logspace(): inferred dtype ", complex_of(default_dtype()), " can't be safely cast to passed dtype ", d);
    const DType wide = is_complex(d) ? DType::c128 : DType::f64;
    if (is_integral(d)) {  // whole ends and base, and a step of single precision
        const double a = double((start.tensor ? item(*start.tensor) : start.number).to_int());
        const double z = double((end.tensor ? item(*end.tensor) : end.number).to_int()), b = std::trunc(base);
        const float step = steps > 1 ? float(z - a) / float(steps - 1) : 0;
        Tensor t = empty({std::max<int64_t>(steps, 0)}, DType::f64);
        for (int64_t i = 0; i < t.numel(); i++)
            t.data<double>()[i] = std::trunc(std::pow(b, double(steps == 1      ? float(a)
                                                                : i < steps / 2 ? float(a) + step * float(i)
                                                                                : float(z) - step * float(steps - 1 - i))));
        if (steps >= 0) return finish(to(t, d), requires_grad);
    }
    Tensor t = linspace(start, end, steps, wide, false);
    const Tensor b = scalar_tensor(Scalar(base), wide);
    return finish(to(pow(b, t), d), requires_grad);
}

Tensor eye(int64_t n, std::optional<int64_t> m_, std::optional<DType> dtype, bool requires_grad) {
    const int64_t m = m_.value_or(n);
    if (n < 0) throw RuntimeError("n must be greater or equal to 0, got ", n);
    if (m < 0) throw RuntimeError("m must be greater or equal to 0, got ", m);
    Tensor t = zeros({n, m}, dtype.value_or(default_dtype()));
    filled(alias(t, t.layout().diagonal(0, 0, 1)), Scalar(1));
    return finish(t, requires_grad);
}

void check_parts(const Tensor& re, const Tensor& im) {
    if (re.dtype() != DType::f32 && re.dtype() != DType::f64 && re.dtype() != DType::f16)
        throw RuntimeError("Expected both inputs to be Half, Float or Double tensors but got ", type_name(re.dtype()), " and ",
                           type_name(im.dtype()));
    if (re.dtype() != im.dtype())
        throw RuntimeError("Expected object of scalar type ", type_name(re.dtype()), " but got scalar type ", type_name(im.dtype()),
                           " for second argument");
}

Tensor complex_of_parts(const Tensor& re, const Tensor& im) {
    check_parts(re, im);
    const Dims sizes = broadcast(re.sizes(), im.sizes());
    Tensor y;
    {
        GradMode off(false);
        y = alias(view_as_complex(stack({expand(re, sizes), expand(im, sizes)}, -1)));
    }
    if (needs_grad(re, im))
        record(y, "ComplexBackward0", {re, im}, {}, [](Backward& bw) {
            if (bw.needs(0)) bw.set(0, real(bw.grad()));
            if (bw.needs(1)) bw.set(1, imag(bw.grad()));
        });
    return y;
}

const Operators operators = {
    {"_undetermined(int mode)", [](int64_t mode) { undetermined = int(mode); }, function},
    {"_fill_new_memory(bool on)", [](bool on) { fill_new_memory = on; }, stored | function},
    {"zeros(int... size, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool requires_grad=False, "
     "Tensor? out=None)",
     constant<0>, stored | function,
     R"(A tensor full of zeros.
        >>> wisp.zeros(2, 2)
        tensor([[0., 0.],
                [0., 0.]]))"},
    {"ones(int... size, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool requires_grad=False, "
     "Tensor? out=None)",
     constant<1>, stored | function,
     R"(A tensor full of ones.
        >>> wisp.ones(2, 2)
        tensor([[1., 1.],
                [1., 1.]]))"},
    {"empty(int... size, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool requires_grad=False, "
     "format? memory_format=None, Tensor~? out=None)",
     uninitialised, stored | function,
     R"(A tensor whose elements are whatever was in its memory.
        >>> wisp.empty(2, 3).shape
        torch.Size([2, 3]))"},
    {"full(int[] size, Operand fill_value, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool "
     "requires_grad=False, Tensor? out=None)",
     [](Dims s, const Arg& v, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         Where here(dev);
         return finish(full_of(s, v, d), rg);
     },
     stored | function,
     R"(A tensor full of one number.
        >>> wisp.full((2, 2), 7.0)
        tensor([[7., 7.],
                [7., 7.]]))"},
    {"empty_strided(int[] size, int[] stride, *, dtype? dtype=None, any layout=None, device? device=None, bool requires_grad=False, bool "
     "pin_memory=False)",
     [](Dims s, Dims st, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool rg, bool) {
         Where here(dev);
         return finish(unset(empty_strided(s, st, d.value_or(default_dtype()))), rg);
     },
     stored | function,
     R"(A tensor of given sizes and strides, not initialised.
        >>> wisp.empty_strided((2, 3), (1, 2)).stride()
        (1, 2))"},
    {"zeros_like(Tensor input, *, dtype? dtype=None, any layout=None, device? device=None, bool requires_grad=False, format? "
     "memory_format=None, bool pin_memory=False)",
     [](const Tensor& t, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool rg, std::optional<MemoryFormat> f, bool) {
         return finish(zeroed(shaped_like(t, d, dev, f)), rg);
     },
     stored | function | elementwise,
     R"(A tensor with the shape of another, full of zeros.
        >>> wisp.zeros_like(wisp.ones(2))
        tensor([0., 0.]))"},
    {"ones_like(Tensor input, *, dtype? dtype=None, any layout=None, device? device=None, bool requires_grad=False, format? "
     "memory_format=None, bool pin_memory=False)",
     [](const Tensor& t, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool rg, std::optional<MemoryFormat> f, bool) {
         return finish(filled(shaped_like(t, d, dev, f), Scalar(1)), rg);
     },
     stored | function | elementwise,
     R"(A tensor with the shape of another, full of ones.
        >>> wisp.ones_like(wisp.zeros(2))
        tensor([1., 1.]))"},
    {"empty_like(Tensor input, *, dtype? dtype=None, any layout=None, device? device=None, bool requires_grad=False, format? "
     "memory_format=None, bool pin_memory=False)",
     [](const Tensor& t, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool rg, std::optional<MemoryFormat> f, bool) {
         return finish(unset(shaped_like(t, d, dev, f)), rg);
     },
     stored | function | elementwise,
     R"(A tensor with the shape and dtype of another, not initialised.
        >>> wisp.empty_like(wisp.ones(2, 3)).shape
        torch.Size([2, 3]))"},
    {"full_like(Tensor input, Operand fill_value, *, dtype? dtype=None, any layout=None, device? device=None, bool requires_grad=False, "
     "format? memory_format=None, bool pin_memory=False)",
     [](const Tensor& t, const Arg& v, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool rg, std::optional<MemoryFormat> f,
        bool) { return finish(filled(shaped_like(t, d, dev, f), v.tensor ? item(*v.tensor) : v.number), rg); },
     stored | function | elementwise,
     R"(A tensor with the shape of another, full of one number.
        >>> wisp.full_like(wisp.zeros(2), 7)
        tensor([7., 7.]))"},
    {"new_zeros(Tensor input, int... size, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool "
     "requires_grad=False)",
     [](const Tensor& t, Dims s, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         Where here(dev, t);
         return finish(zeros(s, d.value_or(t.dtype())), rg);
     },
     stored | method,
     R"(A tensor of this one's dtype and device, full of zeros.
        >>> wisp.ones(1).new_zeros(2)
        tensor([0., 0.]))"},
    {"new_ones(Tensor input, int... size, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool "
     "requires_grad=False)",
     [](const Tensor& t, Dims s, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         Where here(dev, t);
         return finish(ones(s, d.value_or(t.dtype())), rg);
     },
     stored | method,
     R"(A tensor of this one's dtype and device, full of ones.
        >>> wisp.ones(1).new_ones(2)
        tensor([1., 1.]))"},
    {"new_empty(Tensor input, int... size, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool "
     "requires_grad=False)",
     [](const Tensor& t, Dims s, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         Where here(dev, t);
         return finish(unset(empty(s, d.value_or(t.dtype()))), rg);
     },
     stored | method,
     R"(A tensor of this one's dtype and device, not initialised.
        >>> wisp.ones(1).new_empty(2, 3).shape
        torch.Size([2, 3]))"},
    {"new_empty_strided(Tensor input, int[] size, int[] stride, dtype? dtype=None, device? device=None, bool requires_grad=False, any "
     "layout=None, bool pin_memory=False)",
     [](const Tensor& t, Dims s, Dims st, std::optional<DType> d, std::optional<Device> dev, bool rg, PyObject*, bool) {
         Where here(dev, t);
         return finish(unset(empty_strided(s, st, d.value_or(t.dtype()))), rg);
     },
     stored | method,
     R"(A tensor of this one's dtype and device with given strides, not initialised.
        >>> wisp.ones(1).new_empty_strided((2, 2), (1, 2)).shape
        torch.Size([2, 2]))"},
    {"new_full(Tensor input, int[] size, Operand fill_value, *, dtype? dtype=None, any layout=None, device? device=None, bool "
     "pin_memory=False, bool requires_grad=False)",
     [](const Tensor& t, Dims s, const Arg& v, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         Where here(dev, t);
         return finish(full_of(s, v, d.value_or(t.dtype())), rg);
     },
     stored | method,
     R"(A tensor of this one's dtype and device, full of one number.
        >>> wisp.ones(1).new_full((2,), 3.0)
        tensor([3., 3.]))"},
    {"arange(Number end, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool requires_grad=False, "
     "Tensor? out=None)",
     [](Scalar e, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         return arange_on(dev, Scalar(0), e, Scalar(1), d, rg);
     },
     function,
     R"(The numbers from `start` to `end` (which is left out) in steps.
        >>> wisp.arange(0, 10, 3)
        tensor([0, 3, 6, 9]))"},
    {"arange(Number start, Number end, Number step=1, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, "
     "bool requires_grad=False, Tensor? out=None)",
     [](Scalar a, Scalar e, Scalar s, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         return arange_on(dev, a, e, s, d, rg);
     },
     function},
    {"range(Number start=0, Number end=0, Number step=1, *, dtype? dtype=None, any layout=None, device? device=None, bool "
     "requires_grad=False, Tensor? out=None)",
     [](Scalar a, Scalar e, Scalar s, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool rg) {
         warn(
             "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with Python's range "
             "builtin. Instead, use torch.arange, which produces values in [start, end).");
         const double last = a.to_double() + std::floor((e.to_double() - a.to_double()) / s.to_double()) * s.to_double();
         return counted(dev, rg, [&] {
             return arange(Scalar(a.to_double()), Scalar(last + s.to_double() * 0.5), Scalar(s.to_double()), d.value_or(default_dtype()),
                           false);
         });
     },
     function,
     R"(The numbers from `start` to `end` (included) in steps; prefer `arange`.
        >>> wisp.arange(1, 4)
        tensor([1, 2, 3]))"},
    {"linspace(Operand start, Operand end, int steps, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, "
     "bool requires_grad=False, Tensor? out=None)",
     [](const Arg& a, const Arg& e, int64_t n, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         return counted(dev, rg, [&] { return linspace(a, e, n, d, false); });
     },
     function,
     R"(`steps` numbers from `start` to `end`, evenly spaced, both included.
        >>> wisp.linspace(0, 1, 5)
        tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000]))"},
    {"logspace(Operand start, Operand end, int steps, float base=10.0, *, dtype? dtype=None, any layout=None, device? device=None, bool "
     "pin_memory=False, bool requires_grad=False, Tensor? out=None)",
     [](const Arg& a, const Arg& e, int64_t n, double b, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         return counted(dev, rg, [&] { return logspace(a, e, n, b, d, false); });
     },
     complex_half | function,
     R"(`steps` numbers from `base ** start` to `base ** end`, evenly spaced on a logarithmic scale.
        >>> wisp.logspace(0, 2, 3)
        tensor([  1.,  10., 100.]))"},
    {"eye(int n, int? m=None, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool requires_grad=False, "
     "Tensor? out=None)",
     [](int64_t n, std::optional<int64_t> m, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         Where here(dev);
         return eye(n, m, d, rg);
     },
     stored | function,
     R"(The identity matrix.
        >>> wisp.eye(2, 3)
        tensor([[1., 0., 0.],
                [0., 1., 0.]]))"},
    {"scalar_tensor(Number s, *, dtype? dtype=None, any layout=None, device? device=None, bool pin_memory=False, bool requires_grad=False)",
     [](Scalar v, std::optional<DType> d, PyObject*, std::optional<Device> dev, bool, bool rg) {
         Where here(dev);
         const DType dtype = d.value_or(default_dtype());
         if (is_integral(dtype)) refuse_large(dtype, v);
         return finish(scalar_tensor(v, dtype), rg);
     },
     stored | function,
     R"(A tensor without dimensions.
        >>> wisp.scalar_tensor(3.0)
        tensor(3.))"},
    {"complex(Tensor real, Tensor imag, *, Tensor!? out=None)", complex_of_parts, stored | function,
     R"(Complex numbers from their real and imaginary parts.
        >>> wisp.complex(wisp.tensor([1.0]), wisp.tensor([2.0]))
        tensor([1.+2.j]))"},
    {"polar(Tensor abs, Tensor angle, *, Tensor!? out=None)",
     [](const Tensor& r, const Tensor& a) {
         check_parts(r, a);
         return whole("PolarBackward0", {r, a}, [&] { return complex_of_parts(r * cos(a), r * sin(a)); });
     },
     function | cpu_float32,
     R"(Complex numbers from absolute values and angles.
        >>> wisp.polar(wisp.tensor([2.0]), wisp.tensor([0.0]))
        tensor([2.+0.j]))"},
};

}  // namespace
}  // namespace wisp
