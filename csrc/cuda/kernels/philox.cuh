// Philox 4x32-10: the random bits of csrc/kernels/random.h.
#pragma once
#include "cuda/kernels/base.cuh"

namespace wisp {

#include "kernels/philox_rules.h"

struct Words {
    uint32_t at[4];
};

WISP_INLINE Words philox(uint64_t seed, uint64_t offset, uint64_t block) {
    uint32_t x0 = uint32_t(block), x1 = uint32_t(block >> 32), x2 = uint32_t(offset), x3 = uint32_t(offset >> 32);
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) philox_round(x0, x1, x2, x3, k0, k1);
    return {{x0, x1, x2, x3}};
}

// In a captured graph the numbers of the capture are moved on at each replay: by what a cell of memory holds.
struct Draw {
    uint64_t seed, offset;
    const uint64_t* moved;  // null outside of graphs
};
WISP_INLINE Words philox(Draw d, uint64_t block) {
    return d.moved ? philox(d.seed ^ d.moved[0], d.offset + d.moved[1], block) : philox(d.seed, d.offset, block);
}

}  // namespace wisp
