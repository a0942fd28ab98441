// Tensors from Python data: numbers, nested sequences, buffers (NumPy arrays) and other tensors.
#include <cmath>
#include <cstring>
#include <memory>

#include "../ops/ops.h"
#include "../ops/sparse.h"
#include "numpy_array.h"
#include "registry.h"
#include "tensor_type.h"

namespace wisp {
namespace {

// --- buffers ---------------------------------------------------------------------------------------------------------------

DType dtype_of_format(const char* format, Py_ssize_t item) {
    const char* f = format ? format : "B";
    if (*f == '@' || *f == '=' || *f == '<' || *f == '|') f++;
    else if (*f == '>' || *f == '!')
        throw ValueError(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is currently not "
            "supported.");
    const bool complex = *f == 'Z';
    if (complex) f++;
    if (f[1] != 0) throw TypeError("can't convert a buffer of format '", format, "' to a tensor");
    switch (*f) {
    case '?': return DType::boolean;
    case 'e': return DType::f16;
    case 'f': return complex ? DType::c64 : DType::f32;
    case 'd': return complex ? DType::c128 : DType::f64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n': return item == 1 ? DType::i8 : item == 2 ? DType::i16 : item == 4 ? DType::i32 : DType::i64;
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N': return item == 1 ? DType::u8 : item == 2 ? DType::u16 : item == 4 ? DType::u32 : DType::u64;
    }
    throw TypeError("can't convert a buffer of format '", format, "' to a tensor");
}

void release_buffer(Storage* s) {
    auto* view = static_cast<Py_buffer*>(s->owner);
    PyBuffer_Release(view);
    delete view;
}

Layout layout_of_buffer(int64_t dims, const Py_ssize_t* sizes, const Py_ssize_t* strides, int64_t item) {
    Layout layout;
    for (int64_t i = 0; i < dims; i++) {
        layout.sizes.push_back(sizes[i]);
        if (strides[i] % item)
            throw ValueError("given numpy array strides not a multiple of the element byte size. Copy array to reallocate the memory.");
        layout.strides.push_back(strides[i] / item);
        if (strides[i] < 0)
            throw ValueError(
                "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently supported. "
                "(You can probably work around this by making a copy of your array  with array.copy().)");
    }
    return layout;
}

Tensor over_memory(void* data, Layout layout, DType dtype, bool read_only, void (*release)(Storage*), void* owner) {
    const int64_t bytes = product(layout.sizes) ? layout.extent() * item_size(dtype) : 0;
    Storage* s = Storage::wrap(data, size_t(bytes), release, owner);
    s->read_only = read_only;
    Tensor t = from_storage(s, std::move(layout), dtype);
    s->drop();
    return t;
}

// The error for an array of objects, strings, dates, ...; where it has no dtype the error that is there stays.
void refuse_dtype(PyObject* o) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject* dtype = PyObject_GetAttrString(o, "dtype");
    PyObject* kind = dtype ? PyObject_GetAttrString(dtype, "type") : nullptr;
    const std::string name = kind && PyType_Check(kind) ? reinterpret_cast<PyTypeObject*>(kind)->tp_name : "";
    Py_XDECREF(kind);
    Py_XDECREF(dtype);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    if (name.empty()) return;
    PyErr_Clear();
    throw TypeError("can't convert np.ndarray of type ", name,
                    ". The only supported types are: float64, float32, float16, "
                    "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool.");
}

// Whether the memory of an array that is marked as not writeable is NumPy's own all the same: a column of a pandas DataFrame, or a view
// made by broadcasting. PyTorch writes to any; to mapped files and the bytes of other objects Wisp does not.
bool lies_in_own_memory(PyObject* array) {
    PyObject* here = Py_NewRef(array);
    while (true) {
        PyObject* base = PyObject_GetAttrString(here, "base");
        Py_DECREF(here);
        if (!base) {
            PyErr_Clear();
            return false;
        }
        if (base == Py_None) {
            Py_DECREF(base);
            return true;
        }
        here = base;
        if (!PyObject_HasAttrString(here, "__array_interface__")) {
            Py_DECREF(here);
            return false;
        }
    }
}

// Shares the memory of a NumPy array, or of any object with the buffer protocol.
Tensor from_buffer(PyObject* o) {
    ArrayView array;
    if (view_array(o, array)) {
        Layout layout = layout_of_buffer(array.dims, array.sizes, array.strides, item_size(array.dtype));
        return over_memory(
            array.data, std::move(layout), array.dtype, !array.writeable && !lies_in_own_memory(o),
            [](Storage* s) { Py_DECREF(static_cast<PyObject*>(s->owner)); }, Py_NewRef(o));
    }
    auto view = std::make_unique<Py_buffer>();
    bool read_only = false;
    if (PyObject_GetBuffer(o, view.get(), PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        if (PyObject_GetBuffer(o, view.get(), PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
            refuse_dtype(o);
            throw PythonError();
        }
        read_only = true;
    }
    try {
        const DType dtype = dtype_of_format(view->format, view->itemsize);
        Layout layout = layout_of_buffer(view->ndim, view->shape, view->strides, view->itemsize);
        void* data = view->buf;
        return over_memory(data, std::move(layout), dtype, read_only, release_buffer, view.release());
    } catch (const TypeError&) {
        PyBuffer_Release(view.get());
        refuse_dtype(o);
        throw;
    } catch (...) {
        if (view) PyBuffer_Release(view.get());
        throw;
    }
}

bool is_array(PyObject* o) {
    return is_plain_array(o) ||
           (PyObject_CheckBuffer(o) && !PyBytes_Check(o) && !PyByteArray_Check(o) && PyObject_HasAttrString(o, "__array_interface__"));
}

// --- sequences -------------------------------------------------------------------------------------------------------------

bool is_sequence(PyObject* o) {
    if (PyList_Check(o) || PyTuple_Check(o)) return true;
    return !PyUnicode_Check(o) && !PyBytes_Check(o) && !is_tensor(o) && PySequence_Check(o) && !is_number(o) &&
           Py_TYPE(o)->tp_as_sequence && Py_TYPE(o)->tp_as_sequence->sq_item;
}

struct Shape {
    Dims sizes;
    bool started = false;
    DType dtype = DType::boolean;
    void see(DType d) {
        dtype = started ? promote(dtype, d) : d;
        started = true;
    }
};

void measure(PyObject* o, int64_t depth, Shape& shape, bool first) {
    if (is_sparse(o)) refuse_sparse("the data of a tensor");
    if (is_tensor(o) || (!PyList_Check(o) && !PyTuple_Check(o) && is_array(o))) {
        Tensor t = is_tensor(o) ? as_tensor(o) : from_buffer(o);
        if (first && !(depth && is_tensor(o) && t.numel() == 1)) {  // within a sequence a tensor of one element is a number
            for (int64_t s : t.sizes()) shape.sizes.push_back(s);
            product(shape.sizes);  // refuses what can't be addressed before it is looked through
        }
        shape.see(t.dtype());
        return;
    }
    if (is_sequence(o)) {
        if (depth > 128) throw ValueError("too many dimensions: nested deeper than 128 (or a sequence that contains itself)");
        const Py_ssize_t n = PySequence_Size(o);
        if (n < 0) throw PythonError();
        if (first) shape.sizes.push_back(n);
        for (Py_ssize_t i = 0; i < n; i++) {
            Ref item(PySequence_GetItem(o, i));
            if (item.get() == o) throw TypeError("new(): self-referential lists are incompatible");
            measure(item.get(), depth + 1, shape, first && i == 0);
        }
        return;
    }
    if (!is_number(o))
        throw TypeError("new(): invalid data type '", Py_TYPE(o)->tp_name,
                        "' in the data of a tensor: expected numbers, sequences, arrays or tensors");
    if (first) product(shape.sizes);
    shape.see(PyLong_Check(o) && !PyBool_Check(o) ? DType::i64 : to_scalar(o).dtype());  // a large integer may go into a float
}

char* fill(PyObject* o, const Shape& shape, int64_t depth, char* out) {
    if (is_tensor(o) || (!PyList_Check(o) && !PyTuple_Check(o) && is_array(o))) {
        Tensor t = is_tensor(o) ? as_tensor(o) : from_buffer(o);
        const bool number = depth && is_tensor(o) && t.numel() == 1 && depth == shape.sizes.size();
        for (int64_t i = 0; !number && (i < t.dim() || depth + i < shape.sizes.size()); i++)
            if (i >= t.dim() || depth + i >= shape.sizes.size() || t.size(i) != shape.sizes[depth + i])
                throw ValueError("expected sequence of length ", depth + i < shape.sizes.size() ? shape.sizes[depth + i] : 0, " at dim ",
                                 depth + i, " (got ", i < t.dim() ? t.size(i) : 0, "): an element of shape ", t.sizes(),
                                 " in data of shape ", shape.sizes);
        Tensor c = contiguous(to(to(detach(t), shape.dtype), Device{}));
        std::memcpy(out, c.data(), size_t(c.numel() * c.item_size()));
        return out + c.numel() * c.item_size();
    }
    if (is_sequence(o)) {
        const Py_ssize_t n = PySequence_Size(o);
        if (depth >= shape.sizes.size() || n != shape.sizes[depth])
            throw ValueError("expected sequence of length ", depth < shape.sizes.size() ? shape.sizes[depth] : 0, " at dim ", depth,
                             " (got ", int64_t(n), ")");
        for (Py_ssize_t i = 0; i < n; i++) {
            Ref item(PySequence_GetItem(o, i));
            out = fill(item.get(), shape, depth + 1, out);
        }
        return out;
    }
    if (depth != shape.sizes.size())
        throw TypeError("not a sequence: only a scalar was found at dim ", depth, " where a sequence of length ", shape.sizes[depth],
                        " was expected");
    Scalar s;
    if (PyLong_CheckExact(o) && !is_integral(shape.dtype)) {
        const double v = PyLong_AsDouble(o);
        if (v == -1 && PyErr_Occurred()) throw PythonError();
        s = Scalar(v);
    } else if (PyLong_CheckExact(o) && shape.dtype == DType::boolean) {
        s = Scalar(PyObject_IsTrue(o) == 1);
    } else {
        s = to_scalar(o);
    }
    if (s.is_large() && is_integral(shape.dtype) && shape.dtype != DType::u64 && shape.dtype != DType::boolean)
        throw RuntimeError("Overflow when unpacking long long: ", s, " does not fit into ", shape.dtype);
    if (s.is_complex() && !is_complex(shape.dtype) && shape.dtype != DType::boolean)
        throw TypeError("can't convert complex to ", shape.dtype);
    if (is_integral(shape.dtype) && shape.dtype != DType::boolean && s.is_floating() && !std::isfinite(s.to_double()))
        throw ValueError("cannot convert float ", std::isnan(s.to_double()) ? "NaN" : "infinity", " to integer");
    if (is_integral(shape.dtype) && shape.dtype != DType::boolean && s.is_integral()) {
        const int64_t v = s.to_int(), bits = 8 * item_size(shape.dtype);
        if (bits < 64 &&
            (v > (is_signed(shape.dtype) ? (int64_t(1) << (bits - 1)) - 1 : (int64_t(1) << bits) - 1) || v < -(int64_t(1) << (bits - 1))))
            throw RuntimeError("value cannot be converted to type ", shape.dtype, " without overflow: ", v);
    }
    s.store(out, shape.dtype);
    return out + item_size(shape.dtype);
}

Tensor new_tensor(PyObject* data, std::optional<DType> dtype, std::optional<Device> device, bool requires_grad) {
    Tensor t = tensor_from_data(data, dtype);
    if (device || !(current_device() == Device{})) t = detach(to(t, device ? resolve(*device) : current_device()));
    if (requires_grad) {
        if (!is_differentiable(t.dtype()))
            throw RuntimeError("Only Tensors of floating point and complex dtype can require gradients, got ", t.dtype());
        t->requires_grad = true;
    }
    return t;
}

Tensor as_tensor_sharing(PyObject* data, std::optional<DType> dtype, std::optional<Device> device) {
    if (is_sparse(data)) {
        if (dtype && *dtype != as_tensor(data).dtype()) refuse_sparse("as_tensor with a dtype");
        return as_tensor(data);
    }
    Tensor t = is_tensor(data) ? as_tensor(data) : is_array(data) ? from_buffer(data) : tensor_from_data(data, dtype);
    if (dtype) t = to(t, *dtype);
    if (device) return to(t, resolve(*device));
    return is_tensor(data) || current_device() == Device{} ? t : to(t, current_device());
}

const Operators operators = {
    {"tensor(any data, *, dtype? dtype=None, device? device=None, bool requires_grad=False, bool pin_memory=False)",
     [](PyObject* data, std::optional<DType> dtype, std::optional<Device> device, bool requires_grad, bool) {
         if (is_tensor(data))
             warn(
                 "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                 "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).");
         return new_tensor(data, dtype, device, requires_grad);
     },
     stored | function,
     R"(A tensor of the given data, which is copied.
        >>> wisp.tensor([[1.0, 2.0], [3.0, 4.0]])
        tensor([[1., 2.],
                [3., 4.]]))"},
    {"as_tensor(any data, dtype? dtype=None, device? device=None)", as_tensor_sharing, stored | function,
     R"(A tensor of some data, on its memory where it can be shared.
        >>> wisp.as_tensor([1, 2])
        tensor([1, 2]))"},
    {"from_numpy(any ndarray)",
     [](PyObject* o) {
         if (!is_array(o)) throw TypeError("expected np.ndarray (got ", Py_TYPE(o)->tp_name, ")");
         Tensor t = from_buffer(o);
         if (t.storage()->read_only)
             warn(
                 "The given NumPy array is not writable, so that this is a non-writable tensor: writing to it raises an error. Copy the "
                 "array to get a writable one.");
         else if (ArrayView array; view_array(o, array) && !array.writeable)
             warn(
                 "The given NumPy array is not writable, but Wisp, as PyTorch, knows no non-writable tensor of such memory: writing to the "
                 "tensor changes the array. Copy the array to protect its data.");
         return t;
     },
     stored | function,
     R"(A tensor on the memory of a NumPy array.
        >>> wisp.from_numpy(__import__("numpy").arange(3))
        tensor([0, 1, 2]))"},
    {"frombuffer(any buffer, *, dtype dtype, int count=-1, int offset=0, bool requires_grad=False)",
     [](PyObject* o, DType dtype, int64_t count, int64_t offset, bool requires_grad) {
         if (!PyObject_CheckBuffer(o)) throw ValueError("object does not implement Python buffer protocol. (", Py_TYPE(o)->tp_name, ")");
         Ref bytes(PyMemoryView_FromObject(o));
         Ref cast(PyObject_CallMethod(bytes.get(), "cast", "s", "B"));
         Tensor raw = from_buffer(cast.get());
         const int64_t size = item_size(dtype), total = raw.numel();
         if (total == 0) throw ValueError("both buffer length (0) and count (", count, ") must not be 0");
         if (offset < 0 || offset >= total)
             throw ValueError("offset (", offset, " bytes) must be non-negative and no greater than buffer length (", total,
                              " bytes) minus 1");
         if (count == 0) throw ValueError("both buffer length (", total, ") and count (0) must not be 0");
         if (count < 0) {
             if ((total - offset) % size)
                 throw ValueError("buffer length (", total - offset, " bytes) after offset (", offset,
                                  " bytes) must be a multiple of element size (", size, ")");
             count = (total - offset) / size;
         }
         if (count > (total - offset) / size)
             throw ValueError("requested buffer length (", count, " * ", size, " bytes) after offset (", offset,
                              " bytes) must not be greater than actual buffer length (", total, " bytes)");
         // Same memory under another element type.
         Storage* s = raw.storage();
         if (s->read_only)
             warn("The given buffer is not writable. Writing to this tensor raises an error; copy the buffer to get a writable one.");
         if ((reinterpret_cast<uintptr_t>(s->data()) + size_t(offset)) % size_t(size) || offset % size) {
             Tensor copy = empty({count}, dtype, Device{});
             std::memcpy(copy.data(), static_cast<char*>(s->data()) + offset, size_t(count * size));
             return copy;
         }
         Tensor t = from_storage(s, Layout{{count}, {1}, offset / size}, dtype);
         if (requires_grad) t->requires_grad = true;
         return t;
     },
     stored | function,
     R"(A tensor on the memory of an object with a buffer, read as a dtype.
        >>> wisp.frombuffer(bytearray([1, 0, 2, 0]), dtype=wisp.int16)
        tensor([1, 2], dtype=torch.int16))"},
};

}  // namespace

Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype) {
    GradMode off(false);
    if (is_sparse(data)) refuse_sparse("the data of a tensor");
    if (is_tensor(data)) {
        Tensor t = detach(as_tensor(data));
        return dtype && *dtype != t.dtype() ? to(t, *dtype) : clone(t);
    }
    if (is_array(data)) {
        Tensor t = from_buffer(data);
        return dtype && *dtype != t.dtype() ? to(t, *dtype) : clone(t);
    }
    if (!PyList_Check(data) && !PyTuple_Check(data) && !is_number(data)) {
        if (PyObject_HasAttrString(data, "_tensor_of")) {  // a storage
            Ref kind(dtype_object(dtype.value_or(default_dtype())));
            Ref shared(PyObject_CallMethod(data, "_tensor_of", "O", kind.get()));
            return as_tensor(shared.get());
        }
        if (!is_sequence(data) && PyObject_HasAttrString(data, "__array__")) {
            Ref array(PyObject_CallMethod(data, "__array__", nullptr));
            return tensor_from_data(array.get(), dtype);
        }
        if (PyObject_HasAttrString(data, "__dlpack__")) {
            Ref module(PyImport_ImportModule("wisp.utils.dlpack"));
            Ref shared(PyObject_CallMethod(module.get(), "from_dlpack", "O", data));
            return tensor_from_data(shared.get(), dtype);
        }
    }
    if (PyList_Check(data) && PyList_GET_SIZE(data) > 0 && is_plain_array(PyList_GET_ITEM(data, 0)))
        warn(
            "Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider converting the list to a single "
            "numpy.ndarray with numpy.array() before converting to a tensor.");
    Shape shape;
    measure(data, 0, shape, true);
    if (!shape.started) shape.dtype = default_dtype();
    if (dtype) shape.dtype = *dtype;
    Tensor t = empty(shape.sizes, shape.dtype, Device{});
    fill(data, shape, 0, t.data());
    return t;
}

}  // namespace wisp
