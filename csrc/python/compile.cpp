// Compiled regions for Python: wisp.compiler calls functions in and out of them.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "../compile/tape.h"
#include "../core/above.h"
#include "../autograd/node.h"
#include "../cuda/runtime.h"
#include "objects.h"

namespace wisp {
namespace {

// The storages of tensors that a result consists of, as far as they are easily found.
void find_storages(PyObject* o, std::vector<const Storage*>& found, int depth = 0) {
    if (is_tensor(o)) return found.push_back(as_tensor_object(o)->storage);
    if (depth > 4 || found.size() > 1000) return;
    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) find_storages(PySequence_Fast_GET_ITEM(o, i), found, depth + 1);
    } else if (PyDict_Check(o)) {
        PyObject *key, *value;
        for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);) find_storages(value, found, depth + 1);
    }
}

// Leaves the region; an exception that is on its way stays the one that is raised.
PyObject* left(PyObject* result, bool keeps_on = false) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    const bool done = guarded(false, [&] {
        if (result && !cuda::keeps_work && compile::may_leave_recipes()) {
            std::vector<const Storage*> results;
            find_storages(result, results);
            compile::leave_region(&results);
        } else {
            compile::leave_region();
        }
        if (!keeps_on) cuda::before_work();
        return true;
    });
    if (type) {
        PyErr_Clear();
        PyErr_Restore(type, error, traceback);
    } else if (!done) {
        Py_CLEAR(result);
    }
    return result;
}

bool take(PyObject* args, PyObject*& function, PyObject*& arguments, PyObject*& keywords) {
    return PyArg_ParseTuple(args, "OO!O!", &function, &PyTuple_Type, &arguments, &PyDict_Type, &keywords);
}

// What is known of a compiled callable.
struct Record {
    bool keeping;                   // with launches on the GPU kept back (cuda/replay.cpp)
    uint8_t quiet = 0, passed = 0;  // calls one after another that gained nothing; calls past the region since
    bool rests = false, woken = false;
};
constexpr int enough_quiet = 16;
thread_local int passing = 0;  // calls past their regions that this thread is in
bool force_eager = false;

// Grows with what regions spare: notes that share a program, or are never made. Those of a GPU gain in other ways, too, and tests note
// everything.
int64_t gained() { return compile::counts.notes - (cuda::in_use || compile::worth_noting == 0 ? 0 : compile::counts.programs); }

// What `call` gives, which it does in a region.
template <class Call> PyObject* call_in_region(Record& c, Call&& call) {
    if (force_eager) return call();
    if (!c.keeping) {
        // Who notes nothing, or operators that run one by one all the same, has no use for a region: it is looked at again now and then.
        if (c.quiet == enough_quiet && ++c.passed % enough_quiet) {
            passing++;
            PyObject* result = call();
            passing--;
            return result;
        }
        const int64_t before = gained();
        compile::enter_region();
        PyObject* result = left(call());
        c.quiet = gained() != before ? 0 : std::min<int>(c.quiet + 1, enough_quiet);
        return result;
    }
    const bool before = cuda::keeps_work;
    if (!before) cuda::tidy_memory();
    cuda::keeps_work = true;
    compile::enter_region();
    PyObject* result = left(call(), before);
    cuda::keeps_work = before;
    return result;
}

// --- compiled functions
//
// Of a function that Python wrote, what a program gets is a copy: a function too, only that calls of it go through `call_awake`. Once its
// calls gain nothing it *rests*: it is called as any function is, and costs nothing. All are woken when large memory is made, wherever that
// is, or a GPU is used. That they are looked at in vain must not happen often: each time so many more large blocks go by first.

std::unordered_map<PyObject*, Record> functions;
vectorcallfunc call_plain = nullptr;
int patience = 1, blocks_left = 1;  // large blocks until those that rest are woken
constexpr int most_patience = 1024;
#if PY_VERSION_HEX < 0x030c0000
PyTypeObject awake_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
#endif

void set_call(PyObject* function, vectorcallfunc call) {
    auto* f = reinterpret_cast<PyFunctionObject*>(function);
#if PY_VERSION_HEX >= 0x030c0000
    PyFunction_SetVectorcall(f, call);
#else
    f->vectorcall = call;
#if PY_VERSION_HEX >= 0x030b0000
    // The interpreter of 3.11 calls whatever is of the very type of functions without a look at that, so another stands for it.
    f->func_version = 0;
    Py_SET_TYPE(function, call == call_plain ? &PyFunction_Type : &awake_type);
#endif
#endif
}

