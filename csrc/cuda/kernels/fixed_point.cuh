// Sums of floats that do not depend on the order of their elements: the largest exponent that goes to a place sets its unit, in which all
// that goes there is added as integers of 64 bits.
#pragma once
#include "cuda/kernels/base.cuh"

namespace wisp {

// The exponent of x and one more, so that 0 is nothing; 256: infinite or NaN.
WISP_INLINE unsigned exponent_of(float x) { return (__float_as_uint(x) >> 23 & 255) + 1; }

// x in units of a place whose largest element has exponent e. x is below 2^(e - 127); 1 and 2 have the same unit.
WISP_INLINE long long in_units(float x, unsigned e, int bits) {
    const int shift = bits - (int(e < 2 ? 2 : e) - 127);
    return __double2ll_rn(double(x) * __longlong_as_double((long long)(shift + 1023) << 52));
}

constexpr unsigned long long sum_nan = 1, sum_plus = 2, sum_minus = 4;  // what a sum of exponent 256 has
// `bits`: of a sum that its largest element may fill.
WISP_INLINE void add_fixed(unsigned long long* sum, float x, unsigned e, int bits) {
    if (e == 256) {
        if (exponent_of(x) == 256) atomicOr(sum, x != x ? sum_nan : x > 0 ? sum_plus : sum_minus);
        return;
    }
    const long long fixed = in_units(x, e, bits);
    if (fixed) atomicAdd(sum, (unsigned long long)fixed);
}
WISP_INLINE float sum_joined(float old, unsigned e, unsigned long long sum, int bits) {
    if (e == 256) {
        const float special = sum & sum_nan || (sum & sum_plus && sum & sum_minus) ? NAN : sum & sum_plus ? INFINITY : -INFINITY;
        return old + special;
    }
    const int shift = bits - (int(e < 2 ? 2 : e) - 127);
    return float(double(old) + double((long long)sum) * __longlong_as_double((long long)(1023 - shift) << 52));
}

}  // namespace wisp
