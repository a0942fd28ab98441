// Recurrent kernels: each task takes some rows of the batch through all steps, a product and a pointwise pass per step.
#include "cpu/rnn.h"

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/gemm.h"
#include "cpu/math.h"

#include <cstring>

namespace wisp::cpu::WISP_ISA {
namespace {

WISP_INLINE float tanh_of(float x) { return tanh(x); }
WISP_INLINE double tanh_of(double x) { return __builtin_tanh(x); }

// The sigmoid of a gate. What would be below 1e-38 stays there: that saves the steps through denormals to zero.
WISP_INLINE float gate(float x) {
    float c = x < -87.0f ? -87.0f : x;
    c = c > 87.0f ? 87.0f : c;
    const ExpParts e = exp_reduce(-c);
    return 1.0f / (1.0f + exp_fraction(e.r) * power_of_two(e.n));
}
WISP_INLINE double gate(double x) { return sigmoid(x); }

// c = a·b + d for contiguous a (m, k), b (k, n), c (m, n); rows of d are d_row apart, 0 repeats one.
template <class T>
void multiply(const T* a, const T* b, T* c, int64_t m, int64_t n, int64_t k, const T* d, int64_t d_row) {
    GemmArgs g{m, n, k, a, k, 1, b, n, 1, c, n};
    if (d) {
        g.d = d;
        g.d_row = d_row;
        g.d_col = 1;
        g.beta = 1;
    }
    if (sizeof(T) == sizeof(float)) cpu::gemm.f32(g);
    else cpu::gemm.matmul(DType::f64, g);
}

template <class T> void lstm_forward(T* gates, const T* before, T* cells, T* out, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++) {
        T *__restrict i = gates + r * 4 * n, *__restrict f = i + n, *__restrict g = f + n, *__restrict o = g + n;
        const T* __restrict c_before = before + r * n;
        T *__restrict c = cells + r * n, *__restrict h = out + r * n;
        // Loops of one function each: together they would not fit the registers.
        for (int64_t j = 0; j < 2 * n; j++) i[j] = gate(i[j]);  // i and f
        for (int64_t j = 0; j < n; j++) g[j] = tanh_of(g[j]);
        for (int64_t j = 0; j < n; j++) o[j] = gate(o[j]);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            c[j] = f[j] * c_before[j] + i[j] * g[j];
            h[j] = o[j] * tanh_of(c[j]);
        }
    }
}

