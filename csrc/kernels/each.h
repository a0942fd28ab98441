// Kernels that are one function: what is done for one index. Both backends compile the same text and loop over the indices,
// on processors or by a thread of the GPU each; no index may write where another one reads or writes.
//
// A kernel is a header with a struct of its arguments, whose `template <class T> void at(int64_t i) const` does the work of index i
// for elements of type T (float or double), and a line here. A front door calls `kernels::each().segment_reduce(arguments, dtype, n)`.
#pragma once
#include "kernels/jagged.h"
#include "kernels/segment_reduce.h"

#define WISP_EACH(X)                    \
    X(JaggedToPadded, jagged_to_padded) \
    X(PaddedToJagged, padded_to_jagged) \
    X(SegmentReduce, segment_reduce)    \
    X(SegmentGradient, segment_gradient)

#ifndef __CUDACC_RTC__  // the GPU's compiler gets this text too
#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

struct EachKernels {
#define X(Arguments, name) void (*name)(const Arguments& a, DType dtype, int64_t n);
    WISP_EACH(X)
#undef X
};

}  // namespace wisp::kernels
#endif
