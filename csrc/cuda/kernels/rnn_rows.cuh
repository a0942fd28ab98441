// Recurrent layers of moderate size, all steps in one launch: sequences do not touch each other, so a block takes a few through the
// whole time and waits for no other. As much of the weight as fits lies in shared memory, the rest comes from the cache.
#include "cuda/kernels/numbers.cuh"
#include "kernels/rnn_rows_arguments.h"

namespace wisp {

constexpr int rnn_threads = 512;
enum { rnn_plain, rnn_lstm, rnn_gru };

WISP_INLINE float bend(float x) { return rows::tanh(x); }
WISP_INLINE float squash(float x) { return rows::sigmoid(x); }

// vector (R, K) times weight (K, N). A thread takes four neighbouring columns, and every so manieth row; what the groups of threads
// that share columns have is added in their order by who asks. The weight's first rows lie in shared memory, the next in registers.
template <int R> struct RnnProduct {
    static constexpr int own = 8;  // rows in registers
    int k, n, held, groups, group, column;
    const float* weight;
    float *near, *vector, *parts;  // shared memory
    Vector<float, 4> mine[own];

    RnnProduct(const RnnRows& p, int k, int n, float* shared) : k(k), n(n), held(p.held), groups(p.groups), weight(p.weight) {
        near = shared;
        vector = near + held * n;
        parts = vector + R * k;
        group = threadIdx.x / (n / 4);
        column = (threadIdx.x - group * (n / 4)) * 4;
        for (int i = threadIdx.x; i < held * n; i += rnn_threads) near[i] = weight[i];
#pragma unroll
        for (int u = 0; u < own; u++) {
            const int i = held + u * groups + group;
            mine[u] =
                group < groups && i < k ? *reinterpret_cast<const Vector<float, 4>*>(weight + int64_t(i) * n + column) : Vector<float, 4>{};
        }
    }
    WISP_INLINE void run() {
        if (group >= groups) return;
        float sum[R][4] = {};
        auto add = [&](const Vector<float, 4>& w, int i) {
#pragma unroll
            for (int r = 0; r < R; r++) {
                const float v = vector[r * k + i];
#pragma unroll
                for (int c = 0; c < 4; c++) sum[r][c] += v * w.at[c];
            }
        };
        auto at = [](const float* p) { return *reinterpret_cast<const Vector<float, 4>*>(p); };
#pragma unroll 8
        for (int i = group; i < held; i += groups) add(at(near + i * n + column), i);
#pragma unroll
        for (int u = 0; u < own; u++) {
            const int i = held + u * groups + group;
            if (i < k) add(mine[u], i);
        }
#pragma unroll 8
        for (int i = held + own * groups + group; i < k; i += groups) add(at(weight + int64_t(i) * n + column), i);
#pragma unroll
        for (int r = 0; r < R; r++) {
            Vector<float, 4> made;
#pragma unroll
            for (int c = 0; c < 4; c++) made.at[c] = sum[r][c];
            *reinterpret_cast<Vector<float, 4>*>(parts + (group * R + r) * n + column) = made;
        }
    }
    WISP_INLINE float sum(int r, int column) const {
        float total = parts[r * n + column];
        for (int g = 1; g < groups; g++) total += parts[(g * R + r) * n + column];
        return total;
    }
};

template <int Mode, int R> __global__ void __launch_bounds__(rnn_threads) rnn_rows_forward(const RnnRows p) {
    extern __shared__ __align__(16) float shared[];
    constexpr int parts = Mode == rnn_lstm ? 4 : Mode == rnn_gru ? 3 : 1;
    const int n = p.size, j = threadIdx.x, first = blockIdx.x * R;
    RnnProduct<R> product(p, n, p.gates, shared);
    float state[R], cell[R], x[R][parts];
    auto row_of = [&](int t, int r) { return int64_t(p.reverse ? p.steps - 1 - t : t) * p.batch + first + r; };
    auto fetch = [&](int t) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int g = 0; g < parts; g++)
                x[r][g] = t < p.steps && first + r < p.batch && j < n ? p.x[row_of(t, r) * p.gates + g * n + j] : 0.f;
    };
#pragma unroll
    for (int r = 0; r < R; r++) {
        const bool mine = first + r < p.batch && j < n;
        state[r] = mine ? p.h[int64_t(first + r) * n + j] : 0.f;
        cell[r] = mine && Mode == rnn_lstm ? p.c[int64_t(first + r) * n + j] : 0.f;
        if (j < n) product.vector[r * n + j] = state[r];
    }
    fetch(0);
    for (int t = 0; t < p.steps; t++) {
        __syncthreads();
        product.run();
        __syncthreads();
        if (j < n)
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (first + r >= p.batch) break;
                const int64_t row = row_of(t, r), at = row * n + j;
                if constexpr (Mode == rnn_lstm) {
                    const float i = squash(x[r][0] + product.sum(r, j)), f = squash(x[r][1] + product.sum(r, n + j)),
                                fresh = bend(x[r][2] + product.sum(r, 2 * n + j)), o = squash(x[r][3] + product.sum(r, 3 * n + j));
                    cell[r] = f * cell[r] + i * fresh;
                    state[r] = o * bend(cell[r]);
                    float* kept = p.kept + row * 4 * n + j;
                    kept[0] = i, kept[n] = f, kept[2 * n] = fresh, kept[3 * n] = o;
                    p.cells[at] = cell[r];
                } else if constexpr (Mode == rnn_gru) {
                    const float reset = squash(x[r][0] + product.sum(r, j) + (p.bias ? p.bias[j] : 0.f)),
                                update = squash(x[r][1] + product.sum(r, n + j) + (p.bias ? p.bias[n + j] : 0.f)),
                                last = product.sum(r, 2 * n + j) + (p.bias ? p.bias[2 * n + j] : 0.f);
                    const float fresh = bend(x[r][2] + reset * last);
                    state[r] = fresh + update * (state[r] - fresh);
                    float* kept = p.kept + row * 4 * n + j;
                    kept[0] = reset, kept[n] = update, kept[2 * n] = fresh, kept[3 * n] = last;
                } else {
                    const float y = x[r][0] + product.sum(r, j);
                    state[r] = p.relu ? (y < 0.f ? 0.f : y) : bend(y);
                }
                p.out[at] = state[r];
                product.vector[r * n + j] = state[r];
            }
        fetch(t + 1);
    }
    if (j < n)
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (first + r >= p.batch) break;
            p.h[int64_t(first + r) * n + j] = state[r];
            if (Mode == rnn_lstm) p.c[int64_t(first + r) * n + j] = cell[r];
        }
}

