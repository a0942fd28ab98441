// Front doors of rows of the pointwise table whose call is not simply name(input) or name(input, other): arithmetic with further
// arguments, and activations with parameters.
#include <cfloat>
#include <cmath>

#include "../autograd/whole.h"
#include "../kernels/pointwise_call.h"
#include "../python/registry.h"
#include "gather.h"
#include "ops.h"

namespace wisp {
namespace {

Tensor with(Pointwise op, const Tensor& x, const Scalar& p0, const Scalar& p1 = {}, const Scalar& p2 = {}, Out out = {}) {
    for (const Scalar* p : {&p0, &p1, &p2}) refuse_large(x.dtype(), *p);
    const Params params = params_of(p0, p1, p2);
    return pointwise_into(out, op, x, {}, {}, &params);
}
Tensor with_(Pointwise op, const Tensor& x, const Scalar& p0, const Scalar& p1 = {}, const Scalar& p2 = {}) {
    for (const Scalar* p : {&p0, &p1, &p2}) refuse_large(x.dtype(), *p);
    const Params params = params_of(p0, p1, p2);
    return pointwise_(op, x, {}, {}, &params);
}
// For nn.functional: the last argument says whether x itself is changed.
Tensor activation(Pointwise op, const Tensor& x, bool in_place, const Scalar& p0 = {}, const Scalar& p1 = {}, const Scalar& p2 = {}) {
    return in_place ? with_(op, x, p0, p1, p2) : with(op, x, p0, p1, p2);
}

void check_alpha(const char* name, const Arg& a, const Arg& b, const Scalar& alpha) {
    const DType d = a.tensor && b.tensor ? result_type(*a.tensor, *b.tensor)
                    : a.tensor           ? result_type(*a.tensor, b.number)
                    : b.tensor           ? result_type(*b.tensor, a.number)
                                         : result_type(wrapped_number(a.number), b.number);
    if (alpha.is_bool() && d != DType::boolean) throw RuntimeError("Boolean alpha only supported for Boolean results. (", name, ")");
    if (alpha.is_floating() && is_integral(d))
        throw RuntimeError("For integral input tensors, argument alpha must not be a floating point number. (", name, ")");
    if (alpha.is_complex() && !is_complex(d))
        throw RuntimeError("For non-complex input tensors, argument alpha must not be a complex number. (", name, ")");
}

void old_order(const char* name) {
    warn(str("This overload of ", name, " is deprecated: the factor in front; pass it by name, behind the tensors."));
}

template <bool in_place> Tensor add_or_sub(const Arg& a, const Arg& b, const Scalar& alpha, bool subtract, Out out = {}) {
    if (subtract) refuse_bool_subtraction(a, b);
    const Pointwise plain = subtract ? Pointwise::sub : Pointwise::add;
    if (alpha == 1.0) {
        if (alpha.is_bool() || alpha.is_floating() || alpha.is_complex()) check_alpha(subtract ? "sub" : "add", a, b, alpha);
        return in_place ? pointwise_(plain, *a.tensor, b) : pointwise_into(out, plain, a, b);
    }
    check_alpha(subtract ? "sub" : "add", a, b, alpha);
    const bool counted = alpha.is_integral() && !alpha.is_large();
    const Scalar negative = counted ? Scalar(wrapped(alpha.to_int(), -1)) : -alpha;  // as elements: -2**63 stays
    Params params = params_of(subtract ? negative : alpha);
    if (subtract && alpha.is_large()) params[0].integer = wrapped(alpha.to_int(), -1);
    return in_place ? pointwise_(Pointwise::add_scaled, *a.tensor, b, {}, &params)
                    : pointwise_into(out, Pointwise::add_scaled, a, b, {}, &params, subtract ? "SubBackward0" : nullptr);
}

Pointwise rounded_division(const std::optional<std::string>& mode) {
    if (!mode) return Pointwise::div;
    if (*mode == "floor") return Pointwise::div_floor;
    if (*mode == "trunc") return Pointwise::div_trunc;
    throw RuntimeError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '", *mode, "'");
}

Tensor power_number(const Tensor& x, const Scalar& e, Out out = {}) {
    refuse_large(is_integral(x.dtype()) ? DType::i64 : x.dtype(), e);
    if (is_integral(x.dtype()) && e.is_integral() && e.to_int() < 0)
        throw RuntimeError("Integers to negative integer powers are not allowed.");
    const DType d = result_type(x, e);
    if (x.dtype() == DType::boolean && e.is_bool()) return pointwise_into(out, Pointwise::bitwise_or, x, logical_not(full_like(x, e)));
    Tensor base = d == x.dtype() ? x : to(x, d);
    if (e == 2.0 && !needs_grad(base)) return pointwise_into(out, Pointwise::mul, base, base);
    const Params params = params_of(e);
    return pointwise_into(out, Pointwise::pow_number, base, {}, {}, &params);
}

Tensor power(const Arg& a, const Arg& b, Out out) {
    if (a.tensor && !b.tensor) return power_number(*a.tensor, b.number, out);
    if (!a.tensor && !b.tensor) throw TypeError("pow(): expected at least one Tensor");
    if (a.tensor && a.tensor->dtype() == DType::boolean && is_bool(b))
        return pointwise_into(out, Pointwise::bitwise_or, *a.tensor, pointwise(Pointwise::logical_not, *b.tensor));
    return pointwise_into(out, Pointwise::pow, a, b);
}

Tensor nan_to_num(const Tensor& x, std::optional<double> nan, std::optional<double> posinf, std::optional<double> neginf, Out out) {
    if (is_integral(x.dtype())) return clone(x);
    const double top = x.dtype() == DType::f64 || x.dtype() == DType::c128 ? 1.7976931348623157e308
                       : x.dtype() == DType::f16                           ? 65504.0
                       : x.dtype() == DType::bf16                          ? 3.3895313892515355e38
                                                                           : 3.4028234663852886e38;
    const Scalar n(nan.value_or(0.0)), p(posinf.value_or(top)), m(neginf.value_or(-top));
    if (is_complex(x.dtype())) {
        Tensor pairs = view_as_real(contiguous(x));
        return view_as_complex(with(Pointwise::nan_to_num, pairs, n, p, m));
    }
    return with(Pointwise::nan_to_num, x, n, p, m, out);
}

Tensor polygamma_of(int64_t n, const Tensor& x, Out out) {
    if (n < 0) throw RuntimeError("polygamma(n, x) does not support negative n.");
    return n == 0 ? pointwise_into(out, Pointwise::digamma, x) : polygamma(Scalar(n), x, out);
}

static void check_lerp(const Tensor& x, const Tensor& end, const Arg& weight) {
    if (x.dtype() != end.dtype()) throw RuntimeError("expected dtype ", x.dtype(), " for `end` but got dtype ", end.dtype());
    if (weight.tensor && weight.tensor->dtype() != x.dtype() && weight.tensor->dim() > 0)  // one without dimensions is promoted
        throw RuntimeError("expected dtype ", x.dtype(), " for `weight` but got dtype ", weight.tensor->dtype());
}

// The plainest case, without the steps that any other needs.
static bool quick_lerp(const Tensor& x, const Tensor& end, const Params& params) {
    const DType d = x.dtype();
    if ((d != DType::f32 && d != DType::f64) || end.dtype() != d || x.device().type != DeviceType::cuda || !(x.device() == end.device()) ||
        !x.is_contiguous() || !end.is_contiguous() || !(x.sizes() == end.sizes()) || x.storage() == end.storage() ||
        (grad_enabled() && (x.requires_grad() || end.requires_grad())) || noting)
        return false;
    check_inplace(x, "lerp_", false);
    OnDevice on(x.device());
    const int64_t n = x.numel(), step = 1;
    const kernels::PointwiseOperand own{static_cast<char*>(x.device_data()), d, &step, nullptr},
        other{static_cast<char*>(end.device_data()), d, &step, nullptr}, operands[3] = {own, own, other};
    kernels::pointwise().row(Pointwise::lerp_number, kernels::which_forward, d, d, operands, 3, Dims{n}, n, params.data());
    bump_version(x);
    return true;
}

const Operators operators = {
    {"add(Operand input, Operand other, *, Number alpha=1, Tensor? out=None)",
     [](const Arg& a, const Arg& b, Scalar s, Out out) { return add_or_sub<false>(a, b, s, false, out); },
     stored | function | method | elementwise,
     R"(`input + alpha * other`, element by element, with broadcasting.
        >>> wisp.add(wisp.tensor([1, 2]), wisp.tensor([10, 20]), alpha=2)
        tensor([21, 42]))"},
    {"add_(Tensor input, Operand other, *, Number alpha=1)",
     [](const Tensor& a, const Arg& b, Scalar s) { return add_or_sub<true>(a, b, s, false); }, stored | method | elementwise},
    {"sub(Operand input, Operand other, *, Number alpha=1, Tensor? out=None)",
     [](const Arg& a, const Arg& b, Scalar s, Out out) { return add_or_sub<false>(a, b, s, true, out); },
     stored | function | method | elementwise | also("subtract"),
     R"(`input - alpha * other`, element by element, with broadcasting.
        >>> wisp.sub(wisp.tensor([10, 20]), wisp.tensor([1, 2]))
        tensor([ 9, 18]))"},
    {"sub_(Tensor input, Operand other, *, Number alpha=1)",
     [](const Tensor& a, const Arg& b, Scalar s) { return add_or_sub<true>(a, b, s, true); },
     stored | method | elementwise | also("subtract")},
    {"rsub(Tensor input, Operand other, *, Number alpha=1)",
     [](const Tensor& a, const Arg& b, Scalar s) {
         auto difference = [&] { return add_or_sub<false>(b, Arg(a), s, true); };
         return b.tensor ? whole("RsubBackward0", {a, *b.tensor}, difference) : difference();
     },
     stored | function | elementwise,
     R"(`other - alpha * input`.
        >>> wisp.rsub(wisp.tensor([1, 2]), 10)
        tensor([9, 8]))"},
    {"div(Operand input, Operand other|value, *, str? rounding_mode=None, Tensor? out=None)",
     [](const Arg& a, const Arg& b, std::optional<std::string> m, Out out) { return pointwise_into(out, rounded_division(m), a, b); },
     function | method | elementwise | also("divide true_divide"),
     R"(`input / other`, element by element; `rounding_mode` is None, "trunc" (towards zero) or "floor".
        >>> wisp.div(wisp.tensor([7, -7]), 2, rounding_mode="floor")
        tensor([ 3, -4]))"},
    {"div_(Tensor input, Operand other|value, *, str? rounding_mode=None)",
     [](const Tensor& a, const Arg& b, std::optional<std::string> m) { return pointwise_(rounded_division(m), a, b); },
     method | elementwise | also("divide true_divide")},
    {"floor_divide(Operand input, Operand other|value, *, Tensor? out=None)",
     [](const Arg& a, const Arg& b, Out out) { return pointwise_into(out, Pointwise::div_floor, a, b); }, function | method | elementwise,
     R"(The quotient, rounded down.
        >>> wisp.floor_divide(wisp.tensor([7, -7]), 2)
        tensor([ 3, -4]))"},
    {"floor_divide_(Tensor input, Operand other|value)",
     [](const Tensor& a, const Arg& b) { return pointwise_(Pointwise::div_floor, a, b); }, method | elementwise},
    {"pow(Operand input, Operand exponent, *, Tensor? out=None)", power, everywhere | elementwise | cuda_float32,
     R"(Each element to a power; base and exponent may be numbers or tensors.
        >>> wisp.pow(wisp.tensor([1.0, 2.0, 3.0]), 2)
        tensor([1., 4., 9.]))"},
    {"square(Tensor input, *, Tensor? out=None)",
     [](const Tensor& x, Out out) { return pointwise_into(out, Pointwise::square, x.dtype() == DType::boolean ? to(x, DType::i64) : x); },
     everywhere | inplace_function | elementwise | keeps_zero,
     R"(Each element times itself.
        >>> wisp.square(wisp.tensor([2, 3]))
        tensor([4, 9]))"},
    {"float_power_(Tensor input, Operand exponent)",
     [](const Tensor& x, const Arg& e) {
         const bool complex = is_complex(x.dtype()) || (e.tensor ? is_complex(e.tensor->dtype()) : e.number.is_complex());
         const DType d = complex ? DType::c128 : DType::f64;
         if (x.dtype() != d)
             throw RuntimeError("the base given to float_power_ has dtype ", x.dtype(), " but the operation's result requires dtype ", d);
         const Tensor before = clone(x);
         assign_inplace(x, power(before, e, {}), "float_power_");
         return x;
     },
     method | elementwise},
    {"float_power(Operand input, Operand exponent, *, Tensor!? out=None)",
     [](const Arg& a, const Arg& b, Out out) {
         if (!a.tensor && !b.tensor) throw TypeError("float_power(): expected at least one Tensor");
         const bool complex = (a.tensor ? is_complex(a.tensor->dtype()) : a.number.is_complex()) ||
                              (b.tensor ? is_complex(b.tensor->dtype()) : b.number.is_complex());
         const DType d = complex ? DType::c128 : DType::f64;
         const Tensor x = a.tensor ? to(*a.tensor, d) : scalar_tensor(a.number, d);
         if (!b.tensor) return power_number(x, b.number, out);
         return pointwise_into(out, Pointwise::pow, x, to(*b.tensor, d));
     },
     complex_half | function | method | elementwise,
     R"(Each element to a power, computed in double precision.
        >>> wisp.float_power(wisp.tensor([2, 3]), 2)
        tensor([4., 9.], dtype=torch.float64))"},
    {"nan_to_num(Tensor input, float? nan=None, float? posinf=None, float? neginf=None, *, Tensor!? out=None)", nan_to_num,
     everywhere | inplace_function | elementwise | keeps_zero,
     R"(Numbers in place of NaN and infinities: `nan` (0 by default), `posinf`, `neginf` (the largest and smallest of the dtype).
        >>> wisp.nan_to_num(wisp.tensor([1.0, wisp.nan, wisp.inf]), posinf=9.0)
        tensor([1., 0., 9.]))"},
    {"logit(Tensor input, float? eps=None, *, Tensor? out=None)",
     [](const Tensor& x, std::optional<double> e, Out out) {
         return e && *e >= 0 ? with(Pointwise::logit_clamped, x, Scalar(*e), {}, {}, out) : pointwise_into(out, Pointwise::logit, x);
     },
     everywhere | inplace_function | elementwise,
     R"(`log(x / (1 - x))`, the inverse of `sigmoid`; with `eps`, elements are kept that far from 0 and 1.
        >>> wisp.logit(wisp.tensor([0.5, 0.9]))
        tensor([0.0000, 2.1972]))"},
    {"polygamma(int n, Tensor input, *, Tensor? out=None)", polygamma_of, function | elementwise,
     R"(The n-th derivative of the digamma function.
        >>> wisp.polygamma(1, wisp.tensor([1.0]))
        tensor([1.6449]))"},
    {"special.polygamma(int n, Tensor input, *, Tensor? out=None)", polygamma_of, function | elementwise,
     R"(The n-th derivative of the digamma function.
        >>> wisp.special.polygamma(1, wisp.tensor([1.0]))
        tensor([1.6449]))"},
    {"polygamma(Tensor input, int n)", [](const Tensor& x, int64_t n, Out out) { return polygamma_of(n, x, out); }, method | inplace},
    {"addcmul(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1, Tensor? out=None)",
     [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar v, Out out) {
         const Params params = params_of(v);
         return pointwise_into(out, Pointwise::addcmul, x, a, b, &params);
     },
     stored | function | method | elementwise | cuda_widest,
     R"(`input + value * tensor1 * tensor2`, element by element.
        >>> wisp.addcmul(wisp.ones(2), wisp.tensor([1.0, 2.0]), wisp.tensor([3.0, 4.0]), value=0.5)
        tensor([2.5000, 5.0000]))"},
    {"addcmul_(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)",
     [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
         const Params params = params_of(v);
         return pointwise_(Pointwise::addcmul, x, a, b, &params);
     },
     stored | method | elementwise},
    {"addcdiv(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1, Tensor? out=None)",
     [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar v, Out out) {
         if (is_integral(a.dtype()) && is_integral(b.dtype()))
             throw RuntimeError("Integer division with addcdiv is no longer supported: convert the tensors to floats, or use floor_divide");
         const Params params = params_of(v);
         return pointwise_into(out, Pointwise::addcdiv, x, a, b, &params);
     },
     function | method | elementwise | cuda_widest,
     R"(`input + value * tensor1 / tensor2`, element by element.
        >>> wisp.addcdiv(wisp.ones(2), wisp.tensor([1.0, 4.0]), wisp.tensor([2.0, 2.0]), value=2)
        tensor([2., 5.]))"},
    {"addcdiv_(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)",
     [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
         if (is_integral(a.dtype()) && is_integral(b.dtype()))
             throw RuntimeError("Integer division with addcdiv is no longer supported: convert the tensors to floats, or use floor_divide");
         const Params params = params_of(v);
         return pointwise_(Pointwise::addcdiv, x, a, b, &params);
     },
     method | elementwise},
    // The older order of arguments, with the factor in front.
    {"add(Tensor input, Number alpha, Tensor other, *, Tensor? out=None)",
     [](const Tensor& x, Scalar alpha, const Tensor& y) { return old_order("add"), add_or_sub<false>(x, y, alpha, false); },
     function | method},
    {"sub(Tensor input, Number alpha, Tensor other, *, Tensor? out=None)",
     [](const Tensor& x, Scalar alpha, const Tensor& y) { return old_order("sub"), add_or_sub<false>(x, y, alpha, true); },
     function | method},
    {"addcmul(Tensor input, Number value, Tensor tensor1, Tensor tensor2, *, Tensor? out=None)",
     [](const Tensor& x, Scalar v, const Tensor& a, const Tensor& b) {
         old_order("addcmul");
         const Params params = params_of(v);
         return pointwise(Pointwise::addcmul, x, a, b, &params);
     },
     function | method},
    {"addcdiv(Tensor input, Number value, Tensor tensor1, Tensor tensor2, *, Tensor? out=None)",
     [](const Tensor& x, Scalar v, const Tensor& a, const Tensor& b) {
         if (is_integral(a.dtype()) && is_integral(b.dtype()))
             throw RuntimeError("Integer division with addcdiv is no longer supported: convert the tensors to floats, or use floor_divide");
         old_order("addcdiv");
         const Params params = params_of(v);
         return pointwise(Pointwise::addcdiv, x, a, b, &params);
     },
     function | method},
    {"add_(Tensor input, Number alpha, Tensor other)",
     [](const Tensor& x, Scalar alpha, const Tensor& y) { return old_order("add"), add_or_sub<true>(x, y, alpha, false); }, method},
    {"sub_(Tensor input, Number alpha, Tensor other)",
     [](const Tensor& x, Scalar alpha, const Tensor& y) { return old_order("sub"), add_or_sub<true>(x, y, alpha, true); }, method},
    {"addcmul_(Tensor input, Number value, Tensor tensor1, Tensor tensor2)",
     [](const Tensor& x, Scalar v, const Tensor& a, const Tensor& b) {
         old_order("addcmul_");
         const Params params = params_of(v);
         return pointwise_(Pointwise::addcmul, x, a, b, &params);
     },
     method},
    {"addcdiv_(Tensor input, Number value, Tensor tensor1, Tensor tensor2)",
     [](const Tensor& x, Scalar v, const Tensor& a, const Tensor& b) {
         old_order("addcdiv_");
         const Params params = params_of(v);
         return pointwise_(Pointwise::addcdiv, x, a, b, &params);
     },
     method},
    {"lerp(Tensor input, Tensor end, Operand weight, *, Tensor? out=None)",
     [](const Tensor& x, const Tensor& end, const Arg& w, Out out) {
         check_lerp(x, end, w);
         if (w.tensor) return pointwise_into(out, Pointwise::lerp, x, end, *w.tensor);
         const Params params = params_of(w.number);
         return pointwise_into(out, Pointwise::lerp_number, x, end, {}, &params);
     },
     function | method | elementwise,
     R"(The point between `input` and `end` that `weight` says: 0 is the first, 1 the second.
        >>> wisp.lerp(wisp.tensor([0.0, 10.0]), wisp.tensor([1.0, 20.0]), 0.5)
        tensor([ 0.5000, 15.0000]))"},
    {"lerp_(Tensor input, Tensor end, Operand weight)",
     [](const Tensor& x, const Tensor& end, const Arg& w) {
         check_lerp(x, end, w);
         if (w.tensor) return pointwise_(Pointwise::lerp, x, end, *w.tensor);
         const Params params = params_of(w.number);
         return pointwise_(Pointwise::lerp_number, x, end, {}, &params);
     },
     method | elementwise},
    {"_lerp_list_(Tensor[] self, Tensor[] ends, Number weight)",
     [](const TensorList& self, const TensorList& ends, const Scalar& weight) {
         const Params params = params_of(weight);
         for (int64_t i = 0; i < int64_t(self.size()); i++)
             if (!quick_lerp(self[i], ends[i], params)) {
                 check_lerp(self[i], ends[i], weight);
                 pointwise_(Pointwise::lerp_number, self[i], ends[i], {}, &params);
             }
     },
     function},
    {"where(Tensor condition, Operand input, Operand other|y, *, Tensor!? out=None)", where, stored | function | elementwise,
     R"(Elements of the second argument where the condition holds, of the third elsewhere; with the condition alone, the indices where it holds.
        >>> wisp.where(wisp.tensor([True, False]), wisp.tensor([1, 2]), 0)
        tensor([1, 0]))"},
    {"where(Tensor condition)", nonzero_tuple, function},
    {"where(Tensor input, Tensor condition, Operand other|y)",
     [](const Tensor& x, const Tensor& c, const Arg& other) { return where(c, x, other); }, method},
    {"conj_physical(Tensor input, *, Tensor!? out=None)", [](const Tensor& t) { return conj(t); },
     stored | everywhere | elementwise | is_linear,
     R"(The complex conjugate of each element, computed at once.
        >>> wisp.conj_physical(wisp.tensor([1 + 2j]))
        tensor([1.-2.j]))"},
    {"resolve_conj(Tensor input)", [](const Tensor& t) { return t; }, stored | function | method | elementwise | is_linear,
     R"(The tensor itself; of a conjugate view (`x.conj()`), a copy with its values.
        >>> wisp.resolve_conj(wisp.tensor([1]))
        tensor([1]))"},
    {"resolve_neg(Tensor input)", [](const Tensor& t) { return t; }, stored | function | method | elementwise | is_linear,
     R"(The tensor itself; of a view that shows negatives (`x.conj().imag`), a copy with its values.
        >>> wisp.resolve_neg(wisp.tensor([1]))
        tensor([1]))"},
    {"is_conj(Tensor input)", [](const Tensor&) { return false; }, function | method | shape_only,
     R"(Whether the tensor is a view that shows the conjugates of what lies in its memory, as `x.conj()` does.
        >>> wisp.is_conj(wisp.ones(1))
        False)"},
    {"is_neg(Tensor input)", [](const Tensor&) { return false; }, function | method | shape_only,
     R"(Whether the tensor is a view that shows the negatives of what lies in its memory, as `x.conj().imag` does.
        >>> wisp.is_neg(wisp.ones(1))
        False)"},
    {"real(Tensor input)", [](const Tensor& t) { return real(t); }, stored | function | elementwise,
     R"(The real parts of a complex tensor, as a view.
        >>> wisp.real(wisp.tensor([1 + 2j]))
        tensor([1.]))"},
    {"imag(Tensor input)", [](const Tensor& t) { return imag(t); }, stored | function | elementwise,
     R"(The imaginary parts of a complex tensor, as a view.
        >>> wisp.imag(wisp.tensor([1 + 2j]))
        tensor([2.]))"},
    {"positive(Tensor input)",
     [](const Tensor& t) {
         if (t.dtype() == DType::boolean) throw RuntimeError("The `+` operator, on a bool tensor is not supported.");
         return t;
     },
     stored | function | method | elementwise | is_linear,
     R"(The tensor itself.
        >>> wisp.positive(wisp.tensor([1, -2]))
        tensor([ 1, -2]))"},
    // nn.functional
    {"nn.functional.relu(Tensor input, bool inplace=False)",
     [](const Tensor& x, bool i) { return i ? pointwise_(Pointwise::relu, x) : pointwise(Pointwise::relu, x); },
     function | elementwise | keeps_zero | onnx("Relu")},
    {"selu(Tensor input)", [](const Tensor& x, Out out) { return pointwise_into(out, Pointwise::selu, x); },
     function | inplace_function | elementwise | onnx("Selu")},
    {"nn.functional.elu(Tensor input, float alpha=1.0, bool inplace=False)",
     [](const Tensor& x, double a, bool i) { return activation(Pointwise::elu, x, i, Scalar(a), Scalar(1), Scalar(1)); },
     function | elementwise,
     R"(Each element, or `alpha * (exp(x) - 1)` where it is negative.
        >>> wisp.nn.functional.elu(wisp.tensor([-1.0, 1.0]))
        tensor([-0.6321,  1.0000]))"},
    {"nn.functional.celu(Tensor input, float alpha=1.0, bool inplace=False)",
     [](const Tensor& x, double a, bool i) {
         if (a == 0) throw RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU");
         return activation(Pointwise::celu, x, i, Scalar(a));
     },
     function | elementwise},
    {"celu(Tensor input, float alpha=1.0)",
     [](const Tensor& x, double a, Out out) { return with(Pointwise::celu, x, Scalar(a), {}, {}, out); },
     function | inplace_function | elementwise,
     R"(`max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`.
        >>> wisp.celu(wisp.tensor([-1.0, 1.0]))
        tensor([-0.6321,  1.0000]))"},
    {"nn.functional.hardtanh(Tensor input, float min_val=-1.0, float max_val=1.0, bool inplace=False)",
     [](const Tensor& x, double a, double b, bool i) {
         if (a > b) throw ValueError("min_val cannot be greater than max_val: got ", a, " and ", b);
         return activation(Pointwise::hardtanh, x, i, Scalar(a), Scalar(b));
     },
     function | elementwise,
     R"(Each element, kept between `min_val` and `max_val`.
        >>> wisp.nn.functional.hardtanh(wisp.tensor([-2.0, 0.5, 2.0]))
        tensor([-1.0000,  0.5000,  1.0000]))"},
    {"threshold(Tensor input, Number threshold, Number value, *, Tensor? out=None)",
     [](const Tensor& x, Scalar t, Scalar v, Out out) { return with(Pointwise::threshold, x, t, v, {}, out); },
     function | inplace_function | elementwise},
    {"nn.functional.gelu(Tensor input, *, str approximate='none', Tensor!? out=None)",
     [](const Tensor& x, std::string a, Out out) {
         if (a != "none" && a != "tanh") throw RuntimeError("approximate argument must be either none or tanh, got '", a, "'");
         return pointwise_into(out, a == "tanh" ? Pointwise::gelu_tanh : Pointwise::gelu, x);
     },
     function | elementwise,
     R"(`x * Phi(x)` with the normal distribution's Phi, or its "tanh" approximation.
        >>> wisp.nn.functional.gelu(wisp.tensor([-1.0, 1.0]))
        tensor([-0.1587,  0.8413]))"},
    {"hardshrink(Tensor input, float lambd=0.5)", [](const Tensor& x, double l) { return with(Pointwise::hardshrink, x, Scalar(l)); },
     function | method | elementwise | keeps_zero},
    {"nn.functional.softshrink(Tensor input, float lambd=0.5, *, Tensor!? out=None)",
     [](const Tensor& x, double l, Out out) {
         const DType d = x.dtype();
         const double largest = d == DType::f16 ? 65504.0 : d == DType::bf16 ? 0x1.fep127 : d == DType::f32 ? FLT_MAX : DBL_MAX;
         if (!(l >= 0 && l <= largest))
             throw RuntimeError("lambda must be in range [0, ", largest, "] for input dtype ", type_name(x.dtype()), ", but found ", l);
         return with(Pointwise::softshrink, x, Scalar(l), {}, {}, out);
     },
     function | elementwise | keeps_zero,
     R"(Each element moved towards 0 by `lambd`, and 0 within it.
        >>> wisp.nn.functional.softshrink(wisp.tensor([-1.0, 0.3, 2.0]))
        tensor([-0.5000,  0.0000,  1.5000]))"},
    {"nn.functional.tanhshrink(Tensor input)",
     [](const Tensor& x) { return is_floating(x.dtype()) ? pointwise(Pointwise::tanhshrink, x) : x - tanh(x); }, function | elementwise,
     R"(`x - tanh(x)`.
        >>> wisp.nn.functional.tanhshrink(wisp.tensor([0.0, 1.0]))
        tensor([0.0000, 0.2384]))"},
    {"nn.functional.softsign(Tensor input)",
     [](const Tensor& x) { return is_floating(x.dtype()) ? pointwise(Pointwise::softsign, x) : x / (abs(x) + Scalar(1)); },
     function | elementwise | onnx("Softsign"),
     R"(`x / (1 + |x|)`.
        >>> wisp.nn.functional.softsign(wisp.tensor([-1.0, 3.0]))
        tensor([-0.5000,  0.7500]))"},
    {"nn.functional.sigmoid(Tensor input)", [](const Tensor& x) { return sigmoid(x); }, function | elementwise | onnx("Sigmoid")},
    {"nn.functional.tanh(Tensor input)", [](const Tensor& x) { return tanh(x); }, function | elementwise | keeps_zero | onnx("Tanh")},
};

}  // namespace

void refuse_bool_subtraction(const Arg& a, const Arg& b) {
    if (is_bool(a) && is_bool(b))
        throw RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.");
    if (is_bool(a) || is_bool(b))
        throw RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
            "`logical_not()` operator instead.");
}

}  // namespace wisp
