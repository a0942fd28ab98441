// Compiled regions for Python: wisp.compiler calls functions in and out of them.
#include <algorithm>
#include <utility>

#include "../compile/tape.h"
#include "../autograd/node.h"
#include "../cuda/runtime.h"
#include "objects.h"

namespace wisp {
namespace {

// Leaves the region; an exception that is on its way stays the one that is raised.
PyObject* left(PyObject* result, bool keeps_on = false) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    const bool done = guarded(false, [&] {
        compile::leave_region();
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

// A compiled function: calls the function that it holds in a region. It has that one's attributes, binds as a method and is copied and
// pickled as functions are; a call costs a twentieth of a microsecond.
struct CompiledObject {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *dict, *weak;
    bool keeping;           // with launches on the GPU kept back (cuda/replay.cpp)
    uint8_t quiet, passed;  // calls one after another that gained nothing; calls past the region since
};
constexpr int enough_quiet = 16;
thread_local int passing = 0;  // calls past their regions that this thread is in
CompiledObject* compiled(PyObject* o) { return reinterpret_cast<CompiledObject*>(o); }
bool force_eager = false;

// Grows with what regions spare: notes that share a program, or are never made. Those of a GPU gain in other ways, too, and tests note
// everything.
int64_t gained() { return compile::counts.notes - (devices_in_use || compile::worth_noting == 0 ? 0 : compile::counts.programs); }

PyObject* call_compiled(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
    CompiledObject& c = *compiled(self);
    if (force_eager) return PyObject_Vectorcall(c.function, args, nargsf, kwnames);
    if (!c.keeping) {
        // Who notes nothing, or operators that run one by one all the same, has no use for a region: it is looked at again now and then.
        if (c.quiet == enough_quiet && ++c.passed % enough_quiet) {
            passing++;
            PyObject* result = PyObject_Vectorcall(c.function, args, nargsf, kwnames);
            passing--;
            return result;
        }
        const int64_t before = gained();
        compile::enter_region();
        PyObject* result = left(PyObject_Vectorcall(c.function, args, nargsf, kwnames));
        c.quiet = gained() != before ? 0 : std::min<int>(c.quiet + 1, enough_quiet);
        return result;
    }
    const bool before = cuda::keeps_work;
    if (!before) cuda::tidy_memory();
    cuda::keeps_work = true;
    compile::enter_region();
    PyObject* result = left(PyObject_Vectorcall(c.function, args, nargsf, kwnames), before);
    cuda::keeps_work = before;
    return result;
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
    t.tp_name = "wisp._core.compiled_function";
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
}

// (function, whether launches are kept back)
PyObject* make_compiled(PyObject*, PyObject* args) {
    PyObject* function;
    int keeping;
    if (!PyArg_ParseTuple(args, "Op", &function, &keeping)) return nullptr;
    CompiledObject* made = PyObject_GC_New(CompiledObject, &compiled_type);
    if (!made) return nullptr;
    made->call = call_compiled;
    made->function = Py_NewRef(function);
    made->dict = made->weak = nullptr;
    made->keeping = keeping;
    made->quiet = made->passed = 0;
    PyObject_GC_Track(made);
    return reinterpret_cast<PyObject*>(made);
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

void add_compile(PyObject* module) {
    make_compiled_type();
    if (PyModule_AddFunctions(module, methods) < 0) throw PythonError();
}

}  // namespace wisp
