// Finds the arguments whose classes answer calls themselves and hands such calls to wisp/overrides.py.
#include "overrides.h"

#include <algorithm>

#include "../autograd/node.h"
#include "../ops/ops.h"
#include "../ops/wrapper.h"
#include "nesting.h"
#include "registry.h"
#include "tensor_type.h"

namespace wisp {

int overriding = 0, wrapper_classes = 0;

namespace {

thread_local int active_modes = 0, classes_off = 0, all_off = 0;
thread_local bool private_seen = false;  // whether modes see operators that begin with an underscore, as a tracer must
PyObject* handler = nullptr;             // (function, arguments, keywords) -> result, or the handler itself: go on
PyObject* disabled = nullptr;            // the __torch_function__ of classes that answer nothing, such as Parameter
PyObject* protocol = nullptr;            // "__torch_function__"
PyObject* dispatcher = nullptr;    // the same for operators of classes with __torch_dispatch__, after all modes and classes were asked
PyObject* undispatched = nullptr;  // the __torch_dispatch__ of Tensor itself
PyObject* dispatch = nullptr;      // "__torch_dispatch__"

bool dispatches(PyTypeObject* type) {
    if (type == tensor_type) return false;
    PyObject* found = _PyType_Lookup(type, dispatch);
    return found && found != undispatched;
}

bool any_dispatches(PyObject* const* args, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++)
        if (any_nested(args[i], [](PyObject* item) { return is_tensor(item) && dispatches(Py_TYPE(item)); })) return true;
    return false;
}

bool answers(PyTypeObject* type) {
    PyObject* found = _PyType_Lookup(type, protocol);
    return found && found != disabled;
}

// `foreign` looks for objects that are no tensors, otherwise tensors alone are looked at.
bool has_answering(PyObject* o, bool foreign) {
    return any_nested(o, [foreign](PyObject* item) {
        if (Py_TYPE(item) == tensor_type || PyTuple_Check(item) || PyList_Check(item)) return false;
        if (is_tensor(item)) return !foreign && answers(Py_TYPE(item));
        return foreign && !PyLong_Check(item) && !PyFloat_Check(item) && !PyUnicode_Check(item) && !PyType_Check(item) &&
               answers(Py_TYPE(item));
    });
}

PyObject* hand_over(PyObject* callable, PyObject* const* args, Py_ssize_t n, PyObject* kwnames, PyObject* to = handler) {
    Ref arguments(PyTuple_New(n)), keywords(PyDict_New());
    for (Py_ssize_t i = 0; i < n; i++) PyTuple_SET_ITEM(arguments.get(), i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
        if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(kwnames, i), args[n + i]) < 0) throw PythonError();
    Ref result(PyObject_CallFunctionObjArgs(to, callable, arguments.get(), keywords.get(), nullptr));
    return result.get() == to ? nullptr : result.release();
}

bool wanted(bool modes, PyObject* const* args, Py_ssize_t n) {
    if (!handler || all_off) return false;
    if (active_modes && modes) return true;
    if (classes_off) return false;
    for (Py_ssize_t i = 0; i < n; i++)
        if (has_answering(args[i], false)) return true;
    return false;
}

Tensor as_class(const Tensor& t, PyObject* cls) {
    if (!PyType_Check(cls) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), tensor_type))
        throw TypeError("as_subclass: cls must be a subclass of Tensor");
    Tensor result = Tensor::steal(as_tensor_object(new_tensor_of_type(reinterpret_cast<PyTypeObject*>(cls), t)));
    if (needs_grad(t)) record(result, "AliasBackward0", {t}, {}, [](Backward& bw) { bw.set(0, bw.grad()); });
    return result;
}

