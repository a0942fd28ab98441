// Pooling of contiguous planes with 32-bit indices: most of the general kernels' time is 64-bit division.
#include "cuda/kernels/base.cuh"

namespace wisp {

// As in pool.cpp. No dilation, no depth.
#include "kernels/pool_planes_arguments.h"

template <class T> __global__ void __launch_bounds__(256)
    max_pool_planes(const PoolPlanes p, const T* x, T* y, int64_t* indices, uint8_t* taps, uint32_t n) {
    const uint32_t i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const uint32_t plane = p.out_plane.divide(i), at = i - plane * p.out_plane.divisor;
    const int oy = int(p.out_row.divide(at)), ox = int(at) - oy * p.out_x;
    const int top = oy * int(p.stride_y.divisor) - p.padding_y, left = ox * int(p.stride_x.divisor) - p.padding_x;
    x += int64_t(plane) * p.in_plane.divisor;
    bool found = false;
    T best = T(0);
    int where = 0, tap = 0;
    for (int ky = 0; ky < p.kernel_y; ky++)
        for (int kx = 0; kx < p.kernel_x; kx++) {
            const int iy = top + ky, ix = left + kx;
            if (iy < 0 || iy >= p.in_y || ix < 0 || ix >= p.in_x) continue;
            const T v = x[iy * p.in_x + ix];
            if (!found || v > best || v != v) {
                best = v, where = iy * p.in_x + ix, tap = ky * p.kernel_x + kx;
                found = true;
            }
        }
    y[i] = best;
    if (indices) indices[i] = where;
    if (taps) taps[i] = uint8_t(tap);
}

// Every element of the input adds up the gradients of the windows that chose it.
template <class T> __global__ void __launch_bounds__(256)
    max_pool_planes_grad(const PoolPlanes p, const T* g, const uint8_t* taps, T* dx, uint32_t n) {
    const uint32_t i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const uint32_t plane = p.in_plane.divide(i), at = i - plane * p.in_plane.divisor;
    const int y = int(p.in_row.divide(at)), x = int(at) - y * p.in_x;
    auto first = [](int at, int kernel, const Divider& stride) { return at < kernel ? 0 : int(stride.divide(uint32_t(at - kernel))) + 1; };
    const int down = y + p.padding_y, right = x + p.padding_x;
    const int last_y = min(int(p.stride_y.divide(uint32_t(down))), p.out_y - 1),
              last_x = min(int(p.stride_x.divide(uint32_t(right))), p.out_x - 1);
    compute<T> sum = 0;
    for (int oy = first(down, p.kernel_y, p.stride_y); oy <= last_y; oy++)
        for (int ox = first(right, p.kernel_x, p.stride_x); ox <= last_x; ox++) {
            const int64_t f = int64_t(plane) * p.out_plane.divisor + oy * p.out_x + ox;
            if (taps[f] == (down - oy * int(p.stride_y.divisor)) * p.kernel_x + right - ox * int(p.stride_x.divisor))
                sum += convert<compute<T>>(g[f]);
        }
    dx[i] = convert<T>(sum);
}

// Along one axis, for the window that begins at `from`: how many elements count, of which [first, last) exist.
struct Span {
    int first, last, count;
};
WISP_INLINE Span span_of(int from, int kernel, int padding, int size, int include) {
    const int to = min(from + kernel, size + padding), first = max(from, 0), last = min(to, size);
    return {first, last, include ? to - from : last - first};
}

template <class T> __global__ void __launch_bounds__(256)
    average_pool_planes(const PoolPlanes p, const T* x, T* y, int include, int divisor, uint32_t n) {
    using C = compute<T>;
    const uint32_t i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const uint32_t plane = p.out_plane.divide(i), at = i - plane * p.out_plane.divisor;
    const int oy = int(p.out_row.divide(at)), ox = int(at) - oy * p.out_x;
    const Span down = span_of(oy * int(p.stride_y.divisor) - p.padding_y, p.kernel_y, p.padding_y, p.in_y, include),
               right = span_of(ox * int(p.stride_x.divisor) - p.padding_x, p.kernel_x, p.padding_x, p.in_x, include);
    x += int64_t(plane) * p.in_plane.divisor;
    C sum = 0;
    for (int iy = down.first; iy < down.last; iy++)
        for (int ix = right.first; ix < right.last; ix++) sum += convert<C>(x[iy * p.in_x + ix]);
    y[i] = convert<T>(sum / C(divisor ? divisor : down.count * right.count));
}

// The means of whole planes, a block each.
template <class T> __global__ void __launch_bounds__(256) average_planes(const T* x, T* y, int64_t size) {
    using C = compute<T>;
    __shared__ C shared[8];
    x += blockIdx.x * size;
    C sum = 0;
    for (int64_t i = threadIdx.x; i < size; i += 256) sum += convert<C>(x[i]);
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < 8; w++) sum += shared[w];
    y[blockIdx.x] = convert<T>(sum / C(size));
}

template <class T> __global__ void __launch_bounds__(256)
    average_pool_planes_grad(const PoolPlanes p, const T* g, T* dx, int include, int divisor, uint32_t n) {
    using C = compute<T>;
    const uint32_t i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const uint32_t plane = p.in_plane.divide(i), at = i - plane * p.in_plane.divisor;
    const int y = int(p.in_row.divide(at)), x = int(at) - y * p.in_x;
    auto first = [](int at, int kernel, const Divider& stride) { return at < kernel ? 0 : int(stride.divide(uint32_t(at - kernel))) + 1; };
    const int low = y + p.padding_y, side = x + p.padding_x;
    const int last_y = min(int(p.stride_y.divide(uint32_t(low))), p.out_y - 1),
              last_x = min(int(p.stride_x.divide(uint32_t(side))), p.out_x - 1);
    C sum = 0;
    for (int oy = first(low, p.kernel_y, p.stride_y); oy <= last_y; oy++) {
        const Span down = span_of(oy * int(p.stride_y.divisor) - p.padding_y, p.kernel_y, p.padding_y, p.in_y, include);
        for (int ox = first(side, p.kernel_x, p.stride_x); ox <= last_x; ox++) {
            const Span right = span_of(ox * int(p.stride_x.divisor) - p.padding_x, p.kernel_x, p.padding_x, p.in_x, include);
            sum +=
                convert<C>(g[int64_t(plane) * p.out_plane.divisor + oy * p.out_x + ox]) / C(divisor ? divisor : down.count * right.count);
        }
    }
    dx[i] = convert<T>(sum);
}

}  // namespace wisp
