// Front doors of the pointwise table, and arithmetic on tensors for formulas.
#pragma once
#include <array>

#include "../core/tensor.h"
#include "../kernels/pointwise.h"
#include "out.h"

namespace wisp {

using kernels::Param;
using kernels::Pointwise;
using Params = std::array<Param, 4>;

// An operand: a tensor or a number.
struct Arg {
    const Tensor* tensor = nullptr;
    Scalar number;
    bool given = false;
    Arg() = default;
    Arg(const Tensor& t) : tensor(&t), given(true) {}
    Arg(const Scalar& s) : number(s), given(true) {}
    Arg(int v) : number(v), given(true) {}
    Arg(double v) : number(v), given(true) {}
};
inline bool is_bool(const Arg& a) { return a.tensor ? a.tensor->dtype() == DType::boolean : a.number.is_bool(); }
void refuse_bool_subtraction(const Arg& a, const Arg& b);  // if one of them is a bool

// A number of 2**63 or more is for uint64 and for floats that reach so far. Where it is an operand beside a tensor of integers,
// it wraps; where it is a value to be set, or a parameter, it is refused.
[[noreturn]] void cannot_convert(DType dtype);
inline void refuse_large(DType dtype, const Scalar& s) {
    if (s.is_large() && dtype != DType::u64 && dtype != DType::boolean && (is_integral(dtype) || dtype == DType::f16)) [[unlikely]]
        cannot_convert(dtype);
}

Param param(const Scalar& s);
inline Params params_of(const Scalar& p0 = {}, const Scalar& p1 = {}, const Scalar& p2 = {}) {
    return {param(p0), param(p1), param(p2), Param{}};
}

// `node`: how the gradient's node is called, if not as the row's.
Tensor pointwise(Pointwise op, const Arg& a, const Arg& b = {}, const Arg& c = {}, const Params* params = nullptr,
                 const char* node = nullptr, Out out = {});
inline Tensor pointwise_into(Out out, Pointwise op, const Arg& a, const Arg& b = {}, const Arg& c = {}, const Params* params = nullptr,
                             const char* node = nullptr) {
    return pointwise(op, a, b, c, params, node, out);
}
// self = op(self, b, c), in self's memory.
Tensor pointwise_(Pointwise op, const Tensor& self, const Arg& b = {}, const Arg& c = {}, const Params* params = nullptr);

// The gradient of a row for one of its operands, of which those are undefined that it does not use: by a fused kernel, or
// differentiable.
Tensor pointwise_gradient(Pointwise op, int operand, const Tensor& g, const Tensor* abcy, const Params& params, bool create_graph);

// What the table says of an operator.
struct PointwiseInfo {
    const char* name;
    std::string grad_name;
    // PyTorch has operators of their own for some calls with a number in place of an operand: names of their nodes, which have
    // no edge for it. Empty: the same name, and an edge that leads nowhere.
    std::string number_name[2];
    int arity, types, result;
    int uses[3];  // of the gradient by operand: bits of g, a, b, c, y
    Tensor (*gradient[3])(const Tensor& g, const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& y, const Param* params);
};
const PointwiseInfo& pointwise_info(Pointwise op);
enum { uses_g = 1, uses_a = 2, uses_b = 4, uses_c = 8, uses_y = 16 };

#define UNARY(name, ...) \
    inline Tensor name(const Tensor& x) { return pointwise(Pointwise::name, x); }
#define BINARY(name, ...)                                                                             \
    inline Tensor name(const Tensor& a, const Tensor& b) { return pointwise(Pointwise::name, a, b); } \
    inline Tensor name(const Tensor& a, const Scalar& b) { return pointwise(Pointwise::name, a, b); } \
    inline Tensor name(const Scalar& a, const Tensor& b) { return pointwise(Pointwise::name, a, b); }
#define TERNARY(name, ...)
#include "table/binary.h"
#include "table/unary.h"
#undef UNARY
#undef BINARY
#undef TERNARY

inline Tensor add_(const Tensor& self, const Arg& b) { return pointwise_(Pointwise::add, self, b); }
inline Tensor mul_(const Tensor& self, const Arg& b) { return pointwise_(Pointwise::mul, self, b); }

Tensor where(const Tensor& condition, const Arg& a, const Arg& b, Out out = {});
void where_onto(const Tensor& y, const Tensor& condition, const Arg& value);  // y where the condition does not hold; no history
Tensor conj(const Tensor& t);
Tensor real(const Tensor& t);
Tensor imag(const Tensor& t);
Tensor polygamma(const Scalar& n, const Tensor& x, Out out = {});

#define WISP_OPERATOR(symbol, name)                                                        \
    inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return name(a, b); } \
    inline Tensor operator symbol(const Tensor& a, const Scalar& b) { return name(a, b); } \
    inline Tensor operator symbol(const Scalar& a, const Tensor& b) { return name(a, b); }
WISP_OPERATOR(+, add)
WISP_OPERATOR(-, sub)
WISP_OPERATOR(*, mul)
WISP_OPERATOR(/, div)
WISP_OPERATOR(<, lt)
WISP_OPERATOR(<=, le)
WISP_OPERATOR(>, gt)
WISP_OPERATOR(>=, ge)
WISP_OPERATOR(==, eq)
WISP_OPERATOR(!=, ne)
#undef WISP_OPERATOR
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator&(const Tensor& a, const Tensor& b) { return logical_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return logical_or(a, b); }

}  // namespace wisp
