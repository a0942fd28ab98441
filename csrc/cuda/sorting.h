// Sorting on the GPU, and what tiles of a launch tell each other: what selection, compaction, scans and scatters build on.
#pragma once
#include <cstdint>
#include <utility>

#include "../core/dtype.h"
#include "runtime.h"

namespace wisp::cuda {

inline Grid threads(int64_t n) { return {unsigned((n + 255) / 256)}; }

// A kernel that has one instance; `Tag`: one type for each use.
template <class Tag> Kernel* only_kernel(const char* file, const char* name) {
    static Kernel* const kernel = find_kernel(file, name);
    return kernel;
}

// Rows of n elements, stable; NaN is the largest. values or indices may be null, and values may be `in`. `bits`: of the elements, which are
// unsigned then, that can differ; 0: all.
void sort_rows(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, bool descending, int bits = 0);

// For the table of sorting and for others; scatter.cpp has all but the last two, which are in scan.cpp.
void count_places(int64_t* out, const int64_t* index, int64_t n, int64_t bins);
void count_values(int64_t* out, const void* values, DType dtype, int64_t n, int64_t bins, double low, double high);
// Sums in fixed point (kernels/fixed_point.cuh): the bits of a sum of n elements that its largest may fill, and out[i] += sum i.
int bits_of_largest(int64_t n);
void add_fixed_sums(float* out, const unsigned* exponents, const unsigned long long* sums, int64_t n, int bits);
void run_starts(bool* out, const void* in, DType dtype, int64_t n);
int64_t run_values(void* out, const void* in, DType dtype, int64_t n);

// Fill `k`, sort by its lowest bits (stable); then `k` is in order, and `p` has the positions that its elements had.
struct Pairs {
    Scratch keys, sorted, positions;
    int64_t n;
    uint64_t* k;
    int64_t* p;
    explicit Pairs(int64_t n)
        : keys(size_t(n) * 8), sorted(size_t(n) * 8), positions(size_t(n) * 8), n(n), k(keys.as<uint64_t>()), p(positions.as<int64_t>()) {}
    void sort(int bits) {
        sort_rows(sorted.data(), p, k, DType::u64, 1, n, false, bits);
        k = sorted.as<uint64_t>();
    }
    // How many bits keys below `limit` have.
    static int bits_for(int64_t limit) {
        int bits = 1;
        while (bits < 63 && (int64_t(1) << bits) < limit) bits++;
        return bits;
    }
};

// As Tiles in kernels/tiles.cuh, for so many tiles that hold numbers of so many bytes.
struct Tiles {
    unsigned* begun;
    char *sums, *starts;
};
class TileMemory {
public:
    TileMemory(int64_t tiles, int64_t bytes) : memory_(size_t(16 + 2 * tiles * cell(bytes))) {
        fill_zero(memory_.data(), size_t(16 + 2 * tiles * cell(bytes)));
        char* m = memory_.as<char>();
        tiles_ = {memory_.as<unsigned>(), m + 16, m + 16 + tiles * cell(bytes)};
    }
    const Tiles& tiles() const { return tiles_; }

private:
    static int64_t cell(int64_t bytes) { return bytes > 8 ? 32 : 16; }
    Scratch memory_;
    Tiles tiles_;
};

}  // namespace wisp::cuda
