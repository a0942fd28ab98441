// Picks, once at load, the tables of kernels for the instruction set of this processor (see isa.h).
//
// CMakeLists.txt says which sets are built: WISP_LOWEST is the least of them, WISP_AVX2 and WISP_AVX512 are those above it.
// AArch64 has one, NEON, which all of its processors know.
// WISP_ISA=avx2 or WISP_ISA=base in the environment asks for less than the processor has, for tests; WISP_ISA=avx512 for no tiles (AMX).
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "kernels/families.h"
#include "kernels/lapack.h"

#if defined(WISP_AVX512)
#define WISP_WITH_AVX512(...) __VA_ARGS__
#else
#define WISP_WITH_AVX512(...)
#endif
#if defined(WISP_AVX2)
#define WISP_WITH_AVX2(...) __VA_ARGS__
#else
#define WISP_WITH_AVX2(...)
#endif
#define WISP_JOIN(a, b) a##b
#define WISP_JOINED(a, b) WISP_JOIN(a, b)

namespace wisp::cpu {
namespace {

#if defined(__aarch64__)
enum Isa { isa_neon };
constexpr const char* names[] = {"neon"};
#else
enum Isa { isa_base, isa_avx2, isa_avx512 };
constexpr const char* names[] = {"base", "avx2", "avx512"};
#endif
constexpr int isa_count = int(std::size(names));
constexpr Isa lowest = WISP_JOINED(isa_, WISP_LOWEST);

Isa of_processor() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2")) return isa_base;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    return wide ? isa_avx512 : isa_avx2;
#else
    return Isa(0);
#endif
}

bool is_built(int isa) { return isa == lowest WISP_WITH_AVX2(|| isa == isa_avx2) WISP_WITH_AVX512(|| isa == isa_avx512); }

Isa choose() {
    int isa = of_processor();
    if (const char* asked = std::getenv("WISP_ISA"))
        for (int i = lowest; i < isa; ++i)
            if (std::strcmp(asked, names[i]) == 0) isa = i;
    while (isa > lowest && !is_built(isa)) --isa;
    return Isa(isa);
}

const Isa chosen = choose();

}  // namespace

const char* isa_name() { return names[chosen]; }
bool tiles_allowed() { return !std::getenv("WISP_ISA"); }
const char* missing_isa() { return chosen < lowest ? names[lowest] : nullptr; }
std::string built_isas() {
    std::string built;
    for (int i = 0; i < isa_count; ++i)
        if (is_built(i)) built += (built.empty() ? "" : " ") + std::string(names[i]);
    return built;
}

}  // namespace wisp::cpu

// clang-format off: one choice, written in three steps
#define WISP_TABLE(Type, name)                                                       \
    namespace wisp::cpu {                                                            \
    WISP_WITH_AVX512(namespace avx512 { extern const Type name##_table; })           \
    WISP_WITH_AVX2(namespace avx2 { extern const Type name##_table; })               \
    namespace WISP_LOWEST { extern const Type name##_table; }                        \
    const Type& name = WISP_WITH_AVX512(chosen == isa_avx512 ? avx512::name##_table :) \
                       WISP_WITH_AVX2(chosen == isa_avx2 ? avx2::name##_table :)     \
                       WISP_LOWEST::name##_table;                                    \
    }
// clang-format on

WISP_FAMILIES(WISP_TABLE)
WISP_CPU_PARTS(WISP_TABLE)
WISP_TABLE(SystemKernels, systems)
