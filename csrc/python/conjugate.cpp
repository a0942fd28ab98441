// Conjugate views: making, resolving and calling operators with them. See conjugate.h.
#include "conjugate.h"

#include <vector>

#include "../ops/ops.h"
#include "nesting.h"
#include "registry.h"
#include "tensor_type.h"

namespace wisp {

namespace {

// The memory of a conjugate view as an ordinary tensor.
Tensor plain_view(const Tensor& z) {
    Tensor v = make_view(z, z.layout());
    if (needs_grad(z)) record(v, "ConjBackward0", {z}, {}, [](Backward& bw) { bw.set(0, conj(bw.grad())); });
    return v;
}

PyObject* conjugated(PyObject* result) {
    if (is_tensor(result)) return conjugate_view(Tensor::borrow(as_tensor_object(result))).release();
    if (PyTuple_Check(result)) {
        Ref tuple(PyTuple_New(PyTuple_GET_SIZE(result)));
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); i++) PyTuple_SET_ITEM(tuple.get(), i, conjugated(PyTuple_GET_ITEM(result, i)));
        return tuple.release();
    }
    Py_INCREF(result);
    return result;
}

Ref resolved(PyObject* o) {
    return change_nested(o, [](PyObject* item) {
        return is_conjugate(item) ? Ref(resolve_conjugate(Tensor::borrow(as_tensor_object(item))).release()) : Ref();
    });
}

}  // namespace

bool has_conjugate(PyObject* o) {
    if (!conjugate_type) return false;
    return any_nested(o, is_conjugate);
}

Tensor conjugate_view(const Tensor& t) {
    if (!is_complex(t.dtype())) return t;
    if (!(t.device() == Device{}) && !t.is_cuda()) return conj(t);
    if (!conjugate_type) Ref module(PyImport_ImportModule("wisp._tensor.conjugate"));
    const Tensor plain = make_view(t, t.layout());
    PyObject* const o = new_tensor_of_type(conjugate_type, plain);
    Tensor z = Tensor::steal(as_tensor_object(o));
    z->base = plain->base;
    Py_INCREF(reinterpret_cast<PyObject*>(z->base));
    z->view_kind = plain->view_kind;
    z->view_version = plain->view_version;
    z->inference = plain->inference;
    z->untracked_writes = t->untracked_writes;
    track(z.get());
    if (needs_grad(t)) record(z, "ConjBackward0", {t}, {}, [](Backward& bw) { bw.set(0, conj(bw.grad())); });
    return z;
}

Tensor resolve_conjugate(const Tensor& z) {
    if (!z || !is_conjugate(z.object())) return z;
    Tensor r;
    {
        GradMode off(false);
        r = conj(alias(z));
    }
    if (needs_grad(z)) record(r, "ResolveConjBackward0", {z}, {}, [](Backward& bw) { bw.set(0, bw.grad()); });
    return r;
}

