// How the direct convolution lays out the image it reads. Included by the kernel files, per instruction set.
//
// Every convolution here, its input gradient included, is a sum   out[i] = sum over taps t of  src[i * stride + tap(t)]
// along each axis, where what lies outside of src is zero. The image is copied once so that the elements which one tap
// meets at i = 0, 1, 2, ... are neighbours: the zeros are written out, and a strided axis is split into phases (every
// stride-th element). Then each tap is a fixed offset into the copy, and the kernels only see a table of offsets.
// Rows are as long as the padded phase, so between the useful positions of two rows lie a few that nobody wants.
// Where these would be too many, the copy holds one image per tap instead (im2col), without such gaps.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/conv.h"
#include "cpu/processor.h"

namespace wisp::cpu::WISP_ISA {
namespace {

template <class T> using Vector = Register<T>;
template <class T> constexpr int lanes_of = register_lanes<T>;
template <class T> WISP_INLINE Vector<T> load(const T* p) { return *reinterpret_cast<const typename RegisterOf<T>::loose*>(p); }
template <class T> WISP_INLINE Vector<T> load_once(const T* p) { return kept(load(p)); }
template <class T> WISP_INLINE Vector<T> splat(T x) { return x - Vector<T>{}; }  // x + 0 would cost an addition
template <class T> WISP_INLINE void store(T* p, Vector<T> v) { *reinterpret_cast<typename RegisterOf<T>::loose*>(p) = v; }

// Halves are swapped and added: log2(lanes) steps, in registers.
template <class T> WISP_INLINE T sum_of(Vector<T> v) {
    typedef std::conditional_t<sizeof(T) == 4, int32_t, int64_t> Index;
    typedef Index Indices __attribute__((vector_size(WISP_VECTOR_BYTES)));
#pragma GCC unroll 4
    for (int half = lanes_of<T> / 2; half > 0; half /= 2) {
        Indices swap;
#pragma GCC unroll 16
        for (int i = 0; i < lanes_of<T>; ++i) swap[i] = Index(i ^ half);
        v += __builtin_shuffle(v, swap);
    }
    return v[0];
}

// The first `count` lanes, or all if there are more.
template <class T> WISP_INLINE void store_first(T* p, int64_t count, Vector<T> v) {
    if (count >= lanes_of<T>) return store(p, v);
    store_lanes(p, v, count);
}

inline int64_t greatest_common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

// A pitch near n that is no multiple of a kilobyte or more: rows at such distances would share few lines of the caches.
WISP_INLINE int64_t off_powers(int64_t n) { return n % 256 == 0 ? n + 80 : n; }

// One spatial axis; the taps are first, first + step, ..., and tap t uses the weight kernel_first + t * kernel_step.
struct Axis {
    int64_t in, out, stride, taps, first, step, kernel_first, kernel_step;
    int64_t low, phases, length;  // smallest tap; phases kept; length of each

    void prepare() {
        const int64_t last = first + (taps - 1) * step;
        low = taps == 0 ? 0 : least(first, last);
        phases = taps == 0 ? 0 : least(taps, stride / greatest_common_divisor(stride, step));
        length = out + (taps == 0 ? 0 : (most(first, last) - low) / stride);
    }
    int64_t phase_of(int64_t t) const { return t % phases; }
    int64_t position_of(int64_t t) const { return (first + t * step - low) / stride; }
    int64_t start_of_phase(int64_t p) const { return low + (first + p * step - low) % stride; }
};

// A copy of `images` images of one group's channels: [channel][phase][image][depth][height][width], or with im2col
// [channel][tap][image][out positions].
struct ImageLayout {
    Axis axis[3];
    int64_t channels, taps;  // taps per channel
    int64_t length[3];       // of the rows etc. that one tap sees
    int64_t phases;          // per channel
    int64_t plane;           // positions of one image: product of length
    int64_t images;
    bool im2col, in_place;  // in_place: no copy, the offsets go into the tensor itself
    int64_t base;           // in_place: where position 0 of tap `low` lies

