// Division by a number known before the launch, as kernels/base.cuh does it.
#pragma once
#include <cstdint>

namespace wisp::cuda {

struct Divider {
    uint32_t divisor, multiplier, shift;
};

inline Divider divider(uint32_t d) {
    if (d == 0) d = 1;  // of an empty dimension: nothing will be divided
    uint32_t shift = 0;
    while (shift < 32 && (uint64_t(1) << shift) < d) shift++;
    return {d, uint32_t(((uint64_t(1) << 32) * ((uint64_t(1) << shift) - d)) / d + 1), shift};
}

}  // namespace wisp::cuda
