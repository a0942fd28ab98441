// wisp._core._SampleSeeds: gives Python's, NumPy's and Wisp's global generators a state that depends on (seed, key) alone,
// quickly enough to do it before every sample of a data loader. Seeding the two Mersenne twisters through their modules
// costs 6 us and saving them 40; here their 624 words are filled and exchanged where they lie.
#include <cstring>
#include <utility>

#include "objects.h"
#include "registry.h"

namespace wisp {
namespace {

constexpr int words = 624;

// The state of a Mersenne twister: the layouts of CPython (position first) and NumPy (position last) are checked by the
// caller of `_SampleSeeds` against what the modules report.
struct Twister {
    uint32_t* key = nullptr;
    int32_t* position = nullptr;
    uint32_t filled[2] = {0, 0};  // first and last word as filled: tells whether it was drawn from since
    explicit operator bool() const { return key != nullptr; }
    bool untouched() const { return *position == words && key[0] == filled[0] && key[words - 1] == filled[1]; }
};

struct State {
    uint32_t key[words];
    int32_t position;
};

uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// A sequence of Weyl's, begun and stepped by the value, one round of mixing: the value itself was mixed well, and the
// twister mixes on.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#endif
void fill_words(uint32_t* __restrict key, uint32_t low, uint32_t high) {
    const uint32_t step = high | 1;
    for (uint32_t i = 0; i < uint32_t(words); i++) {
        uint32_t x = low + i * step;
        x = (x ^ (x >> 16)) * 0x7feb352du;
        key[i] = x ^ (x >> 15);
    }
}

struct SeedsObject {
    PyObject_HEAD
    uint64_t seed;
    Twister python, numpy;
    State held[2];  // the states that `swap` exchanges
    Generator held_wisp;
    int64_t* progress;       // counts the samples begun, where another process can read it; may be null
    PyObject* instance;      // random._inst
    PyObject* held_gauss;    // of Python's generator: its second normal number
    PyObject* forget_gauss;  // makes NumPy forget its second normal number
    PyObject* number_of;     // a number for a key that is not an int
};

SeedsObject* self_of(PyObject* o) { return reinterpret_cast<SeedsObject*>(o); }
PyObject* gauss_next = nullptr;

int initialize(PyObject* object, PyObject* args, PyObject*) {
    SeedsObject* s = self_of(object);
    unsigned long long python_key, python_position, numpy_key, numpy_position;
    PyObject *instance, *forget_gauss, *number_of;
    if (!PyArg_ParseTuple(args, "OKKKKOO", &instance, &python_key, &python_position, &numpy_key, &numpy_position, &forget_gauss,
                          &number_of))
        return -1;
    s->python = {reinterpret_cast<uint32_t*>(python_key), reinterpret_cast<int32_t*>(python_position), {0, 0}};
    s->numpy = {reinterpret_cast<uint32_t*>(numpy_key), reinterpret_cast<int32_t*>(numpy_position), {0, 0}};
    s->instance = Py_NewRef(instance);
    s->forget_gauss = Py_NewRef(forget_gauss);
    s->number_of = Py_NewRef(number_of);
    s->held_gauss = Py_NewRef(Py_None);
    for (State& state : s->held) {
        fill_words(state.key, 1, 2);
        state.position = words;
    }
    return 0;
}

void destroy(PyObject* object) {
    SeedsObject* s = self_of(object);
    Py_XDECREF(s->instance);
    Py_XDECREF(s->held_gauss);
    Py_XDECREF(s->forget_gauss);
    Py_XDECREF(s->number_of);
    Py_TYPE(object)->tp_free(object);
}

void fill(Twister& twister, uint64_t value) {
    fill_words(twister.key, uint32_t(value), uint32_t(value >> 32));
    *twister.position = words;
    twister.filled[0] = twister.key[0];
    twister.filled[1] = twister.key[words - 1];
}

PyObject* seed_key(PyObject* object, PyObject* key) {
    SeedsObject* s = self_of(object);
    uint64_t number;
    if (PyLong_CheckExact(key)) {
        number = PyLong_AsUnsignedLongLongMask(key);
    } else {
        PyObject* value = PyObject_CallOneArg(s->number_of, key);
        if (!value) return nullptr;
        number = PyLong_AsUnsignedLongLongMask(value);
        Py_DECREF(value);
    }
    if (PyErr_Occurred()) return nullptr;
    if (s->progress) ++*s->progress;
    const uint64_t value = mix(mix(s->seed) + number * 0x9e3779b97f4a7c15u);
    default_generator() = {value >> 2, 0};
    if (s->python) {
        if (!s->python.untouched() && PyObject_SetAttr(s->instance, gauss_next, Py_None) < 0) return nullptr;
        fill(s->python, mix(value + 1));
    }
    if (s->numpy) {
        if (!s->numpy.untouched()) {
            PyObject* done = PyObject_CallNoArgs(s->forget_gauss);
            if (!done) return nullptr;
            Py_DECREF(done);
        }
        fill(s->numpy, mix(value + 2));
    }
    Py_RETURN_TRUE;  // so that `[dataset[i] for i in indices if seed(i)]` seeds on the way
}

void exchange(Twister& twister, State& state) {
    State live;
    std::memcpy(live.key, twister.key, sizeof live.key);
    live.position = *twister.position;
    std::memcpy(twister.key, state.key, sizeof live.key);
    *twister.position = state.position;
    state = live;
}

PyObject* swap(PyObject* object, PyObject*) {
    SeedsObject* s = self_of(object);
    const bool drawn = s->numpy && !s->numpy.untouched();
    std::swap(default_generator(), s->held_wisp);
    if (s->python) {
        PyObject* live = PyObject_GetAttr(s->instance, gauss_next);
        if (!live) return nullptr;
        if (PyObject_SetAttr(s->instance, gauss_next, s->held_gauss) < 0) {
            Py_DECREF(live);
            return nullptr;
        }
        Py_DECREF(s->held_gauss);
        s->held_gauss = live;
        exchange(s->python, s->held[0]);
    }
    if (s->numpy) exchange(s->numpy, s->held[1]);
    return PyBool_FromLong(drawn);
}

// Changes when NumPy's generator is drawn from or seeded.
PyObject* numpy_mark(PyObject* object, PyObject*) {
    const Twister& t = self_of(object)->numpy;
    return PyLong_FromLongLong(t ? int64_t(t.key[0]) << 16 | *t.position : 0);
}

PyObject* get_seed(PyObject* object, void*) { return PyLong_FromUnsignedLongLong(self_of(object)->seed); }
int set_seed(PyObject* object, PyObject* value, void*) {
    if (!value) return -1;
    self_of(object)->seed = PyLong_AsUnsignedLongLongMask(value);
    return PyErr_Occurred() ? -1 : 0;
}

PyMethodDef methods[] = {
    {"seed_key", seed_key, METH_O, "Start all generators from (seed, key) -> True."},
    {"swap", swap, METH_NOARGS, "Exchange the live states with the held ones -> whether NumPy's was drawn from since it was seeded."},
    {"numpy_mark", numpy_mark, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyObject* get_progress(PyObject* object, void*) { return PyLong_FromVoidPtr(self_of(object)->progress); }
int set_progress(PyObject* object, PyObject* value, void*) {
    if (!value) return -1;
    self_of(object)->progress = static_cast<int64_t*>(PyLong_AsVoidPtr(value));
    return PyErr_Occurred() ? -1 : 0;
}
PyGetSetDef getset[] = {{"seed", get_seed, set_seed, nullptr, nullptr},
                        {"progress", get_progress, set_progress, nullptr, nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

void add_sample_seeds(PyObject* module) {
    gauss_next = PyUnicode_InternFromString("gauss_next");
    type.tp_name = "wisp._core._SampleSeeds";
    type.tp_basicsize = sizeof(SeedsObject);
    type.tp_flags = Py_TPFLAGS_DEFAULT;
    type.tp_new = PyType_GenericNew;
    type.tp_init = initialize;
    type.tp_dealloc = destroy;
    type.tp_methods = methods;
    type.tp_getset = getset;
    if (PyType_Ready(&type) < 0) throw PythonError();
    PyModule_AddObjectRef(module, "_SampleSeeds", reinterpret_cast<PyObject*>(&type));
}

}  // namespace wisp
