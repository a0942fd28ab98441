// NumPy's arrays read where they lie: their buffer protocol writes a format string for each array, which takes longer
// than all the rest of making a tensor of it.
#pragma once
#include <Python.h>

#include "../core/dtype.h"

namespace wisp {

struct ArrayView {
    void* data;
    int dims;
    const Py_ssize_t *sizes, *strides;  // strides in bytes
    DType dtype;
    bool writeable;
};

// True for an aligned numpy.ndarray (no subclass) of a native dtype that we have.
bool view_array(PyObject* o, ArrayView& view);
bool is_plain_array(PyObject* o);  // a numpy.ndarray, no subclass

}  // namespace wisp