    int64_t depth() const { return channels * taps; }  // terms of the sum
    int64_t wanted() const { return axis[0].out * axis[1].out * axis[2].out; }
    // Positions from the first to the last useful one.
    int64_t positions() const { return (images - 1) * plane + ((axis[0].out - 1) * length[1] + axis[1].out - 1) * length[2] + axis[2].out; }
    int64_t channel_size() const { return off_powers(phases * images * plane); }
    int64_t size() const { return channels * channel_size(); }
};

// Decides how to lay out the image, which `rows` channels of the result (or of its gradient) will be computed from
// (0: never im2col).
ImageLayout make_layout(const Axis* axes, int64_t channels, int64_t rows, bool may_use_in_place) {
    ImageLayout l{};
    l.channels = channels;
    l.taps = 1;
    l.phases = 1;
    l.plane = 1;
    l.images = 1;
    l.in_place = may_use_in_place;
    for (int d = 0; d < 3; ++d) {
        Axis& a = l.axis[d] = axes[d];
        a.prepare();
        l.taps *= a.taps;
        l.phases *= a.phases;
        l.length[d] = a.length;
        l.plane *= a.length;
        if (a.stride != 1 || a.low < 0 || a.low + a.length > a.in) l.in_place = false;
    }
    if (l.in_place) {
        l.plane = l.axis[0].in * l.axis[1].in * l.axis[2].in;
        for (int d = 0; d < 3; ++d) l.length[d] = l.axis[d].in;
        l.base = (l.axis[0].low * l.length[1] + l.axis[1].low) * l.length[2] + l.axis[2].low;
    }
    // Unwanted positions cost a multiply-add per row; copying one element for each tap costs about as much as 40 of
    // them and a row of elements as much as 160 more.
    const double waste = double(l.positions()) / double(most(1, l.wanted())) - 1;
    if (rows > 0 && waste > 0.1 && waste * double(rows) > 4 + 160.0 / double(most(1, l.axis[2].out))) {
        l.im2col = true;
        l.in_place = false;
        l.phases = l.taps;
        l.plane = l.wanted();
        for (int d = 0; d < 3; ++d) l.length[d] = l.axis[d].out;
    }
    return l;
}

// offsets[k] for k = (channel, tap) in the order of the weight.
void fill_offsets(const ImageLayout& l, int64_t* offsets) {
    const int64_t channel_pitch = l.in_place ? l.plane : l.channel_size();
    const Axis &a = l.axis[0], &b = l.axis[1], &c = l.axis[2];
    int64_t* out = offsets;
    int64_t column = 0;
    for (int64_t i = 0; i < a.taps; ++i)
        for (int64_t j = 0; j < b.taps; ++j)
            for (int64_t k = 0; k < c.taps; ++k) {
                if (l.im2col) {
                    *out++ = column++ * l.images * l.plane;
                    continue;
                }
                const int64_t phase = (a.phase_of(i) * b.phases + b.phase_of(j)) * c.phases + c.phase_of(k);
                const int64_t position = (a.position_of(i) * l.length[1] + b.position_of(j)) * l.length[2] + c.position_of(k);
                *out++ = phase * l.images * l.plane + position + l.base;
            }
    for (int64_t k = l.taps; k < l.depth(); ++k) offsets[k] = offsets[k - l.taps] + channel_pitch;
}

template <class V, int... i> WISP_INLINE V every_second(V a, V b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, (2 * i)...);
}

// destination[j] = source[start + j * stride] for j < length, zero outside of [0, in).
template <class T> WISP_INLINE void copy_row(T* destination, const T* source, int64_t in, int64_t start, int64_t stride, int64_t length) {
    const int64_t from = start >= 0 ? 0 : least(length, (-start + stride - 1) / stride);
    const int64_t to = most(from, in - 1 - start < 0 ? 0 : least(length, (in - 1 - start) / stride + 1));
    const T* s = source + start;
    if constexpr (has_masks) {
        if (stride <= 2) {  // zeros, elements and zeros in one go; whole stores where possible, masked ones are slow
            constexpr int64_t lanes = lanes_of<T>;
            const auto below = [](int64_t lane) { return lane >= lanes ? ~0u : lane <= 0 ? 0u : (1u << lane) - 1; };
            for (int64_t next = 0; next < length; next += lanes) {
                const int64_t j = length < lanes ? 0 : least(next, length - lanes);
                Vector<T> v;
                if (stride == 1) {
                    v = load_masked(s + j, below(to - j) & ~below(from - j));
                } else {  // up to the last element that is wanted, not to its neighbour
                    const int64_t first = 2 * (from - j), last = 2 * (to - j) - 1;
                    v = every_second(load_masked(s + 2 * j, below(last) & ~below(first)),
                                     load_masked(s + 2 * j + lanes, below(last - lanes) & ~below(first - lanes)),
                                     std::make_integer_sequence<int, int(lanes)>{});
                }
                if (length >= lanes) store(destination + j, v);
                else store_lanes(destination, v, length);
            }
            return;
        }
    }
    for (int64_t j = 0; j < from; ++j) destination[j] = 0;
    if (stride == 1) {
        std::memcpy(destination + from, s + from, size_t(to - from) * sizeof(T));
    } else if (stride == 2) {
        for (int64_t j = from; j < to; ++j) destination[j] = s[2 * j];
    } else {
        for (int64_t j = from; j < to; ++j) destination[j] = s[j * stride];
    }
    for (int64_t j = to; j < length; ++j) destination[j] = 0;
}

// Asks for the lines of a row that is read some rows later: vectors are through with a row before the processor has learnt what follows.
template <class T> WISP_INLINE void prefetch_row(const T* row, int64_t length) {
    constexpr int64_t line = 64 / int64_t(sizeof(T));
    for (int64_t k = 0; k < length + line; k += line) __builtin_prefetch(row + k);
}

// A block whose element (i, j, k) is source[start + (i, j, k) * stride].
template <class T> void copy_block(T* destination, const T* source, const ImageLayout& l, const int64_t* start) {
    const int64_t depth = l.axis[0].in, height = l.axis[1].in, width = l.axis[2].in;
    const int64_t rows = l.length[1], row = l.length[2];
    for (int64_t i = 0; i < l.length[0]; ++i) {
        const int64_t z = start[0] + i * l.axis[0].stride;
        for (int64_t j = 0; j < rows; ++j, destination += row) {
            const int64_t y = start[1] + j * l.axis[1].stride;
            if (z < 0 || z >= depth || y < 0 || y >= height) {
                std::memset(destination, 0, size_t(row) * sizeof(T));
                continue;
            }
            const T* from = source + (z * height + y) * width;
            prefetch_row(from + 8 * width, width);
            copy_row(destination, from, width, start[2], l.axis[2].stride, row);
        }
    }
}

// Copies one channel of one image (slot `image` of the layout) to where the layout wants it.
template <class T> void copy_channel(const ImageLayout& l, const T* source, T* copy, int64_t channel, int64_t image) {
    T* to = copy + channel * l.channel_size() + image * l.plane;
    const Axis &a = l.axis[0], &b = l.axis[1], &c = l.axis[2];
    const int64_t ni = l.im2col ? a.taps : a.phases, nj = l.im2col ? b.taps : b.phases, nk = l.im2col ? c.taps : c.phases;
    for (int64_t i = 0; i < ni; ++i)
        for (int64_t j = 0; j < nj; ++j)
            for (int64_t k = 0; k < nk; ++k, to += l.images * l.plane) {
                const int64_t of_tap[3] = {a.first + i * a.step, b.first + j * b.step, c.first + k * c.step};
                if (l.im2col) {
                    copy_block(to, source, l, of_tap);
                } else {
                    const int64_t of_phase[3] = {a.start_of_phase(i), b.start_of_phase(j), c.start_of_phase(k)};
                    copy_block(to, source, l, of_phase);
                }
            }
}

WISP_INLINE Axis forward_axis(const ConvShape& s, int d) {
    Axis a{};
    a.in = s.in[d];
    a.out = s.out[d];
    a.stride = s.stride[d];
    a.taps = s.kernel[d];
    a.first = -s.padding[d];
    a.step = s.dilation[d];
    a.kernel_first = 0;
    a.kernel_step = 1;
    return a;
}

// A kernel that covers its whole input is a product: output[n] = weight times input[n], per group.
WISP_INLINE bool is_product(const ConvShape& s) {
    for (int d = 0; d < 3; ++d)
        if (s.out[d] != 1 || s.kernel[d] != s.in[d] || s.padding[d] != 0 || (s.kernel[d] > 1 && s.dilation[d] != 1)) return false;
    return s.batch > 0 && s.in_channels > 0 && s.out_channels > 0;
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
