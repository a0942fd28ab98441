// The Python type wisp.Tensor: number and mapping slots, and the few methods that are no operators. Its attributes: tensor_attributes.cpp.
#include "tensor_type.h"

#include <structmember.h>

#include <cstring>
#include <thread>

#include "../autograd/engine.h"
#include "../autograd/source.h"
#include "../profiler/profiler.h"
#include "../ops/ops.h"
#include "../ops/sparse.h"
#include "autocast.h"
#include "conjugate.h"
#include "numpy_array.h"
#include "overrides.h"
#include "registry.h"
#include "signature.h"
#include "temporary.h"

namespace wisp {

namespace {

PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyNumberMethods number;
PyMappingMethods mapping;
PySequenceMethods sequence;

// --- numbers -------------------------------------------------------------------------------------------------------------

// A sample of a vmap answers for itself, also to the operators of another subclass of Tensor, a parameter.
bool reads_as_tensor(PyObject* o) { return Py_TYPE(o) == tensor_type || (is_strided(o) && !(batching && has_batched(o))); }

bool operand(PyObject* const& o, Arg& arg) {
    if (PyLong_CheckExact(o)) arg = Arg(to_scalar(o));  // asked first: whether a type is one of ours takes longer
    else if (reads_as_tensor(o)) arg = Arg(as_tensor(o));
    else if (PyFloat_Check(o)) arg = Arg(PyFloat_AS_DOUBLE(o));
    else if (is_number(o)) arg = Arg(to_scalar(o));
    else return false;
    return true;
}

// The method of Tensor behind a row of the table, which is what a class or a mode is told that answers the call itself.
std::string method_of(Pointwise op, const char* suffix) {
    return (op == Pointwise::div_floor ? std::string("floor_divide") : std::string(pointwise_info(op).name)) + suffix;
}
// What is rare stays out of the number slots, whose code is read for every operator.
[[gnu::cold, gnu::noinline]] PyObject* answer_of_class(Pointwise op, const char* suffix, PyObject* a, PyObject* b) {
    return call_overridden(method_of(op, suffix).c_str(), a, b);
}
#define ANSWERED(op, suffix, a, b) \
    if (overriding) [[unlikely]]   \
        if (PyObject* answer = answer_of_class(op, suffix, a, b)) return answer;

void profile(Profiled& profiled, const char* name, const char* suffix, PyObject* a, PyObject* b) {
    PyObject* arguments[] = {a, b};
    profiled.begin(EventKind::operation, name, suffix, arguments, b ? 2 : 1);
}

PyObject* call_by_name(const char* name, PyObject* a, PyObject* b);

// Of an operand that is neither a tensor nor a number: its own answer, if its class answers calls.
PyObject* foreign(const char* method, PyObject* a, PyObject* b) {
    if (PyObject* answer = call_foreign(method, a, b)) return answer;
    Py_RETURN_NOTIMPLEMENTED;
}

[[gnu::cold, gnu::noinline]] PyObject* binary_of_others(Pointwise op, PyObject* a, PyObject* b) {
    if (batching && (has_batched(a) || has_batched(b))) return call_by_name(method_of(op, "").c_str(), a, b);  // Tensor.__add__(a, b)
    // The one operator of which PyTorch's form takes an array on the left.
    if (op == Pointwise::div && is_plain_array(a) && reads_as_tensor(b))
        return PyNumber_Multiply(Ref(reciprocal(as_tensor(b)).release()).get(), a);
    return foreign(method_of(op, "").c_str(), a, b);
}
[[gnu::cold, gnu::noinline]] PyObject* inplace_with_others(Pointwise op, PyObject* a, PyObject* b) {
    PyObject* args[] = {a, b};
    if (is_sparse(b)) return call_sparse((std::string(pointwise_info(op).name) + "_").c_str(), args, 2, nullptr);
    if (is_lazy(b)) return pointwise_(op, as_tensor(a), Arg(resolve_lazy(as_tensor(b)))).release();
    return foreign(method_of(op, "_").c_str(), a, b);
}

template <Pointwise op> PyObject* binary(PyObject* a, PyObject* b) {
    return guarded([&]() -> PyObject* {
        Arg x, y;
        if (!operand(a, x) || !operand(b, y)) [[unlikely]]
            return binary_of_others(op, a, b);
        ANSWERED(op, "", a, b)
        Profiled profiled;
        if (profiling) [[unlikely]]
            profile(profiled, pointwise_info(op).name, "", a, b);
        if constexpr (op == Pointwise::sub)
            if (is_bool(x) || is_bool(y)) [[unlikely]]
                refuse_bool_subtraction(x, y);
        if constexpr (op == Pointwise::add || op == Pointwise::sub || op == Pointwise::mul || op == Pointwise::div)
            if (may_be_temporary(x) || may_be_temporary(y)) [[unlikely]]
                if (Tensor result = pointwise_in_temporary(op, x, y)) return result.release();
        if constexpr (op == Pointwise::add || op == Pointwise::mul)  // 2 * b is b * 2, in the graph too
            if (!x.tensor) return pointwise(op, y, x).release();
        return pointwise(op, x, y).release();
    });
}
template <Pointwise op> PyObject* binary_inplace(PyObject* a, PyObject* b) {
    return guarded([&]() -> PyObject* {
        Arg y;
        if (batching && has_batched(b)) refuse_batched_write("an in-place operator");
        if (!operand(b, y)) [[unlikely]]
            return inplace_with_others(op, a, b);
        ANSWERED(op, "_", a, b)
        Profiled profiled;
        if (profiling) [[unlikely]]
            profile(profiled, pointwise_info(op).name, "_", a, b);
        return pointwise_(op, as_tensor(a), y).release();
    });
}
template <Pointwise op> PyObject* unary(PyObject* a) {
    return guarded([&]() -> PyObject* {
        ANSWERED(op, "", a, nullptr)
        Profiled profiled;
        if (profiling) [[unlikely]]
            profile(profiled, pointwise_info(op).name, "", a, nullptr);
        return pointwise(op, as_tensor(a)).release();
    });
}

PyObject* call_by_name(const char* name, PyObject* a, PyObject* b) {
    if (!(is_tensor(a) || is_number(a)) || !(is_tensor(b) || is_number(b))) return guarded([&] { return foreign(name, a, b); });
    PyObject* args[] = {a, b};
    return guarded([&] { return call_operator(name, args, 2); });
}
PyObject* power(PyObject* a, PyObject* b, PyObject* modulo) {
    if (modulo != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return call_by_name("pow", a, b);
}
PyObject* power_inplace(PyObject* a, PyObject* b, PyObject*) {
    if (!is_tensor(b) && !is_number(b)) return guarded([&] { return foreign("pow_", a, b); });
    return PyObject_CallMethod(a, "pow_", "(O)", b);
}
PyObject* matrix_multiply(PyObject* a, PyObject* b) {
    if (!reads_as_tensor(a) || !reads_as_tensor(b)) {
        if (batching && (has_batched(a) || has_batched(b))) return call_by_name("matmul", a, b);
        return guarded([&] { return foreign("matmul", a, b); });
    }
    if (autocast_users || profiling || overriding) return call_by_name("matmul", a, b);
    return guarded([&] { return matmul(as_tensor(a), as_tensor(b)).release(); });
}
PyObject* positive(PyObject* a) {
    if (as_tensor(a).dtype() == DType::boolean) {
        PyErr_SetString(PyExc_RuntimeError, "The `+` operator, on a bool tensor is not supported.");
        return nullptr;
    }
    Py_INCREF(a);
    return a;
}

// Reading values waits for the device: a profile tells of it.
#define WAITING(name, a)        \
    Profiled profiled;          \
    if (profiling) [[unlikely]] \
        profile(profiled, name, "", a, nullptr);

int truth(PyObject* a) {
    return guarded(-1, [&] {
        WAITING("item", a)
        return int(is_nonzero(as_tensor(a)));
    });
}
void check_one_number(PyObject* a) {
    if (as_tensor(a).requires_grad()) [[unlikely]] {
        static bool told = false;
        warn_once(told,
                  "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior. Consider using "
                  "tensor.detach() first.");
    }
    if (as_tensor(a).numel() != 1) throw ValueError("only one element tensors can be converted to Python scalars");
}
PyObject* to_python_float(PyObject* a) {
    return guarded([&] {
        WAITING("item", a)
        check_one_number(a);
        return PyFloat_FromDouble(item(as_tensor(a)).to_double());
    });
}
PyObject* to_python_int(PyObject* a) {
    return guarded([&]() -> PyObject* {
        WAITING("item", a)
        check_one_number(a);
        const Scalar s = item(as_tensor(a));
        if (s.is_integral()) return s.is_large() ? scalar_object(s) : PyLong_FromLongLong(s.to_int());
        return PyLong_FromDouble(s.to_double());
    });
}
PyObject* to_python_index(PyObject* a) {
    return guarded([&]() -> PyObject* {
        const Tensor& t = as_tensor(a);
        if (!is_integral(t.dtype()) || t.numel() != 1)
            throw TypeError("only integer tensors of a single element can be converted to an index");
        const Scalar s = item(t);
        return s.is_large() ? scalar_object(s) : PyLong_FromLongLong(s.to_int());
    });
}

// By the numbers that Python gives its comparisons.
constexpr Pointwise comparisons[] = {Pointwise::lt, Pointwise::le, Pointwise::eq, Pointwise::ne, Pointwise::gt, Pointwise::ge};

[[gnu::cold, gnu::noinline]] PyObject* compare_others(PyObject* a, PyObject* b, int op) {
    // equality with an array is that of its elements, if they are numbers
    if ((op != Py_EQ && op != Py_NE) || !is_tensor(a) || !is_plain_array(b)) return foreign(method_of(comparisons[op], "").c_str(), a, b);
    Tensor array;
    try {
        array = tensor_from_data(b, std::nullopt);
    } catch (const TypeError&) { Py_RETURN_NOTIMPLEMENTED; }
    return (op == Py_EQ ? eq(as_tensor(a), array) : ne(as_tensor(a), array)).release();
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
    return guarded([&]() -> PyObject* {
        Arg x, y;
        if (!operand(a, x) || !operand(b, y)) [[unlikely]]
            return compare_others(a, b, op);
        ANSWERED(comparisons[op], "", a, b)
        Profiled profiled;
        if (profiling) [[unlikely]]
            profile(profiled, pointwise_info(comparisons[op]).name, "", a, b);
        return pointwise(comparisons[op], x, y).release();
    });
}

Py_ssize_t length(PyObject* a) {
    const Tensor& t = as_tensor(a);
    if (t.dim() == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
        return -1;
    }
    return t.size(0);
}

PyObject* iterate(PyObject* a) {
    return guarded([&]() -> PyObject* {
        const Tensor& t = as_tensor(a);
        if (t.dim() == 0) throw TypeError("iteration over a 0-d tensor");
        Ref parts(ToPython()(unbind(t, 0)));
        return PyObject_GetIter(parts.get());
    });
}

// --- methods -------------------------------------------------------------------------------------------------------------

PyObject* tensor_backward(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    return guarded([&]() -> PyObject* {
        BackwardRequest request;
        request.roots.push_back(as_tensor(self));
        PyObject *gradient = Py_None, *retain = Py_None, *create = Py_False, *inputs = Py_None;
        PyObject** places[] = {&gradient, &retain, &create, &inputs};
        const char* names[] = {"gradient", "retain_graph", "create_graph", "inputs"};
        if (n > 4) throw TypeError("backward() takes at most 4 arguments, got ", int64_t(n));
        for (Py_ssize_t i = 0; i < n; i++) *places[i] = args[i];
        for (Py_ssize_t j = 0; kwnames && j < PyTuple_GET_SIZE(kwnames); j++) {
            int i = 0;
            while (i < 4 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, j), names[i]) != 0) i++;
            if (i == 4) throw TypeError("backward() got an unexpected keyword argument '", utf8(PyTuple_GET_ITEM(kwnames, j)), "'");
            *places[i] = args[n + j];
        }
        if ((PyList_CheckExact(gradient) || PyTuple_CheckExact(gradient)) && PySequence_Fast_GET_SIZE(gradient) == 1)
            gradient = PySequence_Fast_GET_ITEM(gradient, 0);  // as by autograd.backward, of which this is a call with one tensor
        if (gradient != Py_None) {
            if (is_tensor(gradient)) request.grads.push_back(resolve_lazy(as_tensor(gradient)));
            else throw TypeError("backward(): gradient must be a Tensor or None, got ", Py_TYPE(gradient)->tp_name);
        }
        request.create_graph = truth_of(create);
        if (request.create_graph) {
            static bool told = false;
            warn_once(told,
                      "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which "
                      "can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you have to use "
                      "this function, make sure to reset the .grad fields of your parameters to None after use to break the cycle.");
        }
        request.retain_graph = retain == Py_None ? request.create_graph : truth_of(retain);
        if (inputs != Py_None) {
            if (is_tensor(inputs)) request.inputs.push_back(as_tensor(inputs));
            else if (PyDict_Check(inputs)) request.inputs = to_tensors(Ref(PyDict_Values(inputs)).get());
            else request.inputs = to_tensors(inputs);
            if (request.inputs.empty()) throw RuntimeError("`inputs` argument to `backward()` cannot be empty.");
        }
        run_backward(request);
        Py_RETURN_NONE;
    });
}

PyObject* tensor_size(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    return guarded([&]() -> PyObject* {
        const Tensor& t = as_tensor(self);
        PyObject* dim = n ? args[0] : kwnames && PyTuple_GET_SIZE(kwnames) ? args[0] : Py_None;
        if (dim == Py_None) return size_object(t.sizes());
        const int64_t d = to_int(dim);
        if (t.dim() == 0) throw IndexError("Dimension specified as ", d, " but tensor has no dimensions");
        return PyLong_FromLongLong(t.size(wrap_dim(d, t.dim())));
    });
}
PyObject* tensor_stride(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    return guarded([&]() -> PyObject* {
        const Tensor& t = as_tensor(self);
        PyObject* dim = n || (kwnames && PyTuple_GET_SIZE(kwnames)) ? args[0] : Py_None;
        if (dim == Py_None) return tuple_of_ints(t.strides());
        return PyLong_FromLongLong(t.stride(wrap_dim(to_int(dim), t.dim())));
    });
}
PyObject* tensor_dim(PyObject* self, PyObject*) { return PyLong_FromLongLong(as_tensor(self).dim()); }
PyObject* tensor_numel(PyObject* self, PyObject*) { return PyLong_FromLongLong(as_tensor(self).numel()); }
PyObject* tensor_item(PyObject* self, PyObject*) {
    return guarded([&]() -> PyObject* {
        WAITING("item", self)
        return scalar_object(item(as_tensor(self)));
    });
}
PyObject* list_of(const Tensor& t, int64_t d, const char* data) {
    if (d == t.dim()) return scalar_object(Scalar::load(data, t.dtype()));
    const int64_t n = t.size(d), step = t.numel() ? t.stride(d) * t.item_size() : 0;
    PyObject* list = PyList_New(n);
    for (int64_t i = 0; list && i < n; i++) {
        PyObject* item = list_of(t, d + 1, data + i * step);
        if (!item) {
            Py_DECREF(list);
            return nullptr;
        }
        PyList_SET_ITEM(list, i, item);
    }
    return list;
}
PyObject* tensor_tolist(PyObject* self, PyObject*) {
    return guarded([&]() -> PyObject* {
        WAITING("tolist", self)
        GradMode off(false);
        const Tensor t = as_tensor(self).is_cuda() ? to(as_tensor(self), Device{}) : as_tensor(self);
        return list_of(t, 0, t.data());
    });
}
// A transform knows the leaves that it made, and no others: one that a program's function makes would be differentiated by nobody.
void check_outside_of_transforms(const char* name, const char* perhaps = "") {
    if (transforms && !called_by_the_package())
        throw RuntimeError(
            "You are attempting to call Tensor.", name, "() ", perhaps,
            "inside of a function being transformed by a functorch transform. This is unsupported, please attempt to use the "
            "functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call ",
            name, "() outside of a function being transformed instead.");
}
PyObject* tensor_requires_grad_(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    return guarded([&]() -> PyObject* {
        const bool given = n || (kwnames && PyTuple_GET_SIZE(kwnames));
        check_outside_of_transforms("requires_grad_", "(or perhaps using torch.autograd.functional.* APIs) ");
        const bool on = given ? truth_of(args[0]) : true;
        if (batching && has_batched(self)) {
            if (PyObject_SetAttrString(self, "requires_grad", on ? Py_True : Py_False) < 0) throw PythonError();
        } else {
            require_grad(as_tensor(self), on);
        }
        Py_INCREF(self);
        return self;
    });
}
PyObject* tensor_retain_grad(PyObject* self, PyObject*) {
    return guarded([&]() -> PyObject* {
        check_outside_of_transforms("retain_grad");
        retain_grad(as_tensor(self));
        Py_RETURN_NONE;
    });
}
PyObject* tensor_hooks_dict(PyObject* self, PyObject*) {
    return guarded([&]() -> PyObject* {
        PyObject* d = hooks_dict(as_tensor(self));
        Py_INCREF(d);
        return d;
    });
}
PyObject* tensor_post_accumulate_dict(PyObject* self, PyObject*) {
    return guarded([&]() -> PyObject* {
        const Tensor& t = as_tensor(self);
        if (!t.requires_grad()) throw RuntimeError("cannot register a hook on a tensor that doesn't require gradient");
        if (t->grad_fn) throw RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors");
        TensorExtra& e = extra(t);
        if (!e.post_accumulate_hooks) e.post_accumulate_hooks = new_hooks_dict();
        Py_INCREF(e.post_accumulate_hooks);
        return e.post_accumulate_hooks;
    });
}
PyObject* tensor_data_ptr(PyObject* self, PyObject*) {
    const Tensor& t = as_tensor(self);
    return PyLong_FromVoidPtr(t.numel() ? static_cast<char*>(t.storage()->data()) + t.offset() * t.item_size() : nullptr);
}
PyObject* tensor_storage_ptr(PyObject* self, PyObject*) { return PyLong_FromVoidPtr(as_tensor(self).storage()->data()); }
PyObject* tensor_storage_grows(PyObject* self, PyObject*) { return PyBool_FromLong(as_tensor(self).storage()->can_grow()); }
PyObject* tensor_storage_bytes(PyObject* self, PyObject*) { return PyLong_FromSize_t(as_tensor(self).storage()->bytes); }
PyObject* tensor_element_size(PyObject* self, PyObject*) { return PyLong_FromLongLong(as_tensor(self).item_size()); }
PyObject* tensor_storage_offset(PyObject* self, PyObject*) { return PyLong_FromLongLong(as_tensor(self).offset()); }
PyObject* tensor_is_inference(PyObject* self, PyObject*) { return PyBool_FromLong(as_tensor(self)->inference); }
PyObject* tensor_is_view(PyObject* self, PyObject*) { return PyBool_FromLong(as_tensor(self)->base != nullptr); }
PyObject* tensor_detach_(PyObject* self, PyObject*) {
    return guarded([&]() -> PyObject* {
        const Tensor& t = as_tensor(self);
        if (t->base) throw RuntimeError("Can't detach views in-place. Use detach() instead.");
        set_history(t, nullptr, 0);
        if (t->dual) {
            forget_tangents(t.get());
            t->extra->tangents.clear();
        }
        Py_INCREF(self);
        return self;
    });
}

PyObject* make_subclass(PyObject*, PyObject* args, PyObject* kwargs) {
    PyObject *cls, *data;
    int requires_grad = 0;
    const char* names[] = {"cls", "data", "require_grad", nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!|p", const_cast<char**>(names), &cls, &type, &data, &requires_grad)) return nullptr;
    return guarded([&]() -> PyObject* {
        if (!PyType_Check(cls) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), &type))
            throw TypeError("cls must be a subclass of Tensor");
        if (is_sparse(data)) refuse_sparse("a subclass of Tensor, such as nn.Parameter");
        const Tensor t = resolve_lazy(as_tensor(data));
        PyObject* self = new_tensor_of_type(reinterpret_cast<PyTypeObject*>(cls), t);
        Tensor result = Tensor::steal(as_tensor_object(self));
        if (requires_grad) require_grad(result, true);
        return result.release();
    });
}

