// Scans within a block of 256 threads, and over the tiles of one launch: what running sums, compaction and selection build on.
#pragma once
#include "cuda/kernels/base.cuh"

namespace wisp {

template <class C> struct Words {
    uint32_t at[sizeof(C) / 4];
};
template <class C, class How> WISP_INLINE C by_words(C x, How how) {
    Words<C> w;
    memcpy(&w, &x, sizeof x);
    for (int i = 0; i < int(sizeof(C) / 4); i++) w.at[i] = how(w.at[i]);
    memcpy(&x, &w, sizeof x);
    return x;
}
template <class C> WISP_INLINE C shuffle_up(C x, int by) {
    return by_words(x, [&](uint32_t word) { return __shfl_up_sync(0xffffffffu, word, by); });
}
template <class C> WISP_INLINE C shuffle_from(C x, int lane) {
    return by_words(x, [&](uint32_t word) { return __shfl_sync(0xffffffffu, word, lane); });
}
// Past the first cache, which does not see what other blocks write.
template <class C> WISP_INLINE C load_shared_by_blocks(const C* p) {
    Words<C> w;
    for (int i = 0; i < int(sizeof(C) / 4); i++) w.at[i] = __ldcg(reinterpret_cast<const uint32_t*>(p) + i);
    C x;
    memcpy(&x, &w, sizeof x);
    return x;
}

struct Plus {
    template <class C> WISP_INLINE C operator()(C a, C b) const { return a + b; }
};

// What all threads before this one hold, combined in order; `total`: what all of them do. `sums`: 8 cells of shared memory, which may be
// used again after the next barrier.
template <class C, class Op> WISP_INLINE C block_prefix(C own, C identity, C& total, C* sums, Op op) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    C inclusive = own;
    for (int by = 1; by < 32; by *= 2) {
        const C before = shuffle_up(inclusive, by);
        if (lane >= by) inclusive = op(before, inclusive);
    }
    if (lane == 31) sums[warp] = inclusive;
    __syncthreads();
    C before = identity, all = identity;
    for (int w = 0; w < 8; w++) {
        if (w == warp) before = all;
        all = op(all, sums[w]);
    }
    total = all;
    const C exclusive = shuffle_up(inclusive, 1);
    return lane == 0 ? before : op(before, exclusive);
}

// What the tiles of a launch tell each other. They are numbered as they begin, so whatever one waits for is running or done. A tile joins
// the sums of those before it in its group of 256, always in the same order, and one number of the groups before: results do not depend
// on timing, and the chain that one tile after another must wait for is short.
constexpr unsigned tile_group = 256;
template <class C> struct alignas(16) Told {  // zero before the launch
    C value;
    unsigned there;
};
template <class C> struct Tiles {
    unsigned* begun;  // zero before the launch
    Told<C>* sums;    // by tile
    Told<C>* starts;  // by first tile of a group: all before it
};

template <class C> WISP_INLINE unsigned next_tile(const Tiles<C>& tiles, unsigned* number) {
    if (threadIdx.x == 0) *number = atomicAdd(tiles.begun, 1u);
    __syncthreads();
    return *number;
}
// A value of at most eight bytes and its flag are written and read as one; larger ones have the flag written last.
template <class C> WISP_INLINE void tell(Told<C>* cell, C value) {
    if constexpr (sizeof(Told<C>) == 16) {
        Told<C> told;
        told.value = value;
        told.there = 1;
        uint32_t w[4];
        memcpy(w, &told, 16);
        asm volatile("st.volatile.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(cell), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
    } else {
        cell->value = value;
        __threadfence();
        atomicExch(&cell->there, 1u);
    }
}
template <class C> WISP_INLINE C wait_for(const Told<C>* cell) {
    if constexpr (sizeof(Told<C>) == 16) {
        Told<C> told;
        do {
            uint32_t w[4];
            asm volatile("ld.volatile.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                         : "l"(cell)
                         : "memory");
            memcpy(&told, w, 16);
        } while (!told.there);
        return told.value;
    } else {
        while (*static_cast<const volatile unsigned*>(&cell->there) == 0) {}
        __threadfence();
        return load_shared_by_blocks(&cell->value);
    }
}
// All before this tile, which is number `at` of its row of `count` tiles and holds `own` (known to all threads).
template <class C, class Op>
WISP_INLINE C tile_prefix(const Tiles<C>& tiles, unsigned tile, unsigned at, unsigned count, C own, C identity, C* sums, C* result, Op op) {
    if (count == 1) return identity;
    if (threadIdx.x == 0 && at + 1 < count) tell(tiles.sums + tile, own);
    const unsigned inside = at % tile_group, first = tile - inside;
    const C one = threadIdx.x < inside ? wait_for(tiles.sums + first + threadIdx.x) : identity;
    C total;
    block_prefix(one, identity, total, sums, op);
    if (threadIdx.x == 0) {
        C before = total;
        if (at >= tile_group) {
            const C start = wait_for(tiles.starts + first);
            before = op(start, total);
        }
        if (inside == tile_group - 1 && at + 1 < count) tell(tiles.starts + tile + 1, op(before, own));
        *result = before;
    }
    __syncthreads();
    return *result;
}

}  // namespace wisp
