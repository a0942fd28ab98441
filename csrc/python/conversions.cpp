// From Python's values to the core's: numbers, sizes, dtypes, devices, lists of tensors; and tuples of results back.
#include "../ops/ops.h"
#include "numpy_array.h"
#include "overrides.h"
#include "registry.h"
#include "signature.h"
#include "tensor_type.h"

namespace wisp {

bool is_number(PyObject* o) {
    if (PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o)) return true;
    if (is_tensor(o) || !o || PyUnicode_Check(o) || PyTuple_Check(o) || PyList_Check(o) || PyType_Check(o)) return false;
    if (is_plain_array(o)) return false;            // one without dimensions too
    PyNumberMethods* n = Py_TYPE(o)->tp_as_number;  // NumPy scalars
    return n && (n->nb_index || n->nb_float) && !answers_calls(o) &&
           !(Py_TYPE(o)->tp_as_sequence && Py_TYPE(o)->tp_as_sequence->sq_length && PyObject_Size(o) >= 0) && (PyErr_Clear(), true);
}

bool is_numpy_bool(PyObject* o) {
    const char* name = Py_TYPE(o)->tp_name;
    return std::strcmp(name, "numpy.bool_") == 0 || std::strcmp(name, "numpy.bool") == 0;
}

Scalar to_scalar(PyObject* o) {
    if (PyFloat_Check(o)) return Scalar(PyFloat_AS_DOUBLE(o));
    if (PyBool_Check(o)) return Scalar(o == Py_True);
    if (PyLong_Check(o)) {
        int overflow;
        const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
        if (!overflow) [[likely]]
            return Scalar(int64_t(v));
        const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(o) : 0;
        if (overflow < 0 || PyErr_Occurred()) {
            PyErr_Clear();
            throw RuntimeError("Overflow when unpacking long long: the integer does not fit into 64 bits");
        }
        return Scalar(uint64_t(large));
    }
    if (PyComplex_Check(o)) return Scalar(std::complex<double>(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o)));
    if (is_tensor(o)) return item(Tensor::borrow(as_tensor_object(o)));
    if (is_numpy_bool(o)) return Scalar(PyObject_IsTrue(o) == 1);
    PyNumberMethods* n = Py_TYPE(o)->tp_as_number;
    if (n && n->nb_index) {
        Ref index(PyNumber_Index(o));
        return to_scalar(index.get());
    }
    if (PyObject_HasAttrString(o, "imag") && std::strstr(Py_TYPE(o)->tp_name, "complex")) {
        const Py_complex c = PyComplex_AsCComplex(o);
        if (PyErr_Occurred()) throw PythonError();
        return Scalar(std::complex<double>(c.real, c.imag));
    }
    if (n && n->nb_float) {
        Ref value(PyNumber_Float(o));
        return Scalar(PyFloat_AS_DOUBLE(value.get()));
    }
    throw TypeError("expected a number, got ", Py_TYPE(o)->tp_name);
}

int64_t to_int(PyObject* o) {
    if (PyLong_CheckExact(o)) {
        const long long v = PyLong_AsLongLong(o);
        if (v == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            throw RuntimeError("Overflow when unpacking long long: the integer does not fit into 64 bits");
        }
        return v;
    }
    if (is_tensor(o)) {
        const Tensor& t = reinterpret_cast<const Tensor&>(o);
        if (!is_integral(t.dtype())) throw TypeError("expected an integer, got a tensor of dtype ", t.dtype());
        return item(t).to_int();
    }
    Ref index(PyNumber_Index(o));
    const long long v = PyLong_AsLongLong(index.get());
    if (v == -1 && PyErr_Occurred()) throw PythonError();
    return v;
}

double to_double(PyObject* o) {
    if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
    if (PyLong_Check(o)) {  // of any length
        const double v = PyLong_AsDouble(o);
        if (v == -1 && PyErr_Occurred()) throw PythonError();
        return v;
    }
    return to_scalar(o).to_double();
}

