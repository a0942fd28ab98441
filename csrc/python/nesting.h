// Looking through the arguments of a call.
#pragma once
#include "objects.h"

namespace wisp {

// Lists may hold themselves, be nested without end, or hold one list many times: no more levels are looked at than the
// arguments of operators have, and below the first no more items than take a moment.
constexpr int nesting_levels = 6;
constexpr int64_t nested_items = 1 << 20;

inline bool is_nesting(PyObject* o) { return PyTuple_Check(o) || PyList_Check(o); }

// Whether `wanted` holds for o, or for what it holds if it is a list or a tuple.
template <class F> bool any_nested(PyObject* o, const F& wanted, int levels, int64_t& left) {
    if (wanted(o)) return true;
    if (levels == 0 || !is_nesting(o)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o) && (levels == nesting_levels || left-- > 0); i++)
        if (any_nested(PySequence_Fast_GET_ITEM(o, i), wanted, levels - 1, left)) return true;
    return false;
}
template <class F> bool any_nested(PyObject* o, const F& wanted) {
    int64_t left = nested_items;
    return any_nested(o, wanted, nesting_levels, left);
}

// What `changed` gives for o where that is not null; a list or a tuple becomes a list of what its items become, if one of them is changed.
template <class F> Ref change_nested(PyObject* o, const F& changed, int levels, int64_t& left) {
    if (Ref other = changed(o); other.get()) return other;
    if (levels == 0 || !is_nesting(o)) return Ref::borrow(o);
    Ref list(PyList_New(0));
    bool same = true;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) {
        const Ref item = Ref::borrow(PySequence_Fast_GET_ITEM(o, i));  // making tensors may run what drops it from the list
        const bool seen = levels == nesting_levels || left-- > 0;
        const Ref other = seen ? change_nested(item.get(), changed, levels - 1, left) : Ref::borrow(item.get());
        same &= other.get() == item.get();
        if (PyList_Append(list.get(), other.get()) < 0) throw PythonError();
    }
    return same ? Ref::borrow(o) : std::move(list);
}
template <class F> Ref change_nested(PyObject* o, const F& changed) {
    int64_t left = nested_items;
    return change_nested(o, changed, nesting_levels, left);
}

}  // namespace wisp
