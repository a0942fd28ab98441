// Philox 4x32-10: the random bits of csrc/cpu/random.h.
#pragma once
#include "cuda/kernels/base.cuh"

namespace wisp {

struct Words {
    uint32_t at[4];
};

WISP_INLINE Words philox(uint64_t seed, uint64_t offset, uint64_t block) {
    uint32_t x0 = uint32_t(block), x1 = uint32_t(block >> 32), x2 = uint32_t(offset), x3 = uint32_t(offset >> 32);
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t p = uint64_t(0xD2511F53u) * x0, q = uint64_t(0xCD9E8D57u) * x2;
        x0 = uint32_t(q >> 32) ^ x1 ^ k0;
        x1 = uint32_t(q);
        x2 = uint32_t(p >> 32) ^ x3 ^ k1;
        x3 = uint32_t(p);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
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
