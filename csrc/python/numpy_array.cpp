// Reading NumPy's arrays. The layout is that of NumPy's stable binary interface; it is checked on an example before use.
#include "numpy_array.h"

#include <cstring>

#include "objects.h"

namespace wisp {
namespace {

struct ArrayObject {
    PyObject_HEAD
    char* data;
    int dims;
    Py_ssize_t *sizes, *strides;
    PyObject *base, *descriptor;
    int flags;
};
constexpr int aligned = 0x100, writeable = 0x400;

PyTypeObject* array_type = nullptr;
bool looked = false;
PyObject* descriptors[int(DType::count)];  // NumPy's one object of each native dtype

// Compares what we read of numpy.zeros((3, 4), "int16")[1:, ::2] with what it says of itself.
bool layout_is_known(PyObject* numpy) {
    Ref whole(PyObject_CallMethod(numpy, "zeros", "(nn)s", Py_ssize_t(3), Py_ssize_t(4), "int16"));
    Ref rows(PySlice_New(Ref(PyLong_FromLong(1)).get(), nullptr, nullptr)),
        columns(PySlice_New(nullptr, nullptr, Ref(PyLong_FromLong(2)).get()));
    Ref key(PyTuple_Pack(2, rows.get(), columns.get()));
    Ref part(PyObject_GetItem(whole.get(), key.get()));
    const auto* first = reinterpret_cast<ArrayObject*>(whole.get());
    const auto* a = reinterpret_cast<ArrayObject*>(part.get());
    Ref interface(PyObject_GetAttrString(part.get(), "__array_interface__"));
    Ref data(PyMapping_GetItemString(interface.get(), "data"));
    void* address = PyLong_AsVoidPtr(PyTuple_GetItem(data.get(), 0));
    return a->data == address && a->data == first->data + 8 && a->dims == 2 && a->sizes[0] == 2 && a->sizes[1] == 2 && a->strides[0] == 8 &&
           a->strides[1] == 4 && a->base == whole.get() && a->descriptor == descriptors[int(DType::i16)] && (a->flags & aligned) &&
           (a->flags & writeable);
}

void look_at_numpy() {
    looked = true;
    PyObject* modules = PyImport_GetModuleDict();
    PyObject* numpy = PyDict_GetItemString(modules, "numpy");
    if (!numpy) return;
    try {
        Ref type(PyObject_GetAttrString(numpy, "ndarray"));
        if (reinterpret_cast<PyTypeObject*>(type.get())->tp_basicsize < Py_ssize_t(sizeof(ArrayObject))) return;
        for (int d = 0; d < int(DType::count); d++) {
            if (DType(d) == DType::bf16 || is_stored(DType(d))) continue;
            Ref descriptor(PyObject_CallMethod(numpy, "dtype", "s", name_of(DType(d))));
            descriptors[d] = Py_NewRef(descriptor.get());
        }
        if (layout_is_known(numpy)) array_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.get()));
    } catch (const PythonError&) {
        PyErr_Clear();  // the buffer protocol remains
    }
}

}  // namespace

bool is_plain_array(PyObject* o) {
    if (array_type) return Py_TYPE(o) == array_type;
    if (looked || std::strcmp(Py_TYPE(o)->tp_name, "numpy.ndarray")) return false;
    look_at_numpy();
    return array_type && Py_TYPE(o) == array_type;
}

bool view_array(PyObject* o, ArrayView& view) {
    if (!is_plain_array(o)) return false;
    const auto* a = reinterpret_cast<ArrayObject*>(o);
    if (!(a->flags & aligned)) return false;
    for (int d = 0; d < int(DType::count); d++) {
        if (descriptors[d] != a->descriptor) continue;
        view = {a->data, a->dims, a->sizes, a->strides, DType(d), (a->flags & writeable) != 0};
        return true;
    }
    return false;
}

}  // namespace wisp
