// Recurrent kernels: each task takes some rows of the batch through all steps, a product and a pointwise pass per step.
// Weights are packed once for all steps; the gates of an LSTM are made of sums that are still in the nearest cache.
#include "kernels/rnn.h"

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/gemm_tile.h"
#include "cpu/math.h"

#include <cstring>

namespace wisp::cpu::WISP_ISA {
namespace {

WISP_INLINE float tanh_of(float x) { return tanh(x); }
WISP_INLINE double tanh_of(double x) { return __builtin_tanh(x); }

// The sigmoid of a gate. What would be below 1e-38 stays there: that saves the steps through denormals to zero. Clamped
// as an integer, for which there are more units; the shift puts NaN below all numbers, where it stays.
WISP_INLINE float gate(float x) {
    constexpr uint32_t shift = 0x807fffffu, most = 0x42ae0000u + shift;  // 87
    const uint32_t bits = bits_as<uint32_t>(x), size = (bits & 0x7fffffffu) + shift;
    const ExpParts e = exp_reduce(bits_as<float>(((size < most ? size : most) - shift) | (~bits & 0x80000000u)));
    return 1.0f / (1.0f + exp_fraction(e.r) * power_of_two(e.n));
}
WISP_INLINE double gate(double x) { return sigmoid(x); }

// ---- products with packed weights --------------------------------------------------------------------------------

constexpr int64_t most_rows_of_task = 64;

// Memory that the next step will touch: the tiles of a product bring it into the cache, a slice each.
template <class T> struct Ahead {
    const T* at[6];
    int64_t size[6];
    int regions = 0;

    void add(const void* p, int64_t first, int64_t count) {
        if (p && count > 0) at[regions] = static_cast<const T*>(p) + first, size[regions++] = count;
    }
    // Where tile `call` of `calls`, k steps deep, begins and how far it goes in each step.
    void slice(int64_t call, int64_t calls, int64_t k, const T*& from, int64_t& step) const {
        const int64_t slices = regions ? calls / regions : 0;
        if (call >= slices * regions) return;
        const int64_t region = call % regions;
        step = divide_up(size[region], slices * k);
        // Not beyond the end: another thread writes there.
        from = at[region] + most(0, least(size[region] * (call / regions) / slices, size[region] - step * k));
    }
};

// C = A·B + D (or + C) for rows of A that are k long and a panel of B: k times `vectors` vectors, b_row apart. `last`
// columns of the last vector count. It is part `part` of `parts` of a product.
template <class T> void panel_product(const T* a, int64_t rows, int64_t k, const T* b, int64_t b_row, int vectors, int last, T* c,
                                      int64_t c_row, const T* d, int64_t d_row, bool add, const Ahead<T>& ahead, int64_t part,
                                      int64_t parts) {
    constexpr int64_t deepest = 2048 / int64_t(sizeof(T));
    const int64_t tiles = divide_up(rows, max_rows_of(vectors)), high = divide_up(rows, tiles);
    const int64_t calls = tiles * divide_up(k, deepest);
    int64_t call = part * calls;
    for (int64_t q = 0; q < k; q += deepest) {
        const int64_t deep = least(deepest, k - q);
        for (int64_t i = 0; i < rows; i += high) {
            const T* from = b;
            int64_t step = 0;
            ahead.slice(call++, parts * calls, deep, from, step);
            tile_for<T>(int(least(high, rows - i)), vectors, false, false)(deep, a + i * k + q, k, 1, b + q * b_row, b_row, c + i * c_row,
                                                                           c_row, q == 0 && d ? d + i * d_row : nullptr, d_row,
                                                                           add || q > 0, last, from, step);
        }
    }
}

// body(part) for the parts of a product. A task that is alone has all threads for it.
template <class Body> void over_parts(int64_t parts, int64_t work, Body&& body) {
    parallel_for(parts, 1 + 150000 / (work + 1), [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; part++) body(part);
    });
}

// A matrix (k, n) in panels of equally many vectors, filled up with zeros.
template <class T> struct Panels {
    static constexpr int L = lanes<T>;
    const T* data = nullptr;
    int64_t k = 0, n = 0, width = 0;

    Panels() = default;
    // Element (p, j) is at b[p * b_row + j * b_col].
    Panels(int slot, const T* b, int64_t b_row, int64_t b_col, int64_t k_, int64_t n_) : k(k_), n(n_) {
        const int64_t all = divide_up(n, L);
        width = divide_up(all, divide_up(all, max_vectors)) * L;
        T* to = static_cast<T*>(scratch(slot, size_t(divide_up(n, width) * width * k) * sizeof(T)));
        data = to;
        const int64_t wide = width, deep = k, columns = n;
        parallel_for(divide_up(n, width), 1 + 65536 / (width * k), [=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++)
                pack_b(b + i * wide * b_col, b_row, b_col, deep, int(least(wide, columns - i * wide)), to + i * wide * deep,
                       int(least(wide, divide_up(columns - i * wide, L) * L)));
        });
    }
    // C = A·B + D, or + C.
    void multiply(const T* a, int64_t rows, T* c, const T* d, int64_t d_row, bool add, const Ahead<T>& ahead = {}) const {
        const int64_t parts = divide_up(n, width);
        over_parts(parts, rows * width * k, [&](int64_t part) {
            const int64_t j = part * width;
            const int columns = int(least(width, n - j)), vectors = int(divide_up(columns, L));
            panel_product(a, rows, k, data + j * k, vectors * L, vectors, columns - (vectors - 1) * L, c + j, n, d ? d + j : nullptr, d_row,
                          add, ahead, part, parts);
        });
    }
};

