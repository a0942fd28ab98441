// The pointwise part of one step of a recurrent layer, forward and backward: a thread an element of the state. The names
// are those of csrc/kernels/rnn.h.
#include "cuda/kernels/numbers.cuh"

namespace wisp {

template <class T> WISP_INLINE T sigmoid_of(T x) { return rows::sigmoid(x); }
template <class T> WISP_INLINE T tanh_of(T x) { return rows::tanh(x); }

#define WISP_ELEMENT                                            \
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x; \
    if (at >= count) return;                                    \
    const int64_t row = at / n, j = at - row * n;

// c is the running state; h, the running state of the outputs, is null where they are projected first.
template <class T> __global__ void __launch_bounds__(256) lstm_forward(T* gates, T* c, T* cells, T* out, T* h, int64_t n, int64_t count) {
    WISP_ELEMENT
    T* g = gates + row * 4 * n + j;
    const T i = sigmoid_of(g[0]), f = sigmoid_of(g[n]), fresh = tanh_of(g[2 * n]), o = sigmoid_of(g[3 * n]);
    const T cell = f * c[at] + i * fresh, y = o * tanh_of(cell);
    g[0] = i, g[n] = f, g[2 * n] = fresh, g[3 * n] = o;
    c[at] = cells[at] = cell;
    out[at] = y;
    if (h) h[at] = y;
}
template <class T> __global__ void __launch_bounds__(256) lstm_backward(const T* gates, const T* before, const T* cells, const T* dh,
                                                                        const T* extra, T* dc, T* dgates, int64_t n, int64_t count) {
    WISP_ELEMENT
    const T* g = gates + row * 4 * n + j;
    T* d = dgates + row * 4 * n + j;
    const T i = g[0], f = g[n], fresh = g[2 * n], o = g[3 * n];
    const T total = extra ? dh[at] + extra[at] : dh[at], bent = tanh_of(cells[at]);
    const T cell = dc[at] + total * o * (T(1) - bent * bent);
    d[0] = cell * fresh * i * (T(1) - i);
    d[n] = cell * before[at] * f * (T(1) - f);
    d[2 * n] = cell * i * (T(1) - fresh * fresh);
    d[3 * n] = total * bent * o * (T(1) - o);
    dc[at] = cell * f;
}

template <class T> __global__ void __launch_bounds__(256)
    gru_forward(const T* x, const T* hidden, T* h, T* kept, T* out, int64_t n, int64_t count) {
    WISP_ELEMENT
    const T *in = x + row * 3 * n + j, *from_h = hidden + row * 3 * n + j;
    T* k = kept + row * 4 * n + j;
    const T r = sigmoid_of(in[0] + from_h[0]), z = sigmoid_of(in[n] + from_h[n]), last = from_h[2 * n];
    const T fresh = tanh_of(in[2 * n] + r * last), y = fresh + z * (h[at] - fresh);
    k[0] = r, k[n] = z, k[2 * n] = fresh, k[3 * n] = last;
    out[at] = h[at] = y;
}
template <class T> __global__ void __launch_bounds__(256)
    gru_backward(const T* kept, const T* before, T* dh, const T* extra, T* dx, T* dhidden, int64_t n, int64_t count) {
    WISP_ELEMENT
    const T* k = kept + row * 4 * n + j;
    T *d = dx + row * 3 * n + j, *e = dhidden + row * 3 * n + j;
    const T r = k[0], z = k[n], fresh = k[2 * n], last = k[3 * n];
    const T total = extra ? dh[at] + extra[at] : dh[at], bent = total * (T(1) - z) * (T(1) - fresh * fresh);
    d[0] = e[0] = bent * last * r * (T(1) - r);
    d[n] = e[n] = total * (before[at] - fresh) * z * (T(1) - z);
    d[2 * n] = bent;
    e[2 * n] = bent * r;
    dh[at] = total * z;
}

template <class T> __global__ void __launch_bounds__(256) plain_forward(T* out, T* h, int relu, int64_t count) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    const T x = out[at];
    out[at] = h[at] = relu ? (x < T(0) ? T(0) : x) : tanh_of(x);
}
template <class T> __global__ void __launch_bounds__(256)
    plain_backward(const T* out, const T* dh, const T* extra, T* dx, int relu, int64_t count) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    const T total = extra ? dh[at] + extra[at] : dh[at], y = out[at];
    dx[at] = relu ? (y > T(0) ? total : T(0)) : total * (T(1) - y * y);
}
template <class T> __global__ void __launch_bounds__(256) sum_of_two(const T* a, const T* b, T* out, int64_t count) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at < count) out[at] = b ? a[at] + b[at] : a[at];
}

}  // namespace wisp
