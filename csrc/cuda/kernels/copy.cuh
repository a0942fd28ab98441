// Copying a transposed matrix through shared memory, so that both sides are read and written along their rows; joining rows.
#include "cuda/kernels/base.cuh"

namespace wisp {

// out[batch][i][j] = in[batch][j][i]: in has `columns` rows of `rows` elements; strides in elements.
template <int Bytes> __global__ void __launch_bounds__(256)
    transpose(const void* in_, void* out_, int rows, int columns, int64_t in_row, int64_t out_row, int64_t in_batch, int64_t out_batch) {
    using T = Cell<Bytes>;
    __shared__ T tile[64][65];
    const T* in = static_cast<const T*>(in_) + blockIdx.z * in_batch;
    T* out = static_cast<T*>(out_) + blockIdx.z * out_batch;
    const int i0 = blockIdx.x * 64, j0 = blockIdx.y * 64, x = threadIdx.x % 64, y = threadIdx.x / 64;
#pragma unroll
    for (int k = 0; k < 64; k += 4)
        if (i0 + x < rows && j0 + y + k < columns) tile[y + k][x] = in[(j0 + y + k) * in_row + i0 + x];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 64; k += 4)
        if (j0 + x < columns && i0 + y + k < rows) out[(i0 + y + k) * out_row + j0 + x] = tile[x][y + k];
}

// As in pointwise.cpp: rows of the parts side by side, in cells.
struct JoinList {
    int count;
    int64_t first[65];  // where each part begins in a row
    const void* parts[64];
};
template <int Bytes> __global__ void __launch_bounds__(256)
    join(const __grid_constant__ JoinList list, void* out, int64_t out_row, int64_t n) {
    using T = Cell<Bytes>;
    const int64_t width = list.first[list.count];
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const int64_t at = int64_t(blockIdx.x) * 1024 + u * 256 + threadIdx.x;
        if (at >= n) return;
        const Split row = n == width ? Split{0, at} : split(at, width);
        int k = 0, end = list.count;
        while (end - k > 1) {
            const int middle = (k + end) / 2;
            if (row.rest >= list.first[middle]) k = middle;
            else end = middle;
        }
        const int64_t first = list.first[k], own = list.first[k + 1] - first;
        static_cast<T*>(out)[row.whole * out_row + row.rest] = static_cast<const T*>(list.parts[k])[row.whole * own + row.rest - first];
    }
}

}  // namespace wisp