PyObject* call_awake(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames);

void wake(PyObject* function, Record& c) {
    set_call(function, call_awake);
    c.rests = false;
    c.woken = true;
    c.quiet = 0;
}
void wake_all() {
    for (auto& [function, c] : functions)
        if (c.rests) wake(function, c);
    tape.stir = nullptr;
}
void stir() {
    if (!cuda::in_use && --blocks_left > 0) return;
    if (!PyGILState_Check()) return;  // the next block will do
    blocks_left = patience = std::min(2 * patience, most_patience);
    wake_all();
}
void rest(PyObject* function, Record& c) {
    const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
    if (c.keeping || cuda::in_use || compile::worth_noting < compile::usually_worth_noting) return;
    if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) return;  // whose bodies run outside of regions
    set_call(function, call_plain);
    c.rests = true;
    tape.stir = stir;
}

PyObject* call_awake(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
    const auto found = functions.find(self);
    if (found == functions.end()) return call_plain(self, args, nargsf, kwnames);
    const Ref alive = Ref::borrow(self);
    Record& c = found->second;
    PyObject* result = call_in_region(c, [&] { return call_plain(self, args, nargsf, kwnames); });
    if (c.quiet == 0) {
        if (c.rests) wake(self, c);  // since a call within this one
        else if (std::exchange(c.woken, false)) blocks_left = patience = 1;
    } else if (c.quiet == enough_quiet && result) {
        rest(self, c);
    }
    return result;
}

// (address of a function that has ended, weak reference)
PyObject* forget_function(PyObject* address, PyObject* weak) {
    functions.erase(static_cast<PyObject*>(PyLong_AsVoidPtr(address)));
    Py_DECREF(weak);
    Py_RETURN_NONE;
}
PyMethodDef forgetting = {"forget", forget_function, METH_O, nullptr};

// (function, whether launches are kept back): calls of the function are in a region from now on
PyObject* compile_function(PyObject*, PyObject* args) {
    PyObject* function;
    int keeping;
    if (!PyArg_ParseTuple(args, "O!p", &PyFunction_Type, &function, &keeping)) return nullptr;
    return guarded([&]() -> PyObject* {
        if (!call_plain) call_plain = reinterpret_cast<PyFunctionObject*>(function)->vectorcall;
        const Ref address(PyLong_FromVoidPtr(function)), ended(PyCFunction_New(&forgetting, address.get()));
        Ref weak(PyWeakref_NewRef(function, ended.get()));
        functions[function] = Record{bool(keeping)};
        weak.release();  // its callback's
        set_call(function, call_awake);
        Py_RETURN_NONE;
    });
}

// Addresses of the code of functions that rest: on the stack they tell that a compiled function runs.
PyObject* resting_codes(PyObject*, PyObject*) {
    return guarded([]() -> PyObject* {
        Ref set(PyFrozenSet_New(nullptr));
        if (tape.stir && !force_eager)
            for (const auto& [function, c] : functions)
                if (c.rests && PySet_Add(set.get(), Ref(PyLong_FromVoidPtr(PyFunction_GET_CODE(function))).get()) < 0) throw PythonError();
        return set.release();
    });
}

// --- other compiled callables: an object that calls the one that it holds in a region. It has that one's attributes, binds as a method
// and is copied and pickled as functions are.
struct CompiledObject {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *dict, *weak;
    Record record;
};
CompiledObject* compiled(PyObject* o) { return reinterpret_cast<CompiledObject*>(o); }

PyObject* call_compiled(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
    CompiledObject& c = *compiled(self);
    return call_in_region(c.record, [&] { return PyObject_Vectorcall(c.function, args, nargsf, kwnames); });
}

