// Recurrent layers of moderate size, all steps in one launch: sequences do not touch each other, so a block takes a few through the
// whole time and waits for no other. As much of the weight as fits lies in shared memory, the rest comes from the cache.
#include "cuda/kernels/cluster.cuh"
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

template <int Mode> inline constexpr int rnn_parts = Mode == rnn_lstm ? 4 : Mode == rnn_gru ? 3 : 1;

// A step of unit j: x is what the input gives its gates, sum(g) what the states before do. Keeps what backward needs.
template <int Mode, class Sum>
WISP_INLINE void rnn_unit(const RnnRows& p, const float (&x)[rnn_parts<Mode>], Sum sum, float& state, float& cell, int64_t row, int j) {
    const int n = p.size;
    if constexpr (Mode == rnn_lstm) {
        const float i = squash(x[0] + sum(0)), f = squash(x[1] + sum(1)), fresh = bend(x[2] + sum(2)), o = squash(x[3] + sum(3));
        cell = f * cell + i * fresh;
        state = o * bend(cell);
        float* kept = p.kept + row * 4 * n + j;
        kept[0] = i, kept[n] = f, kept[2 * n] = fresh, kept[3 * n] = o;
        p.cells[row * n + j] = cell;
    } else if constexpr (Mode == rnn_gru) {
        auto biased = [&](int g) { return sum(g) + (p.bias ? p.bias[g * n + j] : 0.f); };
        const float reset = squash(x[0] + biased(0)), update = squash(x[1] + biased(1)), last = biased(2);
        const float fresh = bend(x[2] + reset * last);
        state = fresh + update * (state - fresh);
        float* kept = p.kept + row * 4 * n + j;
        kept[0] = reset, kept[n] = update, kept[2 * n] = fresh, kept[3 * n] = last;
    } else {
        const float y = x[0] + sum(0);
        state = p.relu ? (y < 0.f ? 0.f : y) : bend(y);
    }
    p.out[row * n + j] = state;
}

template <int Mode, int R> __global__ void __launch_bounds__(rnn_threads) rnn_rows_forward(const RnnRows p) {
    extern __shared__ __align__(16) float shared[];
    constexpr int parts = rnn_parts<Mode>;
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
                rnn_unit<Mode>(p, x[r], [&](int g) { return product.sum(r, g * n + j); }, state[r], cell[r], row_of(t, r), j);
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

// Forward by a cluster of blocks for each sequence, from sm_90 on: a block has the weight of its share of the units in shared memory, and
// hands their states to all the others at the end of a step.
template <int Mode, int Blocks> __global__ void WISP_CLUSTER(Blocks, 1, 1) __launch_bounds__(rnn_threads)
    rnn_cluster_forward(const RnnRows p) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) float shared[];
    constexpr int parts = rnn_parts<Mode>;
    const int n = p.size, units = n / Blocks, columns = parts * units, groups = p.groups, sequence = blockIdx.x / Blocks;
    const int first = blockIdx.x % Blocks * units, j = threadIdx.x, unit = first + j;
    float *weight = shared, *states = weight + n * columns, *sums = states + 2 * n;  // states: before and after a step
    for (int i = j * 4; i < n * columns; i += rnn_threads * 4) {
        const int row = i / columns, column = i - row * columns, gate = column / units;
        *reinterpret_cast<Vector<float, 4>*>(weight + i) =
            *reinterpret_cast<const Vector<float, 4>*>(p.weight + int64_t(row) * p.gates + gate * n + first + column - gate * units);
    }
    for (int i = j; i < n; i += rnn_threads) states[i] = p.h[int64_t(sequence) * n + i];
    const int group = j / (columns / 4), column = (j - group * (columns / 4)) * 4;
    const bool mine = j < units;
    float state = mine ? p.h[int64_t(sequence) * n + unit] : 0.f, cell = mine && Mode == rnn_lstm ? p.c[int64_t(sequence) * n + unit] : 0.f;
    auto row_of = [&](int t) { return int64_t(p.reverse ? p.steps - 1 - t : t) * p.batch + sequence; };
    cluster_meets();  // nobody has an address in a block that has not begun
    for (int t = 0; t < p.steps; t++) {
        const float* now = states + t % 2 * n;
        float x[parts] = {};
        if (mine)
#pragma unroll
            for (int g = 0; g < parts; g++) x[g] = p.x[row_of(t) * p.gates + g * n + unit];
        if (group < groups) {
            Vector<float, 4> sum = {};
#pragma unroll 8
            for (int k = group; k < n; k += groups) {
                const auto w = *reinterpret_cast<const Vector<float, 4>*>(weight + k * columns + column);
#pragma unroll
                for (int c = 0; c < 4; c++) sum.at[c] += now[k] * w.at[c];
            }
            *reinterpret_cast<Vector<float, 4>*>(sums + group * columns + column) = sum;
        }
        __syncthreads();
        if (mine) {
            auto sum = [&](int g) {
                float total = sums[g * units + j];
                for (int i = 1; i < groups; i++) total += sums[i * columns + g * units + j];
                return total;
            };
            rnn_unit<Mode>(p, x, sum, state, cell, row_of(t), unit);
#pragma unroll
            for (int block = 0; block < Blocks; block++) store_to(place_in(states + (t + 1) % 2 * n + unit, block), state);
        }
        cluster_meets();
    }
    if (mine) {
        p.h[int64_t(sequence) * n + unit] = state;
        if (Mode == rnn_lstm) p.c[int64_t(sequence) * n + unit] = cell;
    }
