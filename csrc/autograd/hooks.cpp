// Hooks: on gradients of tensors, around nodes, on saved tensors.
#include "../ops/ops.h"
#include "../ops/sparse.h"
#include "engine.h"

namespace wisp {
namespace {

struct SavedHooks {
    PyObject *pack, *unpack;
};
thread_local std::vector<SavedHooks>* saved_hooks __attribute__((tls_model("initial-exec"))) = nullptr;  // read at every save
thread_local std::string* hooks_disabled = nullptr;

struct OwnedRef {  // an owned Python reference
    PyObject* p;
    explicit OwnedRef(PyObject* o) : p(o) {
        if (!o) throw PythonError();
    }
    ~OwnedRef() { Py_DECREF(p); }
    OwnedRef(const OwnedRef&) = delete;
};

PyObject* tensor_or_none(const Tensor& t) {
    PyObject* o = t ? t.object() : Py_None;
    Py_INCREF(o);
    return o;
}

Tensor expect_tensor(PyObject* o, const char* what) {
    if (o == Py_None) return {};
    if (!is_tensor(o)) throw TypeError(what, " must return a Tensor or None, got ", Py_TYPE(o)->tp_name);
    return resolve_lazy(Tensor::borrow(as_tensor_object(o)));
}

PyObject* tuple_of(const Tensor* tensors, int64_t n) {
    PyObject* t = PyTuple_New(n);
    for (int64_t i = 0; t && i < n; i++) PyTuple_SET_ITEM(t, i, tensor_or_none(tensors[i]));
    return t;
}

void replace(Tensor* tensors, int64_t n, PyObject* result, const char* what) {
    if (result == Py_None) return;
    if (!PyTuple_Check(result)) {
        if (n == 1) {
            tensors[0] = expect_tensor(result, what);
            return;
        }
        throw TypeError(what, " must return a tuple or None, got ", Py_TYPE(result)->tp_name);
    }
    if (PyTuple_GET_SIZE(result) != n)
        throw RuntimeError(what, " has returned an incorrect number of values: got ", int64_t(PyTuple_GET_SIZE(result)), ", but expected ",
                           n);
    for (int64_t i = 0; i < n; i++) tensors[i] = expect_tensor(PyTuple_GET_ITEM(result, i), what);
}

template <class F> void for_each_hook(PyObject* dict, F&& f) {
    OwnedRef values(PyDict_Values(dict));  // a hook may remove itself
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values.p); i++) f(PyList_GET_ITEM(values.p, i));
}

}  // namespace

bool saved_hooks_active() { return saved_hooks && !saved_hooks->empty(); }

void set_saved_hooks_disabled(std::string message) {
    delete hooks_disabled;
    hooks_disabled = message.empty() ? nullptr : new std::string(std::move(message));
}

void push_saved_hooks(PyObject* pack, PyObject* unpack) {
    if (hooks_disabled) throw RuntimeError(*hooks_disabled);
    if (!saved_hooks) saved_hooks = new std::vector<SavedHooks>();
    Py_INCREF(pack);
    Py_INCREF(unpack);
    saved_hooks->push_back({pack, unpack});
}

void pop_saved_hooks() {
    if (!saved_hooks_active()) return;
    SavedHooks h = saved_hooks->back();
    saved_hooks->pop_back();
    Py_DECREF(h.pack);
    Py_DECREF(h.unpack);
}

// What a hook returns for `seen` is kept in the place of s.tensor.
static void pack_with(Saved& s, const Tensor& seen, PyObject* pack, PyObject* unpack) {
    GradMode off(false);
    const uint32_t version = seen.version();
    PyObject* packed = PyObject_CallOneArg(pack, seen.object());
    if (!packed) throw PythonError();
    if (seen.version() != version) {
        Py_DECREF(packed);
        throw RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be modified by "
            "in-place operations as this can lead to unexpected side-effects.");
    }
    s.packed = packed;
    s.unpack = unpack;
    Py_INCREF(unpack);
    if (s.output >= 0 || !s.tensor.requires_grad()) {
        s.tensor = Tensor();
    } else if (s.tensor->grad_fn) {
        // The values are the hook's now; an empty tensor carries the history that the unpacked one gets again.
        Tensor shell = empty({0}, s.tensor.dtype());
        set_history(shell, s.tensor->grad_fn, s.tensor->output_number);
        s.tensor = shell;
    }
}

// As PyTorch has it, hooks of a context see the tensor itself, and those of one saved tensor see it without its history.
void pack_saved(Saved& s) {
    const SavedHooks h = saved_hooks->back();
    pack_with(s, s.tensor, h.pack, h.unpack);
}

void register_saved_hooks(Saved& s, PyObject* pack, PyObject* unpack) {
    if (s.packed) throw RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set.");
    if (!s.tensor) throw RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden.");
    pack_with(s, detach(s.tensor), pack, unpack);
}

