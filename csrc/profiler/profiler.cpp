// Events of the profiler, and the functions that Python starts and stops it with.
#include "profiler.h"

#include <frameobject.h>
#include <time.h>

#include <string>

#include "../core/allocator.h"
#include "../cuda/runtime.h"
#include "../python/registry.h"
#include "../autograd/engine.h"

namespace wisp {

bool profiling = false;

namespace {

struct Event {
    std::string name;
    EventKind kind;
    uint64_t thread;
    int64_t start, end;                   // nanoseconds
    int64_t parent;                       // index of the event around it in the same thread, or -1
    int64_t memory_before, memory_after;  // live bytes
    int64_t sequence;                     // of a forward operator: the node that would come next; of a backward node: its own
    PyObject *shapes, *stack;             // or null
};

std::vector<Event> events;
bool with_shapes, with_stack, with_modules;
int64_t session = 0;  // a scope that outlives its session writes nothing
thread_local int64_t innermost = -1, innermost_session = -1;

int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

PyObject* shape_of(PyObject* o) {
    if (o && is_tensor(o)) {
        const Tensor t = Tensor::borrow(as_tensor_object(o));
        return Py_BuildValue("(NN)", tuple_of_ints(t.sizes()), dtype_object(t.dtype()));
    }
    if (o && (PyTuple_Check(o) || PyList_Check(o)) && PySequence_Fast_GET_SIZE(o) > 0 && is_tensor(PySequence_Fast_GET_ITEM(o, 0))) {
        PyObject* list = PyList_New(0);
        for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(o); i++) {
            PyObject* s = shape_of(PySequence_Fast_GET_ITEM(o, i));
            if (s) PyList_Append(list, s);
            Py_XDECREF(s);
        }
        return list;
    }
    Py_RETURN_NONE;
}

PyObject* shapes_of(PyObject* const* arguments, int64_t count) {
    PyObject* tuple = PyTuple_New(count);
    for (int64_t i = 0; tuple && i < count; i++) {
        PyObject* s = shape_of(arguments[i]);
        if (!s) {
            Py_DECREF(tuple);
            return nullptr;
        }
        PyTuple_SET_ITEM(tuple, i, s);
    }
    return tuple;
}

// The frames of this thread, innermost first, as (code object, line).
PyObject* stack_now() {
    PyObject* list = PyList_New(0);
    PyFrameObject* frame = PyEval_GetFrame();
    Py_XINCREF(reinterpret_cast<PyObject*>(frame));
    for (int depth = 0; list && frame && depth < 64; depth++) {
        PyObject* entry = Py_BuildValue("(Ni)", reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)), PyFrame_GetLineNumber(frame));
        if (entry) PyList_Append(list, entry);
        Py_XDECREF(entry);
        PyFrameObject* back = PyFrame_GetBack(frame);
        Py_DECREF(reinterpret_cast<PyObject*>(frame));
        frame = back;
    }
    Py_XDECREF(reinterpret_cast<PyObject*>(frame));
    return list;
}

int64_t open_event(EventKind kind, std::string name, PyObject* const* arguments, int64_t count, int64_t sequence) {
    if (kind == EventKind::module && !with_modules) return -1;
    if (kind == EventKind::operation && name.starts_with("_profiler_")) return -1;
    Event e;
    e.name = std::move(name);
    e.kind = kind;
    e.thread = PyThread_get_thread_native_id();
    e.parent = innermost_session == session ? innermost : -1;
    e.sequence = sequence >= 0 ? sequence : int64_t(upcoming_sequence());
    e.shapes = with_shapes && count ? shapes_of(arguments, count) : nullptr;
    e.stack = with_stack ? stack_now() : nullptr;
    PyErr_Clear();
    e.memory_before = e.memory_after = allocator_stats().live_bytes;
    e.end = -1;
    e.start = now();
    events.push_back(std::move(e));
    innermost = int64_t(events.size()) - 1;
    innermost_session = session;
    return innermost | session << 40;
}