// ---- LSTM: all gates of a vector of units at a time ---------------------------------------------------------------

constexpr int part_of[4] = {0, 1, 3, 2};  // input, forget, output, cell: the sigmoids stand together

// A weight (4n, k) as blocks of k times four vectors, one of each gate, filled up with zeros.
template <class T> const T* pack_gates(int slot, const T* weight, int64_t n, int64_t k) {
    constexpr int L = lanes<T>;
    const int64_t blocks = divide_up(n, L);
    T* packed = static_cast<T*>(scratch(slot, size_t(blocks * 4 * L * k) * sizeof(T)));
    parallel_for(blocks, 1 + 65536 / (4 * L * k), [=](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; b++)
            for (int g = 0; g < 4; g++)
                for (int64_t p = 0; p < k; p += L)
                    transpose_block<T, true>(weight + (part_of[g] * n + b * L) * k + p, k, int(least(L, n - b * L)),
                                             packed + (b * k + p) * 4 * L + g * L, 4 * L, int(least(L, k - p)));
    });
    return packed;
}

// The sums of `count` units, four vectors a row, become gates, cells and outputs; pointers are to the first unit.
template <class T> void lstm_forward(T* sums, int64_t rows, int count, int64_t n, T* kept, T* c, T* out) {
    constexpr int L = lanes<T>;
    // Loops of one function each: neighbours do not wait for one another.
    for (int64_t r = 0; r < rows; r++)
        for (int j = 0; j < 3 * L; j++) sums[r * 4 * L + j] = gate(sums[r * 4 * L + j]);
    for (int64_t r = 0; r < rows; r++)
        for (int j = 3 * L; j < 4 * L; j++) sums[r * 4 * L + j] = tanh_of(sums[r * 4 * L + j]);
    for (int64_t r = 0; r < rows; r++, sums += 4 * L, kept += 4 * n, c += n, out += n) {
        const T* __restrict i = sums, * __restrict f = i + L, * __restrict o = f + L, * __restrict g = o + L;
        auto rest = [&](int units) __attribute__((always_inline)) {
#pragma GCC ivdep
            for (int j = 0; j < units; j++) {
                const T cell = f[j] * c[j] + i[j] * g[j];
                kept[j] = i[j], kept[n + j] = f[j], kept[2 * n + j] = g[j], kept[3 * n + j] = o[j];
                c[j] = cell;
                out[j] = o[j] * tanh_of(cell);
            }
        };
        if (count == L) rest(L);
        else rest(count);
    }
}