int set_attribute(PyObject* self, PyObject* name, PyObject* value) {
    track(as_tensor_object(self));  // its dict may hold anything from now on
    return PyObject_GenericSetAttr(self, name, value);
}

// What is written in Python (wisp/_tensor) goes into the type's dictionary; repr and `in` reach it from their slots.
PyObject* repr(PyObject* self) { return PyObject_CallMethod(self, "_repr", nullptr); }
int contains(PyObject* self, PyObject* element) {
    PyObject* r = PyObject_CallMethod(self, "_contains", "(O)", element);
    const int found = r ? PyObject_IsTrue(r) : -1;
    Py_XDECREF(r);
    return found;
}

PyMethodDef methods[] = {
    {"backward", reinterpret_cast<PyCFunction>(tensor_backward), METH_FASTCALL | METH_KEYWORDS,
     "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)\n\nComputes the gradients of this tensor with respect to "
     "the leaves of its graph, and adds them to their `grad`.\n\n>>> x = wisp.tensor([1.0, 2.0], requires_grad=True)\n>>> (x * "
     "x).sum().backward()\n"
     ">>> x.grad\ntensor([2., 4.])"},
    {"size", reinterpret_cast<PyCFunction>(tensor_size), METH_FASTCALL | METH_KEYWORDS,
     "size(dim=None) -> Size or int\n\nThe sizes of all dimensions, or that of one.\n\n>>> wisp.ones(2, 3).size(), wisp.ones(2, "
     "3).size(-1)\n"
     "(torch.Size([2, 3]), 3)"},
    {"stride", reinterpret_cast<PyCFunction>(tensor_stride), METH_FASTCALL | METH_KEYWORDS,
     "stride(dim=None) -> tuple or int\n\nBy how many elements of memory neighbours along each dimension, or along one, are apart.\n\n"
     ">>> wisp.ones(2, 3).stride(), wisp.ones(2, 3).t().stride()\n((3, 1), (1, 3))"},
    {"dim", tensor_dim, METH_NOARGS, "dim() -> int\n\nThe number of dimensions.\n\n>>> wisp.ones(2, 3).dim()\n2"},
    {"ndimension", tensor_dim, METH_NOARGS, "ndimension() -> int\n\nThe number of dimensions.\n\n>>> wisp.ones(2, 3).ndimension()\n2"},
    {"numel", tensor_numel, METH_NOARGS, "numel() -> int\n\nThe number of elements.\n\n>>> wisp.ones(2, 3).numel()\n6"},
    {"nelement", tensor_numel, METH_NOARGS, "nelement() -> int\n\nThe number of elements.\n\n>>> wisp.ones(2, 3).nelement()\n6"},
    {"item", tensor_item, METH_NOARGS,
     "item() -> number\n\nThe one element of a tensor as a number of Python. On a GPU the program waits for it.\n\n>>> wisp.ones(2, "
     "3).sum().item()\n6.0"},
    {"tolist", tensor_tolist, METH_NOARGS,
     "tolist() -> list or number\n\nAll elements as numbers of Python, in lists within lists; of a tensor without dimensions the "
     "number.\n\n"
     ">>> wisp.arange(4).view(2, 2).tolist()\n[[0, 1], [2, 3]]"},
    {"requires_grad_", reinterpret_cast<PyCFunction>(tensor_requires_grad_), METH_FASTCALL | METH_KEYWORDS,
     "requires_grad_(requires_grad=True) -> Tensor\n\nLets autograd record what is done with this tensor from now on, or no longer; "
     "returns the tensor.\n\n"
     ">>> wisp.ones(2).requires_grad_().requires_grad\nTrue"},
    {"retain_grad", tensor_retain_grad, METH_NOARGS,
     "retain_grad() -> None\n\nLets backward fill the `grad` of a tensor that is no leaf.\n\n>>> x = wisp.ones(2, requires_grad=True)\n"
     ">>> y = x * 3\n>>> y.retain_grad()\n>>> y.sum().backward()\n>>> y.grad\ntensor([1., 1.])"},
    {"_hooks_dict", tensor_hooks_dict, METH_NOARGS, nullptr},
    {"_post_accumulate_dict", tensor_post_accumulate_dict, METH_NOARGS, nullptr},
    {"data_ptr", tensor_data_ptr, METH_NOARGS,
     "data_ptr() -> int\n\nThe address of the first element.\n\n>>> x = wisp.ones(4)\n>>> x[1:].data_ptr() - x.data_ptr()\n4"},
    {"_storage_ptr", tensor_storage_ptr, METH_NOARGS, nullptr},
    {"_storage_grows", tensor_storage_grows, METH_NOARGS, nullptr},
    {"_storage_bytes", tensor_storage_bytes, METH_NOARGS, nullptr},
    {"element_size", tensor_element_size, METH_NOARGS,
     "element_size() -> int\n\nThe bytes of an element.\n\n>>> wisp.ones(2, dtype=wisp.float16).element_size()\n2"},
    {"storage_offset", tensor_storage_offset, METH_NOARGS,
     "storage_offset() -> int\n\nAt which element of its memory the tensor begins.\n\n>>> wisp.arange(6)[2:].storage_offset()\n2"},
    {"is_inference", tensor_is_inference, METH_NOARGS, "is_inference() -> bool"},
    {"_is_view", tensor_is_view, METH_NOARGS, "_is_view() -> bool"},
    {"detach_", tensor_detach_, METH_NOARGS, "detach_() -> Tensor"},
    {"_make_subclass", reinterpret_cast<PyCFunction>(make_subclass), METH_STATIC | METH_VARARGS | METH_KEYWORDS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

// --- life ----------------------------------------------------------------------------------------------------------------

int traverse(PyObject* self, visitproc visit, void* arg) {
    TensorObject* o = as_tensor_object(self);
    Py_VISIT(o->dict);
    Py_VISIT(reinterpret_cast<PyObject*>(o->grad_fn));
    Py_VISIT(reinterpret_cast<PyObject*>(o->base));
    if (o->extra) {
        Py_VISIT(o->extra->grad.object());
        for (Tangent& t : o->extra->tangents) Py_VISIT(t.value.object());
        Py_VISIT(o->extra->hooks);
        Py_VISIT(o->extra->post_accumulate_hooks);
    }
    return 0;
}
int clear(PyObject* self) {
    clear_tensor_fields(as_tensor_object(self));
    return 0;
}

PyObject* tensor_new(PyTypeObject* cls, PyObject* args, PyObject* kwargs) {
    // Tensor(2, 3), Tensor([1, 2]), Tensor(other): the legacy constructor, float32 by default; a tensor as it is.
    return guarded([&]() -> PyObject* {
        Ref core(PyImport_ImportModule("wisp._tensor.legacy"));
        Ref f(PyObject_GetAttrString(core.get(), "new_tensor"));
        Ref made(PyObject_Call(f.get(), args, kwargs));
        if (!is_tensor(made.get())) throw TypeError("Tensor(): could not be made from these arguments");
        if (cls == &type) return made.release();
        PyObject* const o = made.get();
        if (as_tensor_object(o)->grad_fn) return PyObject_CallMethod(o, "as_subclass", "O", cls);  // keeps its history
        return new_tensor_of_type(cls, as_tensor(o));
    });
}

// Python's methods of number slots call their argument `value`; PyTorch's have a name for it. The slot stays as it is.
void name_slot_argument(const char* method, const char* argument) {
    auto* old = reinterpret_cast<PyWrapperDescrObject*>(PyDict_GetItemString(type.tp_dict, method));
    if (!old || !Py_IS_TYPE(reinterpret_cast<PyObject*>(old), &PyWrapperDescr_Type)) return;
    auto* base = new wrapperbase(*old->d_base);
    const char* text = std::strstr(base->doc, "\n--\n");
    base->doc =
        (new std::string(str(method, "($self, ", argument, ", /)", text ? text : "\n--\n\n")))->c_str();  // lives as long as the type
    Ref renamed(PyDescr_NewWrapper(&type, base, old->d_wrapped));
    if (PyDict_SetItemString(type.tp_dict, method, renamed.get()) < 0) throw PythonError();
}

}  // namespace

PyObject* new_tensor_of_type(PyTypeObject* cls, const Tensor& t) {
    PyObject* self = cls->tp_alloc(cls, 0);
    if (!self) throw PythonError();
    TensorObject* o = as_tensor_object(self);
    new (&o->layout) Layout();
    init_tensor_fields(o);
    t.storage()->retain();
    o->storage = t.storage();
    o->layout = t.layout();
    o->numel = t.numel();
    o->dtype = t.dtype();
    o->contiguous = t->contiguous;
    return self;
}

void add_tensor_type(PyObject* module) {
    number = {};
    number.nb_add = binary<Pointwise::add>;
    number.nb_subtract = binary<Pointwise::sub>;
    number.nb_multiply = binary<Pointwise::mul>;
    number.nb_true_divide = binary<Pointwise::div>;
    number.nb_floor_divide = binary<Pointwise::div_floor>;
    number.nb_remainder = binary<Pointwise::remainder>;
    number.nb_power = power;
    number.nb_matrix_multiply = matrix_multiply;
    number.nb_and = binary<Pointwise::bitwise_and>;
    number.nb_or = binary<Pointwise::bitwise_or>;
    number.nb_xor = binary<Pointwise::bitwise_xor>;
    number.nb_lshift = binary<Pointwise::bitwise_left_shift>;
    number.nb_rshift = binary<Pointwise::bitwise_right_shift>;
    number.nb_inplace_add = binary_inplace<Pointwise::add>;
    number.nb_inplace_subtract = binary_inplace<Pointwise::sub>;
    number.nb_inplace_multiply = binary_inplace<Pointwise::mul>;
    number.nb_inplace_true_divide = binary_inplace<Pointwise::div>;
    number.nb_inplace_floor_divide = binary_inplace<Pointwise::div_floor>;
    number.nb_inplace_remainder = binary_inplace<Pointwise::remainder>;
    number.nb_inplace_power = power_inplace;
    number.nb_inplace_and = binary_inplace<Pointwise::bitwise_and>;
    number.nb_inplace_or = binary_inplace<Pointwise::bitwise_or>;
    number.nb_inplace_xor = binary_inplace<Pointwise::bitwise_xor>;
    number.nb_inplace_lshift = binary_inplace<Pointwise::bitwise_left_shift>;
    number.nb_inplace_rshift = binary_inplace<Pointwise::bitwise_right_shift>;
    number.nb_negative = unary<Pointwise::neg>;
    number.nb_positive = positive;
    number.nb_absolute = unary<Pointwise::abs>;
    number.nb_invert = unary<Pointwise::bitwise_not>;
    number.nb_bool = truth;
    number.nb_float = to_python_float;
    number.nb_int = to_python_int;
    number.nb_index = to_python_index;
    mapping = {};
    mapping.mp_length = length;
    mapping.mp_subscript = get_item;
    mapping.mp_ass_subscript = set_item;
    sequence = {};
    sequence.sq_length = length;
    sequence.sq_contains = contains;

    type.tp_name = "torch.Tensor";
    type.tp_doc =
        "An array of numbers with a shape, a dtype and a device, which can remember how it was computed.\n\n"
        ">>> x = wisp.tensor([1.0, 2.0], requires_grad=True)\n>>> (x * x).sum().backward()\n>>> x.grad\ntensor([2., 4.])";
    type.tp_basicsize = sizeof(TensorObject);
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
    type.tp_dictoffset = offsetof(TensorObject, dict);
    type.tp_weaklistoffset = offsetof(TensorObject, weak_references);
    type.tp_new = tensor_new;
    type.tp_dealloc = dealloc_tensor;
    type.tp_free = PyObject_GC_Del;
    type.tp_traverse = traverse;
    type.tp_clear = clear;
    type.tp_as_number = &number;
    type.tp_as_mapping = &mapping;
    type.tp_as_sequence = &sequence;
    type.tp_richcompare = compare;
    type.tp_hash = [](PyObject* self) -> Py_hash_t { return Py_hash_t(reinterpret_cast<uintptr_t>(self)); };  // id(self), as in PyTorch
    type.tp_iter = iterate;
    type.tp_repr = repr;
    type.tp_setattro = set_attribute;
    type.tp_getset = tensor_attributes;
    type.tp_methods = methods;
    if (PyType_Ready(&type) < 0) throw PythonError();
    for (const char* method :
         {"__floordiv__", "__rfloordiv__", "__rlshift__", "__rmatmul__", "__rmod__", "__rpow__", "__rrshift__", "__rsub__", "__rtruediv__"})
        name_slot_argument(method, "other");
    name_slot_argument("__contains__", "element");
    type.tp_flags &= ~Py_TPFLAGS_IMMUTABLETYPE;  // programs add methods: torch.Tensor.name = function
    PyType_Modified(&type);
    tensor_type = &type;
    PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(&type));
}

static const Operators operators = {
    {"_extend_tensor(any methods)",
     [](PyObject* methods) {
         PyObject *key, *value;
         for (Py_ssize_t at = 0; PyDict_Next(methods, &at, &key, &value);)
             if (PyDict_SetItem(type.tp_dict, key, value) < 0) throw PythonError();
         PyType_Modified(&type);
     },
     stored | function | keeps_memory},
    {"_assign(Tensor input, Tensor result)",
     [](const Tensor& self, const Tensor& result) {
         assign_inplace(self, result, "in-place operator");
         return self;
     },
     stored | function | writes},
#if defined(WISP_SANITIZE)
    // The canary of the sanitizer build: reads past the end of a tensor.
    {"_overrun(Tensor input)", [](const Tensor& t) { return int64_t(*(t.data<volatile char>() + t.numel() * t.item_size())); }, function},
    // That of the thread sanitizer: two threads write to one place.
    {"_race()",
     [] {
         static volatile int place;
         std::thread other([] { place = 1; });
         place = 2;
         other.join();
     },
     function},
#endif
    {"_increment_version(Tensor input)",
     [](const Tensor& t) {
         t.storage()->data();  // as a writer would
         bump_version(t);
     },
     stored | function},
};

}  // namespace wisp
