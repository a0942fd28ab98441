// Conjugate and negative views: making, resolving and calling operators with them. See conjugate.h.
#include "conjugate.h"

#include <vector>

#include "../ops/ops.h"
#include "nesting.h"
#include "registry.h"
#include "tensor_type.h"

namespace wisp {

namespace {

bool is_negative(const Tensor& z) { return Py_TYPE(z.object()) == negative_type; }

// From the values of such a view to what lies in memory, and back.
Tensor turned(const Tensor& t, bool negative) { return negative ? neg(t) : conj(t); }

void record_turn(Tensor& v, const Tensor& from, bool negative) {
    if (!needs_grad(from)) return;
    if (negative) record(v, "NegViewBackward0", {from}, {}, [](Backward& bw) { bw.set(0, neg(bw.grad())); });
    else record(v, "ConjBackward0", {from}, {}, [](Backward& bw) { bw.set(0, conj(bw.grad())); });
}

// The memory of a lazy view as an ordinary tensor.
Tensor plain_view(const Tensor& z) {
    Tensor v = make_view(z, z.layout());
    record_turn(v, z, is_negative(z));
    return v;
}

Tensor lazy_view(const Tensor& t, bool negative) {
    if (!(t.device() == Device{}) && !t.is_cuda()) return turned(t, negative);
    if (!conjugate_type) Ref module(PyImport_ImportModule("wisp._tensor.conjugate"));
    const Tensor plain = make_view(t, t.layout());
    Tensor z = Tensor::steal(as_tensor_object(new_tensor_of_type(negative ? negative_type : conjugate_type, plain)));
    z->base = plain->base;
    Py_INCREF(reinterpret_cast<PyObject*>(z->base));
    z->view_kind = plain->view_kind;
    z->view_version = plain->view_version;
    z->inference = plain->inference;
    z->untracked_writes = t->untracked_writes;
    track(z.get());
    record_turn(z, t, negative);
    return z;
}

// Views of the memory of a lazy view, as views of its kind.
PyObject* made_lazy(PyObject* result, bool negative) {
    if (is_tensor(result)) return lazy_view(Tensor::borrow(as_tensor_object(result)), negative).release();
    if (PyTuple_Check(result)) {
        Ref tuple(PyTuple_New(PyTuple_GET_SIZE(result)));
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); i++)
            PyTuple_SET_ITEM(tuple.get(), i, made_lazy(PyTuple_GET_ITEM(result, i), negative));
        return tuple.release();
    }
    Py_INCREF(result);
    return result;
}

Ref resolved(PyObject* o) {
    return change_nested(
        o, [](PyObject* item) { return is_lazy(item) ? Ref(resolve_lazy(Tensor::borrow(as_tensor_object(item))).release()) : Ref(); });
}

// What is said of one, or of a list with one, where it can't be used.
const char* unresolved(PyObject* o) {
    return any_nested(o, [](PyObject* item) { return Py_TYPE(item) == negative_type; }) ? "negative view; use resolve_neg() first"
                                                                                        : "conjugate view; use resolve_conj() first";
}

}  // namespace

bool has_lazy(PyObject* o) {
    if (!conjugate_type) return false;
    return any_nested(o, is_lazy);
}

Tensor conjugate_view(const Tensor& t) { return is_complex(t.dtype()) ? lazy_view(t, false) : t; }

Tensor resolve_lazy(const Tensor& z) {
    if (!z || !is_lazy(z.object())) return z;
    Tensor r;
    {
        GradMode off(false);
        r = turned(alias(z), is_negative(z));
    }
    if (needs_grad(z))
        record(r, is_negative(z) ? "ResolveNegBackward0" : "ResolveConjBackward0", {z}, {}, [](Backward& bw) { bw.set(0, bw.grad()); });
    return r;
}