template <class T> void lstm_backward(const T* gates, const T* before, const T* cells, const T* grad_h, const T* grad_out, T* grad_c,
                                      T* grad_gates, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++) {
        const T* __restrict i = gates + r * 4 * n, * __restrict f = i + n, * __restrict g = f + n, * __restrict o = g + n;
        T* __restrict di = grad_gates + r * 4 * n, * __restrict df = di + n, * __restrict dg = df + n, * __restrict d_o = dg + n;
        const T* __restrict c_before = before + r * n, * __restrict c = cells + r * n, * __restrict dh = grad_h + r * n;
        const T* __restrict extra = grad_out ? grad_out + r * n : nullptr;
        T* __restrict dc = grad_c + r * n;
        for (int64_t j = 0; j < n; j++) d_o[j] = extra ? dh[j] + extra[j] : dh[j];
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            const T total = d_o[j], bent = tanh_of(c[j]);
            const T cell = dc[j] + total * o[j] * (1 - bent * bent);
            di[j] = cell * g[j] * i[j] * (1 - i[j]);
            df[j] = cell * c_before[j] * f[j] * (1 - f[j]);
            dg[j] = cell * i[j] * (1 - g[j] * g[j]);
            d_o[j] = total * bent * o[j] * (1 - o[j]);
            dc[j] = cell * f[j];
        }
    }
}

// ---- GRU and plain ------------------------------------------------------------------------------------------------

template <class T> void gru_forward(const T* x, const T* hidden, const T* before, T* kept, T* out, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; row++) {
        const T* __restrict in = x + row * 3 * n, * __restrict from_h = hidden + row * 3 * n;
        const T* __restrict h_before = before + row * n;
        T* __restrict r = kept + row * 4 * n, * __restrict z = r + n, * __restrict fresh = z + n, * __restrict last = fresh + n;
        T* __restrict h = out + row * n;
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            r[j] = gate(in[j] + from_h[j]);
            z[j] = gate(in[n + j] + from_h[n + j]);
            last[j] = from_h[2 * n + j];
            fresh[j] = tanh_of(in[2 * n + j] + r[j] * last[j]);
            h[j] = fresh[j] + z[j] * (h_before[j] - fresh[j]);
        }
    }
}

template <class T>
void gru_backward(const T* kept, const T* before, T* grad_h, const T* grad_out, T* grad_x, T* grad_hidden, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; row++) {
        const T* __restrict r = kept + row * 4 * n, * __restrict z = r + n, * __restrict fresh = z + n, * __restrict last = fresh + n;
        const T* __restrict h_before = before + row * n;
        const T* __restrict extra = grad_out ? grad_out + row * n : nullptr;
        T* __restrict dx = grad_x + row * 3 * n, * __restrict dhidden = grad_hidden + row * 3 * n;
        T* __restrict dh = grad_h + row * n;
        if (extra)
            for (int64_t j = 0; j < n; j++) dh[j] += extra[j];
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            const T total = dh[j];
            const T bent = total * (1 - z[j]) * (1 - fresh[j] * fresh[j]);
            const T dr = bent * last[j] * r[j] * (1 - r[j]);
            const T dz = total * (h_before[j] - fresh[j]) * z[j] * (1 - z[j]);
            dx[j] = dhidden[j] = dr;
            dx[n + j] = dhidden[n + j] = dz;
            dx[2 * n + j] = bent;
            dhidden[2 * n + j] = bent * r[j];
            dh[j] = total * z[j];
        }
    }
}

template <class T> void plain_forward(T* __restrict h, int64_t count, bool relu) {
    if (relu)
        for (int64_t i = 0; i < count; i++) h[i] = h[i] < 0 ? T(0) : h[i];  // keeps a NaN
    else
        for (int64_t i = 0; i < count; i++) h[i] = tanh_of(h[i]);
}

template <class T>
void plain_backward(const T* __restrict h, const T* __restrict dh, const T* __restrict extra, T* __restrict dx, int64_t count, bool relu) {
    for (int64_t i = 0; i < count; i++) dx[i] = extra ? dh[i] + extra[i] : dh[i];
    if (relu)
        for (int64_t i = 0; i < count; i++) dx[i] = h[i] > 0 ? dx[i] : T(0);
    else
        for (int64_t i = 0; i < count; i++) dx[i] *= 1 - h[i] * h[i];
}

// sums[j] += the rows' elements j.
template <class T> void add_rows(const T* x, int64_t rows, int64_t columns, T* sums) {
    constexpr int L = lanes<T>;
    int64_t j = 0;
    for (; j + L <= columns; j += L) {
        Vec<T> even = load(sums + j), odd{};
        int64_t r = 0;
        for (; r + 2 <= rows; r += 2) even += load(x + r * columns + j), odd += load(x + (r + 1) * columns + j);
        if (r < rows) even += load(x + r * columns + j);
        store(sums + j, even + odd);
    }
    for (; j < columns; j++)
        for (int64_t r = 0; r < rows; r++) sums[j] += x[r * columns + j];
}