template <class T>
void lstm_backward(const T* gates, const T* before, const T* cells, const T* grad_h, const T* grad_out, T* grad_c,
                   T* grad_gates, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++) {
        const T *__restrict i = gates + r * 4 * n, *__restrict f = i + n, *__restrict g = f + n, *__restrict o = g + n;
        T *__restrict di = grad_gates + r * 4 * n, *__restrict df = di + n, *__restrict dg = df + n,
          *__restrict d_o = dg + n;
        const T *__restrict c_before = before + r * n, *__restrict c = cells + r * n, *__restrict dh = grad_h + r * n;
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

template <class T>
void gru_forward(const T* x, const T* hidden, const T* before, T* kept, T* out, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; row++) {
        const T *__restrict in = x + row * 3 * n, *__restrict from_h = hidden + row * 3 * n;
        const T* __restrict h_before = before + row * n;
        T *__restrict r = kept + row * 4 * n, *__restrict z = r + n, *__restrict fresh = z + n, *__restrict last = fresh + n;
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
void gru_backward(const T* kept, const T* before, T* grad_h, const T* grad_out, T* grad_x, T* grad_hidden, int64_t rows,
                  int64_t n) {
    for (int64_t row = 0; row < rows; row++) {
        const T *__restrict r = kept + row * 4 * n, *__restrict z = r + n, *__restrict fresh = z + n,
                *__restrict last = fresh + n;
        const T* __restrict h_before = before + row * n;
        const T* __restrict extra = grad_out ? grad_out + row * n : nullptr;
        T *__restrict dx = grad_x + row * 3 * n, *__restrict dhidden = grad_hidden + row * 3 * n;
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
void plain_backward(const T* __restrict h, const T* __restrict dh, const T* __restrict extra, T* __restrict dx,
                    int64_t count, bool relu) {
    for (int64_t i = 0; i < count; i++) dx[i] = extra ? dh[i] + extra[i] : dh[i];
    if (relu)
        for (int64_t i = 0; i < count; i++) dx[i] = h[i] > 0 ? dx[i] : T(0);
    else
        for (int64_t i = 0; i < count; i++) dx[i] *= 1 - h[i] * h[i];
}

template <class T> T* at(void* p, int64_t i) { return static_cast<T*>(p) + i; }
template <class T> const T* at(const void* p, int64_t i) { return static_cast<const T*>(p) + i; }

template <class T> void copy(T* to, const T* from, int64_t count) { std::memcpy(to, from, size_t(count) * sizeof(T)); }

// How many of the rows [first, first + rows) of the batch are there at step s.
int64_t live_rows(const RnnArgs& a, int64_t s, int64_t first, int64_t rows) {
    const int64_t live = a.starts[s + 1] - a.starts[s] - first;
    return live < 0 ? 0 : live < rows ? live : rows;
}

// The running state is in a.h and a.c: sequences that join or have ended are simply not touched.
template <class T> void forward_rows(const RnnArgs& a, int64_t first, int64_t rows) {
    const int64_t n = a.size, gates = a.gates, width = a.width;
    const T* weight = at<T>(a.weight, 0);
    T* h = at<T>(a.h, first * width);
    for (int64_t t = 0; t < a.steps; t++) {
        const int64_t s = a.reverse ? a.steps - 1 - t : t, live = live_rows(a, s, first, rows);
        if (live == 0) continue;
        const int64_t row = a.starts[s] + first;
        const T* x = a.x ? at<T>(a.x, row * gates) : nullptr;
        T* out = at<T>(a.out, row * width);
        if (a.mode == RnnMode::lstm) {
            T *kept = at<T>(a.kept, row * 4 * n), *cells = at<T>(a.cells, row * n), *c = at<T>(a.c, first * n);
            T* wide = a.wide ? at<T>(a.wide, row * n) : out;
            if (!x) {
                multiply(at<T>(a.input, row * a.features), at<T>(a.weight_input, 0), kept, live, gates, a.features,
                         static_cast<const T*>(a.bias_input), 0);
                x = kept;
            }
            multiply(h, weight, kept, live, gates, width, x, gates);
            lstm_forward(kept, c, cells, wide, live, n);
            copy(c, cells, live * n);
            if (a.project) multiply<T>(wide, at<T>(a.project, 0), out, live, width, n, nullptr, 0);
        } else if (a.mode == RnnMode::gru) {
            T* hidden = static_cast<T*>(scratch(0, size_t(rows * gates) * sizeof(T)));
            multiply(h, weight, hidden, live, gates, n, static_cast<const T*>(a.bias), 0);
            gru_forward(x, hidden, h, at<T>(a.kept, row * 4 * n), out, live, n);
        } else {
            multiply(h, weight, out, live, gates, n, x, gates);
            plain_forward(out, live * n, a.mode == RnnMode::relu);
        }
        copy(h, out, live * width);
    }
}

template <class T> void backward_rows(const RnnArgs& a, int64_t first, int64_t rows) {
    const int64_t n = a.size, gates = a.gates, width = a.width;
    const T* weight = at<T>(a.weight, 0);
    T* dh = at<T>(a.dh, first * width);
    for (int64_t t = a.steps - 1; t >= 0; t--) {
        const int64_t s = a.reverse ? a.steps - 1 - t : t, live = live_rows(a, s, first, rows);
        if (live == 0) continue;
        const int64_t row = a.starts[s] + first;
        // The state before this step: of the first `known` rows that after another one, of the rest the first state.
        const int64_t other = a.reverse ? s + 1 : s - 1, known = t > 0 ? live_rows(a, other, first, live) : 0;
        const int64_t earlier = t > 0 ? a.starts[other] + first : 0;
        auto in_two = [&](const void* after, const void* initial, int64_t columns, auto&& body) {
            if (known > 0) body(int64_t(0), known, at<T>(after, earlier * columns));
            if (known < live) body(known, live - known, at<T>(initial, (first + known) * columns));
        };
        const T* extra = a.grad_out ? at<T>(a.grad_out, row * width) : nullptr;
        T* dx = at<T>(a.dx, row * gates);
        if (a.before)
            in_two(a.out, a.h, width, [&](int64_t i, int64_t count, const T* before) {
                copy(at<T>(a.before, (row + i) * width), before, count * width);
            });
        if (a.mode == RnnMode::lstm) {
            const T* grad = dh;
            if (a.project) {
                T* total = at<T>(a.dprojected, row * width);
                for (int64_t i = 0; i < live * width; i++) total[i] = extra ? dh[i] + extra[i] : dh[i];
                T* wide = static_cast<T*>(scratch(0, size_t(rows * n) * sizeof(T)));
                multiply<T>(total, at<T>(a.project, 0), wide, live, n, width, nullptr, 0);
                grad = wide, extra = nullptr;
            }
            in_two(a.cells, a.c, n, [&](int64_t i, int64_t count, const T* before) {
                lstm_backward(at<T>((const void*)a.kept, (row + i) * 4 * n), before,
                              at<T>((const void*)a.cells, (row + i) * n), grad + i * n, extra ? extra + i * n : nullptr,
                              at<T>(a.dc, (first + i) * n), dx + i * gates, count, n);
            });
            multiply<T>(dx, weight, dh, live, width, gates, nullptr, 0);
        } else if (a.mode == RnnMode::gru) {
            T* dhidden = at<T>(a.dhidden, row * gates);
            in_two(a.out, a.h, n, [&](int64_t i, int64_t count, const T* before) {
                gru_backward(at<T>((const void*)a.kept, (row + i) * 4 * n), before, dh + i * n,
                             extra ? extra + i * n : nullptr, dx + i * gates, dhidden + i * gates, count, n);
            });
            multiply<T>(dhidden, weight, dh, live, n, gates, dh, n);
        } else {
            plain_backward<T>(at<T>((const void*)a.out, row * n), dh, extra, dx, live * n, a.mode == RnnMode::relu);
            multiply<T>(dx, weight, dh, live, n, gates, nullptr, 0);
        }
    }
}

// Rows do not meet: they go through all steps apart. How many make a task depends on the sizes alone, so that the
// number of threads does not show in the result; a weight too large for the cache wants more rows per reading.
template <class Body> void over_rows(const RnnArgs& a, size_t element, Body&& body) {
    const int64_t weight = a.width * a.gates, batch = a.starts[1];
    const int64_t rows = weight * int64_t(element) > (1 << 19) ? 64 : 16;
    const int64_t tasks = (batch + rows - 1) / rows;
    const int64_t work = a.steps * rows * (weight + 64 * a.gates);
    parallel_for(tasks, 1 + 400000 / (work + 1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t first = i * rows;
            body(first, batch - first < rows ? batch - first : rows);
        }
    });
}

void forward(DType d, const RnnArgs& a) {
    if (d == DType::f32) over_rows(a, 4, [&](int64_t first, int64_t rows) { forward_rows<float>(a, first, rows); });
    else over_rows(a, 8, [&](int64_t first, int64_t rows) { forward_rows<double>(a, first, rows); });
}
void backward(DType d, const RnnArgs& a) {
    if (d == DType::f32) over_rows(a, 4, [&](int64_t first, int64_t rows) { backward_rows<float>(a, first, rows); });
    else over_rows(a, 8, [&](int64_t first, int64_t rows) { backward_rows<double>(a, first, rows); });
}

}  // namespace

extern const RnnKernels rnn_table = {&forward, &backward};

}  // namespace wisp::cpu::WISP_ISA