Tensor call_unpack_hook(Saved& s, Node& node, bool with_history) {
    // Contexts that the hook enters or leaves are not those of whoever runs backward.
    const std::vector<SavedHooks> before = saved_hooks ? *saved_hooks : std::vector<SavedHooks>();
    for (const SavedHooks& h : before) Py_INCREF(h.pack), Py_INCREF(h.unpack);
    PyObject* const made = PyObject_CallOneArg(s.unpack, s.packed);
    while (saved_hooks_active()) pop_saved_hooks();
    if (saved_hooks) *saved_hooks = before;
    OwnedRef result(made);
    if (!is_tensor(result.p))
        throw TypeError("Output of saved tensor unpack_hook expected to be a Tensor but got result of type ", Py_TYPE(result.p)->tp_name);
    Tensor t = Tensor::borrow(as_tensor_object(result.p));
    if (!with_history || (s.output < 0 && !(s.tensor && s.tensor.in_graph()) && !t.in_graph())) return t;
    Tensor r = alias(t);
    if (s.output >= 0) set_history(r, &node, uint32_t(s.output));
    else if (s.tensor && s.tensor->requires_grad) {
        if (t.storage() == s.tensor.storage() && t.offset() == s.tensor.offset() && t.strides() == s.tensor.strides()) return s.tensor;
        GradMode on(true);  // other values than the leaf's, whose gradient is the leaf's
        record(r, "AliasBackward0", {s.tensor}, {}, [](Backward& bw) { bw.set(0, bw.grad()); });
    } else if (s.tensor && s.tensor->grad_fn) set_history(r, s.tensor->grad_fn, s.tensor->output_number);
    return r;
}

void run_tensor_hooks(PyObject* hooks, Tensor& grad, const Node& node) {
    for_each_hook(hooks, [&](PyObject* hook) {
        OwnedRef result(PyObject_CallOneArg(hook, grad ? grad.object() : Py_None));
        if (result.p == Py_None) return;
        Tensor replaced = expect_tensor(result.p, "a tensor hook");
        if (!grad) {
            grad = replaced;
            return;
        }
        if (!(replaced.sizes() == grad.sizes()))
            throw RuntimeError("hook has changed the size of value: it returned ", replaced.sizes(), " for a gradient of shape ",
                               grad.sizes(), " (", node.name, ")");
        if (replaced.dtype() != grad.dtype())
            throw RuntimeError("hook has changed the type of value (was ", grad.dtype(), " got ", replaced.dtype(), ")");
        grad = replaced;
    });
}

void run_pre_hooks(Node& node, Small<Tensor, 1>& grads) {
    for_each_hook(node.hooks->pre_hooks, [&](PyObject* hook) {
        OwnedRef args(tuple_of(grads.data(), grads.size()));
        OwnedRef result(PyObject_CallOneArg(hook, args.p));
        replace(grads.data(), grads.size(), result.p, "a node pre-hook");
    });
}

void run_post_hooks(Node& node, Tensor* results, int64_t n, const Small<Tensor, 1>& grads) {
    for_each_hook(node.hooks->post_hooks, [&](PyObject* hook) {
        OwnedRef inputs(tuple_of(results, n)), outputs(tuple_of(grads.data(), grads.size()));
        OwnedRef result(PyObject_CallFunctionObjArgs(hook, inputs.p, outputs.p, nullptr));
        replace(results, n, result.p, "a node hook");
    });
}

void run_post_accumulate_hooks(const Tensor& variable) {
    for_each_hook(variable->extra->post_accumulate_hooks, [&](PyObject* hook) {
        OwnedRef result(PyObject_CallOneArg(hook, variable.object()));
        if (result.p != Py_None)
            throw RuntimeError("Tensor post accumulate grad hooks should return None. Got ", Py_TYPE(result.p)->tp_name);
    });
}

// --- where hooks are kept -------------------------------------------------------------------------------------------

NodeHooks& hooks_of(Node& node) {
    if (!node.hooks) node.hooks = new NodeHooks();
    return *node.hooks;
}

PyObject* new_hooks_dict() {
    OwnedRef collections(PyImport_ImportModule("collections"));
    PyObject* d = PyObject_CallMethod(collections.p, "OrderedDict", nullptr);
    if (!d) throw PythonError();
    return d;
}

PyObject* hooks_dict(const Tensor& t) {
    if (!t.in_graph()) throw RuntimeError("cannot register a hook on a tensor that doesn't require gradient");
    Node* n = grad_fn_of(t);
    if (!n) {
        TensorExtra& e = extra(t);
        if (!e.hooks) e.hooks = new_hooks_dict();
        return e.hooks;
    }
    NodeHooks& hooks = hooks_of(*n);
    for (auto& h : hooks.tensor_hooks)
        if (h.output == t->output_number) return h.hooks;
    hooks.tensor_hooks.push_back({t->output_number, new_hooks_dict()});
    return hooks.tensor_hooks.back().hooks;
}

}  // namespace wisp
