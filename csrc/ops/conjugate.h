// Conjugate and negative views, as far as the core knows them: objects of classes of their own on the memory of another tensor
// (csrc/python/conjugate.h), which the argument parser takes for no Tensor.
#pragma once
#include "../core/tensor.h"

namespace wisp {

extern PyTypeObject *conjugate_type, *negative_type;  // once such a view was made, else null
inline bool is_lazy(PyObject* o) { return Py_TYPE(o) == conjugate_type || Py_TYPE(o) == negative_type; }
Tensor resolve_lazy(const Tensor& t);  // an ordinary tensor with its values; t itself if it is one

}  // namespace wisp
