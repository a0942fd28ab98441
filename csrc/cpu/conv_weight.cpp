// The gradients of a convolution with respect to weight and bias. Compiled once per instruction set.
//
// weight_grad[o][k] is the dot product of the output gradient's channel o, laid out with the same row length as the
// image copy (conv_layout.h), and the copy from offset k on. Several images follow each other in one copy, so that
// the dot products are long. The sums go over images and positions in a fixed order for any number of threads.
// Positions between rows have gradient zero; an infinity in the input there still makes a NaN, in a sum that
// belongs to the same channels as the sums which the infinity spoils anyway.
#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/conv_depthwise.h"
#include "cpu/conv_unfold.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int dot_rows = registers == 32 ? 6 : 4, dot_taps = registers == 32 ? 4 : 3;

// What a dot product runs over: `repeats` stretches of `count` positions, `pitch` apart.
struct Stretch {
    int64_t count, repeats, pitch;
};

// out[i][j] (+)= sum over q of grad[i * row + q] * source[offsets[j] + q]
template <class T, int rows, int taps> __attribute__((noinline)) void dot(Stretch stretch, const T* grad, int64_t row, const T* source,
                                                                          const int64_t* offsets, T* out, int64_t out_row,
                                                                          bool accumulate) {
    constexpr int64_t lanes = lanes_of<T>;
    Vector<T> sum[rows][taps] = {};
    const T* x[taps];
#pragma GCC unroll 4
    for (int j = 0; j < taps; ++j) x[j] = source + offsets[j];
    const T* high = grad + 3 * row;
    for (int64_t n = 0, start = 0; n < stretch.repeats; ++n, start += stretch.pitch) {
        int64_t q = start;
        const int64_t end = start + stretch.count;
        for (; q + lanes <= end; q += lanes) {
            Vector<T> v[taps];
#pragma GCC unroll 4
            for (int j = 0; j < taps; ++j) v[j] = load(x[j] + q);
#pragma GCC unroll 8
            for (int i = 0; i < rows; ++i) {
                const Vector<T> g = load((i < 3 ? grad + i * row : high + (i - 3) * row) + q);
#pragma GCC unroll 4
                for (int j = 0; j < taps; ++j) sum[i][j] += g * v[j];
            }
        }
        if (q < end) {
            Vector<T> v[taps];
#pragma GCC unroll 4
            for (int j = 0; j < taps; ++j) v[j] = load_lanes(x[j] + q, end - q);
#pragma GCC unroll 8
            for (int i = 0; i < rows; ++i) {
                const Vector<T> g = load_lanes((i < 3 ? grad + i * row : high + (i - 3) * row) + q, end - q);
#pragma GCC unroll 4
                for (int j = 0; j < taps; ++j) sum[i][j] += g * v[j];
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
        T* to = out + i * out_row;
        if constexpr (has_four_sums && sizeof(T) == 4 && taps == 4) {
            FourFloats sums = four_sums(sum[i][0], sum[i][1], sum[i][2], sum[i][3]), old;
            if (accumulate) {
                std::memcpy(&old, to, sizeof old);
                sums += old;
            }
            std::memcpy(to, &sums, sizeof sums);
            continue;
        }
#pragma GCC unroll 4
        for (int j = 0; j < taps; ++j) {
            const T s = sum_of<T>(sum[i][j]);
            to[j] = accumulate ? to[j] + s : s;
        }
    }
}

template <class T> using DotFunction = void (*)(Stretch, const T*, int64_t, const T*, const int64_t*, T*, int64_t, bool);
template <class T> struct DotTable {
    DotFunction<T> at[dot_taps][dot_rows];
};
template <class T, int taps = 1, int rows = 1> constexpr void fill_dots(DotTable<T>& table) {
    table.at[taps - 1][rows - 1] = dot<T, rows, taps>;
    if constexpr (rows < dot_rows) fill_dots<T, taps, rows + 1>(table);
    else if constexpr (taps < dot_taps) fill_dots<T, taps + 1, 1>(table);
}
template <class T> constexpr DotTable<T> dot_table() {
    DotTable<T> table{};
    fill_dots(table);
    return table;
}
template <class T> constexpr DotTable<T> dots = dot_table<T>();

// The gradient's channel with the row length of the layout and zeros between.
template <class T> void copy_grad(const ImageLayout& l, const T* grad, T* to) {
    const int64_t rows = l.axis[1].out, row = l.axis[2].out;
    if (l.length[1] == rows && l.length[2] == row) {
        std::memcpy(to, grad, size_t(l.wanted()) * sizeof(T));
        if (l.wanted() < l.plane) std::memset(to + l.wanted(), 0, size_t(l.plane - l.wanted()) * sizeof(T));
        return;
    }
    T* const end = to + l.plane;
    for (int64_t i = 0; i < l.axis[0].out; ++i) {
        for (int64_t j = 0; j < rows; ++j, grad += row, to += l.length[2]) copy_row(to, grad, row, 0, 1, l.length[2]);
        const int64_t rest = (l.length[1] - rows) * l.length[2];
        std::memset(to, 0, size_t(rest) * sizeof(T));
        to += rest;
    }
    std::memset(to, 0, size_t(end - to) * sizeof(T));
}

// What one group needs to know.
template <class T> struct WeightJob {
    ImageLayout layout;
    int64_t batch, rows, channels, depth, in_size, wanted;
    int64_t input_image, grad_image;  // pitches
    int64_t chunk;                    // positions per dot product
    const int64_t* offsets;
    bool grad_in_place;
};

template <class T> WISP_INLINE int64_t group_copy_size(const WeightJob<T>& w) {
    const ImageLayout& l = w.layout;
    return (l.in_place ? 0 : l.size()) + (w.grad_in_place ? 0 : w.rows * off_powers(l.images * l.plane));
}

// Copies channel c of the input (c < channels) or channel c - channels of the gradient, for images n0, n0 + 1, ...
template <class T> void copy_for_dot(const WeightJob<T>& w, const T* input, const T* grad, T* copy, int64_t n0, int64_t images, int64_t c) {
    const ImageLayout& l = w.layout;
    if (c < w.channels) {
        if (l.in_place) return;
        for (int64_t n = 0; n < images; ++n) copy_channel(l, input + (n0 + n) * w.input_image + c * w.in_size, copy, c, n);
        return;
    }
    if (w.grad_in_place) return;
    c -= w.channels;
    T* to = copy + (l.in_place ? 0 : l.size()) + c * off_powers(l.images * l.plane);
    for (int64_t n = 0; n < images; ++n) copy_grad(l, grad + (n0 + n) * w.grad_image + c * w.wanted, to + n * l.plane);
}

// Tiles [begin, end) of the weight gradient (tiles of taps within panels of rows), over one set of images.
template <class T> void run_dots(const WeightJob<T>& w, const T* source, const T* grad, int64_t grad_row, int64_t images, T* out,
                                 bool accumulate, int64_t begin, int64_t end) {
    const ImageLayout& l = w.layout;
    const int64_t panels = divide_up(w.rows, dot_rows), tap_tiles = divide_up(w.depth, dot_taps);
    // Between images lie rows that nobody wants where the window is higher than one row.
    const int64_t wanted = l.positions() - (l.images - 1) * l.plane;
    const bool gaps = images > 1 && wanted < l.plane;
    const int64_t total = gaps ? images : wanted + (images - 1) * l.plane;
    const int64_t step = gaps ? most(1, w.chunk / l.plane) : w.chunk;
    for (int64_t from = 0; from < total; from += step) {
        const int64_t count = least(step, total - from), q = gaps ? from * l.plane : from;
        const Stretch stretch = gaps ? Stretch{wanted, count, l.plane} : Stretch{count, 1, 0};
        for (int64_t item = begin; item < end; ++item) {
            const int64_t panel = item / tap_tiles, k = item % tap_tiles * dot_taps;
            const int64_t taps = least(dot_taps, w.depth - k);
            const int64_t r0 = w.rows * panel / panels, rows = w.rows * (panel + 1) / panels - r0;
            const T* const grad_at = grad + r0 * grad_row + q;
            T* const out_at = out + r0 * w.depth + k;
            dots<T>.at[taps - 1][rows - 1](stretch, grad_at, grad_row, source + q, w.offsets + k, out_at, w.depth, accumulate || from > 0);
        }
    }
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA

#include "cpu/conv_winograd_weight.h"

namespace wisp::cpu::WISP_ISA {
namespace {

// A kernel that covers its whole input: weight_grad = grad^T times input, per group.
template <class T> void weight_product(const ConvShape& s, int64_t k, const T* input, const T* grad, T* out) {
    const int64_t rows = s.out_channels / s.groups;
    GemmArgs args{};
    args.m = rows;
    args.n = k;
    args.k = s.batch;
    args.a = grad;
    args.a_row = 1;
    args.a_col = s.out_channels;
    args.b = input;
    args.b_row = s.groups * k;
    args.b_col = 1;
    args.c = out;
    args.c_row = k;
    args.batch_dims = 1;
    args.batch_size[0] = s.groups;
    args.batch_a[0] = rows;
    args.batch_b[0] = k;
    args.batch_c[0] = rows * k;
    gemm.matmul(dtype_of<T>, args);
}

// What the loops below share: the job, its operands, and how they are read from a copy or where they lie.
template <class T> struct WeightSums {
    const WeightJob<T>& w;
    const T* input;
    const T* grad;
    T* out;
    const ImageLayout& l = w.layout;
    int64_t weights = w.rows * w.depth;
    int64_t tiles = divide_up(w.rows, dot_rows) * divide_up(w.depth, dot_taps);
    int64_t copy_size = group_copy_size(w);
    int64_t grad_row = w.grad_in_place ? w.wanted : off_powers(l.images * l.plane);

    T* memory() const { return static_cast<T*>(scratch(1, size_t(copy_size) * sizeof(T))); }
    int64_t images_from(int64_t n0) const { return least(l.images, w.batch - n0); }
    void copy(T* to, int64_t group, int64_t n0, int64_t begin, int64_t end) const {
        const T *x = input + group * w.channels * w.in_size, *g = grad + group * w.rows * w.wanted;
        for (int64_t c = begin; c < end; ++c) copy_for_dot(w, x, g, to, n0, images_from(n0), c);
    }
    void multiply(const T* copy, int64_t group, int64_t n0, T* to, bool accumulate, int64_t begin, int64_t end) const {
        const T* source = l.in_place ? input + n0 * w.input_image + group * w.channels * w.in_size : copy;
        const T* g = w.grad_in_place ? grad + n0 * w.grad_image + group * w.rows * w.wanted : copy + (l.in_place ? 0 : l.size());
        run_dots(w, source, g, grad_row, images_from(n0), to, accumulate, begin, end);
    }

    // Each set of images is summed on its own by one thread, and the sets' sums are added in the end.
    void by_sets(int64_t grain_work, int64_t group_work) const {
        const int64_t sets = divide_up(w.batch, l.images);
        T* sums = static_cast<T*>(scratch(2, size_t(sets * weights) * sizeof(T)));
        parallel_for(sets, divide_up(grain_work, group_work / sets), [&](int64_t begin, int64_t end) {
            T* to = memory();
            for (int64_t i = begin; i < end; ++i) {
                copy(to, 0, i * l.images, 0, w.channels + w.rows);
                multiply(to, 0, i * l.images, sums + i * weights, false, 0, tiles);
            }
        });
        parallel_for(weights, divide_up(30000, sets), [&](int64_t begin, int64_t end) {
            for (int64_t k = begin; k < end; ++k) out[k] = sums[k];
            for (int64_t i = 1; i < sets; ++i)
                for (int64_t k = begin; k < end; ++k) out[k] += sums[i * weights + k];
        });
    }
    // Each thread takes whole groups.
    void by_groups(int64_t groups, int64_t grain_work, int64_t group_work) const {
        parallel_for(groups, divide_up(grain_work, group_work), [&](int64_t begin, int64_t end) {
            T* to = memory();
            for (int64_t group = begin; group < end; ++group)
                for (int64_t n0 = 0; n0 < w.batch; n0 += l.images) {
                    copy(to, group, n0, 0, w.channels + w.rows);
                    multiply(to, group, n0, out + group * weights, n0 > 0, 0, tiles);
                }
        });
    }
    // The threads share the tiles of a group.
    void by_tiles(int64_t groups, int64_t grain_work) const {
        T* to = memory();
        for (int64_t group = 0; group < groups; ++group)
            for (int64_t n0 = 0; n0 < w.batch; n0 += l.images) {
                const int64_t images = images_from(n0);
                if (copy_size > 0)
                    parallel_for(w.channels + w.rows, divide_up(8000, l.phases * images * l.plane),
                                 [&](int64_t begin, int64_t end) { copy(to, group, n0, begin, end); });
                const int64_t work = most(1, dot_rows * dot_taps * images * w.wanted);
                parallel_for(tiles, divide_up(grain_work, work),
                             [&](int64_t begin, int64_t end) { multiply(to, group, n0, out + group * weights, n0 > 0, begin, end); });
            }
    }
};

template <class T> void weight_grad(const ConvShape& s, const T* input, const T* grad, T* out) {
    if (is_product(s)) return weight_product(s, s.in_channels / s.groups * s.in[0] * s.in[1] * s.in[2], input, grad, out);
    if (depthwise_weight_grad(s, input, grad, out)) return;
    WeightJob<T> w{};
    w.batch = s.batch;
    w.rows = s.out_channels / s.groups;
    w.channels = s.in_channels / s.groups;
    w.in_size = s.in[0] * s.in[1] * s.in[2];
    w.wanted = s.out[0] * s.out[1] * s.out[2];
    w.input_image = s.in_channels * w.in_size;
    w.grad_image = s.out_channels * w.wanted;
    Axis axes[3];
    for (int d = 0; d < 3; ++d) axes[d] = forward_axis(s, d);
    if constexpr (sizeof(T) == 4)
        if (weight_grad_with_winograd(s, axes, input, grad, out)) return;
    if (weight_grad_by_unfolding(s, input, grad, out)) return;
    ImageLayout& l = w.layout = make_layout(axes, w.channels, w.rows, true);
    w.depth = l.depth();
    const int64_t weights = w.rows * w.depth;
    if (weights == 0) return;
    if (s.batch * w.wanted == 0) {
        std::memset(out, 0, size_t(s.groups * weights) * sizeof(T));
        return;
    }
    if (l.in_place && l.positions() < 1024 && s.batch > 1) l = make_layout(axes, w.channels, w.rows, false);
    // Small weights are summed by sets of images. A set is long enough for long dot products, small enough for the cache, one of
    // eight if it can be.
    const int64_t image_bytes = (l.in_place ? 0 : l.size() + w.rows * l.plane) * int64_t(sizeof(T));
    const int64_t cached = (int64_t(1) << 19) / most(1, image_bytes), fewest = divide_up(1000, l.plane);
    const int64_t set = least(s.batch, most(fewest, least(cached, divide_up(s.batch, 8))));
    const bool by_sets = s.groups == 1 && set < s.batch && weights * divide_up(s.batch, set) <= (int64_t(1) << 20);
    if (!l.in_place) {
        const int64_t memory = (int64_t(1) << 22) / most(1, image_bytes) + 1, enough = divide_up(16384, l.plane);
        l.images = by_sets ? set : least(s.batch, most(least(enough, memory), divide_up(512, l.plane)));
    }
    w.grad_in_place = l.images == 1 && l.plane == w.wanted;
    w.chunk = most(1024, least(8192, (int64_t(3) << 18) / int64_t(sizeof(T)) / (w.channels + w.rows))) / 64 * 64;
    int64_t* offsets = static_cast<int64_t*>(scratch(0, size_t(w.depth) * 8));
    fill_offsets(l, offsets);
    w.offsets = offsets;

    const int64_t grain_work = 60000;  // multiply-adds that are worth waking a thread for
    const int64_t group_work = weights * s.batch * w.wanted;
    const WeightSums<T> sums{w, input, grad, out};
    if (by_sets) sums.by_sets(grain_work, group_work);
    else if (s.groups >= 2 * num_threads()) sums.by_groups(s.groups, grain_work, group_work);
    else sums.by_tiles(s.groups, grain_work);
}

template <class T> void bias_grad(const ConvShape& s, const T* grad, T* out) {
    const int64_t size = s.out[0] * s.out[1] * s.out[2];
    constexpr int64_t lanes = lanes_of<T>;
    if (size == 1) {
        for (int64_t c = 0; c < s.out_channels; ++c) out[c] = 0;
        for (int64_t n = 0; n < s.batch; ++n)
            for (int64_t c = 0; c < s.out_channels; ++c) out[c] += grad[n * s.out_channels + c];
        return;
    }
    parallel_for(s.out_channels, divide_up(8000, most(1, s.batch * size)), [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
            T total = 0;
            for (int64_t n = 0; n < s.batch; ++n) {
                const T* g = grad + (n * s.out_channels + c) * size;
                Vector<T> a{}, b{};
                int64_t i = 0;
                for (; i + 2 * lanes <= size; i += 2 * lanes) a += load(g + i), b += load(g + i + lanes);
                if (i + lanes <= size) a += load(g + i), i += lanes;
                if (i < size) b += load_lanes(g + i, size - i);
                total += sum_of<T>(a + b);
            }
            out[c] = total;
        }
    });
}

}  // namespace

extern const ConvWeightKernels conv_weight_table;
const ConvWeightKernels conv_weight_table = {&weight_grad<float>, &weight_grad<double>, &bias_grad<float>, &bias_grad<double>};

}  // namespace wisp::cpu::WISP_ISA
