// Registering operators with Python: one entry makes the function, the method, the in-place method, out=, the docstring and the stub.
//
//     static const Operators operators = {
//         {"sum(Tensor input, int[]? dim, bool keepdim=False, *, dtype? dtype=None, Tensor? out=None)",
//          [](const Tensor& x, std::optional<Dims> dim, bool keepdim, std::optional<DType> dtype) { return ...; },
//          function | method | reduces | cuda_float32,
//          R"(The sum of all elements, or along dimensions.
//             >>> wisp.sum(wisp.tensor([[1, 2], [3, 4]]), 0)
//             tensor([4, 6]))"},
//     };
//
// After the callable come the facts about the operator (csrc/ops/facts.h) and what it does: a sentence and an example, which a test
// runs. Where a macro makes the entries of a family, {"nn.functional.max_pool2d", facts, text} adds them to one of its operators.
// The signature has PyTorch's names and defaults; the callable's parameters follow it one to one, without `out`, which
// is handled by the caller: the result is copied into it, unless the callable has a last parameter Out, by which its kernel writes there
// (ops/out.h). Lines of one name are overloads, tried in order.
// A name may have a namespace: "nn.functional.gelu(...)", "linalg.vector_norm(...)".
// "Tensor!? out=None" asks for an out of exactly the result's dtype; otherwise the result is cast as PyTorch allows.
// "Tensor~? out=None" takes an out of any dtype, "Tensor&? out=None" one of bool or uint8. "Tensor^? out=None" computes in the dtype of
// out where the parameter `dtype` is None, and else asks for that.
// "-> (values, indices)" after the signature names the parts of a tuple result.
// "Tensor mat2|batch2" is a parameter with a second name, by which PyTorch documents the method.
//
// Types of the signature and of the callable's parameter (`?` also allows None):
//     Tensor      const Tensor&                Tensor?     const Tensor& (undefined for None)
//     Operand     const Arg&  (Tensor or number)
//     Tensor[]    const TensorList&            Tensor?[]   const TensorList& (undefined where None)
//     Number      Scalar                       Number?     std::optional<Scalar>
//     int         int64_t                      int?        std::optional<int64_t>
//     int[]       Dims (one int is a list)     int[]?      std::optional<Dims>
//     int...      Dims: the rest of the positional arguments, or one sequence (view(2, 3))
//     float       double                       float?      std::optional<double>
//     bool        bool                         bool?       std::optional<bool>
//     str         std::string                  str?        std::optional<std::string>
//     dtype       DType                        dtype?      std::optional<DType>
//     device?     std::optional<Device>        format?     std::optional<MemoryFormat>
//     Generator?  Generator& (the default one for None)
//     any         PyObject* (borrowed), OptionalSizes (an int, or a sequence of ints and None), std::vector<double> (one, or a sequence)
// Results: Tensor, std::tuple of Tensors, TensorList (a tuple), bool, int64_t, double, Scalar, Dims, DType, void,
// FirstOrBoth, PyObject* (new reference).
#pragma once
#include <optional>
#include <tuple>
#include <vector>

#include "../ops/facts.h"
#include "../ops/pointwise.h"
#include "objects.h"

