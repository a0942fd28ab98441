// Looking through the arguments of a call.
#pragma once
#include <Python.h>

namespace wisp {

// Lists may hold themselves, be nested without end, or hold one list many times: no more levels are looked at than the
// arguments of operators have.
constexpr int nesting_levels = 6;

// Whether `wanted` holds for o, or for what it holds if it is a list or a tuple.
template <class F> bool any_nested(PyObject* o, const F& wanted, int levels = nesting_levels) {
    if (wanted(o)) return true;
    if (levels == 0 || (!PyTuple_Check(o) && !PyList_Check(o))) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
        if (any_nested(PySequence_Fast_GET_ITEM(o, i), wanted, levels - 1)) return true;
    return false;
}

}  // namespace wisp