template <class T> T* at(void* p, int64_t i) { return static_cast<T*>(p) + i; }
template <class T> const T* at(const void* p, int64_t i) { return static_cast<const T*>(p) + i; }

template <class T> void copy(T* to, const T* from, int64_t count) { std::memcpy(to, from, size_t(count) * sizeof(T)); }

// How many of the rows [first, first + rows) of the batch are there at step s.
int64_t live_rows(const RnnArgs& a, int64_t s, int64_t first, int64_t rows) {
    const int64_t live = a.starts[s + 1] - a.starts[s] - first;
    return live < 0 ? 0 : live < rows ? live : rows;
}

// Where the rows of step t begin and how many are there; none before the first step and behind the last.
struct Step {
    int64_t row = 0, live = 0;
    Step(const RnnArgs& a, int64_t t, int64_t first, int64_t rows) {
        if (t < 0 || t >= a.steps) return;
        const int64_t s = a.reverse ? a.steps - 1 - t : t;
        row = a.starts[s] + first, live = live_rows(a, s, first, rows);
    }
};

// The weights of a layer as the steps use them.
template <class T> struct Weights {
    Panels<T> hidden, project, input;
    const T *gates_hidden = nullptr, *gates_input = nullptr, *gates_bias = nullptr;  // LSTM, forward
};

template <class T> Weights<T> forward_weights(const RnnArgs& a) {
    const T* weight = at<T>(a.weight, 0);
    Weights<T> w;
    if (a.mode == RnnMode::lstm) {
        w.gates_hidden = pack_gates(1, weight, a.size, a.width);
        if (!a.x) {
            w.gates_input = pack_gates(2, at<T>(a.weight_input, 0), a.size, a.features);
            if (a.bias_input) w.gates_bias = pack_gates(0, at<T>(a.bias_input, 0), a.size, 1);
        }
        if (a.project) w.project = Panels<T>(3, at<T>(a.project, 0), 1, a.size, a.size, a.width);
    } else {
        w.hidden = Panels<T>(1, weight, 1, a.width, a.width, a.gates);
    }
    return w;
}
template <class T> Weights<T> backward_weights(const RnnArgs& a) {
    Weights<T> w;
    w.hidden = Panels<T>(1, at<T>(a.weight, 0), a.width, 1, a.gates, a.width);
    if (a.dinput) w.input = Panels<T>(2, at<T>(a.weight_input, 0), a.features, 1, a.gates, a.features);
    if (a.project) w.project = Panels<T>(3, at<T>(a.project, 0), a.size, 1, a.width, a.size);
    return w;
}

// A step of an LSTM: the products of a vector of units with all its gates, and at once what follows from them.
template <class T> void lstm_step(const RnnArgs& a, const Weights<T>& w, int64_t row, int64_t live, const T* h, bool zeros, T* c, T* out,
                                  const Ahead<T>& ahead) {
    constexpr int L = lanes<T>, vectors = max_vectors, halves = 4 / vectors;
    const int64_t n = a.size, blocks = divide_up(n, L), k = a.width, features = a.features;
    over_parts(blocks, live * 4 * L * (k + features), [&](int64_t block) {
        const int64_t u = block * L;
        const int count = int(least(L, n - u));
        alignas(64) T sums[most_rows_of_task * 4 * L];
        if (a.x)
            for (int64_t r = 0; r < live; r++)
                for (int g = 0; g < 4; g++)
                    store(sums + (4 * r + g) * L, load_lanes(at<T>(a.x, (row + r) * 4 * n + part_of[g] * n + u), count));
        for (int half = 0; half < halves; half++) {
            const int from = half * vectors * L;
            const T* bias = w.gates_bias ? w.gates_bias + 4 * u + from : nullptr;
            if (!a.x)
                panel_product(at<T>(a.input, row * features), live, features, w.gates_input + 4 * u * features + from, 4 * L, vectors, L,
                              sums + from, 4 * L, bias, 0, false, Ahead<T>(), 0, 1);
            if (!zeros)
                panel_product<T>(h, live, k, w.gates_hidden + 4 * u * k + from, 4 * L, vectors, L, sums + from, 4 * L, nullptr, 0, true,
                                 ahead, block * halves + half, blocks * halves);
        }
        lstm_forward(sums, live, count, n, at<T>(a.kept, row * 4 * n + u), c + u, out + u);
    });
}