const Operators operators = {
    {"_set_overrides(any call, any off)",
     [](PyObject* call, PyObject* off) {
         handler = Py_NewRef(call);
         disabled = Py_NewRef(off);
         protocol = PyUnicode_InternFromString("__torch_function__");
     },
     function},
    {"_set_dispatch(any call, any off)",
     [](PyObject* call, PyObject* off) {
         dispatcher = Py_NewRef(call);
         undispatched = Py_NewRef(off);
         dispatch = PyUnicode_InternFromString("__torch_dispatch__");
     },
     function},
    {"_wrapper_classes(int change)",
     [](int64_t change) {
         wrapper_classes += int(change);
         overriding += int(change);
     },
     function},
    {"_overriding(int change)", [](int64_t change) -> int64_t { return overriding += int(change); }, function},
    {"_function_modes(int change)",
     [](int64_t change) {
         active_modes += int(change);
         overriding += int(change);
     },
     function},
    {"_see_private(bool on)", [](bool on) { private_seen = on; }, function},
    {"_functions_off(bool modes, int change)", [](bool modes, int64_t change) { (modes ? all_off : classes_off) += int(change); },
     function},
    {"_functions_are_off(bool modes)", [](bool modes) { return modes ? all_off > 0 : classes_off > 0 || all_off > 0; }, function},
    {"_as_class(Tensor input, any cls)", as_class, stored | function},
};

}  // namespace

PyObject* call_overridden(PyObject* callable, const char* name, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    const Py_ssize_t count = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    const bool modes = *name != '_' || (private_seen && std::any_of(args, args + count, is_tensor));
    if (wanted(modes, args, count))
        if (PyObject* result = hand_over(callable, args, n, kwnames)) return result;
    return wrapper_classes && any_dispatches(args, count) ? hand_over(callable, args, n, kwnames, dispatcher) : nullptr;
}

bool is_wrapper(const Tensor& t) { return t && wrapper_classes && dispatches(Py_TYPE(t.object())); }

Tensor call_wrapper(const char* name, std::initializer_list<Tensor> given) {
    PyObject* args[4] = {};
    Py_ssize_t n = 0;
    for (const Tensor& t : given) args[n++] = t.object();
    Ref method(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), name));
    PyObject* result = PyObject_Vectorcall(method.get(), args, size_t(n), nullptr);
    if (!result) throw PythonError();
    return Tensor::steal(as_tensor_object(result));
}

void call_wrapped_backward(Backward& bw) {
    Ref module(PyImport_ImportModule("wisp._tensor.dispatch"));
    Ref function(PyObject_GetAttrString(module.get(), "node_backward"));
    const int64_t count = std::max<int64_t>(bw.node.outputs.size(), 1);
    Ref args(PyTuple_New(count + 1));
    PyTuple_SET_ITEM(args.get(), 0, Py_NewRef(reinterpret_cast<PyObject*>(&bw.node)));
    for (int64_t i = 0; i < count; i++) PyTuple_SET_ITEM(args.get(), i + 1, Py_NewRef(bw.grads[i] ? bw.grads[i].object() : Py_None));
    Ref found(PyObject_Call(function.get(), args.get(), nullptr));
    for (int64_t i = 0; i < bw.node.next.size(); i++) {
        PyObject* const g = PyTuple_GET_ITEM(found.get(), i);
        if (g != Py_None) bw.set(int(i), Tensor::borrow(as_tensor_object(g)));
    }
}

PyObject* call_overridden(const char* method, PyObject* a, PyObject* b) {
    PyObject* args[] = {a, b};
    const Py_ssize_t n = b ? 2 : 1;
    const bool asks = wanted(true, args, n), dispatched = wrapper_classes && any_dispatches(args, n);
    if (!asks && !dispatched) return nullptr;
    Ref callable(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), method));
    if (asks)
        if (PyObject* result = hand_over(callable.get(), args, n, nullptr)) return result;
    return dispatched ? hand_over(callable.get(), args, n, nullptr, dispatcher) : nullptr;
}

bool answers_calls(PyObject* o) {
    static PyObject* const name = PyUnicode_InternFromString("__torch_function__");
    PyObject* found = _PyType_Lookup(Py_TYPE(o), name);
    return found && found != disabled;
}

PyObject* call_foreign(PyObject* callable, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    if (!protocol) {
        Ref module(PyImport_ImportModule("wisp.overrides"));  // tells us its handler
    }
    const Py_ssize_t all = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    for (Py_ssize_t i = 0; i < all; i++)
        if (has_answering(args[i], true)) return hand_over(callable, args, n, kwnames);
    return nullptr;
}

PyObject* call_foreign(const char* method, PyObject* a, PyObject* b) {
    if ((is_tensor(a) || !answers_calls(a)) && (is_tensor(b) || !answers_calls(b))) return nullptr;
    PyObject* args[] = {a, b};
    Ref callable(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), method));
    return call_foreign(callable.get(), args, 2, nullptr);
}

}  // namespace wisp
