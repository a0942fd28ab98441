// What the table says of each pointwise operator, and its gradients on tensors, for when they must be differentiable.
#include <cmath>

#include "../cpu/isa.h"
#include "facts.h"
#include "ops.h"

namespace wisp {
namespace {

// ---- tensors in gradient expressions

template <class T> struct Kind;
template <> struct Kind<Tensor> {
    using Constant = Scalar;
};

// ---- Probe: remembers which operands an expression used

struct Probe {
    int used = 0;
};
template <> struct Kind<Probe> {
    using Constant = Probe;
};

template <class T> typename Kind<T>::Constant constant(double v) {
    if constexpr (std::is_same_v<T, Probe>) return Probe{};
    // Whole numbers stay integers, so that they promote nothing.
    else return v == std::floor(v) && std::abs(v) < 1e9 ? Scalar(int64_t(v)) : Scalar(v);
}
template <class T> typename Kind<T>::Constant parameter(const Param& p) {
    if constexpr (std::is_same_v<T, Probe>) return Probe{};
    else if (p.imag != 0) return Scalar(std::complex<double>(p.real, p.imag));
    else return p.real == double(p.integer) && std::abs(p.real) < 1e15 ? Scalar(p.integer) : Scalar(p.real);
}

// Every row of one or two operands may be used in a gradient; then what is no row.
#define WISP_PROBE_1(name) \
    [[maybe_unused]] Probe name(Probe a) { return a; }
#define WISP_PROBE_2(name) \
    [[maybe_unused]] Probe name(Probe a, Probe b) { return {a.used | b.used}; }
#define UNARY(name, ...) WISP_PROBE_1(name)
#define BINARY(name, ...) WISP_PROBE_2(name)
#define TERNARY(...)
#include "table/binary.h"
#include "table/unary.h"
#undef UNARY
#undef BINARY
#undef TERNARY
// clang-format off: a line of names
WISP_PROBE_1(conj) WISP_PROBE_1(sinc_slope) WISP_PROBE_2(power_slope) WISP_PROBE_1(re) WISP_PROBE_1(magnitude) WISP_PROBE_1(normal_cdf) WISP_PROBE_1(gelu_tanh_slope)
WISP_PROBE_1(mish_slope) WISP_PROBE_1(at_least_zero) WISP_PROBE_1(is_finite) WISP_PROBE_1(operator-)
WISP_PROBE_2(polygamma) WISP_PROBE_2(power) WISP_PROBE_2(operator+) WISP_PROBE_2(operator-) WISP_PROBE_2(operator*)
WISP_PROBE_2(operator/) WISP_PROBE_2(operator<) WISP_PROBE_2(operator<=) WISP_PROBE_2(operator>) WISP_PROBE_2(operator>=)
WISP_PROBE_2(operator==) WISP_PROBE_2(operator!=) WISP_PROBE_2(operator&) WISP_PROBE_2(operator|)
// clang-format on
#undef WISP_PROBE_1
#undef WISP_PROBE_2
Probe where(Probe c, Probe a, Probe b) { return {c.used | a.used | b.used}; }
Probe nought(Probe) { return {}; }
Probe piecewise(Probe x, Probe gradient) { return {x.used | gradient.used}; }

// ---- functions of the rows on tensors that are no operators of their own

Tensor nought(const Tensor& t) { return zeros_like(t); }
Tensor piecewise(const Tensor& x, const Tensor& gradient) {
    if (!needs_grad(x) || gradient.in_graph()) return gradient;
    const Tensor y = alias(gradient);
    record(y, "PiecewiseBackward", {x}, {}, [sizes = x.sizes(), dtype = x.dtype()](Backward& bw) { bw.set(0, zeros(sizes, dtype)); });
    if (gradient->dual) carry_tangents(y, gradient);  // that of the incoming gradient
    return y;
}
Tensor re(const Tensor& t) { return is_complex(t.dtype()) ? real(t) : t; }
Tensor magnitude(const Tensor& t) { return abs(t); }
Tensor power(const Tensor& a, const Tensor& b) { return pow(a, b); }
Tensor power(const Tensor& a, const Scalar& b) {
    const Params params = params_of(b);
    return pointwise(Pointwise::pow_number, a, {}, {}, &params);
}
Scalar conj(const Scalar& s) { return s.is_complex() ? Scalar(std::conj(s.to_complex())) : s; }
Scalar operator-(const Scalar& a, const Scalar& b) {
    if (a.is_complex() || b.is_complex()) return Scalar(a.to_complex() - b.to_complex());
    return a.is_integral() && b.is_integral() ? Scalar(a.to_int() - b.to_int()) : Scalar(a.to_double() - b.to_double());
}
Scalar operator+(const Scalar& a, const Scalar& b) { return a - (-b); }
[[maybe_unused]] Scalar operator*(const Scalar& a, const Scalar& b) {  // no row needs it now
    if (a.is_complex() || b.is_complex()) return Scalar(a.to_complex() * b.to_complex());
    return a.is_integral() && b.is_integral() ? Scalar(a.to_int() * b.to_int()) : Scalar(a.to_double() * b.to_double());
}
Tensor power_slope(const Tensor& x, const Scalar& e) {
    if (!e.is_complex() && e.to_double() == 0) return zeros_like(x);
    return mul(power(x, e - Scalar(1)), e);
}
Tensor at_least_zero(const Tensor& t) { return (is_complex(t.dtype()) ? real(t) : t) >= Scalar(0); }
Tensor is_finite(const Tensor& t) { return isfinite(t); }
Tensor normal_cdf(const Tensor& x) { return erfc(x * Scalar(-0.70710678118654752440)) * Scalar(0.5); }
Tensor gelu_tanh_slope(const Tensor& x) {
    Tensor u = tanh(Scalar(0.79788456080286535588) * (x + Scalar(0.044715) * x * x * x));
    return Scalar(0.5) * (Scalar(1) + u) +
           Scalar(0.5 * 0.79788456080286535588) * x * (Scalar(1) - u * u) * (Scalar(1) + Scalar(3 * 0.044715) * x * x);
}
Tensor sinc_slope(const Tensor& x) {
    const Tensor small = abs(x) < Scalar(0.1), u = x * Scalar(3.141592653589793), s = u * u;
    const Tensor near = ((((s * Scalar(1.0 / 518918400) - Scalar(1.0 / 3991680)) * s + Scalar(1.0 / 45360)) * s - Scalar(1.0 / 840)) * s +
                         Scalar(1.0 / 30)) *
                            s -
                        Scalar(1.0 / 3);
    const Tensor far = where(small, ones_like(x), x), v = far * Scalar(3.141592653589793);  // whose derivatives stay finite
    return where(small, u * near * Scalar(3.141592653589793), (cos(v) * v - sin(v)) / (far * v));
}
Tensor mish_slope(const Tensor& x) {
    Tensor t = tanh(log1p(exp(x)));
    return t + x * sigmoid(x) * (Scalar(1) - t * t);
}

#include "../kernels/row.h"
#include "table/unary.h"
#include "table/activation.h"
#include "table/binary.h"

template <class Row, int N, class T>
auto gradient_expression(const T& g, const T& a, const T& b, const T& c, const T& y, const Param* params) {
    if constexpr (N == 0) return Row::template gradient0<T>(g, a, b, c, y, params);
    else if constexpr (N == 1) return Row::template gradient1<T>(g, a, b, c, y, params);
    else return Row::template gradient2<T>(g, a, b, c, y, params);
}

// As PyTorch spells it: a letter after a digit is a capital, too (Log1P).
std::string camel_case(std::string_view name) {
    std::string s;
    bool up = true;
    for (const char c : name) {
        if (c != '_') s += up ? char(std::toupper(c)) : c;
        up = c == '_' || std::isdigit(c);
    }
    return s;
}

template <class Row, int N> void fill_gradient(PointwiseInfo& info) {
    if constexpr (N < Row::arity) {
        const Param none_given[4] = {};
        using Out = decltype(gradient_expression<Row, N, Probe>({}, {}, {}, {}, {}, nullptr));
        if constexpr (!std::is_same_v<Out, NoGradient>) {
            info.uses[N] = gradient_expression<Row, N, Probe>({uses_g}, {uses_a}, {uses_b}, {uses_c}, {uses_y}, none_given).used;
            info.gradient[N] = [](const Tensor& g, const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& y,
                                  const Param* params) -> Tensor { return gradient_expression<Row, N, Tensor>(g, a, b, c, y, params); };
        }
    }
}

// What does not depend on the row's functions, in one place: made anew for each row it doubled the time to compile this file.
PointwiseInfo named_info(const char* name, const Facts& facts, int arity, int types, int result) {
    auto given = [](const char* s) { return std::string(s ? s : ""); };
    const std::string node = facts.node ? facts.node : camel_case(name) + "Backward0";
    return {name, node, {given(facts.node_number_first), given(facts.node_number_second)}, arity, types, result, {}, {}};
}

template <class Row> PointwiseInfo make_info(const char* name, const Facts& facts = {}, const char* = nullptr) {
    PointwiseInfo info = named_info(name, facts, Row::arity, Row::types, Row::result);
    fill_gradient<Row, 0>(info);
    fill_gradient<Row, 1>(info);
    fill_gradient<Row, 2>(info);
    return info;
}

#undef UNARY
#undef ACTIVATION
#undef BINARY
#undef TERNARY
#define UNARY(name, types, result, forward, gradient, ...) make_info<name##_row>(#name __VA_OPT__(, ) __VA_ARGS__),
#define ACTIVATION UNARY
#define BINARY(name, types, result, forward, gradient_a, gradient_b, ...) make_info<name##_row>(#name __VA_OPT__(, ) __VA_ARGS__),
#define TERNARY(name, types, result, forward, gradient_a, gradient_b, gradient_c, ...) \
    make_info<name##_row>(#name __VA_OPT__(, ) __VA_ARGS__),
const PointwiseInfo infos[] = {
#include "table/unary.h"
#include "table/activation.h"
#include "table/binary.h"
};

}  // namespace

const PointwiseInfo& pointwise_info(Pointwise op) { return infos[int(op)]; }

}  // namespace wisp
