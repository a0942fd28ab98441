// The attributes of wisp.Tensor: shape, dtype, device, grad, data, T and their like.
#include "../autograd/engine.h"
#include "../ops/ops.h"
#include "../ops/sparse.h"
#include "conjugate.h"
#include "registry.h"
#include "tensor_type.h"

namespace wisp {
namespace {

#define GETTER(name) PyObject* get_##name([[maybe_unused]] PyObject* self, void*)
#define BOOLEAN_GETTER(name, expression) \
    GETTER(name) { return PyBool_FromLong(expression); }

GETTER(shape) {
    return guarded([&] { return size_object(as_tensor(self).sizes()); });
}
GETTER(dtype) { return dtype_object(as_tensor(self).dtype()); }
// A shell without memory tells where the tensors in it are.
Device shown_device(PyObject* self) {
    const TensorObject* o = as_tensor_object(self);
    if (o->storage->device.type == DeviceType::meta && o->dict) {
        static PyObject* const key = PyUnicode_InternFromString("_wrapper_device");
        PyObject* told = PyDict_GetItemWithError(o->dict, key);
        if (told && Py_TYPE(told) == &device_type) return reinterpret_cast<DeviceObject*>(told)->device;
    }
    return o->storage->device;
}
GETTER(device) {
    return guarded([&] { return device_object(shown_device(self)); });
}
GETTER(layout) {
    PyObject* l = layout_strided();
    Py_INCREF(l);
    return l;
}
GETTER(ndim) { return PyLong_FromLongLong(as_tensor(self).dim()); }
GETTER(itemsize) { return PyLong_FromLongLong(as_tensor(self).item_size()); }
GETTER(nbytes) { return PyLong_FromLongLong(as_tensor(self).item_size() * as_tensor(self).numel()); }
GETTER(version) { return PyLong_FromUnsignedLong(as_tensor(self).version()); }
GETTER(output_nr) { return PyLong_FromUnsignedLong(as_tensor(self)->output_number); }
GETTER(none) { Py_RETURN_NONE; }
BOOLEAN_GETTER(requires_grad, as_tensor(self).in_graph())
BOOLEAN_GETTER(is_leaf, as_tensor(self)->grad_fn == nullptr && (as_tensor(self)->requires_grad || !as_tensor(self).in_graph()))
BOOLEAN_GETTER(false, 0)
BOOLEAN_GETTER(retains_grad, as_tensor(self)->extra&& as_tensor(self)->extra->retains_grad&& as_tensor(self)->grad_fn)

GETTER(grad_quietly) {
    return guarded([&] { return ToPython()(grad_of(as_tensor(self))); });
}
GETTER(grad) {
    return guarded([&] {
        const Tensor& t = as_tensor(self);
        Tensor grad = grad_of(t);
        if (!grad && t->grad_fn && !(t->extra && t->extra->retains_grad)) [[unlikely]]
            warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be populated "
                "during "
                "autograd.backward(). If you want it for a non-leaf Tensor, call .retain_grad() on it before backward; if you meant the "
                "leaf "
                "that it was computed from, look at that one's.");
        return ToPython()(grad);
    });
}
int set_grad_attribute(PyObject* self, PyObject* value, void*) {
    return guarded(-1, [&] {
        const Tensor& t = as_tensor(self);
        if (!value || value == Py_None) {
            if (t->extra) t->extra->grad = Tensor();
            return 0;
        }
        if (!is_tensor(value))
            throw TypeError("assigned grad expected to be a Tensor or None but got grad of type ", Py_TYPE(value)->tp_name);
        const Tensor& g = as_tensor(value);
        if (g.same(t)) throw RuntimeError("can't assign Variable as its own grad");
        if (t->extra && (t->extra->any_grad_dtype || t->extra->grad_dtype)) {
            if (!t->extra->any_grad_dtype && g.dtype() != *t->extra->grad_dtype)
                throw RuntimeError("attempting to assign a gradient with dtype '", type_name(g.dtype()), "' (", g.dtype(),
                                   ") to a tensor with grad_dtype '", type_name(*t->extra->grad_dtype),
                                   "'. The gradient must match the tensor's grad_dtype; set grad_dtype to None to allow any");
        } else if (g.dtype() != t.dtype())
            throw RuntimeError("attempting to assign a gradient with dtype '", g.dtype(), "' to a tensor with dtype '", t.dtype(),
                               "'. Please ensure that the gradient and the tensor have the same dtype");
        if (!(g.sizes() == t.sizes()))
            throw RuntimeError("attempting to assign a gradient of size '", g.sizes(), "' to a tensor of size '", t.sizes(),
                               "'. Please ensure that the gradient and the tensor are the same size");
        if (devices_in_use && !(g.device() == t.device()))
            throw RuntimeError("assigned grad has data located on a different device: the tensor is on ", text_of(t.device()),
                               ", the gradient on ", text_of(g.device()));
        set_grad(t, resolve_lazy(g));
        return 0;
    });
}

// The dtype of a leaf's gradient: its own, another, or any (None).
GETTER(grad_dtype) {
    return guarded([&]() -> PyObject* {
        const Tensor& t = as_tensor(self);
        if (t->grad_fn) throw RuntimeError("grad_dtype can only be accessed on leaf tensors.");
        if (t->extra && t->extra->any_grad_dtype) Py_RETURN_NONE;
        return dtype_object(t->extra && t->extra->grad_dtype ? *t->extra->grad_dtype : t.dtype());
    });
}
int set_grad_dtype(PyObject* self, PyObject* value, void*) {
    return guarded(-1, [&] {
        const Tensor& t = as_tensor(self);
        if (!value) throw RuntimeError("grad_dtype can't be deleted; set it to None to allow gradients of any dtype");
        if (t->grad_fn) throw RuntimeError("grad_dtype can only be set on leaf tensors.");
        TensorExtra& e = extra(t);
        if (value != Py_None) {
            const DType dtype = to_dtype(value);
            if (e.grad && e.grad.dtype() != dtype)
                throw RuntimeError("Cannot set grad_dtype to '", dtype, "' because there is already a gradient with dtype '",
                                   e.grad.dtype(), "'. Set the gradient to None, or clear grad_dtype (None), first.");
            e.grad_dtype = dtype;
        } else {
            e.grad_dtype.reset();
        }
        e.any_grad_dtype = value == Py_None;
        return 0;
    });
}
GETTER(volatile_) {
    if (PyErr_WarnEx(PyExc_UserWarning, "volatile was removed (it is always False now); use no_grad() instead", 1) < 0) return nullptr;
    Py_RETURN_FALSE;
}

GETTER(grad_fn) {
    return guarded([&]() -> PyObject* {
        Node* n = grad_fn_of(as_tensor(self));
        if (!n) Py_RETURN_NONE;
        return node_object(n);
    });
}
GETTER(base) {
    PyObject* b = as_tensor(self)->base ? reinterpret_cast<PyObject*>(as_tensor(self)->base) : Py_None;
    Py_INCREF(b);
    return b;
}

int set_requires_grad(PyObject* self, PyObject* value, void*) {
    return guarded(-1, [&] {
        if (!value || !PyBool_Check(value)) throw RuntimeError("requires_grad must be a bool");
        require_grad(as_tensor(self), value == Py_True);
        return 0;
    });
}

GETTER(data) {
    return guarded([&] {
        Tensor t = alias(as_tensor(self));
        t->untracked_writes = true;
        return t.release();
    });
}
int set_data_attribute(PyObject* self, PyObject* value, void*) {
    return guarded(-1, [&] {
        if (!value) throw RuntimeError("Tensor.data can't be deleted");
        if (!is_tensor(value)) throw TypeError("Variable data has to be a tensor, but got ", Py_TYPE(value)->tp_name);
        if (as_tensor(self)->requires_grad && !is_differentiable(as_tensor(value).dtype()))
            throw RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype, got ",
                               as_tensor(value).dtype());
        if (is_sparse(value))
            throw RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type: "
                "the one is strided, the other sparse; call .to_dense()");
        // Another memory is no change, as in PyTorch, where each tensor counts its own: the count goes on from the higher of both.
        const Tensor& t = as_tensor(self);
        const uint32_t version = t.version();
        set_data(t, resolve_lazy(as_tensor(value)));
        t.storage()->version = std::max(t.version(), version);
        return 0;
    });
}

