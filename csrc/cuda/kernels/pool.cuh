// Pooling over planes with three spatial dimensions (missing ones have size 1). A thread a result; gradients are gathered,
// each input element from the windows that hold it, so they need no atomics.
//
// Elements lie as [outer][spatial][inner]: inner is 1, or the number of channels where they come last. Positions in a
// plane are counted without inner.
#include "cuda/kernels/base.cuh"

namespace wisp {

struct PoolShape {
    int64_t planes;
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
    int64_t inner;
};

WISP_INLINE int volume(const int64_t* sizes) { return int(sizes[0] * sizes[1] * sizes[2]); }
WISP_INLINE int flat(const int* at, const int64_t* sizes) { return (at[0] * int(sizes[1]) + at[1]) * int(sizes[2]) + at[2]; }
WISP_INLINE int least(int a, int b) { return a < b ? a : b; }
WISP_INLINE int most(int a, int b) { return a > b ? a : b; }

// Where thread i's element is: its place in the plane, and the plane's first element in arrays of `sizes`.
struct Place {
    int at[3], channel;
    int64_t outer;
    WISP_INLINE int64_t base(const PoolShape& s, const int64_t* sizes) const { return outer * volume(sizes) * s.inner + channel; }
};
WISP_INLINE Place place_of(int64_t i, const PoolShape& s, const int64_t* sizes) {
    Place p;
    uint32_t rest;
    const int64_t size = int64_t(volume(sizes)) * s.inner;
    if (i < (int64_t(1) << 31) && size < (int64_t(1) << 31)) {
        p.outer = uint32_t(i) / uint32_t(size);
        rest = uint32_t(i) - uint32_t(p.outer) * uint32_t(size);
    } else {
        p.outer = i / size;
        rest = uint32_t(i - p.outer * size);
    }
    p.channel = s.inner == 1 ? 0 : int(rest % uint32_t(s.inner));
    if (s.inner != 1) rest /= uint32_t(s.inner);
    for (int d = 2; d >= 0; d--) {
        p.at[d] = int(rest % uint32_t(sizes[d]));
        rest /= uint32_t(sizes[d]);
    }
    return p;
}

// The window of result `o`, cut to the input along each dimension: taps [first, last).
WISP_INLINE void taps_inside(const PoolShape& s, const int* o, int* from, int* first, int* last) {
    for (int d = 0; d < 3; d++) {
        from[d] = o[d] * int(s.stride[d]) - int(s.padding[d]);
        const int step = int(s.dilation[d]);
        first[d] = from[d] < 0 ? (-from[d] + step - 1) / step : 0;
        last[d] = least(int(s.kernel[d]), int(s.in[d]) <= from[d] ? 0 : (int(s.in[d]) - from[d] + step - 1) / step);
    }
}

// N neighbouring channels (or one element) a thread.
template <class T, int N> __global__ void __launch_bounds__(256)
    max_pool(const PoolShape s, const T* x, T* y, int64_t* indices, uint8_t* taps, int64_t n) {
    const int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) * N;
    if (i >= n) return;
    const Place o = place_of(i, s, s.out);
    const T* plane = x + o.base(s, s.in);
    int from[3], first[3], last[3];
    taps_inside(s, o.at, from, first, last);
    bool found = false;
    Vector<T, N> best;
    int where[N], tap[N];
#pragma unroll
    for (int k = 0; k < N; k++) best.at[k] = T(0), where[k] = tap[k] = 0;
    for (int a = first[0]; a < last[0]; a++)
        for (int b = first[1]; b < last[1]; b++)
            for (int c = first[2]; c < last[2]; c++) {
                const int at[3] = {from[0] + a * int(s.dilation[0]), from[1] + b * int(s.dilation[1]), from[2] + c * int(s.dilation[2])};
                const int f = flat(at, s.in), t = (a * int(s.kernel[1]) + b) * int(s.kernel[2]) + c;
                const Vector<T, N> v = *reinterpret_cast<const Vector<T, N>*>(plane + f * s.inner);
#pragma unroll
                for (int k = 0; k < N; k++)
                    if (!found || v.at[k] > best.at[k] || v.at[k] != v.at[k]) best.at[k] = v.at[k], where[k] = f, tap[k] = t;
                found = true;
            }
    *reinterpret_cast<Vector<T, N>*>(y + i) = best;
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (indices) indices[i + k] = where[k];
        if (taps) taps[i + k] = uint8_t(tap[k]);
    }
}

// The windows whose reach holds input position `at` along one dimension: [first, last].
WISP_INLINE void windows(const PoolShape& s, int d, int at, int& first, int& last) {
    const int reach = int((s.kernel[d] - 1) * s.dilation[d]), from = at + int(s.padding[d]) - reach, step = int(s.stride[d]);
    first = from <= 0 ? 0 : (from + step - 1) / step;
    last = least((at + int(s.padding[d])) / step, int(s.out[d]) - 1);
}

