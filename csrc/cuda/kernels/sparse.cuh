// Products with a sparse matrix in compressed rows. Sums run in the order of the entries. Where the pattern is wrong,
// which is reported, nothing outside of its arrays is read.
#include "cuda/kernels/base.cuh"

namespace wisp {

struct CsrPattern {
    int64_t rows, columns, entries;
    const int64_t *start, *column;
};

WISP_INLINE int64_t entry_bound(const CsrPattern& p, int64_t row) {
    const int64_t at = p.start[row];
    return at < 0 ? 0 : at > p.entries ? p.entries : at;
}
// The row of an entry: the last one that begins at or before it.
WISP_INLINE int64_t row_of(const CsrPattern& p, int64_t entry) {
    int64_t low = 0;
    for (int64_t count = p.rows; count > 0;) {
        const int64_t half = count / 2;
        const bool after = p.start[low + half + 1] <= entry;
        low = after ? low + half + 1 : low;
        count = after ? count - half - 1 : half;
    }
    return low < p.rows ? low : p.rows - 1;
}

template <class T> __global__ void __launch_bounds__(256)
    csr_product(const CsrPattern p, const T* values, const T* dense, T* out, int64_t width) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= p.rows * width) return;
    const int64_t row = i / width, j = i - row * width, last = entry_bound(p, row + 1);
    T sum = T(0);
    for (int64_t e = entry_bound(p, row); e < last; e++) {
        const int64_t c = p.column[e];
        if (c >= 0 && c < p.columns) sum += values[e] * dense[c * width + j];
    }
    out[i] = sum;
}

// A warp an entry.
template <class T> __global__ void __launch_bounds__(256)
    csr_sampled(const CsrPattern p, const T* left, const T* right, T* out, int64_t width) {
    const int64_t e = int64_t(blockIdx.x) * 8 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (e >= p.entries) return;
    const int64_t c = p.column[e], row = row_of(p, e);
    T sum = T(0);
    if (c >= 0 && c < p.columns)
        for (int64_t j = lane; j < width; j += 32) sum += left[row * width + j] * right[c * width + j];
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (lane == 0) out[e] = sum;
}

__global__ void __launch_bounds__(256) csr_keys(const CsrPattern p, uint64_t* keys) {
    const int64_t e = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (e >= p.entries) return;
    keys[e] = uint64_t(p.column[e] < 0 || p.column[e] >= p.columns ? p.columns : p.column[e]);
}
// From entries sorted by column: the transposed pattern, and which entry each was.
__global__ void __launch_bounds__(256)
    csr_transposed(const CsrPattern p, const uint64_t* keys, const int64_t* positions, int64_t* start, int64_t* column, int64_t* order) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < p.entries) {
        column[i] = row_of(p, positions[i]);
        order[i] = positions[i];
    }
    if (i > p.columns) return;
    int64_t low = 0;
    for (int64_t count = p.entries; count > 0;) {
        const int64_t half = count / 2;
        const bool after = keys[low + half] < uint64_t(i);
        low = after ? low + half + 1 : low;
        count = after ? count - half - 1 : half;
    }
    start[i] = i == p.columns ? p.entries : low;
}

__global__ void __launch_bounds__(256)
    csr_rises(const int64_t* start, int64_t rows, int64_t entries, unsigned long long message, Report* report) {
    const int64_t r = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (r > rows) return;
    const bool good = r == 0 ? start[0] == 0 && start[rows] == entries : start[r - 1] <= start[r];
    if (!good) report_error(report, message);
}

}  // namespace wisp
