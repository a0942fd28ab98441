// Sparse tensors, as far as the core knows them.
//
// A sparse tensor is an object of one Python class (wisp/sparse/_tensor.py) that holds indices and values as ordinary
// tensors; the values carry the gradient. What it inherits from Tensor is a shell: its shape and dtype over a single
// element with strides of zero, which no operator can read or write beyond. The argument parser takes no sparse tensor
// for a Tensor: such a call fits no signature, and is handed to wisp.sparse, which has the operators that take one and
// refuses the others. So strided operators need no check of their own.
#pragma once
#include "conjugate.h"

namespace wisp {

extern PyTypeObject* sparse_type;  // once wisp.sparse is imported, else null

inline bool is_sparse(PyObject* o) { return Py_TYPE(o) == sparse_type; }
inline bool is_sparse(const Tensor& t) { return t && is_sparse(t.object()); }
inline bool is_strided(PyObject* o) { return Py_TYPE(o) == tensor_type || (is_tensor(o) && !is_sparse(o) && !is_lazy(o)); }

// The operator of wisp.sparse of this name: a new reference, or PythonError.
PyObject* call_sparse(const char* name, PyObject* const* args, Py_ssize_t n, PyObject* kwnames);
Tensor call_sparse(const char* name, std::initializer_list<Tensor> args);
// For places that are no operators, such as indices.
[[noreturn]] void refuse_sparse(const char* where);

}  // namespace wisp