void close_event(int64_t event) {
    const int64_t i = event & ((int64_t(1) << 40) - 1);
    if (event >> 40 != session || i >= int64_t(events.size())) return;
    Event& e = events[size_t(i)];
    e.end = now();
    e.memory_after = allocator_stats().live_bytes;
    innermost = e.parent;
    innermost_session = session;
}

void drop_events() {
    for (Event& e : events) {
        Py_XDECREF(e.shapes);
        Py_XDECREF(e.stack);
    }
    events.clear();
}

PyObject* or_none(PyObject* o) {
    PyObject* r = o ? o : Py_None;
    Py_INCREF(r);
    return r;
}

PyObject* take_events() {
    const int64_t stop = now();
    Ref list(PyList_New(Py_ssize_t(events.size())));
    for (size_t i = 0; i < events.size(); i++) {
        const Event& e = events[i];
        const char* kinds[] = {"op", "backward", "user", "module"};
        PyObject* row =
            Py_BuildValue("(ssKLLLLLLNN)", e.name.c_str(), kinds[int(e.kind)], (unsigned long long)(e.thread), (long long)(e.start),
                          (long long)(e.end < 0 ? stop : e.end), (long long)(e.parent), (long long)(e.memory_before),
                          (long long)(e.memory_after), (long long)(e.sequence), or_none(e.shapes), or_none(e.stack));
        if (!row) throw PythonError();
        PyList_SET_ITEM(list.get(), Py_ssize_t(i), row);
    }
    drop_events();
    return list.release();
}

PyObject* take_kernels() {
    const std::vector<cuda::TimedKernel> kernels = cuda::stop_timing();
    Ref list(PyList_New(Py_ssize_t(kernels.size())));
    for (size_t i = 0; i < kernels.size(); i++) {
        const cuda::TimedKernel& k = kernels[i];
        PyObject* row =
            Py_BuildValue("(sLLLi)", k.name.c_str(), (long long)(k.start), (long long)(k.length), (long long)(k.owner), k.device);
        if (!row) throw PythonError();
        PyList_SET_ITEM(list.get(), Py_ssize_t(i), row);
    }
    return list.release();
}

const Operators operators = {
    // Kernels of the GPU since `_profiler_start`: name, start, length, the event that launched them, device.
    {"_profiler_kernels()", take_kernels, function},
    {"_profiler_start(bool shapes, bool stack, bool modules, bool kernels=False)",
     [](bool shapes, bool stack, bool modules, bool kernels) {
         if (profiling) throw RuntimeError("Profiler is already enabled on this thread: stop the one that runs before another is started");
         drop_events();
         session++;
         with_shapes = shapes;
         with_stack = stack;
         with_modules = modules;
         profiling = true;
         if (kernels) cuda::start_timing([]() -> int64_t { return innermost_session == session ? innermost : -1; });
     },
     function},
    {"_profiler_stop()",
     []() {
         profiling = false;
         PyObject* list = take_events();
         session++;
         return list;
     },
     function},
    {"_profiler_enabled()", []() { return profiling; }, function},
    {"_profiler_enter(str name)",
     [](std::string name) { return profiling ? open_event(EventKind::user, std::move(name), nullptr, 0, -1) : int64_t(-1); }, function},
    {"_profiler_exit(int event)",
     [](int64_t event) {
         if (event >= 0) close_event(event);
     },
     function},
    {"_upcoming_sequence()", []() { return int64_t(upcoming_sequence()); }, function},
};

}  // namespace

void Profiled::begin(EventKind kind, const char* name, const char* suffix, PyObject* const* arguments, int64_t count, int64_t sequence) {
    event_ = open_event(kind, std::string(name) + suffix, arguments, count, sequence);
}

void Profiled::end() { close_event(event_); }

}  // namespace wisp
