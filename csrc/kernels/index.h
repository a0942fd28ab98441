// Reading and writing by index: slices at computed offsets (index_select, advanced indexing, take, index_add...),
// elements along a dimension (gather, scatter), masks and nonzero. On the CPU indices are checked before they come here;
// kernels of the GPU check them as they go and report a bad one with the operator's `name`.
// Strides count elements. Results do not depend on the number of threads, repeated indices included.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

enum class Scatter : uint8_t { set, add, multiply, minimum, maximum };  // minimum and maximum let NaN win

// The part of a tensor that one index addresses.
struct Slice {
    int ndim;
    const int64_t* sizes;
    const int64_t* strides;
};

struct IndexKernels {
    // Position of the first index outside [-size, size) (or [0, size) unless wrap), or -1. Null: the kernels look themselves.
    int64_t (*first_out_of_range)(const int64_t* index, int64_t n, int64_t size, bool wrap);

    // out[i] = sum over k of indices[k][i] * strides[k]; with `wrap` a negative index counts from the end of sizes[k].
    void (*offsets)(int64_t* out, const int64_t* const* indices, const int64_t* sizes, const int64_t* strides, int count, int64_t n,
                    bool wrap, const char* name);

    // Slice i of out = the slice at offsets[i] of in, for i < n; slice i of out is out_step after slice i - 1 and has
    // out_strides.
    void (*take)(void* out, int64_t out_step, const int64_t* out_strides, const void* in, const int64_t* offsets, int64_t n,
                 const Slice& slice, int64_t item);

    // The slice at offsets[i] of out combines with slice i of values, which is `value_step` after slice i - 1 and has
    // value_strides (0 broadcasts). Later i win in `set`. All offsets are below `span`.
    void (*put)(Scatter how, void* out, DType dtype, const int64_t* offsets, int64_t n, const Slice& slice, const void* values,
                int64_t value_step, const int64_t* value_strides, int64_t span);

    // out[i] = in[i with coordinate dim replaced by index[i]]; out is contiguous with the shape of index. `size`: of in
    // along dim, from whose end negative indices count with `wrap`. False if an index is out of range, on the CPU; nothing is read there.
    bool (*gather)(void* out, const void* in, const int64_t* in_strides, const int64_t* index, const int64_t* index_strides,
                   const int64_t* sizes, int ndim, int dim, int64_t item, int64_t size, bool wrap, const char* name);

    // out[i with coordinate dim replaced by index[i]] combines with values[i].
    void (*scatter)(Scatter how, void* out, DType dtype, const int64_t* out_strides, const int64_t* index, const int64_t* index_strides,
                    const void* values, const int64_t* value_strides, const int64_t* sizes, int ndim, int dim, int64_t size,
                    const char* name);

    // The elements of in where mask, `count` of them in all; in and mask contiguous.
    void (*masked_select)(void* out, const void* in, const bool* mask, int64_t n, int64_t count, int64_t item);
    // out[i] = the next of values where mask.
    void (*masked_scatter)(void* out, const bool* mask, const void* values, int64_t n, int64_t item);

    // Coordinates of the `count` true elements of a contiguous mask: out[i * row_step + k * column_step].
    void (*nonzero)(int64_t* out, int64_t row_step, int64_t column_step, const bool* mask, const int64_t* sizes, int ndim, int64_t count);

    // Copies of contiguous matrices with what lies above (tril) or below (triu) the diagonal zeroed.
    void (*triangle)(void* out, const void* in, int64_t batch, int64_t rows, int64_t columns, int64_t diagonal, bool upper, int64_t item);

    // How many are true. Null: the front door finds out by a reduction.
    int64_t (*count_true)(const bool* mask, int64_t n);
    // out: index i as often as repeats[i] says. Null: the front door composes it.
    void (*repeat)(int64_t* out, const int64_t* repeats, int64_t n);
    // out[i] = first + i * step
    void (*count_up)(int64_t* out, int64_t n, int64_t first, int64_t step);
    // Whether all are true. The GPU says yes, and raises RuntimeError with the message, which is static text, at the next
    // synchronisation.
    bool (*holds)(const bool* good, int64_t n, const char* message);

    // The least and the largest of n > 0 numbers, and ones at the places that they name: out[i * classes + x[i]] = 1. Where there is no
    // `extremes`, the second finds what is out of range, and raises RuntimeError with one of the messages at the next synchronisation.
    void (*extremes)(const int64_t* x, int64_t n, int64_t* least, int64_t* largest);
    void (*mark_classes)(int64_t* out, const int64_t* x, int64_t n, int64_t classes, const char* negative, const char* too_large);

    int64_t scattered_below;  // sums into slices of fewer elements are better made by `scatter` than by `put`

    // Sets the slice at index[0] * stride. Null: `put` does it.
    void (*put_one)(void* out, const int64_t* index, int64_t size, int64_t stride, bool wrap, const char* name, const Slice& slice,
                    const void* values, const int64_t* value_strides, int64_t item);
    // `offsets` and `take` of single elements at once, with `wrap`. Null: one after the other.
    void (*take_elements)(void* out, const void* in, const int64_t* const* indices, const int64_t* sizes, const int64_t* strides, int count,
                          int64_t n, int64_t item, const char* name);
};

}  // namespace wisp::kernels
