// The base class of nn.Module: calling a module. In C because every layer of every model goes through here.
#include "../profiler/profiler.h"
#include "objects.h"
#include "tensor_type.h"

namespace wisp {

bool is_compiled(PyObject* o);  // compile.cpp
// Calls a module without hooks whose `_has_hooks` is a compiled object `how`: that object's own module, or `forward` of this one.
PyObject* call_compiled_module(PyObject* how, PyObject* self, PyObject* args, PyObject* kwargs, ternaryfunc forward);

namespace {

PyObject *has_hooks, *call_with_hooks, *forward, *note_error;  // interned names

// Lets Module._note_error say where the exception came from; what goes wrong in doing so must not hide it.
void note_failure(PyObject* self) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject* done = PyObject_CallMethodObjArgs(self, note_error, error, nullptr);
    if (done) Py_DECREF(done);
    else PyErr_Clear();
    PyErr_Restore(type, error, traceback);
}

PyObject* call_hooked(PyObject* self, PyObject* args, PyObject* kwargs) {
    PyObject* none = kwargs ? nullptr : PyDict_New();
    PyObject* result = PyObject_CallMethodObjArgs(self, call_with_hooks, args, kwargs ? kwargs : none, nullptr);
    Py_XDECREF(none);
    return result;
}

PyObject* call_forward(PyObject* self, PyObject* args, PyObject* kwargs) {
    constexpr Py_ssize_t few = 8;
    const Py_ssize_t n = PyTuple_GET_SIZE(args);
    if (n < few && (!kwargs || PyDict_GET_SIZE(kwargs) == 0)) {  // no bound method, no new tuple
        PyObject* stack[few] = {self};
        for (Py_ssize_t i = 0; i < n; i++) stack[i + 1] = PyTuple_GET_ITEM(args, i);
        return PyObject_VectorcallMethod(forward, stack, size_t(n) + 1, nullptr);
    }
    PyObject* function = PyObject_GetAttr(self, forward);
    if (!function) return nullptr;
    PyObject* result = PyObject_Call(function, args, kwargs);
    Py_DECREF(function);
    return result;
}

PyObject* call_module(PyObject* self, PyObject* args, PyObject* kwargs) {
    PyObject* hooked = PyObject_GetAttr(self, has_hooks);
    if (!hooked) return nullptr;
    Profiled profiled;
    if (profiling) [[unlikely]]
        profiled.begin(EventKind::module, Py_TYPE(self)->tp_name, "", nullptr, 0);
    PyObject* result;
    if (hooked == Py_False) result = call_forward(self, args, kwargs);
    else if (is_compiled(hooked) && _PyType_Lookup(Py_TYPE(self), has_hooks) == Py_False)  // nor has the class: there are no global hooks
        result = call_compiled_module(hooked, self, args, kwargs, call_forward);
    else result = call_hooked(self, args, kwargs);
    Py_DECREF(hooked);
    if (!result) note_failure(self);
    return result;
}

}  // namespace

void add_module_base(PyObject* module) {
    has_hooks = PyUnicode_InternFromString("_has_hooks");
    call_with_hooks = PyUnicode_InternFromString("_call_with_hooks");
    forward = PyUnicode_InternFromString("forward");
    note_error = PyUnicode_InternFromString("_note_error");
    // a type of the heap without a `__new__` of its own: copyreg makes instances by object.__new__, as of any Python class
    PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_module)}, {0, nullptr}};
    PyType_Spec spec = {"wisp._core._ModuleBase", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject* type = PyType_FromSpec(&spec);
    if (!type) throw PythonError();
    PyModule_AddObjectRef(module, "_ModuleBase", type);
    Py_DECREF(type);
}

}  // namespace wisp
