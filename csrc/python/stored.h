// Calls with dtypes that are only stored (complex32, float8): what moves elements or looks at none takes them, some operators take
// complex32, and all others are refused, as in PyTorch. Nothing is looked at until a program makes such a tensor: `overriding`, which every
// call tests, is raised then.
#pragma once
#include "../ops/facts.h"
#include "objects.h"

namespace wisp {

// The result of an operator that is computed in complex64, or null: go on with the operator. Throws NotImplemented.
PyObject* call_stored(PyObject* callable, const std::string& op, const Facts& facts, PyObject* const* args, Py_ssize_t n,
                      PyObject* kwnames);

}  // namespace wisp
