// __torch_function__: classes that answer calls of operators themselves, and modes that see every call.
//
// Nothing is looked at until a program defines such a subclass of Tensor or enters such a mode: `overriding` stays 0,
// and a call costs one test of it. What is decided, and in which order, is Python (wisp/overrides.py). Objects that are
// no tensors fit no signature, so calls with them come here only after parsing has failed.
#pragma once
#include "objects.h"

namespace wisp {

extern int overriding;  // subclasses of Tensor with __torch_function__ that exist, and modes that are active

// The result of whoever answers the call (a new reference), or null: go on with the operator. Throws PythonError.
// Modes see no operators whose names begin with an underscore, unless asked to (_see_private).
PyObject* call_overridden(PyObject* callable, const char* name, PyObject* const* args, Py_ssize_t n, PyObject* kwnames);
// The same for number slots: the method of Tensor with this name.
PyObject* call_overridden(const char* method, PyObject* a, PyObject* b);
// For calls that fit no signature: whether an argument, or an item of a list or tuple, is no tensor and answers calls.
PyObject* call_foreign(PyObject* callable, PyObject* const* args, Py_ssize_t n, PyObject* kwnames);
// The same for number slots.
PyObject* call_foreign(const char* method, PyObject* a, PyObject* b);
// Whether an object that is no tensor answers calls: then it is no number either, even if it can be converted to one.
bool answers_calls(PyObject* o);

}  // namespace wisp
