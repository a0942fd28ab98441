// Where the elements of up to three tensors of one shape lie, for kernels that read and write by index.
#pragma once
#include "cuda/kernels/base.cuh"

namespace wisp {

constexpr int index_dims = 25;

struct IndexShape {
    int dims;                                                                // innermost first
    int small;                                                               // fewer than 2^31 elements; 2: offsets are below that too
    Divider by[index_dims];                                                  // the sizes, if small
    int64_t sizes[index_dims], a[index_dims], b[index_dims], c[index_dims];  // strides of up to three tensors, in elements
};
WISP_INLINE int64_t divided(const IndexShape& s, int d, int64_t i) {
    return s.small ? int64_t(s.by[d].divide(uint32_t(i))) : i / s.sizes[d];
}

struct Offsets {
    int64_t a, b, c;
};
WISP_INLINE Offsets offsets_of(const IndexShape& s, int64_t i) {
    if (s.small == 2) {
        uint32_t rest = uint32_t(i), a = 0, b = 0, c = 0;
        for (int d = 0; d < s.dims; d++) {
            const uint32_t next = d + 1 < s.dims ? s.by[d].divide(rest) : 0, k = rest - next * uint32_t(s.sizes[d]);
            rest = next;
            a += k * uint32_t(s.a[d]);
            b += k * uint32_t(s.b[d]);
            c += k * uint32_t(s.c[d]);
        }
        return {a, b, c};
    }
    Offsets o = {0, 0, 0};
    for (int d = 0; d < s.dims; d++) {
        const int64_t next = d + 1 < s.dims ? divided(s, d, i) : 0, k = i - next * s.sizes[d];
        i = next;
        o.a += k * s.a[d];
        o.b += k * s.b[d];
        o.c += k * s.c[d];
    }
    return o;
}

}  // namespace wisp