GETTER(real) {
    return guarded([&] { return real(as_tensor(self)).release(); });
}
GETTER(imag) {
    return guarded([&] { return imag(as_tensor(self)).release(); });
}
template <Tensor (*part)(const Tensor&)> int set_part(PyObject* self, PyObject* value, void*) {
    return guarded(-1, [&] {
        if (!value) throw RuntimeError("the parts of a complex tensor can't be deleted");
        const Tensor& t = as_tensor(self);
        const Tensor to = part(t);
        if (is_tensor(value)) copy_(to, resolve_lazy(as_tensor(value)));
        else fill_(to, to_scalar(value));
        return 0;
    });
}
Tensor reversed(const Tensor& t) {
    Dims order;
    for (int64_t i = t.dim() - 1; i >= 0; i--) order.push_back(i);
    return permute(t, order);
}
GETTER(T) {
    return guarded([&] { return reversed(as_tensor(self)).release(); });
}
Tensor matrix_transposed(const Tensor& t, const char* name) {
    if (t.dim() < 2)
        throw RuntimeError("tensor.", name, " is only supported on matrices or batches of matrices. Got ", t.dim(), "-D tensor.");
    return transpose(t, -2, -1);
}
GETTER(mT) {
    return guarded([&] { return matrix_transposed(as_tensor(self), "mT").release(); });
}
GETTER(H) {
    return guarded([&] {
        const Tensor& t = as_tensor(self);
        if (t.dim() != 0 && t.dim() != 2)
            throw RuntimeError("tensor.H is only supported on matrices (2-D tensors). Got ", t.dim(), "-D tensor.");
        return conjugate_view(t.dim() == 0 ? t : matrix_transposed(t, "H")).release();
    });
}
GETTER(mH) {
    return guarded([&] { return conjugate_view(matrix_transposed(as_tensor(self), "mH")).release(); });
}

}  // namespace

