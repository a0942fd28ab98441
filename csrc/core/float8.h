// Numbers of 8 bits on the CPU, and their format by dtype. Always inlined, as bf16 is.
#pragma once
#include "dtype.h"

namespace wisp {

#define WISP_INLINE inline __attribute__((always_inline))
WISP_INLINE float float_of_bits(uint32_t u) {
    float x;
    std::memcpy(&x, &u, 4);
    return x;
}
WISP_INLINE uint32_t float_bits(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    return u;
}
#include "float8_rules.h"

// Calls f with the format of the dtype.
template <class F> __attribute__((always_inline)) inline void with_float8(DType d, F&& f) {
    switch (d) {
    case DType::f8_e4m3fn: return f(Float8<3, 7, Float8Kind::fn>());
    case DType::f8_e5m2: return f(Float8<2, 15, Float8Kind::ieee>());
    case DType::f8_e4m3fnuz: return f(Float8<3, 8, Float8Kind::fnuz>());
    case DType::f8_e5m2fnuz: return f(Float8<2, 16, Float8Kind::fnuz>());
    default: return f(Float8Exponent());
    }
}

}  // namespace wisp
