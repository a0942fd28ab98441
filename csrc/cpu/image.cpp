// Index maps, resampling, unfold and fold, grid sampling. Compiled once per instruction set.
#include "kernels/image.h"

#include <cstring>
#include <type_traits>

#include "core/threads.h"
#include "cpu/bits.h"

namespace wisp::cpu::WISP_ISA {
namespace {

WISP_INLINE int64_t grain_for(int64_t cost) { return most(1, 32768 / most(1, cost)); }
WISP_INLINE int64_t product(const int64_t* v) { return v[0] * v[1] * v[2]; }

// A complex number as far as sums need it.
template <class R> struct Pair {
    R real, imag;
    WISP_INLINE Pair& operator+=(const Pair& o) {
        real += o.real;
        imag += o.imag;
        return *this;
    }
};

// Calls run with a value of the type that sums of this dtype are made in.
template <class Run> WISP_INLINE void for_sums(DType dtype, Run&& run) {
    switch (dtype) {
    case DType::f32: return run(float());
    case DType::f64: return run(double());
    case DType::c64: return run(Pair<float>());
    case DType::c128: return run(Pair<double>());
    default: return;
    }
}

template <class T> void gather_of(const ImageMap& m, const T* input, T* output) {
    const int64_t in_size = product(m.in), width = m.out[2];
    const int64_t rows = m.planes * m.out[0] * m.out[1];
    parallel_for(rows, grain_for(width), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const int64_t j = row % m.out[1], i = row / m.out[1] % m.out[0], plane = row / (m.out[1] * m.out[0]);
            const T* from = input + plane * in_size + (m.map[0][i] * m.in[1] + m.map[1][j]) * m.in[2];
            T* to = output + row * width;
            for (int64_t k = 0; k < width; ++k) to[k] = from[m.map[2][k]];
        }
    });
}
void gather(DType dtype, const ImageMap& m, const void* input, void* output) {
    by_item(item_size(dtype), [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        gather_of(m, static_cast<const T*>(input), static_cast<T*>(output));
    });
}

template <class T> void gather_grad_of(const ImageMap& m, const T* grad, T* input_grad) {
    const int64_t in_size = product(m.in), out_size = product(m.out), width = m.out[2];
    parallel_for(m.planes, grain_for(out_size), [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
            T* to = input_grad + plane * in_size;
            const T* from = grad + plane * out_size;
            std::memset(static_cast<void*>(to), 0, size_t(in_size) * sizeof(T));
            for (int64_t i = 0; i < m.out[0]; ++i)
                for (int64_t j = 0; j < m.out[1]; ++j, from += width) {
                    T* row = to + (m.map[0][i] * m.in[1] + m.map[1][j]) * m.in[2];
                    for (int64_t k = 0; k < width; ++k) row[m.map[2][k]] += from[k];
                }
        }
    });
}
void gather_grad(DType dtype, const ImageMap& m, const void* grad, void* input_grad) {
    for_sums(dtype, [&](auto zero) {
        using T = decltype(zero);
        gather_grad_of(m, static_cast<const T*>(grad), static_cast<T*>(input_grad));
    });
}