void require_grad(const Tensor& t, bool on) {
    if (t->grad_fn) {
        if (!on)
            throw RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a subgraph that "
                "doesn't require differentiation use var_no_grad = var.detach().");
        return;
    }
    if (on && !is_differentiable(t.dtype()))
        throw RuntimeError("only Tensors of floating point and complex dtype can require gradients, got ", t.dtype(),
                           " (convert with .float())");
    if (on && t->inference && !inference_mode_enabled())
        throw RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.");
    t->requires_grad = on;
}

PyGetSetDef tensor_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {"shape", get_shape, nullptr, nullptr, nullptr},
    {"dtype", get_dtype, nullptr, nullptr, nullptr},
    {"device", get_device, nullptr, nullptr, nullptr},
    {"layout", get_layout, nullptr, nullptr, nullptr},
    {"ndim", get_ndim, nullptr, nullptr, nullptr},
    {"itemsize", get_itemsize, nullptr, nullptr, nullptr},
    {"nbytes", get_nbytes, nullptr, nullptr, nullptr},
    {"_version", get_version, nullptr, nullptr, nullptr},
    {"output_nr", get_output_nr, nullptr, nullptr, nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, nullptr, nullptr},
    {"is_leaf", get_is_leaf, nullptr, nullptr, nullptr},
    {"retains_grad", get_retains_grad, nullptr, nullptr, nullptr},
    {"grad", get_grad, set_grad_attribute, nullptr, nullptr},
    {"_grad", get_grad_quietly, set_grad_attribute, nullptr, nullptr},
    {"grad_fn", get_grad_fn, nullptr, nullptr, nullptr},
    {"_base", get_base, nullptr, nullptr, nullptr},
    {"data", get_data, set_data_attribute, nullptr, nullptr},
    {"real", get_real, set_part<real>, nullptr, nullptr},
    {"imag", get_imag, set_part<imag>, nullptr, nullptr},
    {"T", get_T, nullptr, nullptr, nullptr},
    {"mT", get_mT, nullptr, nullptr, nullptr},
    {"H", get_H, nullptr, nullptr, nullptr},
    {"mH", get_mH, nullptr, nullptr, nullptr},
    {"name", get_none, nullptr, nullptr, nullptr},
    {"is_cpu", [](PyObject* s, void*) { return PyBool_FromLong(shown_device(s).type == DeviceType::cpu); }, nullptr, nullptr, nullptr},
    {"is_cuda", [](PyObject* s, void*) { return PyBool_FromLong(shown_device(s).is_cuda()); }, nullptr, nullptr, nullptr},
    {"is_meta", [](PyObject* s, void*) { return PyBool_FromLong(shown_device(s).type == DeviceType::meta); }, nullptr, nullptr, nullptr},
    {"is_mps", get_false, nullptr, nullptr, nullptr},
    {"is_xpu", get_false, nullptr, nullptr, nullptr},
    {"is_sparse", get_false, nullptr, nullptr, nullptr},
    {"is_sparse_csr", get_false, nullptr, nullptr, nullptr},
    {"is_quantized", get_false, nullptr, nullptr, nullptr},
    {"is_xla", get_false, nullptr, nullptr, nullptr},
    {"is_maia", get_false, nullptr, nullptr, nullptr},
    {"is_mkldnn", get_false, nullptr, nullptr, nullptr},
    {"is_vulkan", get_false, nullptr, nullptr, nullptr},
    {"is_ipu", get_false, nullptr, nullptr, nullptr},
    {"is_mtia", get_false, nullptr, nullptr, nullptr},
    {"volatile", get_volatile_, nullptr, nullptr, nullptr},
    {"grad_dtype", get_grad_dtype, set_grad_dtype, nullptr, nullptr},
    {"is_nested", get_false, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace wisp
