// Operators on dtypes that are only stored: refusing them, and computing in complex64. See stored.h.
#include "stored.h"

#include <vector>

#include "../ops/ops.h"
#include "nesting.h"
#include "overrides.h"
#include "registry.h"
#include "tensor_type.h"

namespace wisp {
namespace {

bool in_use = false;
[[maybe_unused]] const bool told = [] {
    stored_in_use = [](DType d) {
        if (!in_use) overriding++;
        in_use = true;
        static bool warned = false;
        if (d == DType::c32) warn_once(warned, "ComplexHalf support is experimental and many operators don't support it yet.");
    };
    return true;
}();

Ref widened(PyObject* o) {
    return change_nested(o, [](PyObject* item) {
        const bool narrow = is_tensor(item) && as_tensor_object(item)->dtype == DType::c32;
        return narrow ? Ref(to(Tensor::borrow(as_tensor_object(item)), DType::c64).release()) : Ref();
    });
}

PyObject* narrowed(PyObject* o) {
    if (is_tensor(o)) {
        const Tensor t = Tensor::borrow(as_tensor_object(o));
        return to(t, t.dtype() == DType::c64 ? DType::c32 : t.dtype() == DType::f32 ? DType::f16 : t.dtype()).release();
    }
    if (!PyTuple_CheckExact(o)) return Py_NewRef(o);
    Ref tuple(PyTuple_New(PyTuple_GET_SIZE(o)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) PyTuple_SET_ITEM(tuple.get(), i, narrowed(PyTuple_GET_ITEM(o, i)));
    return tuple.release();
}

}  // namespace

PyObject* call_stored(PyObject* callable, const std::string& op, const Facts& facts, PyObject* const* args, Py_ssize_t n,
                      PyObject* kwnames) {
    if (!in_use || facts.has(stored | makes_view | shape_only | any_device)) return nullptr;
    const Py_ssize_t total = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    DType found = DType::f32;
    bool wide = false;  // an operand that decides the result's dtype
    auto see = [&](PyObject* o) {
        if (!is_tensor(o) && Py_TYPE(o) != &dtype_type) return false;
        const DType d = is_tensor(o) ? as_tensor_object(o)->dtype : reinterpret_cast<DTypeObject*>(o)->dtype;
        if (is_stored(d)) found = d;
        else wide |= is_differentiable(d) && d != DType::f16;
        return false;
    };
    for (Py_ssize_t i = 0; i < total; i++) any_nested(args[i], see);
    if (!is_stored(found)) return nullptr;
    if (found == DType::c32 && facts.has(complex_half)) return nullptr;
    if (found != DType::c32 || !facts.has(by_complex64)) throw NotImplemented("\"", op, "\" not implemented for '", type_name(found), "'");
    std::vector<Ref> kept;
    std::vector<PyObject*> given;
    for (Py_ssize_t i = 0; i < total; i++) {
        kept.push_back(widened(args[i]));
        given.push_back(kept.back().get());
    }
    PyObject* const result = PyObject_Vectorcall(callable, given.data(), size_t(n), kwnames);
    if (!result) throw PythonError();
    Ref all(result);
    return wide ? all.release() : narrowed(all.get());
}

}  // namespace wisp
