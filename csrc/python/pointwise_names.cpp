// The Python names of the pointwise table: every row becomes a function, a method, an in-place method and out=.
// Rows whose call is not simply name(input) or name(input, other) are spelled out in csrc/ops/arithmetic.cpp.
#include "../ops/ops.h"
#include "../ops/pointwise.h"
#include "registry.h"

namespace wisp {
namespace {

// One callable per row, so that a registration is a plain function pointer.
template <Pointwise op> Tensor unary_row(const Tensor& x, Out out) { return pointwise_into(out, op, x); }
template <Pointwise op> Tensor unary_row_(const Tensor& x) { return pointwise_(op, x); }
[[noreturn]] void two_numbers(Pointwise op) {
    throw TypeError(pointwise_info(op).name, "(): expected at least one Tensor, got two numbers");
}
template <Pointwise op> Tensor binary_row(const Arg& a, const Arg& b, Out out) {
    if (op != Pointwise::mul && !a.tensor && !b.tensor) two_numbers(op);  // sums, products and quotients of numbers are tensors in PyTorch
    return pointwise_into(out, op, a, b);
}
template <Pointwise op> Tensor binary_row_(const Tensor& a, const Arg& b) { return pointwise_(op, a, b); }

// A row of one tensor and numbers: p(0), p(1)… are the parameters `float` of its signature, and the last one may be `inplace`.
struct Numbers {
    Pointwise op;
    int count;
    bool inplace;
};
PyObject* numbered_row(void* f, PyObject** slots, PyTypeObject*) {
    const auto [op, count, inplace] = *static_cast<const Numbers*>(f);
    const Tensor& x = FromPython<const Tensor&>::get(slots[0]);
    Params params{};
    for (int i = 0; i < count; i++) params[size_t(i)] = param(Scalar(to_double(slots[1 + i])));
    if (op == Pointwise::hardshrink && (x.dtype() == DType::f16 || x.dtype() == DType::bf16)) {  // the bound is one of the dtype's numbers
        const float bound = float(to_double(slots[1]));
        params[0] = param(Scalar(double(x.dtype() == DType::f16 ? float(f16(bound)) : float(bf16(bound)))));
    }
    if (inplace && truth_of(slots[1 + count])) return ToPython()(pointwise_(op, x, {}, {}, &params));
    return ToPython()(pointwise_into(FromPython<Out>::get(slots[1 + count + inplace]), op, x, {}, {}, &params));
}

// The names of a row are what its facts say: name(input) or name(input, other), in wisp.special, or by a signature. A row without
// places is called by operators of csrc/ops. A row of booleans has no kernel that writes over its operand: the in-place form copies.
struct RowFacts : Facts {
    const char* text;
    RowFacts(const Facts& facts = {}, const char* text = nullptr) : Facts(facts), text(text) {}
};
template <class Plain, class InPlace>
void name_row(Pointwise op, const RowFacts& row, const std::string& parameters, const Facts& inplace_form, Plain plain, InPlace in_place) {
    const std::string name = pointwise_info(op).name, all = parameters + ", *, Tensor" + (row.has(exact_out) ? "!?" : "?") + " out=None)";
    const Facts facts = row | elementwise | stored;  // the row's types say which
    if (row.has(special)) {
        register_operator("special." + name + all, Registration("", plain, facts | function, row.text));
    } else if (pointwise_info(op).result == 2) {
        register_operator(name + all, Registration("", plain, facts, row.text));
    } else {
        register_operator(name + all, Registration("", plain, facts - inplace, row.text));
        const std::string changed = "_(Tensor" + parameters.substr(parameters.find(' ')) + ")";
        register_operator(name + changed, Registration("", in_place, inplace_form | elementwise | stored | also(row.also)));
    }
}
void name_unary(Pointwise op, const RowFacts& row, Tensor (*plain)(const Tensor&, Out), Tensor (*in_place)(const Tensor&)) {
    if (row.has(function | special)) name_row(op, row, "(Tensor input", function | method, plain, in_place);
}
// heaviside alone does not promote.
void check_heaviside(const Tensor& input, const Arg& values) {
    if (is_complex(input.dtype()) || is_complex(values.tensor->dtype()))
        throw RuntimeError("heaviside is not yet implemented for complex tensors.");
    if (input.dtype() != values.tensor->dtype()) throw RuntimeError("heaviside is not yet implemented for tensors with different dtypes.");
}
Tensor heaviside(const Arg& input, const Arg& values, Out out) {
    check_heaviside(*input.tensor, values);
    return pointwise_into(out, Pointwise::heaviside, input, values);
}
Tensor heaviside_(const Tensor& input, const Arg& values) {
    check_heaviside(input, values);
    return pointwise_(Pointwise::heaviside, input, values);
}

// The numbers of a 16-bit dtype lie further apart than those of float, which kernels compute in.
Params spacing(DType d) {
    if (d == DType::f16) return params_of(10.0, 0x1p-24, 65504.0);
    if (d == DType::bf16) return params_of(7.0, 0x1p-133, 0x1.FEp127);
    return params_of();
}
struct Neighbours {
    DType dtype;
    Params params;
    Tensor other;  // in that dtype: one without dimensions may have another
    Neighbours(const Tensor& a, const Tensor& b) : dtype(result_type(a, b)), params(spacing(dtype)), other(to(b, dtype)) {}
};
Tensor nextafter(const Arg& input, const Arg& other, Out out) {
    const Neighbours n(*input.tensor, *other.tensor);
    return pointwise_into(out, Pointwise::nextafter, input, n.other, {}, &n.params);
}
Tensor nextafter_(const Tensor& input, const Arg& other) {
    const Neighbours n(input, *other.tensor);
    return pointwise_(Pointwise::nextafter, input, n.other, {}, &n.params);
}

void name_binary(Pointwise op, const RowFacts& row, Tensor (*plain)(const Arg&, const Arg&, Out),
                 Tensor (*in_place)(const Tensor&, const Arg&)) {
    if (op == Pointwise::heaviside) plain = heaviside, in_place = heaviside_;
    if (op == Pointwise::nextafter) plain = nextafter, in_place = nextafter_;
    const std::string first = row.has(first_number | special) ? "Operand" : "Tensor",
                      second = row.has(second_number | special) ? "Operand" : "Tensor";
    if (row.has(function | special))
        name_row(op, row, "(" + first + " input, " + second + " " + (row.second ? row.second : "other"), method, plain, in_place);
}
void name_numbered(Pointwise op, const RowFacts& row) {
    if (!row.signature) return;
    const std::string signature = row.signature;
    Numbers& numbers = *new Numbers{op, 0, false};  // lives as long as the operator: for ever
    for (size_t at = 0; (at = signature.find("float ", at)) != std::string::npos; at++) numbers.count++;
    numbers.inplace = signature.find("bool inplace") != std::string::npos;
    Registration r("", row | elementwise, row.text);
    r.f = &numbers;
    r.call = &numbered_row;
    r.result = "Tensor";
    r.takes_out = true;
    register_operator(signature, r);
}

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
#define UNARY(name, types, result, forward, gradient, ...) \
    name_unary(Pointwise::name, {__VA_ARGS__}, &unary_row<Pointwise::name>, &unary_row_<Pointwise::name>);
#define ACTIVATION(name, types, result, forward, gradient, ...) name_numbered(Pointwise::name, {__VA_ARGS__});
#define BINARY(name, types, result, forward, gradient_a, gradient_b, ...) \
    name_binary(Pointwise::name, {__VA_ARGS__}, &binary_row<Pointwise::name>, &binary_row_<Pointwise::name>);
#define TERNARY(...)
#include "../ops/table/activation.h"
#include "../ops/table/binary.h"
#include "../ops/table/unary.h"
#undef UNARY
#undef ACTIVATION
#undef BINARY
#undef TERNARY
}

}  // namespace wisp
