// dtype, device, Size, memory format, layout and Generator as Python objects.
#include "objects.h"
#include "signature.h"

#include <vector>

#include <cstring>
#include <random>

namespace wisp {

PyTypeObject dtype_type = {PyVarObject_HEAD_INIT(nullptr, 0)}, device_type = {PyVarObject_HEAD_INIT(nullptr, 0)},
             format_type = {PyVarObject_HEAD_INIT(nullptr, 0)}, layout_type = {PyVarObject_HEAD_INIT(nullptr, 0)},
             size_type = {PyVarObject_HEAD_INIT(nullptr, 0)}, generator_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

namespace {

PyObject* dtypes[int(DType::count)];
PyObject* strided = nullptr;
PyObject* generator = nullptr;

// --- dtype ---

PyObject* dtype_repr(PyObject* self) { return PyUnicode_FromFormat("torch.%s", name_of(reinterpret_cast<DTypeObject*>(self)->dtype)); }
DType dtype_of_object(PyObject* self) { return reinterpret_cast<DTypeObject*>(self)->dtype; }
// "f32", "bf16", "f8e5m2": the letter, the bits and what follows.
std::string abbreviation(DType d) {
    const std::string name = name_of(d);
    if (d == DType::boolean) return "b8";
    std::string s = name.substr(0, d == DType::bf16 ? 2 : 1);
    for (size_t i = name.find_first_of("0123456789"); i < name.size(); i++)
        if (name[i] != '_') s += name[i];
    return s;
}
PyGetSetDef dtype_getset[] = {
    {"is_floating_point", [](PyObject* s, void*) { return PyBool_FromLong(is_floating(dtype_of_object(s))); }, nullptr, nullptr, nullptr},
    {"is_complex", [](PyObject* s, void*) { return PyBool_FromLong(is_complex(dtype_of_object(s))); }, nullptr, nullptr, nullptr},
    {"is_signed", [](PyObject* s, void*) { return PyBool_FromLong(is_signed(dtype_of_object(s))); }, nullptr, nullptr, nullptr},
    {"abbr", [](PyObject* s, void*) { return PyUnicode_FromString(abbreviation(dtype_of_object(s)).c_str()); }, nullptr, nullptr, nullptr},
    {"itemsize", [](PyObject* s, void*) { return PyLong_FromLongLong(item_size(dtype_of_object(s))); }, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef dtype_methods[] = {
    {"to_real", [](PyObject* s, PyObject*) { return dtype_object(real_of(dtype_of_object(s))); }, METH_NOARGS, nullptr},
    {"to_complex",
     [](PyObject* s, PyObject*) {
         return guarded([&] {
             const DType d = dtype_of_object(s);
             if (is_integral(d)) throw RuntimeError("Unknown Complex ScalarType for ", type_name(d));
             return dtype_object(complex_of(d));
         });
     },
     METH_NOARGS, nullptr},
    {"__reduce__", [](PyObject* s, PyObject*) { return PyUnicode_FromString(name_of(dtype_of_object(s))); }, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

// --- device ---

Device device_of_object(PyObject* self) { return reinterpret_cast<DeviceObject*>(self)->device; }

int8_t device_number(PyObject* o) {
    int overflow;
    const long long i = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (i == -1 && PyErr_Occurred()) throw PythonError();
    if (overflow || i < 0 || i > 127)
        throw RuntimeError("Device index must not be negative or above 127, got ", overflow ? "more" : str(int64_t(i)));
    return int8_t(i);
}

PyObject* device_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
    PyObject *type = nullptr, *index = nullptr;
    const char* names[] = {"type", "index", nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O", const_cast<char**>(names), &type, &index)) return nullptr;
    return guarded([&]() -> PyObject* {
        Device d;
        if (Py_TYPE(type) == &device_type) d = device_of_object(type);
        else if (PyUnicode_Check(type)) d = parse_device(utf8(type));
        else if (PyLong_Check(type)) d = {DeviceType::cuda, device_number(type)};
        else throw TypeError("device(): expected a string such as 'cpu' or 'cuda:0', got ", Py_TYPE(type)->tp_name);
        if (index && index != Py_None) {
            if (d.index >= 0)
                throw RuntimeError("type (string) must not include an index because index was passed explicitly: ", text_of(d));
            d.index = device_number(index);
        }
        return device_object(d);
    });
}
PyObject* device_repr(PyObject* self) {
    const Device d = device_of_object(self);
    Device bare = d;
    bare.index = -1;
    const std::string type = text_of(bare);
    if (d.index < 0) return PyUnicode_FromFormat("device(type='%s')", type.c_str());
    return PyUnicode_FromFormat("device(type='%s', index=%d)", type.c_str(), int(d.index));
}
PyObject* device_compare(PyObject* a, PyObject* b, int op) {
    if (Py_TYPE(a) != &device_type || Py_TYPE(b) != &device_type || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong((device_of_object(a) == device_of_object(b)) == (op == Py_EQ));
}
Py_hash_t device_hash(PyObject* self) {
    const Device d = device_of_object(self);
    return 1000 + int(d.type) * 1000 + d.index;
}
PyGetSetDef device_getset[] = {{"type",
                                [](PyObject* s, void*) {
                                    Device d = device_of_object(s);
                                    d.index = -1;
                                    return PyUnicode_FromString(text_of(d).c_str());
                                },
                                nullptr, nullptr, nullptr},
                               {"index",
                                [](PyObject* s, void*) -> PyObject* {
                                    const Device d = device_of_object(s);
                                    if (d.index < 0) Py_RETURN_NONE;
                                    return PyLong_FromLong(d.index);
                                },
                                nullptr, nullptr, nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};
// `with device("cuda"):` makes it the default one. What was before is kept in a stack, for contexts may nest.
std::vector<Device>& devices_before() {
    static thread_local std::vector<Device> stack;
    return stack;
}
PyMethodDef device_methods[] = {{"__enter__",
                                 [](PyObject* s, PyObject*) {
                                     return guarded([&]() -> PyObject* {
                                         const Device before = current_device();
                                         set_default_device(device_of_object(s));
                                         devices_before().push_back(before);
                                         Py_INCREF(s);
                                         return s;
                                     });
                                 },
                                 METH_NOARGS, nullptr},
                                {"__exit__",
                                 [](PyObject*, PyObject*) -> PyObject* {
                                     if (!devices_before().empty()) {
                                         current_device_ = devices_before().back();
                                         devices_before().pop_back();
                                     }
                                     Py_RETURN_NONE;
                                 },
                                 METH_VARARGS, nullptr},
                                {"__reduce__",
                                 [](PyObject* s, PyObject*) {
                                     return Py_BuildValue("(O(s))", reinterpret_cast<PyObject*>(&device_type),
                                                          text_of(device_of_object(s)).c_str());
                                 },
                                 METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};

// --- memory format, layout ---

PyObject* format_repr(PyObject* self) {
    const char* names[] = {"contiguous_format", "channels_last", "channels_last_3d", "preserve_format"};
    return PyUnicode_FromFormat("torch.%s", names[int(reinterpret_cast<FormatObject*>(self)->format)]);
}
struct LayoutObject {
    PyObject_HEAD
    const char* name;
};
PyObject* layout_repr(PyObject* self) { return PyUnicode_FromFormat("torch.%s", reinterpret_cast<LayoutObject*>(self)->name); }

// --- Size ---

PyObject* size_from_tuple(PyObject* tuple) {  // steals
    if (!tuple) return nullptr;
    const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    PyObject* s = size_type.tp_alloc(&size_type, n);
    for (Py_ssize_t i = 0; s && i < n; i++) {
        PyObject* item = PyTuple_GET_ITEM(tuple, i);
        if (PyLong_Check(item) && !PyBool_Check(item)) {
            Py_INCREF(item);
        } else {  // a tensor of one integer, a bool: what it stands for
            PyObject* index = PyNumber_Index(item);
            const char* type = Py_TYPE(item)->tp_name;
            if (!index) PyErr_Format(PyExc_TypeError, "torch.Size() takes an iterable of 'int' (item %zd is '%s')", i, type);
            item = index ? PyNumber_Long(index) : nullptr;
            Py_XDECREF(index);
            if (!item) Py_CLEAR(s);
        }
        if (s) PyTuple_SET_ITEM(s, i, item);
    }
    Py_DECREF(tuple);
    return s;
}
PyObject* size_new(PyTypeObject*, PyObject* args, PyObject*) {
    PyObject* values = nullptr;
    if (!PyArg_ParseTuple(args, "|O", &values)) return nullptr;
    return size_from_tuple(values ? PySequence_Tuple(values) : PyTuple_New(0));
}
PyObject* size_repr(PyObject* self) {
    std::string s = "torch.Size([";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); i++)
        s += (i ? ", " : "") + std::to_string(PyLong_AsLongLong(PyTuple_GET_ITEM(self, i)));
    return PyUnicode_FromString((s + "])").c_str());
}
PyObject* size_concat(PyObject* a, PyObject* b) {
    if (!PyTuple_Check(b)) {
        PyErr_Format(PyExc_TypeError, "can only concatenate tuple (not %s) to torch.Size", Py_TYPE(b)->tp_name);
        return nullptr;
    }
    return size_from_tuple(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
// For tuple + Size, which asks the right operand's class first because it derives from tuple.
PyObject* size_add(PyObject* a, PyObject* b) {
    if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
    return size_concat(a, b);
}
PyObject* size_repeat(PyObject* a, Py_ssize_t n) { return size_from_tuple(PyTuple_Type.tp_as_sequence->sq_repeat(a, n)); }
PyObject* size_subscript(PyObject* a, PyObject* key) {
    PyObject* r = PyTuple_Type.tp_as_mapping->mp_subscript(a, key);
    return r && PyTuple_Check(r) ? size_from_tuple(r) : r;
}
PyMethodDef size_methods[] = {{"numel",
                               [](PyObject* self, PyObject*) -> PyObject* {
                                   PyObject* n = PyLong_FromLong(1);  // of any length: sizes that no tensor has can be asked too
                                   for (Py_ssize_t i = 0; n && i < PyTuple_GET_SIZE(self); i++)
                                       Py_SETREF(n, PyNumber_Multiply(n, PyTuple_GET_ITEM(self, i)));
                                   return n;
                               },
                               METH_NOARGS, nullptr},
                              {"__reduce__",
                               [](PyObject* self, PyObject*) -> PyObject* {
                                   PyObject* values = PySequence_List(self);
                                   return values ? Py_BuildValue("(O(N))", reinterpret_cast<PyObject*>(&size_type), values) : nullptr;
                               },
                               METH_NOARGS, nullptr},
                              {nullptr, nullptr, 0, nullptr}};
PyNumberMethods size_number;
PySequenceMethods size_sequence;
PyMappingMethods size_mapping;

// --- Generator ---

Generator& generator_of(PyObject* self) { return reinterpret_cast<GeneratorObject*>(self)->generator; }

PyObject* generator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
    PyObject* device = nullptr;
    const char* names[] = {"device", nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &device)) return nullptr;
    if (device && PyUnicode_Check(device)) {  // an unknown one is refused
        PyObject* known = PyObject_CallOneArg(reinterpret_cast<PyObject*>(&device_type), device);
        if (!known) return nullptr;
        const DeviceType kind = device_of_object(known).type;
        Py_DECREF(known);
        if (kind != DeviceType::cpu && kind != DeviceType::cuda) {
            PyErr_Format(PyExc_RuntimeError, "Generator: the device type of '%U' is not an accelerator; use 'cpu' or 'cuda'", device);
            return nullptr;
        }
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (self) new (&generator_of(self)) Generator();
    return self;
}
bool seed_from(PyObject* value, uint64_t& seed) {
    PyObject* index = PyNumber_Index(value);
    if (!index) return false;
    seed = PyLong_AsUnsignedLongLongMask(index);
    int overflow;
    const long long v = PyLong_AsLongLongAndOverflow(index, &overflow);
    (void)v;
    if (overflow < 0 || (overflow > 0 && (PyLong_AsUnsignedLongLong(index), PyErr_Occurred()))) {
        PyErr_Clear();
        PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long: a seed must lie in [-2^63, 2^64 - 1]");
        Py_DECREF(index);
        return false;
    }
    Py_DECREF(index);
    return true;
}
PyMethodDef generator_methods[] = {
    {"manual_seed",
     [](PyObject* self, PyObject* value) -> PyObject* {
         uint64_t seed;
         if (!seed_from(value, seed)) return nullptr;
         generator_of(self) = {seed, 0};
         Py_INCREF(self);
         return self;
     },
     METH_O, "manual_seed(seed) -> Generator"},
    {"initial_seed", [](PyObject* self, PyObject*) { return PyLong_FromUnsignedLongLong(generator_of(self).seed); }, METH_NOARGS, nullptr},
    {"seed",
     [](PyObject* self, PyObject*) {
         std::random_device device;
         const uint64_t seed = (uint64_t(device()) << 32 | device()) >> 11;
         generator_of(self) = {seed, 0};
         return PyLong_FromUnsignedLongLong(seed);
     },
     METH_NOARGS, nullptr},
    {"_state", [](PyObject* self, PyObject*) { return Py_BuildValue("(KK)", generator_of(self).seed, generator_of(self).offset); },
     METH_NOARGS, nullptr},
    {"_set_state",
     [](PyObject* self, PyObject* args) -> PyObject* {
         unsigned long long seed, offset;
         if (!PyArg_ParseTuple(args, "KK", &seed, &offset)) return nullptr;
         generator_of(self) = {seed, offset};
         Py_RETURN_NONE;
     },
     METH_VARARGS, nullptr},
    {"get_state",
     [](PyObject* self, PyObject*) -> PyObject* {
         Tensor state = empty({int64_t(sizeof(Generator))}, DType::u8, Device{});
         std::memcpy(state.data(), &generator_of(self), sizeof(Generator));
         return state.release();
     },
     METH_NOARGS, "get_state() -> Tensor: the state as bytes"},
    {"set_state",
     [](PyObject* self, PyObject* value) -> PyObject* {
         const Tensor state = is_tensor(value) ? Tensor::borrow(as_tensor_object(value)) : Tensor();
         if (!state || state.dtype() != DType::u8 || state.numel() != int64_t(sizeof(Generator)) || !state.is_contiguous()) {
             PyErr_SetString(PyExc_TypeError, "RNG state must be a torch.ByteTensor made by get_state()");
             return nullptr;
         }
         std::memcpy(&generator_of(self), state.data(), sizeof(Generator));
         Py_INCREF(self);
         return self;
     },
     METH_O, "set_state(state) -> Generator"},
    {"clone_state",
     [](PyObject* self, PyObject*) -> PyObject* {
         PyObject* other = Py_TYPE(self)->tp_alloc(Py_TYPE(self), 0);
         if (other) new (&generator_of(other)) Generator(generator_of(self));
         return other;
     },
     METH_NOARGS, "clone_state() -> Generator with the same state"},
    {"__reduce__",
     [](PyObject* self, PyObject*) -> PyObject* {
         Ref state(PyObject_CallMethod(self, "get_state", nullptr));
         Ref device(PyObject_GetAttrString(self, "device"));
         if (!state.get() || !device.get()) return nullptr;
         return Py_BuildValue("O(O)(KOO)", Py_TYPE(self), device.get(), generator_of(self).seed, Py_None, state.get());
     },
     METH_NOARGS, nullptr},
    {"__setstate__",  // PyTorch's (seed, offset, state); numbers go on from the seed where the state is not one of ours
     [](PyObject* self, PyObject* given) -> PyObject* {
         PyObject *seed, *offset, *state;
         if (!PyTuple_Check(given) || !PyArg_ParseTuple(given, "OOO", &seed, &offset, &state)) {
             PyErr_SetString(PyExc_TypeError, "the state of a Generator is a tuple of a seed, an offset and a tensor");
             return nullptr;
         }
         uint64_t value;
         if (!seed_from(seed, value)) return nullptr;
         generator_of(self) = {value, 0};
         if (is_tensor(state)) {
             const Tensor& bytes = Tensor::borrow(as_tensor_object(state));
             if (bytes.dtype() == DType::u8 && bytes.numel() == int64_t(sizeof(Generator)) && bytes.is_contiguous())
                 std::memcpy(&generator_of(self), bytes.data(), sizeof(Generator));
         }
         Py_RETURN_NONE;
     },
     METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef generator_getset[] = {{"device", [](PyObject*, void*) { return device_object(Device{}); }, nullptr, nullptr, nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};

void ready(PyTypeObject& type, const char* name, Py_ssize_t size, const char* doc) {
    type.tp_name = name;
    type.tp_doc = doc;
    type.tp_basicsize = size;
    type.tp_flags |= Py_TPFLAGS_DEFAULT;
    if (PyType_Ready(&type) < 0) throw PythonError();
}

}  // namespace

Generator& default_generator() { return generator_of(generator); }

PyObject* dtype_object(DType d) {
    PyObject* o = dtypes[int(d)];
    Py_INCREF(o);
    return o;
}
PyObject* device_object(Device d) {
    static PyObject* cpu = nullptr;
    const bool plain = d == Device{};
    if (plain && cpu) {
        Py_INCREF(cpu);
        return cpu;
    }
    auto* o = PyObject_New(DeviceObject, &device_type);
    if (!o) throw PythonError();
    o->device = d;
    if (plain) {
        cpu = reinterpret_cast<PyObject*>(o);
        Py_INCREF(cpu);
    }
    return reinterpret_cast<PyObject*>(o);
}
static void fill_ints(PyObject* tuple, const Dims& values) {
    for (int64_t i = 0; i < values.size(); i++) PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(values[i]));
}
PyObject* size_object(const Dims& sizes) {
    PyObject* s = size_type.tp_alloc(&size_type, sizes.size());
    if (!s) throw PythonError();
    fill_ints(s, sizes);
    return s;
}
PyObject* tuple_of_ints(const Dims& values) {
    PyObject* t = PyTuple_New(values.size());
    if (!t) throw PythonError();
    fill_ints(t, values);
    return t;
}
PyObject* scalar_object(const Scalar& s) {
    switch (s.kind()) {
    case Scalar::Kind::boolean: return PyBool_FromLong(s.to_bool());
    case Scalar::Kind::integer: return PyLong_FromLongLong(s.to_int());
    case Scalar::Kind::large: return PyLong_FromUnsignedLongLong(uint64_t(s.to_int()));
    case Scalar::Kind::floating: return PyFloat_FromDouble(s.to_double());
    default: return PyComplex_FromDoubles(s.to_complex().real(), s.to_complex().imag());
    }
}
bool truth_of(PyObject* o) {
    const int t = PyObject_IsTrue(o);
    if (t < 0) throw PythonError();
    return t == 1;
}
PyObject* layout_strided() { return strided; }

void add_types(PyObject* module) {
    dtype_type.tp_repr = dtype_repr;
    dtype_type.tp_getset = dtype_getset;
    dtype_type.tp_methods = dtype_methods;
    ready(dtype_type, "torch.dtype", sizeof(DTypeObject),
          "The type of a tensor's elements: wisp.float32, wisp.int64, ...\n\n>>> wisp.float32.itemsize\n4");
    device_type.tp_new = device_new;
    device_type.tp_repr = device_repr;
    device_type.tp_str = [](PyObject* s) { return PyUnicode_FromString(text_of(device_of_object(s)).c_str()); };
    device_type.tp_richcompare = device_compare;
    device_type.tp_hash = device_hash;
    device_type.tp_getset = device_getset;
    device_type.tp_methods = device_methods;
    ready(device_type, "torch.device", sizeof(DeviceObject),
          "device(type, index=None)\n\nWhere a tensor lives: a kind, and a number.\n\n>>> wisp.device('cuda:1').index\n1");
    format_type.tp_repr = format_repr;
    ready(format_type, "torch.memory_format", sizeof(FormatObject),
          "The order of dimensions in memory: wisp.contiguous_format, wisp.channels_last, ...\n\n>>> "
          "wisp.channels_last\ntorch.channels_last");
    layout_type.tp_repr = layout_repr;
    ready(layout_type, "torch.layout", sizeof(LayoutObject),
          "How a tensor keeps its elements: wisp.strided, wisp.sparse_coo, ...\n\n>>> wisp.ones(2).layout\ntorch.strided");
    size_sequence = {};
    size_sequence.sq_concat = size_concat;
    size_sequence.sq_repeat = size_repeat;
    size_mapping = {};
    size_mapping.mp_subscript = size_subscript;
    size_type.tp_base = &PyTuple_Type;
    size_type.tp_new = size_new;
    size_type.tp_repr = size_repr;
    size_number.nb_add = size_add;
    size_type.tp_as_number = &size_number;
    size_type.tp_as_sequence = &size_sequence;
    size_type.tp_as_mapping = &size_mapping;
    size_type.tp_methods = size_methods;
    size_type.tp_itemsize = PyTuple_Type.tp_itemsize;
    ready(size_type, "torch.Size", PyTuple_Type.tp_basicsize,
          "The shape of a tensor: a tuple of its sizes.\n\n>>> wisp.ones(2, 3).shape.numel()\n6");
    generator_type.tp_new = generator_new;
    generator_type.tp_methods = generator_methods;
    generator_type.tp_getset = generator_getset;
    ready(generator_type, "torch.Generator", sizeof(GeneratorObject),
          "Generator(device='cpu')\n\nA source of random numbers; its state is a seed and how much was drawn.\n\n>>> g = "
          "wisp.Generator().manual_seed(7)\n>>> "
          "g.initial_seed()\n7");

    for (int i = 0; i < int(DType::count); i++) {
        auto* o = PyObject_New(DTypeObject, &dtype_type);
        o->dtype = DType(i);
        dtypes[i] = reinterpret_cast<PyObject*>(o);
        PyModule_AddObjectRef(module, name_of(DType(i)), dtypes[i]);
    }
    const std::pair<const char*, DType> short_names[] = {{"half", DType::f16},   {"float", DType::f32},    {"double", DType::f64},
                                                         {"short", DType::i16},  {"int", DType::i32},      {"long", DType::i64},
                                                         {"cfloat", DType::c64}, {"cdouble", DType::c128}, {"chalf", DType::c32}};
    for (auto& [name, d] : short_names) PyModule_AddObjectRef(module, name, dtypes[int(d)]);
    const char* formats[] = {"contiguous_format", "channels_last", "channels_last_3d", "preserve_format"};
    for (int i = 0; i < 4; i++) {
        auto* o = PyObject_New(FormatObject, &format_type);
        o->format = MemoryFormat(i);
        PyModule_AddObject(module, formats[i], reinterpret_cast<PyObject*>(o));
    }
    for (const char* name : {"strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn"}) {
        auto* o = PyObject_New(LayoutObject, &layout_type);
        o->name = name;
        PyModule_AddObject(module, name, reinterpret_cast<PyObject*>(o));
        if (!strided) strided = reinterpret_cast<PyObject*>(o);
    }
    generator = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&generator_type));
    PyModule_AddObjectRef(module, "default_generator", generator);
    const std::pair<const char*, PyTypeObject*> types[] = {
        {"dtype", &dtype_type},   {"device", &device_type}, {"memory_format", &format_type},
        {"layout", &layout_type}, {"Size", &size_type},     {"Generator", &generator_type}};
    for (auto& [name, type] : types) PyModule_AddObjectRef(module, name, reinterpret_cast<PyObject*>(type));
}

}  // namespace wisp
