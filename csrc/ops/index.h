// Advanced indexing for other front doors.
#pragma once
#include "ops.h"

namespace wisp {

// t[indices]: int64 tensors by dimension (undefined: the whole dimension), broadcast together. As in NumPy, the
// result's index dimensions stand where the indices stood if they were neighbours, else first.
Tensor index(const Tensor& t, const TensorList& indices);
// t[indices] = values (or += if accumulate), in place.
Tensor index_put_(const Tensor& t, const TensorList& indices, const Tensor& values, bool accumulate);
int64_t item_value(const Tensor& t);

}  // namespace wisp
