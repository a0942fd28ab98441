// The state of autocast, per thread, and the casting of arguments.
#include "autocast.h"

#include "../ops/ops.h"
#include "registry.h"

namespace wisp {

int autocast_users = 0;

namespace {

thread_local bool enabled = false;
thread_local DType lower = DType::bf16;

// Doubles, complex numbers and integers pass through, as in PyTorch.
bool may_be_cast(PyObject* o) {
    if (!is_tensor(o)) return false;
    const DType d = as_tensor_object(o)->dtype;
    return d == DType::f32 || d == DType::f16 || d == DType::bf16;
}

PyObject* cast_one(PyObject* o, DType target, std::vector<Ref>& kept) {
    if (!may_be_cast(o) || as_tensor_object(o)->dtype == target) return o;
    kept.emplace_back(to(Tensor::borrow(as_tensor_object(o)), target).release());
    return kept.back().get();
}

bool is_sequence(PyObject* o) { return PyTuple_Check(o) || PyList_Check(o); }

template <class Visit> void for_each_tensor(PyObject** slots, int count, Visit visit) {
    for (int i = 0; i < count; i++) {
        if (!is_sequence(slots[i])) {
            visit(slots[i]);
            continue;
        }
        for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(slots[i]); j++) visit(PySequence_Fast_GET_ITEM(slots[i], j));
    }
}

bool set_autocast(bool on, DType dtype) {
    if (on != enabled) autocast_users += on ? 1 : -1;
    const bool before = enabled;
    enabled = on;
    lower = dtype;
    return before;
}

void mark_all(PyObject* names, CastPolicy policy) {
    Ref list(PySequence_Fast(names, "expected a sequence of operator names"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); i++)
        mark_autocast(to_string(PySequence_Fast_GET_ITEM(list.get(), i)), policy);
}

const Operators operators = {
    {"_set_autocast(bool enabled, dtype dtype)", set_autocast, function},
    {"_autocast_enabled()", [] { return enabled; }, function},
    {"_autocast_dtype()", [] { return lower; }, function},
    {"_set_autocast_lists(any lower, any full, any widest)", [](PyObject* low, PyObject* full, PyObject* widest) {
         mark_all(low, CastPolicy::lower);
         mark_all(full, CastPolicy::full);
         mark_all(widest, CastPolicy::widest);
     }, function},
};

}  // namespace

void cast_arguments(CastPolicy policy, PyObject** slots, int count, std::vector<Ref>& kept) {
    if (!enabled) return;
    DType target = policy == CastPolicy::lower ? lower : DType::f32;
    if (policy == CastPolicy::widest) {
        bool all_lower = true;
        for_each_tensor(slots, count, [&](PyObject* o) { all_lower &= !may_be_cast(o) || as_tensor_object(o)->dtype == lower; });
        if (all_lower) return;
    }
    for (int i = 0; i < count; i++) {
        if (!is_sequence(slots[i])) {
            slots[i] = cast_one(slots[i], target, kept);
            continue;
        }
        bool any = false;
        for_each_tensor(slots + i, 1, [&](PyObject* o) { any |= may_be_cast(o) && as_tensor_object(o)->dtype != target; });
        if (!any) continue;
        const Py_ssize_t n = PySequence_Fast_GET_SIZE(slots[i]);
        Ref list(PyList_New(n));
        for (Py_ssize_t j = 0; j < n; j++) {
            PyObject* item = cast_one(PySequence_Fast_GET_ITEM(slots[i], j), target, kept);
            Py_INCREF(item);
            PyList_SET_ITEM(list.get(), j, item);
        }
        slots[i] = list.get();
        kept.push_back(std::move(list));
    }
}

}  // namespace wisp