Dims to_dims(PyObject* o) {
    if (PyTuple_Check(o) || PyList_Check(o)) {
        const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
        Dims d(n);
        for (Py_ssize_t i = 0; i < n; i++) {  // an item's __index__ may change the list
            if (i >= PySequence_Fast_GET_SIZE(o)) throw RuntimeError("a list of sizes changed while it was read");
            Ref item(Py_NewRef(PySequence_Fast_GET_ITEM(o, i)));
            d[i] = to_int(item.get());
        }
        return d;
    }
    return Dims{to_int(o)};
}

OptionalSizes to_optional_sizes(PyObject* o) {
    if (PyLong_Check(o)) return {to_int(o)};
    if (o == Py_None) throw TypeError("output_size must be an int or a tuple of ints");
    Ref items(PySequence_Tuple(o));
    OptionalSizes sizes;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); i++) {
        PyObject* item = PyTuple_GET_ITEM(items.get(), i);
        sizes.push_back(FromPython<std::optional<int64_t>>::get(item));
    }
    return sizes;
}

std::vector<double> to_doubles(PyObject* o) {
    if (!PySequence_Check(o)) return {to_double(o)};
    Ref items(PySequence_Tuple(o));
    std::vector<double> values;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); i++) values.push_back(to_double(PyTuple_GET_ITEM(items.get(), i)));
    return values;
}

DType to_dtype(PyObject* o) {
    if (Py_TYPE(o) == &dtype_type) {
        const DType d = reinterpret_cast<DTypeObject*>(o)->dtype;
        return is_stored(d) ? use_stored(d) : d;
    }
    if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::f64;
    if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return DType::i64;
    if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) return DType::boolean;
    if (o == reinterpret_cast<PyObject*>(&PyComplex_Type)) return DType::c128;
    throw TypeError("expected a dtype such as torch.float32, got ", Py_TYPE(o)->tp_name);
}

Device to_device(PyObject* o) {
    if (Py_TYPE(o) == &device_type) return reinterpret_cast<DeviceObject*>(o)->device;
    if (PyUnicode_Check(o)) return parse_device(utf8(o));
    if (PyLong_Check(o)) {
        const int64_t index = to_int(o);
        if (index < 0 || index > 127) throw RuntimeError("device index must be between 0 and 127, got ", index);
        return Device{DeviceType::cuda, int8_t(index)};
    }
    throw TypeError("expected a device such as 'cpu', got ", Py_TYPE(o)->tp_name);
}

TensorList to_tensors(PyObject* o) {
    Ref sequence(PySequence_Fast(o, "expected a sequence of tensors"));
    TensorList list;
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence.get());
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject* item = PySequence_Fast_GET_ITEM(sequence.get(), i);
        if (item == Py_None) list.emplace_back();
        else if (is_tensor(item)) list.push_back(Tensor::borrow(as_tensor_object(item)));
        else throw TypeError("expected Tensor as element ", int64_t(i), " of a sequence, but got ", Py_TYPE(item)->tp_name);
    }
    return list;
}

const char* utf8(PyObject* text) {
    if (const char* s = PyUnicode_AsUTF8(text)) return s;
    PyErr_Clear();
    return "?";
}

std::string to_string(PyObject* o) {
    const char* s = PyUnicode_AsUTF8(o);
    if (!s) throw PythonError();
    return s;
}

PyObject* make_tuple(const Tensor* tensors, int64_t n, PyTypeObject* named) {
    PyObject* t = named ? named->tp_alloc(named, n) : PyTuple_New(n);
    if (!t) throw PythonError();
    for (int64_t i = 0; i < n; i++) {
        PyObject* o = tensors[i] ? tensors[i].object() : Py_None;
        Py_INCREF(o);
        PyTuple_SET_ITEM(t, i, o);
    }
    return t;
}

}  // namespace wisp
