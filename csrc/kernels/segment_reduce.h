// Reductions of consecutive segments, and their gradients (see each.h).
#pragma once
#ifndef __CUDACC_RTC__
#include <cstdint>
#endif

namespace wisp::kernels {

enum class SegmentFold : uint8_t { sum, mean, max, min, prod };

// Elements [rows, length, inner], of which segment s of a row is offsets[row][s] to offsets[row][s + 1]; results [rows, segments, inner].
struct Segments {
    const int64_t* offsets;
    int64_t segments, length, inner;
    SegmentFold fold;
    double initial;
    bool given;  // whether the program said what to begin with: the mean of nothing is NaN otherwise

    struct Range {
        int64_t first, count;  // of the elements of a result, which lie `inner` apart
    };
    Range range_of(int64_t i) const {
        const int64_t segment = i / inner % segments, row = i / inner / segments, *at = offsets + row * (segments + 1) + segment;
        return {(row * length + at[0]) * inner + i % inner, at[1] - at[0]};
    }
};

// Index: a result.
struct SegmentReduce : Segments {
    const void* data;
    void* out;

    template <class T> void at(int64_t i) const {
        const Range r = range_of(i);
        const T* x = static_cast<const T*>(data) + r.first;
        T total = T(initial);
        for (int64_t k = 0; k < r.count; k++) {
            const T v = x[k * inner];
            if (fold == SegmentFold::max) total = v > total || v != v ? v : total;
            else if (fold == SegmentFold::min) total = v < total || v != v ? v : total;
            else if (fold == SegmentFold::prod) total *= v;
            else total += v;
        }
        if (fold == SegmentFold::mean) total = r.count ? total / T(r.count) : given ? total : T(0) / T(0);
        static_cast<T*>(out)[i] = total;
    }
};

// Index: a result again, whose elements get their gradients.
struct SegmentGradient : Segments {
    const void *grad, *data, *result;
    void* out;

    template <class T> void at(int64_t i) const {
        const Range r = range_of(i);
        const T *x = static_cast<const T*>(data) + r.first, g = static_cast<const T*>(grad)[i], y = static_cast<const T*>(result)[i];
        T* dx = static_cast<T*>(out) + r.first;
        const bool extreme = fold == SegmentFold::max || fold == SegmentFold::min;
        int64_t equal = 0;  // they share the gradient
        for (int64_t k = 0; extreme && k < r.count; k++) equal += x[k * inner] == y || x[k * inner] != x[k * inner];
        for (int64_t k = 0; k < r.count; k++) {
            const T v = x[k * inner];
            T d = g;
            if (fold == SegmentFold::mean) d = g / T(r.count);
            else if (extreme) d = v == y || v != v ? g / T(equal) : T(0);
            else if (fold == SegmentFold::prod) d = v != T(0) && v == v ? g * y / v : g * product_without<T>(x, r.count, k);
            dx[k * inner] = d;
        }
    }
    template <class T> T product_without(const T* x, int64_t count, int64_t left_out) const {
        T product = T(initial);
        for (int64_t k = 0; k < count; k++)
            if (k != left_out) product *= x[k * inner];
        return product;
    }
};

}  // namespace wisp::kernels
