// Numbers of 8 bits: what a code means, and the code of a float, rounded to nearest even. Always inlined, as bf16 is.
#pragma once
#include "dtype.h"

namespace wisp {

// How a format spends its largest codes: on infinities and NaN as IEEE's; on one NaN (fn), where what is too large becomes the largest
// number, as in PyTorch; or on none (fnuz), where the negative zero's code is NaN, and what is too large becomes that.
enum class Float8Kind { ieee, fn, fnuz };

template <int Mantissa, int Bias, Float8Kind Kind> struct Float8 {
    static constexpr uint32_t nan = Kind == Float8Kind::fnuz ? 0x80 : 0x7f;
    static constexpr uint32_t infinity = Kind == Float8Kind::ieee ? 0x7c : Kind == Float8Kind::fn ? 0x7e : nan;
    static constexpr uint32_t largest = Kind == Float8Kind::ieee ? 0x7b : Kind == Float8Kind::fn ? 0x7e : 0x7f;

    __attribute__((always_inline)) static inline float as_float(uint32_t u) {
        float x;
        std::memcpy(&x, &u, 4);
        return x;
    }
    __attribute__((always_inline)) static inline uint32_t bits_of(float x) {
        uint32_t u;
        std::memcpy(&u, &x, 4);
        return u;
    }
    __attribute__((always_inline)) static inline float decode(uint8_t code) {
        const uint32_t rest = code & 0x7fu, sign = uint32_t(code & 0x80) << 24;
        constexpr float scale = as_power(127 - Bias);
        const float x = as_float(rest << (23 - Mantissa)) * scale;  // rebias; subnormals come out right
        if (Kind == Float8Kind::fnuz) return code == 0x80 ? as_float(0xffc00000u) : as_float(bits_of(x) | sign);
        if (rest > largest) return as_float(sign | (rest == infinity && Kind == Float8Kind::ieee ? 0x7f800000u : 0x7fc00000u));
        return as_float(bits_of(x) | sign);
    }
    __attribute__((always_inline)) static inline uint8_t encode(float x) {
        const uint32_t u = bits_of(x), sign = u >> 24 & 0x80, rest = u & 0x7fffffffu;
        constexpr uint32_t lowest_normal = uint32_t(128 - Bias) << 23, tie = (1u << (22 - Mantissa)) - 1;
        constexpr float unit = as_power(24 - Bias - Mantissa);  // added, it leaves the multiples of the smallest subnormal
        uint32_t code = rest < lowest_normal
                            ? bits_of(as_float(rest) + unit) - bits_of(unit)
                            : (rest - (uint32_t(127 - Bias) << 23) + tie + (rest >> (23 - Mantissa) & 1)) >> (23 - Mantissa);
        if (rest > 0x7f800000u) code = nan;
        else if (code > largest) code = infinity;
        if (Kind == Float8Kind::fnuz) return uint8_t(code == 0 || code == nan ? code : code | sign);
        return uint8_t(code | sign);
    }

private:
    static constexpr float as_power(int exponent) {
        float x = 1;
        for (; exponent > 0; exponent--) x *= 2;
        for (; exponent < 0; exponent++) x /= 2;
        return x;
    }
};

// A power of two without sign: the exponent of a float.
struct Float8Exponent {
    __attribute__((always_inline)) static inline float decode(uint8_t code) {
        const uint32_t u = code == 0xff ? 0x7fc00000u : code == 0 ? 0x00400000u : uint32_t(code) << 23;
        float x;
        std::memcpy(&x, &u, 4);
        return x;
    }
    __attribute__((always_inline)) static inline uint8_t encode(float x) {
        uint32_t u;
        std::memcpy(&u, &x, 4);
        const uint32_t exponent = u >> 23 & 0xff, rest = u & 0x7fffff;
        if (exponent == 0xff) return 0xff;
        return uint8_t(exponent + (rest > 0x400000 || (rest == 0x400000 && exponent > 0)));
    }
};

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
