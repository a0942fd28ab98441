// The state of autocast, per thread, and the casting of arguments.
#include "autocast.h"

#include <unordered_map>

#include "../ops/ops.h"
#include "registry.h"

namespace wisp {

int autocast_users = 0;

namespace {

struct State {
    bool enabled = false;
    DType lower;
};
thread_local State states[2] = {{false, DType::bf16}, {false, DType::f16}};  // CPU, GPU
thread_local int depth = 0;                                                  // of nested regions

State& state_here() { return states[current_device().is_cuda()]; }

// Casts of weights to lower precision, kept until the outermost region ends: a weight is cast once, however often it is
// used. One entry with and one without history.
struct CachedCast {
    Tensor original, cast;
    uint32_t version;
};
thread_local std::unordered_map<TensorObject*, CachedCast> cached_casts[2];
thread_local bool cache_enabled = true;

void clear_cache() {
    for (auto& casts : cached_casts) casts.clear();
}

Tensor cast_cached(const Tensor& t, DType target) {
    if (!cache_enabled || depth == 0 || t.dtype() != DType::f32 || target != state_here().lower || !t->requires_grad || t->grad_fn ||
        t->base)
        return to(t, target);
    auto& casts = cached_casts[needs_grad(t)];
    auto it = casts.find(t.get());
    if (it != casts.end() && it->second.version == t.version() && it->second.cast.dtype() == target) return it->second.cast;
    const Tensor cast = to(t, target);
    casts[t.get()] = {t, cast, t.version()};
    return cast;
}

// Doubles, complex numbers and integers pass through, as in PyTorch.
bool may_be_cast(PyObject* o) {
    if (!is_tensor(o)) return false;
    const DType d = as_tensor_object(o)->dtype;
    return d == DType::f32 || d == DType::f16 || d == DType::bf16;
}

PyObject* cast_one(PyObject* o, DType target, std::vector<Ref>& kept) {
    if (!may_be_cast(o) || as_tensor_object(o)->dtype == target) return o;
    kept.emplace_back(cast_cached(Tensor::borrow(as_tensor_object(o)), target).release());
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

void set_autocast(bool gpu, bool on, DType dtype) {
    State& s = states[gpu];
    if (on != s.enabled) autocast_users += on ? 1 : -1;
    s = {on, dtype};
}

const Operators operators = {
    {"_set_autocast(bool gpu, bool enabled, dtype dtype)", set_autocast, stored | function},
    {"_autocast_enabled(bool gpu)", [](bool gpu) { return states[gpu].enabled; }, function | shape_only},
    {"_autocast_dtype(bool gpu)", [](bool gpu) { return states[gpu].lower; }, function | shape_only},
    {"_autocast_nest(int by)",
     [](int64_t by) {
         depth += int(by);
         if (depth <= 0) clear_cache();
         return int64_t(depth);
     },
     function},
    {"_autocast_cache(bool? enabled=None)",
     [](std::optional<bool> enabled) {
         const bool before = cache_enabled;
         if (enabled) cache_enabled = *enabled;
         return before;
     },
     function},
    {"_clear_autocast_cache()", clear_cache, function},
};

}  // namespace

bool autocast_enabled() { return autocast_users && state_here().enabled; }

void cast_arguments(CastPolicy policy, PyObject** slots, int count, std::vector<Ref>& kept) {
    const State& state = state_here();
    if (!state.enabled) return;
    const DType lower = state.lower, target = policy == CastPolicy::lower ? lower : DType::f32;
    if (policy == CastPolicy::banned)
        throw RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a sigmoid layer right "
            "before "
            "the binary cross entropy layer.\nIn this case, combine the two layers using "
            "torch.nn.functional.binary_cross_entropy_with_logits\nor "
            "torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\nsafe to autocast.");
    if (policy == CastPolicy::full)  // a dtype that is asked for decides
        for (int i = 0; i < count; i++)
            if (Py_TYPE(slots[i]) == &dtype_type) return;
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
