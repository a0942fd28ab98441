// Small Python types of the core: dtype, device, Size, memory format, layout, Generator; and an owned reference.
#pragma once
#include <Python.h>

#include "../core/generator.h"
#include "../core/tensor.h"

namespace wisp {

class Ref {  // an owned Python reference
public:
    Ref() = default;
    explicit Ref(PyObject* o) : p_(o) {
        if (!o) throw PythonError();
    }
    Ref(Ref&& other) noexcept : p_(other.p_) { other.p_ = nullptr; }
    Ref& operator=(Ref&& other) noexcept {
        std::swap(p_, other.p_);
        return *this;
    }
    ~Ref() { Py_XDECREF(p_); }
    Ref(const Ref&) = delete;
    static Ref borrow(PyObject* o) {
        Py_INCREF(o);
        return Ref(o);
    }
    PyObject* get() const { return p_; }
    PyObject* release() {
        PyObject* o = p_;
        p_ = nullptr;
        return o;
    }

private:
    PyObject* p_ = nullptr;
};

struct DTypeObject {
    PyObject_HEAD
    DType dtype;
};
struct DeviceObject {
    PyObject_HEAD
    Device device;
};
struct FormatObject {
    PyObject_HEAD
    MemoryFormat format;
};
struct GeneratorObject {
    PyObject_HEAD
    Generator generator;
};

extern PyTypeObject dtype_type, device_type, format_type, layout_type, size_type, generator_type;

PyObject* dtype_object(DType d);              // new reference
PyObject* device_object(Device d);            // new reference
PyObject* size_object(const Dims& sizes);     // wisp.Size, new reference
PyObject* tuple_of_ints(const Dims& values);  // plain tuple
PyObject* scalar_object(const Scalar& s);
bool truth_of(PyObject* o);  // bool(o); throws what that raises
PyObject* layout_strided();  // borrowed
void add_types(PyObject* module);

// Runs f and turns C++ errors into Python ones.
template <class Result, class F> Result guarded(Result failure, F&& f) {
    try {
        return f();
    } catch (const Error& e) { e.restore(); } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& e) { PyErr_SetString(PyExc_RuntimeError, e.what()); }
    return failure;
}
template <class F> PyObject* guarded(F&& f) { return guarded<PyObject*>(nullptr, f); }

}  // namespace wisp
