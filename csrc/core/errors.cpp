// Typed errors and warnings at the border to Python.
#include <Python.h>

#include "errors.h"

#include <cstdio>

namespace wisp {

std::string text_of(double v) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%g", v);
    return buffer;
}

std::string text_of(const Dims& dims) {
    std::string s = "[";
    for (int64_t i = 0; i < dims.size(); i++) s += (i ? ", " : "") + std::to_string(dims[i]);
    return s + "]";
}

void MessagePart::append_to(std::string& message) const {
    switch (kind_) {
    case Kind::text: message.append(text_.begin, text_.length); break;
    case Kind::terminated: message.append(text_.begin); break;
    case Kind::character: message.push_back(char(number_)); break;
    case Kind::number: message.append(std::to_string(number_)); break;
    case Kind::natural: message.append(std::to_string(uint64_t(number_))); break;
    case Kind::real: message.append(text_of(real_)); break;
    case Kind::dims: message.append(text_of(*dims_)); break;
    }
}

std::string join(MessageParts parts) {
    std::string message;
    for (const MessagePart& part : parts) part.append_to(message);
    return message;
}

#define WISP_ERROR(Name) \
    Name::Name(MessageParts parts, int) : Error(join(parts)) {}
WISP_ERROR(RuntimeError)
WISP_ERROR(TypeError)
WISP_ERROR(ValueError)
WISP_ERROR(IndexError)
WISP_ERROR(NotImplemented)
WISP_ERROR(OutOfMemory)
WISP_ERROR(DeviceOutOfMemory)
WISP_ERROR(MissingKernel)
WISP_ERROR(LinAlgError)
#undef WISP_ERROR
Error::~Error() = default;
void Error::restore() const { PyErr_SetString(PyExc_RuntimeError, what()); }
void RuntimeError::restore() const { PyErr_SetString(PyExc_RuntimeError, what()); }
void TypeError::restore() const { PyErr_SetString(PyExc_TypeError, what()); }
void ValueError::restore() const { PyErr_SetString(PyExc_ValueError, what()); }
void IndexError::restore() const { PyErr_SetString(PyExc_IndexError, what()); }
void NotImplemented::restore() const { PyErr_SetString(PyExc_NotImplementedError, what()); }
void OutOfMemory::restore() const { PyErr_SetString(PyExc_RuntimeError, what()); }
void DeviceOutOfMemory::restore() const {
    PyObject* module = PyImport_ImportModule("wisp");
    PyObject* type = module ? PyObject_GetAttrString(module, "OutOfMemoryError") : nullptr;
    PyErr_SetString(type ? type : PyExc_RuntimeError, what());
    Py_XDECREF(type);
    Py_XDECREF(module);
}
void MissingKernel::restore() const { PyErr_SetString(PyExc_NotImplementedError, what()); }
void LinAlgError::restore() const { PyErr_SetString(static_cast<PyObject*>(linalg_error_class()), what()); }

void* linalg_error_class() {
    static PyObject* const type = PyErr_NewExceptionWithDoc(
        "wisp.linalg.LinAlgError",
        "A decomposition or a solver met a matrix that it can't handle: singular, not positive-definite, not finite.", PyExc_RuntimeError,
        nullptr);
    return type;
}

void warn(const std::string& message) {
    if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) < 0) throw PythonError();
}

}  // namespace wisp
