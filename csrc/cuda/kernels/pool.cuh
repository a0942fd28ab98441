// Pooling over planes with three spatial dimensions (missing ones have size 1). A thread a result; gradients are gathered,
// each input element from the windows that hold it, so they need no atomics.
#include "cuda/kernels/base.cuh"

namespace wisp {

struct PoolShape {
    int64_t planes;
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
};

struct Place {
    int64_t plane, at[3];
};
WISP_INLINE Place place_of(int64_t i, const int64_t* sizes) {
    Place p;
    for (int d = 2; d >= 0; d--) {
        p.at[d] = i % sizes[d];
        i /= sizes[d];
    }
    p.plane = i;
    return p;
}
WISP_INLINE int64_t volume(const int64_t* sizes) { return sizes[0] * sizes[1] * sizes[2]; }
WISP_INLINE int64_t flat(const int64_t* at, const int64_t* sizes) { return (at[0] * sizes[1] + at[1]) * sizes[2] + at[2]; }
WISP_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
WISP_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

template <class T> __global__ void __launch_bounds__(256) max_pool(const PoolShape s, const T* x, T* y, int64_t* indices, uint8_t* taps, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place o = place_of(i, s.out);
    const T* plane = x + o.plane * volume(s.in);
    bool found = false;
    T best = T(0);
    int64_t where = 0, tap = 0;
    for (int64_t a = 0; a < s.kernel[0]; a++)
        for (int64_t b = 0; b < s.kernel[1]; b++)
            for (int64_t c = 0; c < s.kernel[2]; c++) {
                const int64_t at[3] = {o.at[0] * s.stride[0] - s.padding[0] + a * s.dilation[0], o.at[1] * s.stride[1] - s.padding[1] + b * s.dilation[1],
                                       o.at[2] * s.stride[2] - s.padding[2] + c * s.dilation[2]};
                if (at[0] < 0 || at[0] >= s.in[0] || at[1] < 0 || at[1] >= s.in[1] || at[2] < 0 || at[2] >= s.in[2]) continue;
                const int64_t f = flat(at, s.in);
                const T v = plane[f];
                if (!found || v > best || v != v) {
                    best = v, where = f, tap = (a * s.kernel[1] + b) * s.kernel[2] + c;
                    found = true;
                }
            }
    y[i] = best;
    if (indices) indices[i] = where;
    if (taps) taps[i] = uint8_t(tap);
}

// The windows whose reach holds input position `at` along one dimension: [first, last].
WISP_INLINE void windows(const PoolShape& s, int d, int64_t at, int64_t& first, int64_t& last) {
    const int64_t reach = (s.kernel[d] - 1) * s.dilation[d], from = at + s.padding[d] - reach;
    first = from <= 0 ? 0 : (from + s.stride[d] - 1) / s.stride[d];
    last = least((at + s.padding[d]) / s.stride[d], s.out[d] - 1);
}

template <class T> __global__ void __launch_bounds__(256) max_pool_grad(const PoolShape s, const T* g, const uint8_t* taps, T* dx, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place p = place_of(i, s.in);
    const int64_t base = p.plane * volume(s.out);
    int64_t first[3], last[3];
    for (int d = 0; d < 3; d++) windows(s, d, p.at[d], first[d], last[d]);
    T sum = T(0);
    for (int64_t a = first[0]; a <= last[0]; a++)
        for (int64_t b = first[1]; b <= last[1]; b++)
            for (int64_t c = first[2]; c <= last[2]; c++) {
                const int64_t o[3] = {a, b, c}, f = base + flat(o, s.out);
                const int64_t da = p.at[0] + s.padding[0] - a * s.stride[0], db = p.at[1] + s.padding[1] - b * s.stride[1], dc = p.at[2] + s.padding[2] - c * s.stride[2];
                if (da % s.dilation[0] || db % s.dilation[1] || dc % s.dilation[2]) continue;
                if (taps[f] == ((da / s.dilation[0]) * s.kernel[1] + db / s.dilation[1]) * s.kernel[2] + dc / s.dilation[2]) sum += g[f];
            }
    dx[i] = sum;
}

// Adaptive windows and those of a fraction are known only from their indices: all results of a plane are looked through.
template <class T> __global__ void __launch_bounds__(256) max_pool_grad_any(const PoolShape s, const T* g, const int64_t* indices, T* dx, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const int64_t in = volume(s.in), out = volume(s.out), plane = i / in, own = i - plane * in;
    T sum = T(0);
    for (int64_t k = 0; k < out; k++)
        if (indices[plane * out + k] == own) sum += g[plane * out + k];
    dx[i] = sum;
}

__global__ void __launch_bounds__(256) indices_of_taps(const PoolShape s, const uint8_t* taps, int64_t* indices, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place o = place_of(i, s.out);
    const int64_t t = taps[i], k[3] = {t / (s.kernel[1] * s.kernel[2]), t / s.kernel[2] % s.kernel[1], t % s.kernel[2]};
    int64_t at[3];
    for (int d = 0; d < 3; d++) at[d] = o.at[d] * s.stride[d] - s.padding[d] + k[d] * s.dilation[d];
    indices[i] = flat(at, s.in);
}

struct Window {
    int64_t first[3], last[3], count;  // within the input; what the sum is divided by
};
WISP_INLINE Window window_of(const PoolShape& s, const int64_t* o, int include, int64_t divisor, bool adaptive) {
    Window w;
    w.count = 1;
    int64_t inside = 1;
    for (int d = 0; d < 3; d++) {
        int64_t from, to;
        if (adaptive) {
            from = o[d] * s.in[d] / s.out[d];
            to = ((o[d] + 1) * s.in[d] + s.out[d] - 1) / s.out[d];
        } else {
            from = o[d] * s.stride[d] - s.padding[d];
            to = least(from + s.kernel[d], s.in[d] + s.padding[d]);
            w.count *= to - from;
        }
        w.first[d] = most(from, 0);
        w.last[d] = least(to, s.in[d]);
        inside *= w.last[d] - w.first[d];
    }
    if (adaptive || !include) w.count = inside;
    if (divisor) w.count = divisor;
    return w;
}

template <class T, bool Adaptive> __global__ void __launch_bounds__(256) average_pool(const PoolShape s, int include, int64_t divisor, const T* x, T* y, int64_t n) {
    using C = compute<T>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place o = place_of(i, s.out);
    const Window w = window_of(s, o.at, include, divisor, Adaptive);
    const T* plane = x + o.plane * volume(s.in);
    C sum = 0;
    for (int64_t a = w.first[0]; a < w.last[0]; a++)
        for (int64_t b = w.first[1]; b < w.last[1]; b++)
            for (int64_t c = w.first[2]; c < w.last[2]; c++) {
                const int64_t at[3] = {a, b, c};
                sum += convert<C>(plane[flat(at, s.in)]);
            }
    y[i] = convert<T>(C(sum / C(w.count)));
}

template <class T, bool Adaptive> __global__ void __launch_bounds__(256) average_pool_grad(const PoolShape s, int include, int64_t divisor, const T* g, T* dx, int64_t n) {
    using C = compute<T>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place p = place_of(i, s.in);
    const int64_t base = p.plane * volume(s.out);
    int64_t first[3], last[3];
    for (int d = 0; d < 3; d++) {
        if (Adaptive) {
            first[d] = p.at[d] * s.out[d] / s.in[d];
            last[d] = least(((p.at[d] + 1) * s.out[d] + s.in[d] - 1) / s.in[d], s.out[d] - 1);
        } else {
            windows(s, d, p.at[d], first[d], last[d]);
        }
    }
    C sum = 0;
    for (int64_t a = first[0]; a <= last[0]; a++)
        for (int64_t b = first[1]; b <= last[1]; b++)
            for (int64_t c = first[2]; c <= last[2]; c++) {
                const int64_t o[3] = {a, b, c};
                const Window w = window_of(s, o, include, divisor, Adaptive);
                bool inside = true;
                for (int d = 0; d < 3; d++) inside = inside && p.at[d] >= w.first[d] && p.at[d] < w.last[d];
                if (inside) sum += convert<C>(g[base + flat(o, s.out)]) / C(w.count);
            }
    dx[i] = convert<T>(sum);
}

template <class T> __global__ void __launch_bounds__(256) adaptive_max_pool(const PoolShape s, const T* x, T* y, int64_t* indices, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Place o = place_of(i, s.out);
    const Window w = window_of(s, o.at, 0, 0, true);
    const T* plane = x + o.plane * volume(s.in);
    bool found = false;
    T best = T(0);
    int64_t where = 0;
    for (int64_t a = w.first[0]; a < w.last[0]; a++)
        for (int64_t b = w.first[1]; b < w.last[1]; b++)
            for (int64_t c = w.first[2]; c < w.last[2]; c++) {
                const int64_t at[3] = {a, b, c}, f = flat(at, s.in);
                if (!found || plane[f] > best || plane[f] != plane[f]) best = plane[f], where = f, found = true;
            }
    y[i] = best;
    indices[i] = where;
}

}  // namespace wisp
