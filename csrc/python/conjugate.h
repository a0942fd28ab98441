// Lazy views: what Tensor.conj() gives for complex tensors, and what the imaginary part of that is.
//
// Such a view is an object of one of two Python classes (wisp/_tensor/conjugate.py) on the memory of another tensor, whose values are the
// conjugates or the negatives of what lies there. As with sparse tensors (csrc/ops/sparse.h), the argument parser takes none for a Tensor:
// a call with one fits no signature and comes to call_lazy, which applies views to the memory, writes in-place results
// back the other way, and for everything else makes a copy with the values. So operators need no check of their own.
#pragma once
#include <string>

#include "../ops/facts.h"
#include "../ops/sparse.h"

namespace wisp {

Tensor conjugate_view(const Tensor& t);  // of an ordinary tensor; t itself if it is real
bool has_lazy(PyObject* o);              // it is a lazy view, or a list or tuple with one
// A call with a lazy view among its arguments.
PyObject* call_lazy(PyObject* callable, const std::string& name, const Facts& facts, bool inplace, PyObject* const* args, Py_ssize_t n,
                    PyObject* kwnames);

}  // namespace wisp