PyObject* call_conjugate(PyObject* callable, const std::string& op, const Facts& facts, bool inplace, PyObject* const* args, Py_ssize_t n,
                         PyObject* kwnames) {
    const Py_ssize_t total = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    const bool first = n > 0 && is_conjugate(args[0]);
    const Tensor z = first ? Tensor::borrow(as_tensor_object(args[0])) : Tensor();
    bool others = false;
    for (Py_ssize_t i = 1; i < total; i++) others |= has_conjugate(args[i]);
    std::vector<Ref> kept;
    std::vector<PyObject*> given;
    auto call = [&] { return PyObject_Vectorcall(callable, given.data(), size_t(n), kwnames); };
    auto give = [&](Ref value) {
        given.push_back(value.get());
        kept.push_back(std::move(value));
    };
    inplace |= facts.has(writes);
    if (total > 0 && !first && has_conjugate(args[0]) && inplace)
        throw RuntimeError(op, ": a list of tensors to be changed contains a conjugate view; use resolve_conj() first");
    if (first && facts.has(keeps_memory)) throw RuntimeError(op, ": not possible on a conjugate view; use resolve_conj() first");

    if (first && total == 1) {
        if (op == "conj") return plain_view(z).release();
        if (op == "adjoint") return transpose(plain_view(z), -2, -1).release();
        if (op == "real") return real(plain_view(z)).release();
        if (op == "is_conj") Py_RETURN_TRUE;
        if (op == "view_as_real")
            throw RuntimeError(
                "view_as_real doesn't work on unresolved conjugated tensors. To resolve the conjugate tensor so you can view it as "
                "real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original.");
    }
    if (first && !inplace && !others && facts.has(makes_view)) {
        give(Ref(op == "detach" || op == "_without_graph" ? alias(z).release() : plain_view(z).release()));
        for (Py_ssize_t i = 1; i < total; i++) given.push_back(args[i]);
        Ref result(call());
        return conjugated(result.get());
    }
    if (first && !inplace && op == "view" && total > 1 && Py_TYPE(args[1]) != &dtype_type) {
        give(Ref(plain_view(z).release()));
        for (Py_ssize_t i = 1; i < total; i++) given.push_back(args[i]);
        Ref result(call());
        return conjugated(result.get());
    }
    if (first && inplace) {
        check_inplace(z, op.c_str(), z.requires_grad());
        const Tensor values = resolve_conjugate(z);
        give(Ref::borrow(values.object()));
        for (Py_ssize_t i = 1; i < total; i++) give(resolved(args[i]));
        Ref result(call());
        if (!(values.sizes() == z.sizes()) || values.dtype() != z.dtype())
            throw RuntimeError(op, ": not possible on a conjugate view; use resolve_conj() first");
        copy_(plain_view(z), conj(values));
        Py_INCREF(args[0]);
        return args[0];
    }
    // What out= names is written as its values, which go to its memory conjugated.
    for (Py_ssize_t i = n; i < total; i++) {
        if (!has_conjugate(args[i]) || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i - n), "out") != 0) continue;
        if (!is_conjugate(args[i])) throw RuntimeError(op, "(): a tensor of out= is a conjugate view; use resolve_conj() first");
        const Tensor out = Tensor::borrow(as_tensor_object(args[i])), values = resolve_conjugate(detach(out));
        for (Py_ssize_t j = 0; j < total; j++) j == i ? give(Ref::borrow(values.object())) : give(resolved(args[j]));
        Ref result(call());
        if (!(values.sizes() == out.sizes()))
            throw RuntimeError(op, "(): out= is a conjugate view of shape ", out.sizes(), ", which cannot become one of shape ",
                               values.sizes());
        copy_(plain_view(out), conj(values));
        return Ref::borrow(args[i]).release();
    }
    for (Py_ssize_t i = 0; i < total; i++) give(resolved(args[i]));
    return call();
}

namespace {

const Operators operators = {
    {"_set_conjugate_type(any cls)",
     [](PyObject* cls) {
         conjugate_type = reinterpret_cast<PyTypeObject*>(cls);
         Py_INCREF(cls);
     },
     function},
    {"conj(Tensor input)", [](const Tensor& t) { return conjugate_view(t); }, stored | function | method | elementwise | is_linear,
     R"(The complex conjugate of each element; real tensors are returned as they are.
        >>> wisp.conj(wisp.tensor([1 + 2j]))
        tensor([1.-2.j]))"},
    {"adjoint(Tensor input)",
     [](const Tensor& t) {
         if (t.dim() < 2)
             throw RuntimeError("tensor.adjoint() is only supported on matrices or batches of matrices. Got ", t.dim(), "-D tensor.");
         return conjugate_view(transpose(t, -2, -1));
     },
     stored | function | method,
     R"(The conjugate transpose of the last two dimensions, as a view.
        >>> wisp.adjoint(wisp.tensor([[1, 2], [3, 4]]))
        tensor([[1, 3],
                [2, 4]]))"},
};

}  // namespace
}  // namespace wisp
