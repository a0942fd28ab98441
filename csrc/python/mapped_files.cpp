// Files that are mapped as the memory of tensors. Where such a file is cut short meanwhile, reading what is gone raises an exception and
// does not end the process: the system tells of the read by SIGBUS, the handler puts zeros where nothing is, so that the kernel which reads
// comes to its end, and the exception waits until it is back in Python.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "registry.h"

namespace wisp {
namespace {

// Read by the handler without a lock: an entry is valid while its begin is not 0.
struct Range {
    std::atomic<uintptr_t> begin{0}, end{0};
    std::string path;
};
constexpr int most = 4096;  // files beyond are mapped without this guard
Range ranges[most];
std::atomic<int> used{0}, cut{-1};
struct sigaction before;

int raise_cut(void*) {
    const int i = cut.exchange(-1);
    if (i >= 0)
        PyErr_Format(PyExc_OSError,
                     "%s was cut short while it was mapped as the memory of tensors: what is gone from it reads as zeros now. Load it "
                     "without mmap, or write a new file and rename it, as save does, instead of changing one that is in use.",
                     ranges[i].path.c_str());
    return i >= 0 ? -1 : 0;
}

void on_fault(int number, siginfo_t* info, void* context) {
    const uintptr_t at = uintptr_t(info->si_addr), page = at & ~(uintptr_t(sysconf(_SC_PAGESIZE)) - 1);
    for (int i = 0; i < used; i++) {
        const uintptr_t begin = ranges[i].begin, end = ranges[i].end;
        if (begin == 0 || at < begin || at >= end) continue;
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
        if (mmap(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) break;
        // The thread is in a kernel's loop, never in Python's own lock, so this cannot wait for itself.
        if (cut.exchange(i) < 0) Py_AddPendingCall(raise_cut, nullptr);
        return;
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        sigaction(number, &before, nullptr);  // the same read again, and what the system does then
    }
}

void watch_faults() {
    static bool done = false;
    if (done) return;
    done = true;
    struct sigaction ours = {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGBUS, &ours, &before);
}

const Operators operators = {
    // -> a number for _forget_mapping, when the memory is given back
    {"_guard_mapping(any memory, str path)",
     [](PyObject* memory, const std::string& path) -> int64_t {
         Py_buffer view;
         if (PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE) < 0) throw PythonError();
         const uintptr_t begin = uintptr_t(view.buf), size = size_t(view.len), page = uintptr_t(sysconf(_SC_PAGESIZE));
         PyBuffer_Release(&view);
         watch_faults();
         for (int i = 0; i < most; i++) {
             if (ranges[i].begin != 0) continue;
             ranges[i].path = path;
             ranges[i].end = (begin + size + page - 1) / page * page;
             ranges[i].begin = begin;
             if (i >= used) used = i + 1;
             return i;
         }
         return -1;
     },
     function},
    {"_forget_mapping(int number)",
     [](int64_t number) {
         if (number >= 0 && number < most) ranges[number].begin = 0;
     },
     function},
};

}  // namespace
}  // namespace wisp