// The running state is in h and c: sequences that join or have ended are simply not touched. Both are the task's own,
// and so are a step's outputs at first: tiles and processors ask for rows behind theirs, which another thread writes.
template <class T> void forward_rows(const RnnArgs& a, const Weights<T>& w, int64_t first, int64_t rows) {
    const int64_t n = a.size, gates = a.gates, width = a.width;
    const bool lstm = a.mode == RnnMode::lstm;
    T* h = static_cast<T*>(scratch(5, size_t((rows + most_rows) * (width + 2 * n)) * sizeof(T)));
    T *c = h + (rows + most_rows) * width, *wide = c + rows * n;
    copy(h, at<T>(a.h, first * width), rows * width);
    if (lstm) copy(c, at<T>(a.c, first * n), rows * n);
    for (int64_t t = 0; t < a.steps; t++) {
        const Step now(a, t, first, rows), next(a, t + 1, first, rows);
        const int64_t row = now.row, live = now.live;
        if (live == 0) continue;
        Ahead<T> ahead;
        ahead.add(a.kept, next.row * 4 * n, next.live * 4 * n);
        ahead.add(a.cells, next.row * n, next.live * n);
        ahead.add(a.out, next.row * width, next.live * width);
        if (a.x) ahead.add(a.x == a.kept ? nullptr : a.x, next.row * gates, next.live * gates);
        else ahead.add(a.input, next.row * a.features, next.live * a.features);
        const T* x = a.x ? at<T>(a.x, row * gates) : nullptr;
        T* out = at<T>(a.out, row * width);
        if (lstm) {
            lstm_step(a, w, row, live, h, t == 0 && a.from_zeros && a.steps > 1, c, wide, ahead);
            copy(at<T>(a.cells, row * n), c, live * n);
            copy(a.project ? at<T>(a.wide, row * n) : out, wide, live * n);
            if (a.project) w.project.multiply(wide, live, out, nullptr, 0, false);
        } else if (a.mode == RnnMode::gru) {
            T* hidden = static_cast<T*>(scratch(0, size_t(rows * gates) * sizeof(T)));
            w.hidden.multiply(h, live, hidden, at<T>(a.bias, 0), 0, false, ahead);
            gru_forward(x, hidden, h, at<T>(a.kept, row * 4 * n), out, live, n);
        } else {
            w.hidden.multiply(h, live, out, x, gates, false, ahead);
            plain_forward(out, live * n, a.mode == RnnMode::relu);
        }
        copy(h, out, live * width);
    }
    copy(at<T>(a.h, first * width), h, rows * width);
    if (lstm) copy(at<T>(a.c, first * n), c, rows * n);
}

