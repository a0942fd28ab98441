// What the profiler sees: operators, backward nodes, modules and the user's own ranges, with their times and memory.
// While no profiler runs, a call pays one test of a global. Events are kept here and handed to Python at the end
// (wisp/profiler); all of it happens with the interpreter lock held.
#pragma once
#include "../core/tensor.h"

namespace wisp {

enum class EventKind : uint8_t { operation, backward, user, module };

extern bool profiling;

// An event from `begin` to the end of the scope. Does nothing unless `begin` is called.
class Profiled {
public:
    Profiled() = default;
    ~Profiled() {
        if (event_ >= 0) [[unlikely]]
            end();
    }
    Profiled(const Profiled&) = delete;
    // The event's name is name + suffix; shapes are taken of the tensors among `arguments`.
    void begin(EventKind kind, const char* name, const char* suffix, PyObject* const* arguments, int64_t count, int64_t sequence = -1);

private:
    void end();
    int64_t event_ = -1;
};

}  // namespace wisp
