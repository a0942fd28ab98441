// Compiled regions for Python: wisp.compiler calls functions in and out of them.
#include "../compile/tape.h"
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

// Called for every compiled function: (function, tuple, dict), as our own Python gives them.
PyObject* call_noting(PyObject*, PyObject* const* args, Py_ssize_t) {
    compile::enter_region();
    return left(PyObject_Call(args[0], args[1], args[2]));
}

// The same, with launches on the GPU kept back (cuda/replay.cpp).
PyObject* call_keeping(PyObject*, PyObject* args) {
    PyObject *function, *arguments, *keywords;
    if (!take(args, function, arguments, keywords)) return nullptr;
    const bool before = cuda::keeps_work;
    if (!before) cuda::tidy_memory();
    cuda::keeps_work = true;
    compile::enter_region();
    PyObject* result = left(PyObject_Call(function, arguments, keywords), before);
    cuda::keeps_work = before;
    return result;
}

PyObject* call_at_once(PyObject*, PyObject* args) {
    PyObject *function, *arguments, *keywords;
    if (!take(args, function, arguments, keywords)) return nullptr;
    compile::Pause pause;
    return PyObject_Call(function, arguments, keywords);
}

PyObject* is_noting(PyObject*, PyObject*) { return PyBool_FromLong(noting); }

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

PyMethodDef methods[] = {{"_call_noting", reinterpret_cast<PyCFunction>(call_noting), METH_FASTCALL, nullptr},
                         {"_call_keeping", call_keeping, METH_VARARGS, nullptr},
                         {"_call_at_once", call_at_once, METH_VARARGS, nullptr},
                         {"_call_watched", call_watched, METH_VARARGS, nullptr},
                         {"_is_noting", is_noting, METH_NOARGS, nullptr},
                         {"_run_noted", run_noted, METH_NOARGS, nullptr},
                         {"_set_worth_noting", set_worth_noting, METH_O, nullptr},
                         {"_noted_counts", noted_counts, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_compile(PyObject* module) {
    if (PyModule_AddFunctions(module, methods) < 0) throw PythonError();
}

}  // namespace wisp