template <class T, int N> __global__ void __launch_bounds__(256)
    max_pool_grad(const PoolShape s, const T* g, const uint8_t* taps, T* dx, int64_t n) {
    using C = compute<T>;
    const int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) * N;
    if (i >= n) return;
    const Place p = place_of(i, s, s.in);
    const int64_t base = p.base(s, s.out);
    int first[3], last[3];
    for (int d = 0; d < 3; d++) windows(s, d, p.at[d], first[d], last[d]);
    C sum[N];
#pragma unroll
    for (int k = 0; k < N; k++) sum[k] = C(0);
    for (int a = first[0]; a <= last[0]; a++)
        for (int b = first[1]; b <= last[1]; b++)
            for (int c = first[2]; c <= last[2]; c++) {
                const int o[3] = {a, b, c};
                const int64_t f = base + flat(o, s.out) * s.inner;
                const int da = p.at[0] + int(s.padding[0]) - a * int(s.stride[0]), db = p.at[1] + int(s.padding[1]) - b * int(s.stride[1]),
                          dc = p.at[2] + int(s.padding[2]) - c * int(s.stride[2]);
                const int la = int(s.dilation[0]), lb = int(s.dilation[1]), lc = int(s.dilation[2]);
                if (la > 1 || lb > 1 || lc > 1)
                    if (da % la || db % lb || dc % lc) continue;
                const int tap = ((da / la) * int(s.kernel[1]) + db / lb) * int(s.kernel[2]) + dc / lc;
                const Vector<uint8_t, N> t = *reinterpret_cast<const Vector<uint8_t, N>*>(taps + f);
                const Vector<T, N> v = *reinterpret_cast<const Vector<T, N>*>(g + f);
#pragma unroll
                for (int k = 0; k < N; k++)
                    if (t.at[k] == tap) sum[k] += convert<C>(v.at[k]);
            }
    Vector<T, N> out;
#pragma unroll
    for (int k = 0; k < N; k++) out.at[k] = convert<T>(sum[k]);
    *reinterpret_cast<Vector<T, N>*>(dx + i) = out;
}

// Windows that begin at starts[d][plane * out[d] + i].
struct Starts {
    const int64_t* at[3];
};
template <class T> __global__ void __launch_bounds__(256)
    fractional_max_pool(const PoolShape s, const Starts starts, const T* x, T* y, int64_t* indices, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place o = place_of(i, s, s.out);
    int first[3];
    for (int d = 0; d < 3; d++) first[d] = int(starts.at[d][o.outer * s.out[d] + o.at[d]]);
    const T* plane = x + o.base(s, s.in);
    int where = flat(first, s.in);
    T best = plane[where];
    for (int a = 0; a < int(s.kernel[0]); a++)
        for (int b = 0; b < int(s.kernel[1]); b++)
            for (int c = 0; c < int(s.kernel[2]); c++) {
                const int at[3] = {first[0] + a, first[1] + b, first[2] + c}, f = flat(at, s.in);
                const T v = plane[f];
                if (v > best || v != v) best = v, where = f;
            }
    y[i] = best;
    indices[i] = where;
}

__global__ void __launch_bounds__(256) indices_of_taps(const PoolShape s, const uint8_t* taps, int64_t* indices, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place o = place_of(i, s, s.out);
    const int t = taps[i], ke1 = int(s.kernel[1]), ke2 = int(s.kernel[2]), k[3] = {t / (ke1 * ke2), t / ke2 % ke1, t % ke2};
    int at[3];
    for (int d = 0; d < 3; d++) at[d] = o.at[d] * int(s.stride[d]) - int(s.padding[d]) + k[d] * int(s.dilation[d]);
    indices[i] = flat(at, s.in);
}

// a * b / c, rounded down, and up for one more than a multiple below c.
WISP_INLINE int scaled(int a, int64_t b, int64_t c, int64_t more = 0) {
    const int64_t product = a * b + more;
    return product < (int64_t(1) << 31) ? int(uint32_t(product) / uint32_t(c)) : int(product / c);
}