#endif
}

// The sums over eight lanes of Columns numbers of each, which `number(i)` gives: a lane gets that of column lane % 8 * P / 8, where P is
// the power of two that holds them. Half of what is left goes to the lane across, half comes from it.
template <int Columns, class Number> WISP_INLINE float sum_of_column(Number number) {
    static_assert(Columns <= 8);
    constexpr int P = Columns <= 1 ? 1 : Columns <= 2 ? 2 : Columns <= 4 ? 4 : 8;
    const int lane = threadIdx.x % 32;
    float left[P];
#pragma unroll
    for (int i = 0; i < P; i++) left[i] = i < Columns ? number(i) : 0.f;
#pragma unroll
    for (int across = 4, half = P / 2; across > 0; across /= 2, half /= 2) {
        if (half == 0) left[0] += __shfl_xor_sync(~0u, left[0], across);
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float low = left[i], high = left[i + half];
            left[i] = (lane & across ? high : low) + __shfl_xor_sync(~0u, lane & across ? low : high, across);
        }
    }
    return left[0];
}

// Forward with the whole weight in registers, for layers of N = 64 or 128: a block has one sequence, eight lanes have N / 64 of its units
// with all gates, and of the numbers that these are made of each lane has an eighth.
template <int Mode, int N> __global__ void __launch_bounds__(rnn_threads) rnn_units_forward(const RnnRows p) {
    constexpr int parts = Mode == rnn_lstm ? 4 : Mode == rnn_gru ? 3 : 1, units = N / 64, depth = N / 8, columns = parts * units;
    constexpr int spread = columns <= 1 ? 8 : columns <= 2 ? 4 : columns <= 4 ? 2 : 1;  // lanes for a column
    __shared__ __align__(16) float states[2][N];
    const int lane = threadIdx.x % 8, first = int(threadIdx.x) / 8 * units, unit = first + lane % units, sequence = blockIdx.x;
    const bool writes = lane < units;
    float weight[columns][depth], x[parts], next[parts], bias[parts];
#pragma unroll
    for (int i = 0; i < depth; i++)
#pragma unroll
        for (int c = 0; c < columns; c++)
            weight[c][i] = p.weight[(i / 4 * 32 + lane * 4 + i % 4) * p.gates + c / units * N + first + c % units];
    auto row_of = [&](int t) { return int64_t(p.reverse ? p.steps - 1 - t : t) * p.batch + sequence; };
    auto fetch = [&](int t) {
#pragma unroll
        for (int g = 0; g < parts; g++) next[g] = t < p.steps ? p.x[row_of(t) * p.gates + g * N + unit] : 0.f;
    };
#pragma unroll
    for (int g = 0; g < parts; g++) bias[g] = Mode == rnn_gru && p.bias ? p.bias[g * N + unit] : 0.f;
    float state = p.h[int64_t(sequence) * N + unit], cell = Mode == rnn_lstm ? p.c[int64_t(sequence) * N + unit] : 0.f;
    if (writes) states[0][unit] = state;
    fetch(0);
    for (int t = 0; t < p.steps; t++) {
#pragma unroll
        for (int g = 0; g < parts; g++) x[g] = next[g];
        __syncthreads();
        fetch(t + 1);
        float sums[columns] = {};
#pragma unroll
        for (int i = 0; i < depth; i += 4) {
            const Vector<float, 4> before = *reinterpret_cast<const Vector<float, 4>*>(&states[t % 2][i * 8 + lane * 4]);
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int c = 0; c < columns; c++) sums[c] += before.at[k] * weight[c][i + k];
        }
        const float mine = sum_of_column<columns>([&](int c) { return sums[c]; });
        auto total = [&](int gate) {
            return __shfl_sync(~0u, mine, int(threadIdx.x) % 32 / 8 * 8 + (gate * units + lane % units) * spread) + bias[gate];
        };
        const int64_t row = row_of(t);
        if constexpr (Mode == rnn_lstm) {
            const float i = squash(x[0] + total(0)), f = squash(x[1] + total(1)), fresh = bend(x[2] + total(2)),
                        o = squash(x[3] + total(3));
            cell = f * cell + i * fresh;
            state = o * bend(cell);
            float* kept = p.kept + row * 4 * N + unit;
            if (writes) kept[0] = i, kept[N] = f, kept[2 * N] = fresh, kept[3 * N] = o, p.cells[row * N + unit] = cell;
        } else if constexpr (Mode == rnn_gru) {
            const float reset = squash(x[0] + total(0)), update = squash(x[1] + total(1)), last = total(2),
                        fresh = bend(x[2] + reset * last);
            state = fresh + update * (state - fresh);
            float* kept = p.kept + row * 4 * N + unit;
            if (writes) kept[0] = reset, kept[N] = update, kept[2 * N] = fresh, kept[3 * N] = last;
        } else {
            const float y = x[0] + total(0);
            state = p.relu ? (y < 0.f ? 0.f : y) : bend(y);
        }
        if (writes) p.out[row * N + unit] = states[(t + 1) % 2][unit] = state;
    }
    if (!writes) return;
    p.h[int64_t(sequence) * N + unit] = state;
    if (Mode == rnn_lstm) p.c[int64_t(sequence) * N + unit] = cell;
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