PyObject* compiled_get(PyObject* self, PyObject* name) {
    PyObject* found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();
    return PyObject_GetAttr(compiled(self)->function, name);
}
PyObject* compiled_bind(PyObject* self, PyObject* object, PyObject*) {
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}
PyObject* compiled_repr(PyObject* self) { return PyUnicode_FromFormat("<compiled %R>", compiled(self)->function); }
PyObject* compiled_self(PyObject* self, PyObject*) { return Py_NewRef(self); }
PyObject* compiled_name(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }
int compiled_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(compiled(self)->function);
    Py_VISIT(compiled(self)->dict);
    return 0;
}
int compiled_clear(PyObject* self) {
    Py_CLEAR(compiled(self)->function);
    Py_CLEAR(compiled(self)->dict);
    return 0;
}
void compiled_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    if (compiled(self)->weak) PyObject_ClearWeakRefs(self);
    compiled_clear(self);
    PyObject_GC_Del(self);
}
PyMethodDef compiled_methods[] = {{"__copy__", compiled_self, METH_NOARGS, nullptr},
                                  {"__deepcopy__", compiled_self, METH_O, nullptr},
                                  {"__reduce__", compiled_name, METH_NOARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
PyGetSetDef compiled_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyTypeObject compiled_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

void make_compiled_type() {
    PyTypeObject& t = compiled_type;
    t.tp_name = "wisp._core.compiled_callable";
    t.tp_basicsize = sizeof(CompiledObject);
    t.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
    t.tp_vectorcall_offset = offsetof(CompiledObject, call);
    t.tp_dictoffset = offsetof(CompiledObject, dict);
    t.tp_weaklistoffset = offsetof(CompiledObject, weak);
    t.tp_call = PyVectorcall_Call;
    t.tp_getattro = compiled_get;
    t.tp_descr_get = compiled_bind;
    t.tp_repr = compiled_repr;
    t.tp_traverse = compiled_traverse;
    t.tp_clear = compiled_clear;
    t.tp_dealloc = compiled_dealloc;
    t.tp_methods = compiled_methods;
    t.tp_getset = compiled_getset;
    if (PyType_Ready(&t) < 0) throw PythonError();
#if PY_VERSION_HEX < 0x030c0000
    PyTypeObject& awake = awake_type;
    awake.tp_name = "wisp._core.compiled_function";
    awake.tp_base = &PyFunction_Type;
    awake.tp_basicsize = PyFunction_Type.tp_basicsize;
    awake.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    awake.tp_vectorcall_offset = PyFunction_Type.tp_vectorcall_offset;
    awake.tp_call = PyVectorcall_Call;
    awake.tp_descr_get = PyFunction_Type.tp_descr_get;
    awake.tp_methods = compiled_methods;
    awake.tp_members = PyFunction_Type.tp_members;  // a type has a `__doc__` in front of its base's
    if (PyType_Ready(&awake) < 0) throw PythonError();
#endif
}

PyObject* new_compiled(PyObject* function, bool keeping) {
    CompiledObject* made = PyObject_GC_New(CompiledObject, &compiled_type);
    if (!made) return nullptr;
    made->call = call_compiled;
    made->function = Py_NewRef(function);
    made->dict = made->weak = nullptr;
    made->record = Record{keeping};
    PyObject_GC_Track(made);
    return reinterpret_cast<PyObject*>(made);
}
// (callable, whether launches are kept back)
PyObject* make_compiled(PyObject*, PyObject* args) {
    PyObject* function;
    int keeping;
    return PyArg_ParseTuple(args, "Op", &function, &keeping) ? new_compiled(function, keeping) : nullptr;
}
// What a module that is compiled in place has as `_has_hooks` while it has none, given its `_compiled_call_impl`: see call_compiled_module.
PyObject* make_compiled_module(PyObject*, PyObject* impl) {
    return Py_TYPE(impl) == &compiled_type ? new_compiled(Py_None, compiled(impl)->record.keeping) : Py_NewRef(Py_True);
}
PyObject* set_force_eager(PyObject*, PyObject* wanted) {
    force_eager = wanted == Py_True;
    Py_RETURN_NONE;
}

PyObject* call_at_once(PyObject*, PyObject* args) {
    PyObject *function, *arguments, *keywords;
    if (!take(args, function, arguments, keywords)) return nullptr;
    compile::Pause pause;
    const int before = std::exchange(passing, 0);
    PyObject* result = PyObject_Call(function, arguments, keywords);
    passing = before;
    return result;
}

PyObject* is_noting(PyObject*, PyObject*) { return PyBool_FromLong(noting || passing > 0); }

PyObject* run_noted(PyObject*, PyObject*) {
    return guarded([]() -> PyObject* {
        compile::run_notes();
        Py_RETURN_NONE;
    });
}

PyObject* noted_counts(PyObject*, PyObject*) {
    const compile::Counts& c = compile::counts;
    const cuda::ReplayCounts& r = cuda::replay_counts;
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "noted", c.notes, "never_made", c.dead, "programs", c.programs,
                         "plans", c.plans, "runs", c.runs, "bytes", c.bytes, "bytes_one_by_one", c.eager_bytes, "launches_kept", r.kept,
                         "launches_replayed", r.replayed, "graphs", r.graphs);
}

// The result of a call in a region, and the programs that were made: (names of operators, shape, bytes read, written,
// one by one, the text of its steps, the line that asked for it, seconds).
PyObject* call_watched(PyObject*, PyObject* args) {
    PyObject *function, *arguments, *keywords;
    if (!take(args, function, arguments, keywords)) return nullptr;
    std::vector<compile::Fusion> fusions, *before = compile::watcher;
    compile::watcher = &fusions;
    compile::enter_region();
    PyObject* called = left(PyObject_Call(function, arguments, keywords));
    compile::watcher = before;
    if (!called) return nullptr;
    return guarded([&]() -> PyObject* {
        Ref result(called), list(PyList_New(0));
        for (const compile::Fusion& f : fusions) {
            Ref names(PyList_New(0));
            for (const std::string& name : f.operators)
                if (PyList_Append(names.get(), Ref(PyUnicode_FromString(name.c_str())).get()) < 0) throw PythonError();
            Ref steps(PyList_New(0));
            for (const std::string& step : f.steps)
                if (PyList_Append(steps.get(), Ref(PyUnicode_FromString(step.c_str())).get()) < 0) throw PythonError();
            Ref row(Py_BuildValue("(OsLLLOsd)", names.get(), f.shape.c_str(), f.read, f.written, f.eager, steps.get(), f.asked.c_str(),
                                  f.seconds));
            if (PyList_Append(list.get(), row.get()) < 0) throw PythonError();
        }
        return Py_BuildValue("(OO)", result.get(), list.get());
    });
}

// For tests, which are about small tensors.
PyObject* set_worth_noting(PyObject*, PyObject* elements) {
    const int64_t before = compile::worth_noting, wanted = PyLong_AsLongLong(elements);
    if (wanted == -1 && PyErr_Occurred()) return nullptr;
    compile::worth_noting = wanted;
    wake_all();
    return PyLong_FromLongLong(before);
}

// For tests: values by channels, and a contiguous tensor made from such (see compile/tape.h).
template <Tensor (*change)(const Tensor&)> PyObject* changed(PyObject*, PyObject* x) {
    if (!is_tensor(x) || as_tensor_object(x)->layout.sizes.size() != 4) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor of 4 dimensions");
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        GradMode off(false);
        return reinterpret_cast<PyObject*>(change(Tensor::borrow(as_tensor_object(x))).release());
    });
}

