// Sorting of 64-bit keys with their positions on the GPU: what sorts, scatters and sums by destination build on.
#pragma once
#include <cstdint>
#include <utility>

#include "runtime.h"

namespace wisp::cuda {

inline Grid threads(int64_t n) { return {unsigned((n + 255) / 256)}; }

// A kernel that has one instance; `Tag`: one type for each use.
template <class Tag> Kernel* only_kernel(const char* file, const char* name) {
    static Kernel* const kernel = find_kernel(file, name);
    return kernel;
}

constexpr const char* sort_file = "cuda/kernels/sort.cuh";
constexpr int offset_bits = 40;  // of an element in a storage
// A destination that none has: what was to go there is dropped.
constexpr uint64_t nowhere = (uint64_t(1) << offset_bits) - 1;

// Fill keys `k` and positions `p`, sort by the lowest bits of the keys (stable), read them where they are then.
struct Pairs {
    static constexpr int64_t tile = 2048;
    Scratch keys, positions, other_keys, other_positions, counts;
    int64_t n;
    uint64_t *k, *k2;
    int64_t *p, *p2;
    explicit Pairs(int64_t n)
        : keys(size_t(n) * 8),
          positions(size_t(n) * 8),
          other_keys(size_t(n) * 8),
          other_positions(size_t(n) * 8),
          counts(size_t((n + tile - 1) / tile) * 256 * 8),
          n(n),
          k(keys.as<uint64_t>()),
          k2(other_keys.as<uint64_t>()),
          p(positions.as<int64_t>()),
          p2(other_positions.as<int64_t>()) {}
    void sort(int bits) {
        const unsigned blocks = unsigned((n + tile - 1) / tile);
        int64_t* c = counts.as<int64_t>();
        for (int shift = 0; shift < bits; shift += 8) {
            launch_with(only_kernel<struct RadixCount>(sort_file, "radix_count"), {blocks}, {256}, 0, k, n, shift, c);
            launch_with(only_kernel<struct ExclusiveSums>(sort_file, "exclusive_sums"), {1}, {1024}, 0, c, int64_t(blocks) * 256);
            launch_with(only_kernel<struct RadixScatter>(sort_file, "radix_scatter"), {blocks}, {256}, 0, k, p, n, shift, c, k2, p2);
            std::swap(k, k2);
            std::swap(p, p2);
        }
    }
    // How many bits keys below `limit` have, in whole passes.
    static int bits_for(int64_t limit) {
        int bits = 8;
        while (bits < 64 && (int64_t(1) << bits) < limit) bits += 8;
        return bits;
    }
};

}  // namespace wisp::cuda
