// Settings of the process that Python reads and changes: the number of threads, the instruction set.
#include "../core/threads.h"
#include "registry.h"
#include "tensor_type.h"

namespace wisp {

static bool warn_always = false;  // whether warnings that are for once in a program come each time

void warn_once(bool& told, const char* text) {
    if (!told || warn_always) warn(text);
    told = true;
}

namespace cpu {
const char* isa_name();
std::string built_isas();
}  // namespace cpu

namespace {

// PyTorch's second pool, for whole operators at a time, is one that Wisp does not have: the number is only remembered.
int64_t interop_threads = 1;

const Operators operators = {
    {"_warn_always(bool on)", [](bool on) { warn_always = on; }, function},
    {"get_num_threads()", []() -> int64_t { return num_threads(); }, function,
     R"(How many threads kernels use.
        >>> wisp.get_num_threads() >= 1
        True)"},
    {"set_num_threads(int int)",
     [](int64_t n) {
         if (n <= 0) throw RuntimeError("set_num_threads expects a positive integer, got ", n);
         set_num_threads(int(std::min<int64_t>(n, 4096)));
     },
     function,
     R"(Sets how many threads kernels use.
        >>> wisp.set_num_threads(wisp.get_num_threads()))"},
    {"get_num_interop_threads()", []() -> int64_t { return interop_threads; }, function,
     R"(How many operators run at once: they run one after the other.
        >>> wisp.get_num_interop_threads() >= 1
        True)"},
    {"set_num_interop_threads(int int)",
     [](int64_t n) {
         if (n <= 0) throw RuntimeError("set_num_interop_threads expects a positive integer, got ", n);
         interop_threads = n;
     },
     function,
     R"(Accepted, and without effect: operators run one after the other.
        >>> wisp.set_num_interop_threads(1))"},
    {"_built_instruction_sets()", []() { return PyUnicode_FromString(cpu::built_isas().c_str()); }, function},
    {"_cpu_capability()", []() { return PyUnicode_FromString(cpu::isa_name()); }, function},
};

}  // namespace
}  // namespace wisp
