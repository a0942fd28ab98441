// Conjugate views, as far as the core knows them: objects of a class of their own on the memory of another tensor
// (csrc/python/conjugate.h), which the argument parser takes for no Tensor.
#pragma once
#include "../core/tensor.h"

namespace wisp {

extern PyTypeObject* conjugate_type;  // once one was made, else null
inline bool is_conjugate(PyObject* o) { return Py_TYPE(o) == conjugate_type; }
Tensor resolve_conjugate(const Tensor& t);  // an ordinary tensor with its values; t itself if it is one

}  // namespace wisp