struct Window {
    int first[3], last[3];  // within the input
    int64_t count;          // what the sum is divided by
};
WISP_INLINE Window window_of(const PoolShape& s, const int* o, int include, int64_t divisor, bool adaptive) {
    Window w;
    w.count = 1;
    int64_t inside = 1;
    for (int d = 0; d < 3; d++) {
        int from, to;
        if (adaptive) {
            from = scaled(o[d], s.in[d], s.out[d]);
            to = scaled(o[d] + 1, s.in[d], s.out[d], s.out[d] - 1);
        } else {
            from = o[d] * int(s.stride[d]) - int(s.padding[d]);
            to = least(from + int(s.kernel[d]), int(s.in[d] + s.padding[d]));
            w.count *= to - from;
        }
        w.first[d] = most(from, 0);
        w.last[d] = least(to, int(s.in[d]));
        inside *= w.last[d] - w.first[d];
    }
    if (adaptive || !include) w.count = inside;
    if (divisor) w.count = divisor;
    return w;
}

template <class T, bool Adaptive> __global__ void __launch_bounds__(256)
    average_pool(const PoolShape s, int include, int64_t divisor, const T* x, T* y, int64_t n) {
    using C = compute<T>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place o = place_of(i, s, s.out);
    const Window w = window_of(s, o.at, include, divisor, Adaptive);
    const T* plane = x + o.base(s, s.in);
    C sum = 0;
    for (int a = w.first[0]; a < w.last[0]; a++)
        for (int b = w.first[1]; b < w.last[1]; b++)
            for (int c = w.first[2]; c < w.last[2]; c++) {
                const int at[3] = {a, b, c};
                sum += convert<C>(plane[flat(at, s.in) * s.inner]);
            }
    y[i] = convert<T>(C(sum / C(w.count)));
}

// A warp a result, for windows of many elements of planes whose channels do not come last.
template <class T> __global__ void __launch_bounds__(256) average_pool_wide(const PoolShape s, const T* x, T* y, int64_t n) {
    using C = compute<T>;
    const int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) / 32;
    if (i >= n) return;
    const Place o = place_of(i, s, s.out);
    const Window w = window_of(s, o.at, 0, 0, true);
    const T* plane = x + o.base(s, s.in);
    const uint32_t width = uint32_t(w.last[2] - w.first[2]), height = uint32_t(w.last[1] - w.first[1]);
    const bool whole = width == uint32_t(s.in[2]);  // rows without gaps
    C sum = 0;
    for (int a = w.first[0]; a < w.last[0]; a++) {
        const T* from = plane + (int64_t(a) * s.in[1] + w.first[1]) * s.in[2] + w.first[2];
#pragma unroll 4
        for (uint32_t k = threadIdx.x % 32; k < width * height; k += 32) {
            const uint32_t row = whole ? 0 : k / width;
            sum += convert<C>(from[whole ? k : row * uint32_t(s.in[2]) + (k - row * width)]);
        }
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0) y[i] = convert<T>(C(sum / C(w.count)));
}

template <class T, bool Adaptive> __global__ void __launch_bounds__(256)
    average_pool_grad(const PoolShape s, int include, int64_t divisor, const T* g, T* dx, int64_t n) {
    using C = compute<T>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place p = place_of(i, s, s.in);
    const int64_t base = p.base(s, s.out);
    int first[3], last[3];
    for (int d = 0; d < 3; d++) {
        if (Adaptive) {
            first[d] = scaled(p.at[d], s.out[d], s.in[d]);
            last[d] = scaled(p.at[d] + 1, s.out[d], s.in[d], s.in[d] - 1);
            last[d] = least(last[d], int(s.out[d]) - 1);
        } else {
            windows(s, d, p.at[d], first[d], last[d]);
        }
    }
    C sum = 0;
    for (int a = first[0]; a <= last[0]; a++)
        for (int b = first[1]; b <= last[1]; b++)
            for (int c = first[2]; c <= last[2]; c++) {
                const int o[3] = {a, b, c};
                const Window w = window_of(s, o, include, divisor, Adaptive);
                bool inside = true;
                for (int d = 0; d < 3; d++) inside = inside && p.at[d] >= w.first[d] && p.at[d] < w.last[d];
                if (inside) sum += convert<C>(g[base + flat(o, s.out) * s.inner]) / C(w.count);
            }
    dx[i] = convert<T>(sum);
}

template <class T> __global__ void __launch_bounds__(256)
    adaptive_max_pool(const PoolShape s, const T* x, T* y, int64_t* indices, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place o = place_of(i, s, s.out);
    const Window w = window_of(s, o.at, 0, 0, true);
    const T* plane = x + o.base(s, s.in);
    bool found = false;
    T best = T(0);
    int where = 0;
    for (int a = w.first[0]; a < w.last[0]; a++)
        for (int b = w.first[1]; b < w.last[1]; b++)
            for (int c = w.first[2]; c < w.last[2]; c++) {
                const int at[3] = {a, b, c}, f = flat(at, s.in);
                const T v = plane[f * s.inner];
                if (!found || v > best || v != v) best = v, where = f, found = true;
            }
    y[i] = best;
    indices[i] = where;
}

}  // namespace wisp