template <class T> void resample_of(const ImageResample& r, const T* input, T* output) {
    parallel_for(r.outer * r.out, grain_for(r.inner * r.taps), [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
            const int64_t o = item % r.out;
            const T* from = input + item / r.out * r.in * r.inner;
            T* to = output + item * r.inner;
            const int64_t* index = r.index + o * r.taps;
            const double* weight = r.weight + o * r.taps;
            if (r.inner == 1) {
                T sum = 0;
                for (int64_t t = 0; t < r.taps; ++t) sum += T(weight[t]) * from[index[t]];
                to[0] = sum;
                continue;
            }
            for (int64_t t = 0; t < r.taps; ++t) {
                const T w = T(weight[t]);
                const T* row = from + index[t] * r.inner;
                if (t == 0)
                    for (int64_t k = 0; k < r.inner; ++k) to[k] = w * row[k];
                else if (w != 0)
                    for (int64_t k = 0; k < r.inner; ++k) to[k] += w * row[k];
            }
        }
    });
}
template <class T> void resample_grad_of(const ImageResample& r, const T* grad, T* input_grad) {
    parallel_for(r.outer, grain_for(r.out * r.inner * r.taps), [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
            T* to = input_grad + item * r.in * r.inner;
            const T* from = grad + item * r.out * r.inner;
            std::memset(to, 0, size_t(r.in * r.inner) * sizeof(T));
            for (int64_t o = 0; o < r.out; ++o, from += r.inner)
                for (int64_t t = 0; t < r.taps; ++t) {
                    const T w = T(r.weight[o * r.taps + t]);
                    if (w == 0) continue;
                    T* row = to + r.index[o * r.taps + t] * r.inner;
                    for (int64_t k = 0; k < r.inner; ++k) row[k] += w * from[k];
                }
        }
    });
}
void resample(DType dtype, const ImageResample& r, const void* input, void* output) {
    if (dtype == DType::f32) resample_of(r, static_cast<const float*>(input), static_cast<float*>(output));
    else resample_of(r, static_cast<const double*>(input), static_cast<double*>(output));
}
void resample_grad(DType dtype, const ImageResample& r, const void* grad, void* input_grad) {
    if (dtype == DType::f32) resample_grad_of(r, static_cast<const float*>(grad), static_cast<float*>(input_grad));
    else resample_grad_of(r, static_cast<const double*>(grad), static_cast<double*>(input_grad));
}

// Calls visit(position in the image, first output column, count) for the parts of each row that lie inside.
template <class Visit> WISP_INLINE void each_window_row(const ImageWindows& w, int64_t a, int64_t b, Visit&& visit) {
    const int64_t shift = b * w.dilation[1] - w.padding[1], stride = w.stride[1];
    const int64_t from = shift >= 0 ? 0 : least(w.out[1], (-shift + stride - 1) / stride);
    const int64_t last = w.in[1] - 1 - shift;
    const int64_t to = most(from, last < 0 ? 0 : least(w.out[1], last / stride + 1));
    for (int64_t i = 0; i < w.out[0]; ++i) {
        const int64_t y = i * w.stride[0] - w.padding[0] + a * w.dilation[0];
        if (y < 0 || y >= w.in[0] || to == from) continue;
        visit(y * w.in[1] + shift + from * stride, i * w.out[1] + from, to - from);
    }
}

template <class T> void unfold_of(const ImageWindows& w, const T* input, T* columns) {
    const int64_t in_size = w.in[0] * w.in[1], positions = w.out[0] * w.out[1], kernel = w.kernel[0] * w.kernel[1];
    parallel_for(w.batch * w.channels * kernel, grain_for(positions), [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
            const T* from = input + item / kernel * in_size;
            T* to = columns + item * positions;
            std::memset(static_cast<void*>(to), 0, size_t(positions) * sizeof(T));
            each_window_row(w, item % kernel / w.kernel[1], item % w.kernel[1], [&](int64_t at, int64_t o, int64_t n) {
                for (int64_t k = 0; k < n; ++k) to[o + k] = from[at + k * w.stride[1]];
            });
        }
    });
}
template <class T> void fold_of(const ImageWindows& w, const T* columns, T* output) {
    const int64_t in_size = w.in[0] * w.in[1], positions = w.out[0] * w.out[1], kernel = w.kernel[0] * w.kernel[1];
    parallel_for(w.batch * w.channels, grain_for(kernel * positions), [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
            T* to = output + plane * in_size;
            std::memset(static_cast<void*>(to), 0, size_t(in_size) * sizeof(T));
            for (int64_t tap = 0; tap < kernel; ++tap) {
                const T* from = columns + (plane * kernel + tap) * positions;
                each_window_row(w, tap / w.kernel[1], tap % w.kernel[1], [&](int64_t at, int64_t o, int64_t n) {
                    for (int64_t k = 0; k < n; ++k) to[at + k * w.stride[1]] += from[o + k];
                });
            }
        }
    });
}
void unfold(DType dtype, const ImageWindows& w, const void* input, void* columns) {
    by_item(item_size(dtype), [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        unfold_of(w, static_cast<const T*>(input), static_cast<T*>(columns));
    });
}
void fold(DType dtype, const ImageWindows& w, const void* columns, void* output) {
    for_sums(dtype, [&](auto zero) {
        using T = decltype(zero);
        fold_of(w, static_cast<const T*>(columns), static_cast<T*>(output));
    });
}