PyObject* call_lazy(PyObject* callable, const std::string& op, const Facts& facts, bool inplace, PyObject* const* args, Py_ssize_t n,
                    PyObject* kwnames) {
    const Py_ssize_t total = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    const bool first = n > 0 && is_lazy(args[0]);
    const Tensor z = first ? Tensor::borrow(as_tensor_object(args[0])) : Tensor();
    const bool negative = first && is_negative(z);
    bool others = false;
    for (Py_ssize_t i = 1; i < total; i++) others |= has_lazy(args[i]);
    std::vector<Ref> kept;
    std::vector<PyObject*> given;
    auto call = [&] { return PyObject_Vectorcall(callable, given.data(), size_t(n), kwnames); };
    auto give = [&](Ref value) {
        given.push_back(value.get());
        kept.push_back(std::move(value));
    };
    inplace |= facts.has(writes);
    if (total > 0 && !first && has_lazy(args[0]) && inplace)
        throw RuntimeError(op, ": a list of tensors to be changed contains a ", unresolved(args[0]));
    if (first && facts.has(keeps_memory)) throw RuntimeError(op, ": not possible on a ", unresolved(args[0]));

    if (negative && total == 1) {
        if (op == "conj" || op == "real" || op == "resolve_conj") return Py_NewRef(args[0]);
        if (op == "is_neg") Py_RETURN_TRUE;
        if (op == "_neg_view") return plain_view(z).release();
        if (op == "adjoint") return lazy_view(transpose(plain_view(z), -2, -1), true).release();
    } else if (first && total == 1) {
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
        return made_lazy(result.get(), negative);
    }
    if (first && !inplace && op == "view" && total > 1) {
        if (Py_TYPE(args[1]) == &dtype_type && to_dtype(args[1]) != z.dtype())
            throw RuntimeError("torch.Tensor.view is not supported for ",
                               negative ? "tensors with negative bit set" : "conjugate view tensors",
                               " when converting to a different dtype.");
        give(Ref(plain_view(z).release()));
        for (Py_ssize_t i = 1; i < total; i++) given.push_back(args[i]);
        Ref result(call());
        return made_lazy(result.get(), negative);
    }
    if (first && inplace) {
        check_inplace(z, op.c_str(), z.requires_grad());
        const Tensor values = resolve_lazy(z);
        give(Ref::borrow(values.object()));
        for (Py_ssize_t i = 1; i < total; i++) give(resolved(args[i]));
        Ref result(call());
        if (!(values.sizes() == z.sizes()) || values.dtype() != z.dtype())
            throw RuntimeError(op, ": not possible on a ", unresolved(args[0]));
        copy_(plain_view(z), turned(values, negative));
        Py_INCREF(args[0]);
        return args[0];
    }
    // What out= names is written as its values, which go to its memory turned back.
    for (Py_ssize_t i = n; i < total; i++) {
        if (!has_lazy(args[i]) || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i - n), "out") != 0) continue;
        if (!is_lazy(args[i])) throw RuntimeError(op, "(): a tensor of out= is a ", unresolved(args[i]));
        const Tensor out = Tensor::borrow(as_tensor_object(args[i])), values = resolve_lazy(detach(out));
        for (Py_ssize_t j = 0; j < total; j++) j == i ? give(Ref::borrow(values.object())) : give(resolved(args[j]));
        Ref result(call());
        if (!(values.sizes() == out.sizes()))
            throw RuntimeError(op, "(): out= is a conjugate or negative view of shape ", out.sizes(), ", which cannot become one of shape ",
                               values.sizes());
        copy_(plain_view(out), turned(values, is_negative(out)));
        return Ref::borrow(args[i]).release();
    }
    for (Py_ssize_t i = 0; i < total; i++) give(resolved(args[i]));
    return call();
}

namespace {

const Operators operators = {
    {"_set_lazy_types(any conjugate, any negative)",
     [](PyObject* conjugate, PyObject* negative) {
         conjugate_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(conjugate));
         negative_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(negative));
     },
     function},
    {"_neg_view(Tensor input)", [](const Tensor& t) { return is_complex(t.dtype()) ? neg(t) : lazy_view(t, true); },
     function | elementwise | is_linear},
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