template <class T> void backward_rows(const RnnArgs& a, const Weights<T>& w, int64_t first, int64_t rows, T* sums) {
    const int64_t n = a.size, gates = a.gates, width = a.width;
    T* dh = at<T>(a.dh, first * width);
    for (int64_t t = a.steps - 1; t >= 0; t--) {
        const Step now(a, t, first, rows), next(a, t - 1, first, rows), after(a, t - 2, first, rows);
        const int64_t row = now.row, live = now.live;
        if (live == 0) continue;
        Ahead<T> ahead;
        ahead.add(a.kept, next.row * 4 * n, next.live * 4 * n);
        ahead.add(a.dx, next.row * gates, next.live * gates);
        ahead.add(a.dhidden, next.row * gates, next.live * gates);
        ahead.add(a.cells, after.row * n, after.live * n);
        ahead.add(a.grad_out, next.row * width, next.live * width);
        const bool last = t == 0 && a.from_zeros;
        // The state before this step: of the first `known` rows that after another one, of the rest the first state.
        const int64_t known = least(next.live, live), earlier = next.row;
        auto in_two = [&](const void* after, const void* initial, int64_t columns, auto&& body) {
            if (known > 0) body(int64_t(0), known, at<T>(after, earlier * columns));
            if (known < live) body(known, live - known, at<T>(initial, (first + known) * columns));
        };
        const T* extra = a.grad_out ? at<T>(a.grad_out, row * width) : nullptr;
        T* dx = at<T>(a.dx, row * gates);
        if (a.before)
            in_two(a.out, a.h, width,
                   [&](int64_t i, int64_t count, const T* before) { copy(at<T>(a.before, (row + i) * width), before, count * width); });
        if (a.mode == RnnMode::lstm) {
            const T* grad = dh;
            if (a.project) {
                T* total = at<T>(a.dprojected, row * width);
                for (int64_t i = 0; i < live * width; i++) total[i] = extra ? dh[i] + extra[i] : dh[i];
                T* wide = static_cast<T*>(scratch(0, size_t(rows * n) * sizeof(T)));
                w.project.multiply(total, live, wide, nullptr, 0, false);
                grad = wide, extra = nullptr;
            }
            in_two(a.cells, a.c, n, [&](int64_t i, int64_t count, const T* before) {
                lstm_backward(at<T>((const void*)a.kept, (row + i) * 4 * n), before, at<T>((const void*)a.cells, (row + i) * n),
                              grad + i * n, extra ? extra + i * n : nullptr, at<T>(a.dc, (first + i) * n), dx + i * gates, count, n);
            });
            if (!last) w.hidden.multiply(dx, live, dh, nullptr, 0, false, ahead);
        } else if (a.mode == RnnMode::gru) {
            T* dhidden = at<T>(a.dhidden, row * gates);
            in_two(a.out, a.h, n, [&](int64_t i, int64_t count, const T* before) {
                gru_backward(at<T>((const void*)a.kept, (row + i) * 4 * n), before, dh + i * n, extra ? extra + i * n : nullptr,
                             dx + i * gates, dhidden + i * gates, count, n);
            });
            if (!last) w.hidden.multiply(dhidden, live, dh, nullptr, 0, true, ahead);
        } else {
            plain_backward<T>(at<T>((const void*)a.out, row * n), dh, extra, dx, live * n, a.mode == RnnMode::relu);
            if (!last) w.hidden.multiply(dx, live, dh, nullptr, 0, false, ahead);
        }
        add_rows(dx, live, gates, sums);
        if (a.dhidden) add_rows(at<T>(a.dhidden, row * gates), live, gates, sums + gates);
        if (a.dinput) w.input.multiply(dx, live, at<T>(a.dinput, row * a.features), nullptr, 0, false);
    }
}

// Rows do not meet: they go through all steps apart. How many make a task depends on the sizes alone, so that the
// number of threads does not show in the result; a weight too large for the cache wants more rows per reading.
template <class Body> void over_rows(const RnnArgs& a, int64_t rows, Body&& body) {
    const int64_t batch = a.starts[1], work = a.steps * rows * (a.width + 64) * a.gates;
    parallel_for(divide_up(batch, rows), 1 + 400000 / (work + 1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) body(i, i * rows, least(rows, batch - i * rows));
    });
}
int64_t rows_of_task(const RnnArgs& a, size_t element) {
    const bool large = a.width * a.gates * int64_t(element) > (1 << 19);
    return large ? least(most_rows_of_task, most(16, divide_up(a.starts[1], 32) * 16)) : 16;
}

template <class T> void forward_of(const RnnArgs& a) {
    const Weights<T> w = forward_weights<T>(a);
    over_rows(a, rows_of_task(a, sizeof(T)), [&](int64_t, int64_t first, int64_t rows) { forward_rows<T>(a, w, first, rows); });
}
template <class T> void backward_of(const RnnArgs& a) {
    const Weights<T> w = backward_weights<T>(a);
    const int64_t rows = rows_of_task(a, sizeof(T)), tasks = divide_up(a.starts[1], rows);
    const int64_t columns = a.gates * (a.dhidden ? 2 : 1);
    T* sums = static_cast<T*>(scratch(4, size_t(tasks * columns) * sizeof(T)));
    std::memset(sums, 0, size_t(tasks * columns) * sizeof(T));
    over_rows(a, rows, [&](int64_t task, int64_t first, int64_t count) { backward_rows<T>(a, w, first, count, sums + task * columns); });
    std::memset(a.dbias, 0, size_t(columns) * sizeof(T));
    add_rows(sums, tasks, columns, at<T>(a.dbias, 0));
}

void forward(DType d, const RnnArgs& a) { d == DType::f32 ? forward_of<float>(a) : forward_of<double>(a); }
void backward(DType d, const RnnArgs& a) { d == DType::f32 ? backward_of<float>(a) : backward_of<double>(a); }

}  // namespace

extern const RnnKernels rnn_table = {&forward, &backward, true};

}  // namespace wisp::cpu::WISP_ISA
