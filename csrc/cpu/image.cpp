// Index maps, resampling, unfold and fold, grid sampling. Compiled once per instruction set.
#include "kernels/image.h"

#include <cstring>
#include <type_traits>

#include "core/scratch.h"
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
    const int64_t* along = m.map[2];
    int64_t head = 0, run = 0;  // the longest part of a row that lies together
    for (int64_t k = 0, first = 0; k < width; ++k) {
        if (k > 0 && along[k] != along[k - 1] + 1) first = k;
        if (k + 1 - first > run) head = first, run = k + 1 - first;
    }
    if (run < 8) head = run = 0;
    parallel_for(rows, grain_for(width), [&](int64_t begin, int64_t end) {
        const T* last = nullptr;
        for (int64_t row = begin; row < end; ++row) {
            const int64_t j = row % m.out[1], i = row / m.out[1] % m.out[0], plane = row / (m.out[1] * m.out[0]);
            const T* from = input + plane * in_size + (m.map[0][i] * m.in[1] + m.map[1][j]) * m.in[2];
            T* to = output + row * width;
            if (from == last) {  // magnified, rows come several times
                std::memcpy(to, to - width, size_t(width) * sizeof(T));
                continue;
            }
            last = from;
            for (int64_t k = 0; k < head; ++k) to[k] = from[one_by_one(along[k])];
            if (run) std::memcpy(to + head, from + along[head], size_t(run) * sizeof(T));
            for (int64_t k = head + run; k < width; ++k) to[k] = from[one_by_one(along[k])];
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

template <class T> const T* weights_of(const ImageResample& r) {
    const int64_t n = r.out * r.taps;
    T* weights = static_cast<T*>(scratch(0, size_t(n) * sizeof(T)));
    for (int64_t i = 0; i < n; ++i) weights[i] = T(r.weight[i]);
    return weights;
}
template <class T> void resample_of(const ImageResample& r, const T* input, T* output) {
    const T* weights = weights_of<T>(r);
    if (r.inner == 1) {
        parallel_for(r.outer, grain_for(r.out * r.taps), [&](int64_t begin, int64_t end) {
            for (int64_t item = begin; item < end; ++item) {
                const T* from = input + item * r.in;
                T* to = output + item * r.out;
                const int64_t* index = r.index;
                const T* weight = weights;
                for (int64_t o = 0; o < r.out; ++o, index += r.taps, weight += r.taps) {
                    T sum = 0;
                    for (int64_t t = 0; t < r.taps; ++t) sum += weight[t] * from[one_by_one(index[t])];
                    to[o] = sum;
                }
            }
        });
        return;
    }
    parallel_for(r.outer * r.out, grain_for(r.inner * r.taps), [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
            const int64_t o = item % r.out;
            const T* from = input + item / r.out * r.in * r.inner;
            T* to = output + item * r.inner;
            const int64_t* index = r.index + o * r.taps;
            for (int64_t t = 0; t < r.taps; ++t) {
                const T w = weights[o * r.taps + t];
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
    const T* weights = weights_of<T>(r);
    parallel_for(r.outer, grain_for(r.out * r.inner * r.taps), [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
            T* to = input_grad + item * r.in * r.inner;
            const T* from = grad + item * r.out * r.inner;
            std::memset(to, 0, size_t(r.in * r.inner) * sizeof(T));
            if (r.inner == 1) {
                for (int64_t o = 0; o < r.out; ++o)
                    for (int64_t t = o * r.taps; t < (o + 1) * r.taps; ++t)
                        if (weights[t] != 0) to[r.index[t]] += weights[t] * from[o];
                continue;
            }
            for (int64_t o = 0; o < r.out; ++o, from += r.inner)
                for (int64_t t = 0; t < r.taps; ++t) {
                    const T w = weights[o * r.taps + t];
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

// Bilinear sampling of planes, the usual case: the neighbours of a block of points, in loops that become vector code. The
// neighbours (upper left and right, lower left and right) that lie outside are read at 0 and count as 0.
struct PointBlock {
    static constexpr int64_t most = 256;
    float x[most], y[most], x_slope[most], y_slope[most];                     // in elements, and their change with the grid
    int32_t at[4][most], inside[4][most];                                     // inside: all bits, or none
    float weight[4][most], left[most], right[most], top[most], bottom[most];  // shares of the sides, whose products are weights
};
// The same as to_elements and apply_padding.
WISP_INLINE void block_coordinates(const GridSample& g, const float* grid, int64_t n, int axis, int64_t size, float* at, float* slope) {
    const float extent = float(size), least = g.align_corners ? extent - 1 : extent;
    for (int64_t i = 0; i < n; ++i) {
        const float x = grid[2 * i + axis];
        at[i] = g.align_corners ? (x + 1) / 2 * (extent - 1) : ((x + 1) * extent - 1) / 2;
        slope[i] = least / 2;
    }
    if (g.padding == GridPadding::border)
        for (int64_t i = 0; i < n; ++i) {
            const float x = at[i], low = x > 0 ? x : 0.0f;
            slope[i] = (x > 0) & (x < extent - 1) ? slope[i] : 0.0f;
            at[i] = low >= extent - 1 ? extent - 1 : low;
        }
    for (int64_t i = 0; i < n; ++i) at[i] = (at[i] > -1e6f) & (at[i] < 1e9f) ? at[i] : -100.0f;
}
void block_neighbours(const GridSample& g, const float* grid, int64_t n, PointBlock& b) {
    const int64_t width = g.in[2], height = g.in[1];
    block_coordinates(g, grid, n, 0, width, b.x, b.x_slope);
    block_coordinates(g, grid, n, 1, height, b.y, b.y_slope);
    const int32_t w = int32_t(width), h = int32_t(height);
    for (int64_t i = 0; i < n; ++i) {
        const float low_x = __builtin_floorf(b.x[i]), low_y = __builtin_floorf(b.y[i]);
        const int32_t x = int32_t(low_x), y = int32_t(low_y);
        const int32_t left = -int32_t(uint32_t(x) < uint32_t(w)), right = -int32_t(uint32_t(x + 1) < uint32_t(w));
        const int32_t top = -int32_t(uint32_t(y) < uint32_t(h)), bottom = -int32_t(uint32_t(y + 1) < uint32_t(h));
        const float share_right = b.x[i] - low_x, share_left = low_x + 1 - b.x[i];
        const float share_bottom = b.y[i] - low_y, share_top = low_y + 1 - b.y[i];
        b.left[i] = share_left, b.right[i] = share_right, b.top[i] = share_top, b.bottom[i] = share_bottom;
        b.inside[0][i] = left & top;
        b.inside[1][i] = right & top;
        b.inside[2][i] = left & bottom;
        b.inside[3][i] = right & bottom;
        const int32_t corner = int32_t(uint32_t(y) * uint32_t(w) + uint32_t(x));
        b.at[0][i] = corner & left & top;
        b.at[1][i] = (corner + 1) & right & top;
        b.at[2][i] = (corner + w) & left & bottom;
        b.at[3][i] = (corner + w + 1) & right & bottom;
        b.weight[0][i] = share_left * share_top;
        b.weight[1][i] = share_right * share_top;
        b.weight[2][i] = share_left * share_bottom;
        b.weight[3][i] = share_right * share_bottom;
    }
}
WISP_INLINE float kept(float x, int32_t bits) { return bits_as<float>(bits_as<int32_t>(x) & bits); }
// Calls f(first point, block, points in it, image) for points [begin, end).
template <class F> WISP_INLINE void each_point_block(const GridSample& g, const float* grid, int64_t begin, int64_t end, F&& f) {
    const int64_t out_size = product(g.out);
    PointBlock b;
    for (int64_t item = begin; item < end;) {
        const int64_t image = item / out_size, n = least(least(PointBlock::most, end - item), (image + 1) * out_size - item);
        block_neighbours(g, grid + 2 * item, n, b);
        f(image, item - image * out_size, n, b);
        item += n;
    }
}
template <class T> bool in_blocks(const GridSample& g) {
    return std::is_same_v<T, float> && g.dims == 2 && g.interpolation == GridInterpolation::bilinear &&
           g.padding != GridPadding::reflection && g.in[1] * g.in[2] < (int64_t(1) << 30);
}

template <class T> void grid_sample_of(const GridSample& g, const T* input, const T* grid, T* output) {
    const int64_t in_size = product(g.in), out_size = product(g.out);
    if constexpr (std::is_same_v<T, float>)
        if (in_blocks<T>(g)) {
            parallel_for(g.batch * out_size, grain_for(4 * g.channels), [&](int64_t begin, int64_t end) {
                each_point_block(g, grid, begin, end, [&](int64_t image, int64_t first, int64_t n, const PointBlock& b) {
                    for (int64_t c = 0; c < g.channels; ++c) {
                        const float* from = input + (image * g.channels + c) * in_size;
                        float* to = output + (image * g.channels + c) * out_size + first;
#pragma GCC ivdep
                        for (int64_t i = 0; i < n; ++i) {
                            float sum = 0;
#pragma GCC unroll 4
                            for (int k = 0; k < 4; ++k) sum += b.weight[k][i] * kept(from[b.at[k][i]], b.inside[k][i]);
                            to[i] = sum;
                        }
                    }
                });
            });
            return;
        }
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

WISP_INLINE void add_to_neighbours(const PointBlock& b, int64_t n, const float* grad, float* to) {
    for (int64_t i = 0; i < n; ++i)
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) to[b.at[k][i]] += kept(b.weight[k][i] * grad[i], b.inside[k][i]);  // outside, zero is added at 0
}
// The sums over neighbours of grad * value * d(weight)/d(coordinate).
WISP_INLINE void add_slopes(const PointBlock& b, int64_t n, const float* grad, const float* from, float* dx, float* dy) {
    for (int64_t i = 0; i < n; ++i) {
        float v[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) v[k] = kept(from[b.at[k][i]], b.inside[k][i]) * grad[i];
        dx[i] += (v[1] - v[0]) * b.top[i] + (v[3] - v[2]) * b.bottom[i];
        dy[i] += (v[2] - v[0]) * b.left[i] + (v[3] - v[1]) * b.right[i];
    }
}

template <class T>
void grid_sample_grad_of(const GridSample& g, const T* grad, const T* input, const T* grid, T* input_grad, T* grid_grad) {
    const int64_t in_size = product(g.in), out_size = product(g.out);
    if (input_grad) std::memset(input_grad, 0, size_t(g.batch * g.channels * in_size) * sizeof(T));
    if constexpr (std::is_same_v<T, float>)
        if (in_blocks<T>(g)) {
            parallel_for(g.batch, grain_for(8 * g.channels * out_size), [&](int64_t begin, int64_t end) {
                each_point_block(g, grid, begin * out_size, end * out_size,
                                 [&](int64_t image, int64_t first, int64_t n, const PointBlock& b) {
                                     float dx[PointBlock::most] = {}, dy[PointBlock::most] = {};
                                     for (int64_t c = 0; c < g.channels; ++c) {
                                         const int64_t plane = (image * g.channels + c) * in_size;
                                         const float* d = grad + (image * g.channels + c) * out_size + first;
                                         if (input_grad) add_to_neighbours(b, n, d, input_grad + plane);
                                         if (grid_grad) add_slopes(b, n, d, input + plane, dx, dy);
                                     }
                                     float* to = grid_grad ? grid_grad + 2 * (image * out_size + first) : nullptr;
                                     for (int64_t i = 0; to && i < n; ++i) {
                                         to[2 * i] = dx[i] * b.x_slope[i];
                                         to[2 * i + 1] = dy[i] * b.y_slope[i];
                                     }
                                 });
            });
            return;
        }
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