PyMethodDef methods[] = {{"_compiled", make_compiled, METH_VARARGS, nullptr},
                         {"_compiled_module", make_compiled_module, METH_O, nullptr},
                         {"_compile_function", compile_function, METH_VARARGS, nullptr},
                         {"_resting_codes", resting_codes, METH_NOARGS, nullptr},
                         {"_set_force_eager", set_force_eager, METH_O, nullptr},
                         {"_call_at_once", call_at_once, METH_VARARGS, nullptr},
                         {"_call_watched", call_watched, METH_VARARGS, nullptr},
                         {"_is_noting", is_noting, METH_NOARGS, nullptr},
                         {"_run_noted", run_noted, METH_NOARGS, nullptr},
                         {"_set_worth_noting", set_worth_noting, METH_O, nullptr},
                         {"_noted_counts", noted_counts, METH_NOARGS, nullptr},
                         {"_by_channels", changed<compile::by_channels>, METH_O, nullptr},
                         {"_turned", changed<compile::turned>, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool is_compiled(PyObject* o) { return Py_TYPE(o) == &compiled_type; }
PyObject* call_compiled_module(PyObject* how, PyObject* self, PyObject* args, PyObject* kwargs, ternaryfunc forward) {
    CompiledObject& c = *compiled(how);
    return call_in_region(c.record,
                          [&] { return c.function == Py_None ? forward(self, args, kwargs) : PyObject_Call(c.function, args, kwargs); });
}

void add_compile(PyObject* module) {
    make_compiled_type();
    if (PyModule_AddFunctions(module, methods) < 0) throw PythonError();
}

}  // namespace wisp
