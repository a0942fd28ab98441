// Picks, once at load, the tables of kernels for the instruction set of this processor (see isa.h).
//
// WISP_ISA=avx2 or WISP_ISA=base in the environment asks for less than the processor has, for tests.
#include <cstdlib>
#include <cstring>

#include "kernels/families.h"

namespace wisp::cpu {
namespace {

enum Isa { isa_base, isa_avx2, isa_avx512 };

Isa detect() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    Isa isa = isa_base;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
        isa = isa_avx2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl"))
            isa = isa_avx512;
    }
    if (const char* asked = std::getenv("WISP_ISA")) {
        if (std::strcmp(asked, "base") == 0) isa = isa_base;
        if (std::strcmp(asked, "avx2") == 0 && isa > isa_avx2) isa = isa_avx2;
    }
    return isa;
#else
    return isa_base;
#endif
}

const Isa chosen = detect();

}  // namespace

const char* isa_name() { return chosen == isa_avx512 ? "avx512" : chosen == isa_avx2 ? "avx2" : "base"; }

}  // namespace wisp::cpu

#if defined(WISP_ONLY)  // a build for one machine (WISP_NATIVE)
#define WISP_TABLE(Type, name)                              \
    namespace wisp::cpu {                                   \
    namespace WISP_ONLY { extern const Type name##_table; } \
    const Type& name = WISP_ONLY::name##_table;             \
    }
#elif defined(__x86_64__)
#define WISP_TABLE(Type, name)                                                                                                     \
    namespace wisp::cpu {                                                                                                          \
    namespace avx512 { extern const Type name##_table; }                                                                           \
    namespace avx2 { extern const Type name##_table; }                                                                             \
    namespace base { extern const Type name##_table; }                                                                             \
    const Type& name = chosen == isa_avx512 ? avx512::name##_table : chosen == isa_avx2 ? avx2::name##_table : base::name##_table; \
    }
#else
#define WISP_TABLE(Type, name)                         \
    namespace wisp::cpu {                              \
    namespace base { extern const Type name##_table; } \
    const Type& name = base::name##_table;             \
    }
#endif

WISP_FAMILIES(WISP_TABLE)
WISP_CPU_PARTS(WISP_TABLE)
