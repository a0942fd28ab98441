// Rows of different lengths, one after the other, and the same padded to one length (see each.h).
#pragma once
#ifndef __CUDACC_RTC__
#include <cstdint>
#endif

namespace wisp::kernels {

// Row b of the packed [total, inner] is offsets[b] to offsets[b + 1]; padded it is [batch, length, inner].
struct Jagged {
    const int64_t* offsets;
    int64_t batch, length, inner;
    const void* in;
    void* out;
};

// Index: an element of the padded rows.
struct JaggedToPadded : Jagged {
    double padding;

    template <class T> void at(int64_t i) const {
        const int64_t step = i / inner % length, *row = offsets + i / inner / length;
        static_cast<T*>(out)[i] =
            step < row[1] - row[0] ? static_cast<const T*>(in)[(row[0] + step) * inner + i % inner] : static_cast<T>(padding);
    }
};

// Index: an element of the packed rows. What lies beyond the padded length is 0.
struct PaddedToJagged : Jagged {
    template <class T> void at(int64_t i) const {
        const int64_t place = i / inner;
        int64_t row = 0, beyond = batch;  // the last row that begins at or before it
        while (beyond - row > 1) {
            const int64_t middle = (row + beyond) / 2;
            if (offsets[middle] <= place) row = middle;
            else beyond = middle;
        }
        const int64_t step = place - offsets[row];
        static_cast<T*>(out)[i] = step < length ? static_cast<const T*>(in)[(row * length + step) * inner + i % inner] : T(0);
    }
};

}  // namespace wisp::kernels