// --- grid_sample ---

template <class T> WISP_INLINE T floor_of(T x) {
    if constexpr (sizeof(T) == 4) return __builtin_floorf(x);
    else return __builtin_floor(x);
}
template <class T> WISP_INLINE T nearest_of(T x) {  // ties to even
    if constexpr (sizeof(T) == 4) return __builtin_nearbyintf(x);
    else return __builtin_nearbyint(x);
}

#include "kernels/grid_rules.h"

template <class T> void grid_sample_of(const GridSample& g, const T* input, const T* grid, T* output) {
    const int64_t in_size = product(g.in), out_size = product(g.out);
    parallel_for(g.batch * out_size, grain_for(16 * g.channels), [&](int64_t begin, int64_t end) {
        Neighbours<T> n;
        for (int64_t item = begin; item < end; ++item) {
            neighbours(g, grid + item * g.dims, n);
            const T* from = input + item / out_size * g.channels * in_size;
            T* to = output + item / out_size * g.channels * out_size + item % out_size;
            for (int64_t c = 0; c < g.channels; ++c, from += in_size, to += out_size) {
                T sum = 0;
                for (int k = 0; k < n.count; ++k) sum += n.weight[k] * from[n.at[k]];
                *to = sum;
            }
        }
    });
}

template <class T>
void grid_sample_grad_of(const GridSample& g, const T* grad, const T* input, const T* grid, T* input_grad, T* grid_grad) {
    const int64_t in_size = product(g.in), out_size = product(g.out);
    if (input_grad) std::memset(input_grad, 0, size_t(g.batch * g.channels * in_size) * sizeof(T));
    parallel_for(g.batch, grain_for(16 * g.channels * out_size), [&](int64_t begin, int64_t end) {
        Neighbours<T> n;
        for (int64_t b = begin; b < end; ++b)
            for (int64_t o = 0; o < out_size; ++o) {
                neighbours(g, grid + (b * out_size + o) * g.dims, n);
                T slope[3] = {0, 0, 0};
                for (int64_t c = 0; c < g.channels; ++c) {
                    const T d = grad[(b * g.channels + c) * out_size + o];
                    const int64_t plane = (b * g.channels + c) * in_size;
                    for (int k = 0; k < n.count; ++k) {
                        if (input_grad) input_grad[plane + n.at[k]] += n.weight[k] * d;
                        if (!grid_grad) continue;
                        const T x = input[plane + n.at[k]] * d;
                        for (int axis = 0; axis < g.dims; ++axis) slope[axis] += n.slope[k][axis] * x;
                    }
                }
                if (!grid_grad) continue;
                T* to = grid_grad + (b * out_size + o) * g.dims;
                for (int axis = 0; axis < g.dims; ++axis) to[axis] = slope[axis];
            }
    });
}
void grid_sample(DType dtype, const GridSample& g, const void* input, const void* grid, void* output) {
    auto run = [&](auto zero) {
        using T = decltype(zero);
        grid_sample_of(g, static_cast<const T*>(input), static_cast<const T*>(grid), static_cast<T*>(output));
    };
    if (dtype == DType::f32) run(float());
    else run(double());
}
void grid_sample_grad(DType dtype, const GridSample& g, const void* grad, const void* input, const void* grid, void* input_grad,
                      void* grid_grad) {
    auto run = [&](auto zero) {
        using T = decltype(zero);
        grid_sample_grad_of(g, static_cast<const T*>(grad), static_cast<const T*>(input), static_cast<const T*>(grid),
                            static_cast<T*>(input_grad), static_cast<T*>(grid_grad));
    };
    if (dtype == DType::f32) run(float());
    else run(double());
}

}  // namespace

extern const ImageKernels image_table;
const ImageKernels image_table = {&gather, &gather_grad, &resample, &resample_grad, &unfold, &fold, &grid_sample, &grid_sample_grad, false};

}  // namespace wisp::cpu::WISP_ISA
