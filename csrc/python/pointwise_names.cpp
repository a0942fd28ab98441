// The Python names of the pointwise table: every row becomes a function, a method, an in-place method and out=.
// Rows whose call is not simply name(input) or name(input, other) are spelled out below.
#include <cmath>

#include "../autograd/whole.h"
#include "../ops/gather.h"
#include "../ops/ops.h"
#include "registry.h"

namespace wisp {
namespace {

constexpr int everywhere = function | method | inplace;

// One callable per row, so that a registration is a plain function pointer.
template <Pointwise op> Tensor unary_row(const Tensor& x) { return pointwise(op, x); }
template <Pointwise op> Tensor unary_row_(const Tensor& x) { return pointwise_(op, x); }
template <Pointwise op> Tensor binary_row(const Arg& a, const Arg& b) {
    if (!a.tensor && !b.tensor) throw TypeError(pointwise_info(op).name, "(): expected at least one Tensor, got two numbers");
    return pointwise(op, a, b);
}
template <Pointwise op> Tensor binary_row_(const Tensor& a, const Arg& b) { return pointwise_(op, a, b); }

bool has_special_call(Pointwise op) {
    switch (op) {
    case Pointwise::add:
    case Pointwise::add_scaled:
    case Pointwise::sub:
    case Pointwise::div:
    case Pointwise::div_floor:
    case Pointwise::div_trunc:
    case Pointwise::pow:
    case Pointwise::round:
    case Pointwise::square:
    case Pointwise::lerp_number:
    case Pointwise::squared_error:
    case Pointwise::absolute_error:
    case Pointwise::smooth_error:
    case Pointwise::huber_error:
    case Pointwise::logits_error: return true;
    default: return false;
    }
}

template <Pointwise op> void name_unary(const char* name) {
    if (has_special_call(op)) return;
    if (op >= Pointwise::i0e) {
        register_operator(std::string("special.") + name + "(Tensor input, *, Tensor? out=None)", reinterpret_cast<void*>(&unary_row<op>),
                          thunk_of(&unary_row<op>), function);
        return;
    }
    const std::string n = name;
    register_operator(n + "(Tensor input, *, Tensor? out=None)", reinterpret_cast<void*>(&unary_row<op>), thunk_of(&unary_row<op>),
                      function | method);
    if (pointwise_info(op).result != 2)
        register_operator(n + "_(Tensor input)", reinterpret_cast<void*>(&unary_row_<op>), thunk_of(&unary_row_<op>), function | method);
    else
        register_operator(n + "(Tensor input, *, Tensor? out=None)", reinterpret_cast<void*>(&unary_row<op>), thunk_of(&unary_row<op>),
                          inplace);
}
// Which of the two operands may be a Python number, as in PyTorch.
bool first_may_be_number(Pointwise op) {
    return op == Pointwise::mul || op == Pointwise::remainder || op == Pointwise::xlogy ||
           (op >= Pointwise::bitwise_and && op <= Pointwise::bitwise_right_shift);
}
bool second_may_be_number(Pointwise op) {
    return first_may_be_number(op) || op == Pointwise::fmod || op == Pointwise::copysign || (op >= Pointwise::eq && op <= Pointwise::ge);
}

template <Pointwise op> void name_binary(const char* name) {
    if (has_special_call(op)) return;
    if (op >= Pointwise::xlog1py) {
        register_operator(std::string("special.") + name + "(Operand input, Operand other, *, Tensor? out=None)",
                          reinterpret_cast<void*>(&binary_row<op>), thunk_of(&binary_row<op>), function);
        return;
    }
    const std::string n = name, first = first_may_be_number(op) ? "Operand" : "Tensor",
                      second = second_may_be_number(op) ? "Operand" : "Tensor";
    register_operator(n + "(" + first + " input, " + second + " other, *, Tensor? out=None)", reinterpret_cast<void*>(&binary_row<op>),
                      thunk_of(&binary_row<op>), function | method | (pointwise_info(op).result == 2 ? inplace : 0));
    if (pointwise_info(op).result != 2)
        register_operator(n + "_(Tensor input, " + second + " other)", reinterpret_cast<void*>(&binary_row_<op>),
                          thunk_of(&binary_row_<op>), method);
}

// --- rows with calls of their own --------------------------------------------------------------------------------------------

Tensor with(Pointwise op, const Tensor& x, const Scalar& p0, const Scalar& p1 = {}, const Scalar& p2 = {}) {
    const Params params = params_of(p0, p1, p2);
    return pointwise(op, x, {}, {}, &params);
}
Tensor with_(Pointwise op, const Tensor& x, const Scalar& p0, const Scalar& p1 = {}, const Scalar& p2 = {}) {
    const Params params = params_of(p0, p1, p2);
    return pointwise_(op, x, {}, {}, &params);
}
// For nn.functional: the last argument says whether x itself is changed.
Tensor activation(Pointwise op, const Tensor& x, bool in_place, const Scalar& p0 = {}, const Scalar& p1 = {}, const Scalar& p2 = {}) {
    return in_place ? with_(op, x, p0, p1, p2) : with(op, x, p0, p1, p2);
}

bool is_bool(const Arg& a) { return a.tensor ? a.tensor->dtype() == DType::boolean : a.number.is_bool(); }

void check_alpha(const char* name, const Arg& a, const Arg& b, const Scalar& alpha) {
    const DType d = a.tensor && b.tensor ? result_type(*a.tensor, *b.tensor)
                    : a.tensor           ? result_type(*a.tensor, b.number)
                                         : result_type(*b.tensor, a.number);
    if (alpha.is_bool() && d != DType::boolean) throw RuntimeError("Boolean alpha only supported for Boolean results. (", name, ")");
    if (alpha.is_floating() && is_integral(d))
        throw RuntimeError("For integral input tensors, argument alpha must not be a floating point number. (", name, ")");
    if (alpha.is_complex() && !is_complex(d))
        throw RuntimeError("For non-complex input tensors, argument alpha must not be a complex number. (", name, ")");
}

void refuse_bool_subtraction(const Arg& a, const Arg& b) {
    if (is_bool(a) && is_bool(b))
        throw RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.");
    if (is_bool(a) || is_bool(b))
        throw RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
            "`logical_not()` operator instead.");
}

template <bool in_place> Tensor add_or_sub(const Arg& a, const Arg& b, const Scalar& alpha, bool subtract) {
    if (!a.tensor && !b.tensor) throw TypeError("add(): expected at least one Tensor");
    if (subtract) refuse_bool_subtraction(a, b);
    const Pointwise plain = subtract ? Pointwise::sub : Pointwise::add;
    if (alpha == 1.0) {
        if (alpha.is_bool() || alpha.is_floating() || alpha.is_complex()) check_alpha(subtract ? "sub" : "add", a, b, alpha);
        return in_place ? pointwise_(plain, *a.tensor, b) : pointwise(plain, a, b);
    }
    check_alpha(subtract ? "sub" : "add", a, b, alpha);
    const Params params = params_of(subtract ? -alpha : alpha);
    return in_place ? pointwise_(Pointwise::add_scaled, *a.tensor, b, {}, &params)
                    : pointwise(Pointwise::add_scaled, a, b, {}, &params, subtract ? "SubBackward0" : nullptr);
}

Pointwise rounded_division(const std::optional<std::string>& mode) {
    if (!mode) return Pointwise::div;
    if (*mode == "floor") return Pointwise::div_floor;
    if (*mode == "trunc") return Pointwise::div_trunc;
    throw RuntimeError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '", *mode, "'");
}

Tensor power_number(const Tensor& x, const Scalar& e) {
    if (is_integral(x.dtype()) && e.is_integral() && e.to_int() < 0)
        throw RuntimeError("Integers to negative integer powers are not allowed.");
    const DType d = result_type(x, e);
    if (x.dtype() == DType::boolean && e.is_bool()) return pointwise(Pointwise::bitwise_or, x, logical_not(full_like(x, e)));
    Tensor base = d == x.dtype() ? x : to(x, d);
    if (e == 2.0) {
        Tensor y = pointwise(Pointwise::mul, base, base);
        if (!y.requires_grad()) return y;
        const Params params = params_of(e);
        return pointwise(Pointwise::pow_number, base, {}, {}, &params);
    }
    const Params params = params_of(e);
    return pointwise(Pointwise::pow_number, base, {}, {}, &params);
}

Tensor power(const Arg& a, const Arg& b) {
    if (a.tensor && !b.tensor) return power_number(*a.tensor, b.number);
    if (!a.tensor && !b.tensor) throw TypeError("pow(): expected at least one Tensor");
    if (a.tensor && a.tensor->dtype() == DType::boolean && is_bool(b))
        return pointwise(Pointwise::bitwise_or, *a.tensor, pointwise(Pointwise::logical_not, *b.tensor));
    return pointwise(Pointwise::pow, a, b);
}

Tensor nan_to_num(const Tensor& x, std::optional<double> nan, std::optional<double> posinf, std::optional<double> neginf) {
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
    return with(Pointwise::nan_to_num, x, n, p, m);
}

Tensor polygamma_of(int64_t n, const Tensor& x) {
    if (n < 0) throw RuntimeError("polygamma(n, x) does not support negative n.");
    return n == 0 ? digamma(x) : polygamma(Scalar(n), x);
}

const Operators operators = {
    {"add(Operand input, Operand other, *, Number alpha=1, Tensor? out=None)",
     [](const Arg& a, const Arg& b, Scalar s) { return add_or_sub<false>(a, b, s, false); }, function | method},
    {"add_(Tensor input, Operand other, *, Number alpha=1)",
     [](const Tensor& a, const Arg& b, Scalar s) { return add_or_sub<true>(a, b, s, false); }, method},
    {"sub(Operand input, Operand other, *, Number alpha=1, Tensor? out=None)",
     [](const Arg& a, const Arg& b, Scalar s) { return add_or_sub<false>(a, b, s, true); }, function | method},
    {"sub_(Tensor input, Operand other, *, Number alpha=1)",
     [](const Tensor& a, const Arg& b, Scalar s) { return add_or_sub<true>(a, b, s, true); }, method},
    {"rsub(Tensor input, Operand other, *, Number alpha=1)",
     [](const Tensor& a, const Arg& b, Scalar s) {
         auto difference = [&] { return add_or_sub<false>(b, Arg(a), s, true); };
         return b.tensor ? whole("RsubBackward0", {a, *b.tensor}, difference) : difference();
     },
     function},
    {"div(Operand input, Operand other, *, str? rounding_mode=None, Tensor? out=None)",
     [](const Arg& a, const Arg& b, std::optional<std::string> m) { return pointwise(rounded_division(m), a, b); }, function | method},
    {"div_(Tensor input, Operand other, *, str? rounding_mode=None)",
     [](const Tensor& a, const Arg& b, std::optional<std::string> m) { return pointwise_(rounded_division(m), a, b); }, method},
    {"floor_divide(Operand input, Operand other, *, Tensor? out=None)",
     [](const Arg& a, const Arg& b) { return pointwise(Pointwise::div_floor, a, b); }, function | method},
    {"floor_divide_(Tensor input, Operand other)", [](const Tensor& a, const Arg& b) { return pointwise_(Pointwise::div_floor, a, b); },
     method},
    {"pow(Operand input, Operand exponent, *, Tensor? out=None)", power, everywhere},
    {"square(Tensor input, *, Tensor? out=None)",
     [](const Tensor& x) { return square(x.dtype() == DType::boolean ? to(x, DType::i64) : x); }, everywhere | inplace_function},
    {"float_power_(Tensor input, Operand exponent)",
     [](const Tensor& x, const Arg& e) {
         const bool complex = is_complex(x.dtype()) || (e.tensor ? is_complex(e.tensor->dtype()) : e.number.is_complex());
         const DType d = complex ? DType::c128 : DType::f64;
         if (x.dtype() != d)
             throw RuntimeError("the base given to float_power_ has dtype ", x.dtype(), " but the operation's result requires dtype ", d);
         const Tensor before = clone(x);
         assign_inplace(x, power(before, e), "float_power_");
         return x;
     },
     method},
    {"float_power(Operand input, Operand exponent, *, Tensor? out=None)",
     [](const Arg& a, const Arg& b) {
         if (!a.tensor && !b.tensor) throw TypeError("float_power(): expected at least one Tensor");
         const bool complex = (a.tensor ? is_complex(a.tensor->dtype()) : a.number.is_complex()) ||
                              (b.tensor ? is_complex(b.tensor->dtype()) : b.number.is_complex());
         const DType d = complex ? DType::c128 : DType::f64;
         const Tensor x = a.tensor ? to(*a.tensor, d) : scalar_tensor(a.number, d);
         if (!b.tensor) return power_number(x, b.number);
         return pointwise(Pointwise::pow, x, to(*b.tensor, d));
     },
     function | method},
    {"nan_to_num(Tensor input, float? nan=None, float? posinf=None, float? neginf=None, *, Tensor? out=None)", nan_to_num,
     everywhere | inplace_function},
    {"logit(Tensor input, float? eps=None, *, Tensor? out=None)",
     [](const Tensor& x, std::optional<double> e) {
         return e && *e >= 0 ? with(Pointwise::logit_clamped, x, Scalar(*e)) : pointwise(Pointwise::logit, x);
     },
     everywhere | inplace_function},
    {"polygamma(int n, Tensor input, *, Tensor? out=None)", polygamma_of, function},
    {"special.polygamma(int n, Tensor input, *, Tensor? out=None)", polygamma_of, function},
    {"polygamma(Tensor input, int n)", [](const Tensor& x, int64_t n) { return polygamma_of(n, x); }, method | inplace},
    {"addcmul(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1, Tensor? out=None)",
     [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
         const Params params = params_of(v);
         return pointwise(Pointwise::addcmul, x, a, b, &params);
     },
     function | method},
    {"addcmul_(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)",
     [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
         const Params params = params_of(v);
         return pointwise_(Pointwise::addcmul, x, a, b, &params);
     },
     method},
    {"addcdiv(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1, Tensor? out=None)",
     [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
         if (is_integral(a.dtype()) && is_integral(b.dtype())) throw RuntimeError("Integer division with addcdiv is no longer supported");
         const Params params = params_of(v);
         return pointwise(Pointwise::addcdiv, x, a, b, &params);
     },
     function | method},
    {"addcdiv_(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)",
     [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
         if (is_integral(a.dtype()) && is_integral(b.dtype())) throw RuntimeError("Integer division with addcdiv is no longer supported");
         const Params params = params_of(v);
         return pointwise_(Pointwise::addcdiv, x, a, b, &params);
     },
     method},
    {"lerp(Tensor input, Tensor end, Operand weight, *, Tensor? out=None)",
     [](const Tensor& x, const Tensor& end, const Arg& w) {
         if (x.dtype() != end.dtype()) throw RuntimeError("expected dtype ", x.dtype(), " for `end` but got dtype ", end.dtype());
         if (w.tensor) {
             if (w.tensor->dtype() != x.dtype())
                 throw RuntimeError("expected dtype ", x.dtype(), " for `weight` but got dtype ", w.tensor->dtype());
             return pointwise(Pointwise::lerp, x, end, *w.tensor);
         }
         const Params params = params_of(w.number);
         return pointwise(Pointwise::lerp_number, x, end, {}, &params);
     },
     everywhere},
    {"where(Tensor condition, Operand input, Operand other, *, Tensor? out=None)", where, function},
    {"where(Tensor condition)", nonzero_tuple, function},
    {"where(Tensor input, Tensor condition, Operand other)",
     [](const Tensor& x, const Tensor& c, const Arg& other) { return where(c, x, other); }, method},
    {"conj_physical(Tensor input, *, Tensor? out=None)", [](const Tensor& t) { return conj(t); }, everywhere},
    {"resolve_conj(Tensor input)", [](const Tensor& t) { return t; }, function | method},
    {"resolve_neg(Tensor input)", [](const Tensor& t) { return t; }, function | method},
    {"is_conj(Tensor input)", [](const Tensor&) { return false; }, function | method},
    {"is_neg(Tensor input)", [](const Tensor&) { return false; }, function | method},
    {"real(Tensor input)", [](const Tensor& t) { return real(t); }, function},
    {"imag(Tensor input)", [](const Tensor& t) { return imag(t); }, function},
    {"positive(Tensor input)",
     [](const Tensor& t) {
         if (t.dtype() == DType::boolean) throw RuntimeError("The `+` operator, on a bool tensor is not supported.");
         return t;
     },
     function | method},
    // nn.functional
    {"nn.functional.relu(Tensor input, bool inplace=False)",
     [](const Tensor& x, bool i) { return i ? pointwise_(Pointwise::relu, x) : pointwise(Pointwise::relu, x); }, function},
    {"nn.functional.relu6(Tensor input, bool inplace=False)", [](const Tensor& x, bool i) { return activation(Pointwise::relu6, x, i); },
     function},
    {"nn.functional.silu(Tensor input, bool inplace=False)", [](const Tensor& x, bool i) { return activation(Pointwise::silu, x, i); },
     function},
    {"nn.functional.mish(Tensor input, bool inplace=False)", [](const Tensor& x, bool i) { return activation(Pointwise::mish, x, i); },
     function},
    {"nn.functional.selu(Tensor input, bool inplace=False)", [](const Tensor& x, bool i) { return activation(Pointwise::selu, x, i); },
     function},
    {"selu(Tensor input)", [](const Tensor& x) { return activation(Pointwise::selu, x, false); }, function | inplace_function},
    {"nn.functional.hardswish(Tensor input, bool inplace=False)",
     [](const Tensor& x, bool i) { return activation(Pointwise::hardswish, x, i); }, function},
    {"nn.functional.hardsigmoid(Tensor input, bool inplace=False)",
     [](const Tensor& x, bool i) { return activation(Pointwise::hardsigmoid, x, i); }, function},
    {"nn.functional.elu(Tensor input, float alpha=1.0, bool inplace=False)",
     [](const Tensor& x, double a, bool i) { return activation(Pointwise::elu, x, i, Scalar(a), Scalar(1), Scalar(1)); }, function},
    {"nn.functional.celu(Tensor input, float alpha=1.0, bool inplace=False)",
     [](const Tensor& x, double a, bool i) {
         if (a == 0) throw RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU");
         return activation(Pointwise::celu, x, i, Scalar(a));
     },
     function},
    {"celu(Tensor input, float alpha=1.0)", [](const Tensor& x, double a) { return activation(Pointwise::celu, x, false, Scalar(a)); },
     function | inplace_function},
    {"nn.functional.leaky_relu(Tensor input, float negative_slope=0.01, bool inplace=False)",
     [](const Tensor& x, double s, bool i) { return activation(Pointwise::leaky_relu, x, i, Scalar(s)); }, function},
    {"nn.functional.hardtanh(Tensor input, float min_val=-1.0, float max_val=1.0, bool inplace=False)",
     [](const Tensor& x, double a, double b, bool i) {
         if (a > b) throw ValueError("min_val cannot be greater than max_val: got ", a, " and ", b);
         return activation(Pointwise::hardtanh, x, i, Scalar(a), Scalar(b));
     },
     function},
    {"nn.functional.threshold(Tensor input, float threshold, float value, bool inplace=False)",
     [](const Tensor& x, double t, double v, bool i) { return activation(Pointwise::threshold, x, i, Scalar(t), Scalar(v)); }, function},
    {"threshold(Tensor input, Number threshold, Number value, *, Tensor? out=None)",
     [](const Tensor& x, Scalar t, Scalar v) { return with(Pointwise::threshold, x, t, v); }, function | inplace_function},
    {"nn.functional.gelu(Tensor input, *, str approximate='none', Tensor? out=None)",
     [](const Tensor& x, std::string a) {
         if (a != "none" && a != "tanh") throw RuntimeError("approximate argument must be either none or tanh, got '", a, "'");
         return pointwise(a == "tanh" ? Pointwise::gelu_tanh : Pointwise::gelu, x);
     },
     function},
    {"nn.functional.softplus(Tensor input, float beta=1.0, float threshold=20.0, *, Tensor? out=None)",
     [](const Tensor& x, double b, double t) { return with(Pointwise::softplus, x, Scalar(b), Scalar(t)); }, function},
    {"nn.functional.logsigmoid(Tensor input, *, Tensor? out=None)", [](const Tensor& x) { return pointwise(Pointwise::logsigmoid, x); },
     function},
    {"nn.functional.hardshrink(Tensor input, float lambd=0.5, *, Tensor? out=None)",
     [](const Tensor& x, double l) { return with(Pointwise::hardshrink, x, Scalar(l)); }, function},
    {"hardshrink(Tensor input, float lambd=0.5)", [](const Tensor& x, double l) { return with(Pointwise::hardshrink, x, Scalar(l)); },
     function | method},
    {"nn.functional.softshrink(Tensor input, float lambd=0.5, *, Tensor? out=None)",
     [](const Tensor& x, double l) {
         if (l < 0) throw RuntimeError("lambda must be greater or equal to 0, but found to be ", l, ".");
         return with(Pointwise::softshrink, x, Scalar(l));
     },
     function},
    {"nn.functional.tanhshrink(Tensor input)",
     [](const Tensor& x) { return is_floating(x.dtype()) ? pointwise(Pointwise::tanhshrink, x) : x - tanh(x); }, function},
    {"nn.functional.softsign(Tensor input)",
     [](const Tensor& x) { return is_floating(x.dtype()) ? pointwise(Pointwise::softsign, x) : x / (abs(x) + Scalar(1)); }, function},
    {"nn.functional.sigmoid(Tensor input)", [](const Tensor& x) { return sigmoid(x); }, function},
    {"nn.functional.tanh(Tensor input)", [](const Tensor& x) { return tanh(x); }, function},
};

// What the table says, for the generated tests: (name, operands, types, result, which operands have a gradient).
const Operators description = {
    {"_pointwise_table()",
     []() -> PyObject* {
         constexpr const char* results[] = {"same", "promote", "boolean", "real"};
         Ref rows(PyList_New(0));
         for (int i = 0; i < int(Pointwise::count); i++) {
             const PointwiseInfo& info = pointwise_info(Pointwise(i));
             std::string types;
             for (int bit = 0; bit < 4; bit++)
                 if (info.types & 1 << bit) types += "FCIB"[bit];
             Ref gradients(PyTuple_New(info.arity));
             for (int k = 0; k < info.arity; k++) PyTuple_SET_ITEM(gradients.get(), k, PyBool_FromLong(info.gradient[k] != nullptr));
             Ref row(Py_BuildValue("(sissO)", info.name, info.arity, types.c_str(), results[info.result], gradients.get()));
             if (PyList_Append(rows.get(), row.get()) < 0) throw PythonError();
         }
         return rows.release();
     },
     function},
};

}  // namespace

void name_pointwise_rows() {
#define UNARY(name, ...) name_unary<Pointwise::name>(#name);
#define BINARY(name, ...) name_binary<Pointwise::name>(#name);
#define TERNARY(...)
#include "../ops/table/binary.h"
#include "../ops/table/unary.h"
#undef UNARY
#undef BINARY
#undef TERNARY
}

}  // namespace wisp
