// Bounds and rounding: clamp with numbers or tensors, round to decimals.
#include <cmath>

#include "../autograd/whole.h"
#include "../python/registry.h"
#include "ops.h"

namespace wisp {
namespace {

constexpr Facts all_forms = everywhere | inplace_function;

Tensor row(Out out, Pointwise op, const Tensor& x, const Scalar& p0, const Scalar& p1 = {}, const char* node = nullptr) {
    refuse_large(x.dtype(), p0), refuse_large(x.dtype(), p1);
    const Params params = params_of(p0, p1);
    return pointwise_into(out, op, x, {}, {}, &params, node);
}

// The nodes of clamp, clamp_min and clamp_max, for numbers and for tensors.
struct Names {
    const char *numbers, *tensors;
};
constexpr Names clamp_names = {"ClampBackward1", "ClampBackward0"}, min_names = {"ClampMinBackward0", "ClampMinBackward1"},
                max_names = {"ClampMaxBackward0", "ClampMaxBackward1"};

Tensor bound(const Arg& a) { return !a.given ? Tensor() : a.tensor ? *a.tensor : wrapped_number(a.number); }

// The dtype of x and both bounds, of which those without dimensions are weaker than x. One of them beside a number is a number, too.
DType common_dtype(const Tensor& x, const Arg& low, const Arg& high) {
    DType r = x.dtype();
    std::optional<DType> weak;
    const bool with_number = (low.given && !low.tensor) || (high.given && !high.tensor);
    for (const Arg* bound : {&low, &high})
        if (bound->tensor && bound->tensor->dim()) r = promote(r, bound->tensor->dtype());
    for (const Arg* bound : {&low, &high}) {
        if (!bound->tensor || bound->tensor->dim()) continue;
        DType d = bound->tensor->dtype();
        if (with_number) d = is_floating(d) ? default_dtype() : d == DType::boolean ? d : DType::i64;
        weak = weak ? promote(*weak, d) : d;
    }
    GradMode off(false);
    if (weak) r = result_type(empty({0}, r), empty({}, *weak));
    for (const Arg* bound : {&low, &high})
        if (bound->given && !bound->tensor) r = result_type(empty({0}, r), bound->number);
    return r;
}

Tensor clamp_to_tensors(const Tensor& x, const Arg& low, const Arg& high, const char* name, Out out) {
    Tensor y = x;
    const bool alike = (!low.tensor || low.tensor->dtype() == x.dtype()) && (!high.tensor || high.tensor->dtype() == x.dtype());
    {
        GradMode off(false);
        if (!alike && x.dim()) y = to(x, common_dtype(x, low, high));
        const DType d = y.dtype();
        const auto with = [&](const Arg& bound) { return !alike && x.dim() && bound.tensor ? to(*bound.tensor, d) : Tensor(); };
        const Tensor least = with(low), most = with(high);
        if (low.given) y = pointwise_into(high.given ? Out() : out, Pointwise::maximum, y, least ? Arg(least) : low);
        if (high.given) y = pointwise_into(out, Pointwise::minimum, y, most ? Arg(most) : high);
    }
    const Tensor lo = bound(low), hi = bound(high);
    if (!needs_grad(x, lo, hi)) return y;
    auto backward = [](Backward& bw) {
        const bool both = bw.node.next.size() == 3;
        const Tensor g = bw.grad(), x = bw.saved(0), lo = bw.saved(1), hi = bw.saved(2);
        auto passes = [&](int edge, const Tensor& mask) { bw.set(edge, where(mask, g, Scalar(0))); };
        const Tensor under = lo ? x < lo : Tensor(), over = hi ? x > hi : Tensor();
        if (bw.needs(0)) passes(0, !hi ? x >= lo : !lo ? x <= hi : logical_and(x >= lo, x <= hi));  // nothing at NaN
        if (lo && bw.needs(1)) passes(1, hi ? logical_and(under, lo < hi) : under);
        if (hi && bw.needs(both ? 2 : 1)) passes(both ? 2 : 1, lo ? logical_or(over, hi < lo) : over);
    };
    // clamp has an edge for a bound that is missing, too.
    if (name == clamp_names.tensors) record(y, name, {x, lo, hi}, {x, lo, hi}, backward);
    else record(y, name, {x, lo ? lo : hi}, {x, lo, hi}, backward);
    return y;
}

// With numbers a missing bound is an infinite one.
Tensor clamp(const Tensor& x, const Arg& low, const Arg& high, const Names& names, Out out) {
    if (!low.given && !high.given) throw RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None");
    if (is_complex(x.dtype())) throw NotImplemented("clamp is not supported for complex types");
    if (low.tensor || high.tensor) return clamp_to_tensors(x, low, high, names.tensors, out);
    if ((low.given && low.number.is_complex()) || (high.given && high.number.is_complex()))
        throw NotImplemented("clamp is not supported for complex types");
    DType d = x.dtype();
    if (low.given) d = promote(d, is_floating(d) && !low.number.is_complex() ? d : result_type(x, low.number));
    if (high.given) d = promote(d, is_floating(d) && !high.number.is_complex() ? d : result_type(x, high.number));
    const Scalar lowest = d == DType::u64  ? Scalar(0)
                          : is_integral(d) ? Scalar(int64_t(INT64_MIN))
                                           : Scalar(-Py_HUGE_VAL),
                 highest = d == DType::u64  ? Scalar(uint64_t(UINT64_MAX))
                           : is_integral(d) ? Scalar(int64_t(INT64_MAX))
                                            : Scalar(Py_HUGE_VAL);
    const Scalar lo = low.given ? low.number : lowest, hi = high.given ? high.number : highest;
    const Tensor base = d == x.dtype() ? x : to(x, d);
    if (low.given && high.given && lo.to_double() > hi.to_double()) return row(out, Pointwise::clamp, base, hi, hi, names.numbers);
    if ((low.given && lo.is_floating() && lo.to_double() != lo.to_double()) ||
        (high.given && hi.is_floating() && hi.to_double() != hi.to_double()))
        return pointwise_into(out, Pointwise::add, base, Scalar(Py_NAN));
    return row(out, Pointwise::clamp, base, lo, hi, names.numbers);
}
Tensor clamp_both(const Tensor& x, const Arg& low, const Arg& high, Out out) { return clamp(x, low, high, clamp_names, out); }

Tensor round_to(const Tensor& x, int64_t decimals, Out out) {
    if (is_integral(x.dtype())) {
        if (decimals == 0) return pointwise_into(out, Pointwise::round, x);
        throw RuntimeError("\"round_cpu\" not implemented for '", type_name(x.dtype()), "' with decimals");
    }
    const double scale = std::pow(10.0, std::abs(double(decimals)));
    if (decimals >= 0) return row(out, Pointwise::round_decimals, x, Scalar(scale));
    return whole("RoundBackward1", {x}, [&] { return pointwise(Pointwise::round, x / Scalar(scale)) * Scalar(scale); });
}

const Operators operators = {
    {"clamp(Tensor input, Operand? min=None, Operand? max=None, *, Tensor? out=None)", clamp_both, all_forms | elementwise,
     R"(Each element, moved to `min` or `max` where it lies outside of them; either may be a number, a tensor or None.
        >>> wisp.clamp(wisp.tensor([-2.0, 0.5, 3.0]), min=-1, max=1)
        tensor([-1.0000,  0.5000,  1.0000]))"},
    {"clip(Tensor input, Operand? min=None, Operand? max=None, *, Tensor? out=None)", clamp_both, all_forms | elementwise,
     R"(The same as `clamp`.
        >>> wisp.clip(wisp.tensor([-2, 5]), 0, 3)
        tensor([0, 3]))"},
    {"clamp_min(Tensor input, Operand min, *, Tensor? out=None)",
     [](const Tensor& x, const Arg& m, Out out) { return clamp(x, m, {}, min_names, out); }, all_forms | elementwise,
     R"(Each element, but at least `min`.
        >>> wisp.clamp_min(wisp.tensor([1, 5]), 3)
        tensor([3, 5]))"},
    {"clamp_max(Tensor input, Operand max, *, Tensor? out=None)",
     [](const Tensor& x, const Arg& m, Out out) { return clamp(x, {}, m, max_names, out); }, all_forms | elementwise,
     R"(Each element, but at most `max`.
        >>> wisp.clamp_max(wisp.tensor([1, 5]), 3)
        tensor([1, 3]))"},
    {"round(Tensor input, *, Tensor!? out=None)", [](const Tensor& x, Out out) { return pointwise_into(out, Pointwise::round, x); },
     all_forms | elementwise | keeps_zero | in_foreach,
     R"(Each element rounded to the nearest integer, halves to the even one; or to `decimals` digits.
        >>> wisp.round(wisp.tensor([0.5, 1.5, 2.345]), decimals=1)
        tensor([0.5000, 1.5000, 2.3000]))"},
    {"round(Tensor input, *, int decimals, Tensor!? out=None)", round_to, all_forms},
};

}  // namespace
}  // namespace wisp