namespace wisp {

// --- from Python -----------------------------------------------------------------------------------------------------

Scalar to_scalar(PyObject* o);
int64_t to_int(PyObject* o);
double to_double(PyObject* o);
Dims to_dims(PyObject* o);
DType to_dtype(PyObject* o);
Device to_device(PyObject* o);
TensorList to_tensors(PyObject* o);
std::string to_string(PyObject* o);
bool is_number(PyObject* o);  // not a tensor
using OptionalSizes = Small<std::optional<int64_t>, 3>;
OptionalSizes to_optional_sizes(PyObject* o);
std::vector<double> to_doubles(PyObject* o);

template <class T> struct FromPython;
template <> struct FromPython<const Tensor&> {
    static const Tensor& get(PyObject*& o) {
        static const Tensor undefined;
        return o == Py_None ? undefined : reinterpret_cast<const Tensor&>(o);  // a Tensor is one pointer to the object
    }
};
template <> struct FromPython<Tensor> {
    static Tensor get(PyObject*& o) { return FromPython<const Tensor&>::get(o); }
};
template <> struct FromPython<const Arg&> {
    static Arg get(PyObject*& o) {
        return is_tensor(o) ? Arg(reinterpret_cast<const Tensor&>(o)) : o == Py_None ? Arg() : Arg(to_scalar(o));
    }
};
#define WISP_FROM(T, expression)                          \
    template <> struct FromPython<T> {                    \
        static T get(PyObject*& o) { return expression; } \
    };
WISP_FROM(Scalar, to_scalar(o))
WISP_FROM(int64_t, to_int(o))
WISP_FROM(double, to_double(o))
WISP_FROM(bool, truth_of(o))
WISP_FROM(Dims, to_dims(o))
WISP_FROM(DType, to_dtype(o))
WISP_FROM(Device, to_device(o))
WISP_FROM(MemoryFormat, reinterpret_cast<FormatObject*>(o)->format)
WISP_FROM(std::string, to_string(o))
WISP_FROM(PyObject*, o)
WISP_FROM(OptionalSizes, to_optional_sizes(o))
WISP_FROM(std::vector<double>, to_doubles(o))
WISP_FROM(Generator&, o == Py_None ? default_generator() : reinterpret_cast<GeneratorObject*>(o)->generator)
WISP_FROM(Out, Out{reinterpret_cast<Destination*>(o)})  // no object: the slot behind the arguments (destination.cpp)
#undef WISP_FROM
template <> struct FromPython<const TensorList&> {
    static TensorList get(PyObject*& o) { return to_tensors(o); }
};
template <> struct FromPython<const Scalar&> : FromPython<Scalar> {};
template <> struct FromPython<const Dims&> : FromPython<Dims> {};
template <> struct FromPython<const std::string&> : FromPython<std::string> {};
template <class T> struct FromPython<std::optional<T>> {
    static std::optional<T> get(PyObject*& o) {
        if (o == Py_None) return std::nullopt;
        return FromPython<T>::get(o);
    }
};

// --- to Python -------------------------------------------------------------------------------------------------------

PyObject* make_tuple(const Tensor* tensors, int64_t n, PyTypeObject* named);

// A tensor, or a pair of them where the second is defined.
struct FirstOrBoth {
    Tensor first, second;
};

struct ToPython {
    PyTypeObject* named = nullptr;
    PyObject* operator()(Tensor t) const {
        if (!t) Py_RETURN_NONE;
        return t.release();
    }
    PyObject* operator()(const TensorList& l) const { return make_tuple(l.data(), l.size(), named); }
    template <class... T> PyObject* operator()(const std::tuple<T...>& t) const {
        return std::apply(
            [&](auto&... parts) {
                const Tensor list[] = {parts...};
                return make_tuple(list, sizeof...(parts), named);
            },
            t);
    }
    PyObject* operator()(const FirstOrBoth& r) const { return r.second ? (*this)(std::tuple(r.first, r.second)) : (*this)(r.first); }
    PyObject* operator()(bool v) const { return PyBool_FromLong(v); }
    PyObject* operator()(int64_t v) const { return PyLong_FromLongLong(v); }
    PyObject* operator()(double v) const { return PyFloat_FromDouble(v); }
    PyObject* operator()(const Scalar& v) const { return scalar_object(v); }
    PyObject* operator()(const Dims& v) const { return size_object(v); }
    PyObject* operator()(DType v) const { return dtype_object(v); }
    PyObject* operator()(PyObject* o) const {
        if (!o) throw PythonError();
        return o;
    }
};

using Thunk = PyObject* (*)(void* f, PyObject** slots, PyTypeObject* named);

template <class R, class... A, size_t... I>
PyObject* call_with(R (*f)(A...), PyObject** slots, PyTypeObject* named, std::index_sequence<I...>) {
    if constexpr (std::is_void_v<R>) {
        f(FromPython<A>::get(slots[I])...);
        Py_RETURN_NONE;
    } else {
        return ToPython{named}(f(FromPython<A>::get(slots[I])...));
    }
}
template <class R, class... A> PyObject* thunk(void* f, PyObject** slots, PyTypeObject* named) {
    return call_with(reinterpret_cast<R (*)(A...)>(f), slots, named, std::index_sequence_for<A...>());
}
template <class R, class... A> constexpr Thunk thunk_of(R (*)(A...)) { return &thunk<R, A...>; }
template <class R, class... A> constexpr bool takes_out(R (*)(A...)) { return (std::is_same_v<A, Out> || ...); }

// What a result is in the stub.
template <class R> struct ResultText;
#define WISP_RESULT(T, text)                       \
    template <> struct ResultText<T> {             \
        static constexpr const char* value = text; \
    };
WISP_RESULT(Tensor, "Tensor")
WISP_RESULT(TensorList, "tuple[Tensor, ...]")
WISP_RESULT(bool, "bool")
WISP_RESULT(int64_t, "int")
WISP_RESULT(double, "float")
WISP_RESULT(Scalar, "Number")
WISP_RESULT(Dims, "Size")
WISP_RESULT(DType, "dtype")
WISP_RESULT(void, "None")
WISP_RESULT(FirstOrBoth, "Any")
WISP_RESULT(PyObject*, "Any")
#undef WISP_RESULT
template <class... T> struct ResultText<std::tuple<T...>> {
    static constexpr const char* value = sizeof...(T) == 2   ? "tuple[Tensor, Tensor]"
                                         : sizeof...(T) == 3 ? "tuple[Tensor, Tensor, Tensor]"
                                                             : "tuple[Tensor, ...]";
};
template <class R> struct ResultText<R&> : ResultText<std::remove_const_t<R>> {};
template <class R, class... A> constexpr const char* result_text(R (*)(A...)) { return ResultText<R>::value; }

struct Registration {
    const char* signature;
    void* f = nullptr;
    Thunk call = nullptr;
    Facts facts;
    const char* text = nullptr;    // what it does, and an example
    const char* result = nullptr;  // its type in the stub
    bool takes_out = false;        // the callable

    template <class Callable> Registration(const char* s, Callable c, const Facts& facts, const char* text = nullptr)
        : signature(s),
          f(reinterpret_cast<void*>(+c)),
          call(thunk_of(+c)),
          facts(facts),
          text(text),
          result(result_text(+c)),
          takes_out(wisp::takes_out(+c)) {}
    // More about an operator that is registered above.
    Registration(const char* path, const Facts& facts, const char* text = nullptr) : signature(path), facts(facts), text(text) {}
    Registration(const char* path, const char* text) : signature(path), text(text) {}
};

// A list of registrations, added to the global one before main.
struct Operators {
    Operators(std::initializer_list<Registration> list);
};

// Called once at import: makes the Python objects. Functions go into dicts by namespace, methods into the Tensor type.
void make_operators(PyObject* module, PyTypeObject* tensor);
// Adds an operator at import (the pointwise table does): its signature is copied.
void register_operator(const std::string& signature, Registration registration);
// The vectorcall entry of an operator, for number slots that fall back to the full parser.
PyObject* call_operator(const char* name, PyObject* const* args, Py_ssize_t n);

}  // namespace wisp
