// What is known of an operator besides its signature. The registration, or the row of the table, says it once,
//
//     function | method | makes_view | onnx("Transpose")
//
// and whoever needs to know reads it there: the argument parser, autocast, vmap, sparse, nested and masked tensors, ONNX, foreach,
// the stub. In Python: `wisp.transpose._facts` (the names below) and `_core._operators_with("makes_view")`.
#pragma once
#include <cstdint>

namespace wisp {

struct Facts {
    uint64_t bits = 0;
    const char* onnx = nullptr;  // the operator of ONNX that does the same
    const char* also = nullptr;  // further names of the operator, separated by spaces
    // Of a row: the name of its node, where it is not made from the row's name; that of a call with a number as first or second operand.
    const char* node = nullptr;
    const char* node_number_first = nullptr;
    const char* node_number_second = nullptr;
    const char* signature = nullptr;  // of a row with numbers: how it is called
    const char* second = nullptr;     // of a row: the name of the second operand, where it is not `other`
    // PyTorch documents one form of some operators that have several: what the docstring begins with.
    const char* documented = nullptr;
    const char* documented_method = nullptr;

    constexpr bool has(const Facts& f) const { return (bits & f.bits) != 0; }  // at least one of them
};
constexpr Facts operator|(const Facts& a, const Facts& b) {
    auto either = [](const char* x, const char* y) { return x ? x : y; };
    return {a.bits | b.bits,
            either(a.onnx, b.onnx),
            either(a.also, b.also),
            either(a.node, b.node),
            either(a.node_number_first, b.node_number_first),
            either(a.node_number_second, b.node_number_second),
            either(a.signature, b.signature),
            either(a.second, b.second),
            either(a.documented, b.documented),
            either(a.documented_method, b.documented_method)};
}
constexpr Facts operator-(Facts a, const Facts& b) {
    a.bits &= ~b.bits;
    return a;
}
constexpr Facts fact(int bit) { return {uint64_t(1) << bit}; }

// Where it is called.
constexpr Facts function = fact(0);          // wisp.name, or in its namespace
constexpr Facts method = fact(1);            // Tensor.name
constexpr Facts inplace = fact(2);           // Tensor.name_: the result is written to self
constexpr Facts inplace_function = fact(3);  // wisp.name_
constexpr Facts everywhere = function | method | inplace;

// What it does. The comments say who asks.
constexpr Facts makes_view = fact(4);      // of its first argument (conjugate views, which stay what they are)
constexpr Facts draws = fact(5);           // random numbers; follows from a parameter `Generator` (vmap)
constexpr Facts writes = fact(6);          // to its first argument; follows from a name like add_ (conjugate views)
constexpr Facts keeps_memory = fact(7);    // needs the first argument's own memory (conjugate views)
constexpr Facts any_device = fact(8);      // arguments may lie on several devices: it moves values, or looks at none
constexpr Facts elementwise = fact(9);     // an element of the result comes from those at its place (vmap, nested, masked)
constexpr Facts takes_batches = fact(10);  // any dimensions may stand before those that it works on (vmap)
constexpr Facts reduces = fact(11);        // along `dim`, or all elements (vmap)
constexpr Facts along_dim = fact(12);      // `dim` and its relatives are dimensions of the first argument (vmap)
constexpr Facts shape_only = fact(13);     // looks at shape, dtype or kind, at no value (vmap)
constexpr Facts keeps_zero = fact(14);     // f(0) = 0 (sparse)
constexpr Facts is_linear = fact(15);      // f(a) + f(b) = f(a + b), of one tensor (sparse)
constexpr Facts in_foreach = fact(16);     // there is a _foreach_name
constexpr Facts first_number = fact(17);   // of a row: the first operand may be a Python number
constexpr Facts second_number = fact(18);  // of a row: the second operand may be one
constexpr Facts either_number = first_number | second_number;
constexpr Facts special = fact(19);  // of a row: it is wisp.special.name

// What autocast gives it: lower precision, float32, or the widest dtype of its arguments; or it refuses.
constexpr Facts cpu_lower = fact(20), cpu_float32 = fact(21), cpu_widest = fact(22);
constexpr Facts cuda_lower = fact(23), cuda_float32 = fact(24), cuda_widest = fact(25), cuda_refused = fact(26);
constexpr Facts in_lower = cpu_lower | cuda_lower, in_float32 = cpu_float32 | cuda_float32, in_widest = cpu_widest | cuda_widest;

// Dtypes that are only stored (python/stored.h); without one of these, with makes_view, shape_only or any_device they are refused.
constexpr Facts stored = fact(27);        // takes all of them: it moves elements as bytes, or reads them by conversion
constexpr Facts complex_half = fact(28);  // takes complex32
constexpr Facts by_complex64 = fact(29);  // of complex32 it is computed in complex64

constexpr Facts exact_out = fact(30);  // of a row: out= has the dtype of the result
// A function of Python calls it for its result and has its name without the underscore: classes with __torch_dispatch__ see that one.
constexpr Facts for_python = fact(31);

constexpr Facts onnx(const char* name) { return {.onnx = name}; }
constexpr Facts also(const char* names) { return {.also = names}; }
constexpr Facts node_named(const char* name, const char* number_first = nullptr, const char* number_second = nullptr) {
    return {.node = name, .node_number_first = number_first, .node_number_second = number_second};
}
constexpr Facts called(const char* signature) { return {.signature = signature}; }
constexpr Facts second_named(const char* name) { return {.second = name}; }
constexpr Facts documented(const char* signature) { return {.documented = signature}; }
constexpr Facts documented_method(const char* signature) { return {.documented_method = signature}; }

}  // namespace wisp