template <int Mode, int R> __global__ void __launch_bounds__(rnn_threads) rnn_rows_backward(const RnnRows p) {
    extern __shared__ __align__(16) float shared[];
    constexpr int parts = Mode == rnn_plain ? 1 : 4;
    const int n = p.size, j = threadIdx.x, first = blockIdx.x * R;
    RnnProduct<R> product(p, p.gates, n, shared);
    // Of the step that comes next: what forward kept, its output or cell, the state before it, and the gradient of its output.
    float dh[R], dc[R], kept[R][parts], y[R], before[R], extra[R];
    auto row_of = [&](int t, int r) { return int64_t(p.reverse ? p.steps - 1 - t : t) * p.batch + first + r; };
    auto fetch = [&](int t) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (t < 0 || first + r >= p.batch || j >= n) continue;
            const int64_t row = row_of(t, r), at = row * n + j, start = int64_t(first + r) * n + j;
            const float earlier = t > 0 ? p.out[row_of(t - 1, r) * n + j] : p.h[start];
            if (p.before) p.before[at] = earlier;
            extra[r] = p.grad_out ? p.grad_out[at] : 0.f;
            if constexpr (Mode == rnn_plain) {
                y[r] = p.out[at];
            } else {
#pragma unroll
                for (int g = 0; g < 4; g++) kept[r][g] = p.kept[row * 4 * n + g * n + j];
                before[r] = Mode == rnn_gru ? earlier : t > 0 ? p.cells[row_of(t - 1, r) * n + j] : p.c[start];
                if (Mode == rnn_lstm) y[r] = p.cells[at];
            }
        }
    };
#pragma unroll
    for (int r = 0; r < R; r++) {
        const bool mine = first + r < p.batch && j < n;
        dh[r] = mine ? p.dh[int64_t(first + r) * n + j] : 0.f;
        dc[r] = mine && Mode == rnn_lstm ? p.dc[int64_t(first + r) * n + j] : 0.f;
        if (j < n)
            for (int g = 0; g < p.gates / n; g++) product.vector[r * p.gates + g * n + j] = 0.f;
    }
    fetch(p.steps - 1);
    for (int t = p.steps - 1; t >= 0; t--) {
        float passed[R] = {};  // of the gradient of the state, around the product
        if (j < n)
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (first + r >= p.batch) break;
                const int64_t row = row_of(t, r);
                float *dx = p.dx + row * p.gates + j, *to = product.vector + r * p.gates + j;
                const float total = dh[r] + extra[r];
                if constexpr (Mode == rnn_lstm) {
                    const float i = kept[r][0], f = kept[r][1], fresh = kept[r][2], o = kept[r][3], bent = bend(y[r]);
                    const float cell = dc[r] + total * o * (1.f - bent * bent);
                    dx[0] = to[0] = cell * fresh * i * (1.f - i);
                    dx[n] = to[n] = cell * before[r] * f * (1.f - f);
                    dx[2 * n] = to[2 * n] = cell * i * (1.f - fresh * fresh);
                    dx[3 * n] = to[3 * n] = total * bent * o * (1.f - o);
                    dc[r] = cell * f;
                } else if constexpr (Mode == rnn_gru) {
                    const float reset = kept[r][0], update = kept[r][1], fresh = kept[r][2], last = kept[r][3];
                    const float bent = total * (1.f - update) * (1.f - fresh * fresh);
                    float* dhidden = p.dhidden + row * p.gates + j;
                    dx[0] = dhidden[0] = to[0] = bent * last * reset * (1.f - reset);
                    dx[n] = dhidden[n] = to[n] = total * (before[r] - fresh) * update * (1.f - update);
                    dx[2 * n] = bent;
                    dhidden[2 * n] = to[2 * n] = bent * reset;
                    passed[r] = total * update;
                } else {
                    dx[0] = to[0] = p.relu ? (y[r] > 0.f ? total : 0.f) : total * (1.f - y[r] * y[r]);
                }
            }
        fetch(t - 1);
        __syncthreads();
        product.run();
        __syncthreads();
        if (j < n)
#pragma unroll
            for (int r = 0; r < R; r++) dh[r] = passed[r] + product.sum(r, j);
    }
    if (j < n)
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (first + r >= p.batch) break;
            p.dh[int64_t(first + r) * n + j] = dh[r];
            if (Mode == rnn_lstm) p.dc[int64_t(first + r) * n + j] = dc[r];
        }
}

}  // namespace wisp
