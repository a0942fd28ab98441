// Front doors that other C++ code calls: checks, allocation, kernel, gradient. Python-only operators need no line here.
// Pointwise operators come from the table; see pointwise.h for their declarations and the arithmetic operators.
#pragma once
#include <optional>

#include "../autograd/node.h"
#include "../core/tensor.h"
#include "pointwise.h"

namespace wisp {

// creation
Tensor zeros(const Dims& sizes, DType dtype);
Tensor ones(const Dims& sizes, DType dtype);
Tensor full(const Dims& sizes, const Scalar& value, DType dtype);
Tensor zeros_like(const Tensor& t);
Tensor ones_like(const Tensor& t);
Tensor full_like(const Tensor& t, const Scalar& value);
Tensor filled(const Tensor& fresh, const Scalar& value);  // a tensor that was just made: what is written to it counts as no change
Tensor zeroed(const Tensor& fresh);
Tensor arange(int64_t n);  // 0 .. n-1, int64

// copies and casts
Tensor clone(const Tensor& t);       // keeps a dense layout
Tensor contiguous(const Tensor& t);  // t itself if it is contiguous
Tensor contiguous(const Tensor& t, MemoryFormat format);
Tensor to(const Tensor& t, DType dtype);  // t itself if it has the dtype
Tensor to(const Tensor& t, Device device, bool wait = true);
Tensor copy_(const Tensor& self, const Tensor& src, bool wait = true);  // broadcasts, casts and moves src
Tensor fill_(const Tensor& self, const Scalar& value);
Tensor zero_(const Tensor& self);
Tensor detach(const Tensor& t);
// Same shape, any devices; no checks, no history: for front doors. Without `wait`, a copy from a GPU may still be under way.
void copy_values(const Tensor& to, const Tensor& from, bool wait = true);
void resize(const Tensor& t, const Dims& sizes);      // contiguous, in the same storage, which grows if it must
Tensor expanded(const Tensor& t, const Dims& sizes);  // plain alias with broadcast strides, no history

// views
Tensor view(const Tensor& t, const Dims& sizes);
Tensor reshape(const Tensor& t, const Dims& sizes);
Tensor flatten(const Tensor& t, int64_t start = 0, int64_t end = -1);
Tensor transpose(const Tensor& t, int64_t a, int64_t b);
Tensor permute(const Tensor& t, const Dims& dims);
Tensor expand(const Tensor& t, const Dims& sizes);
Tensor squeeze(const Tensor& t, const Dims& dims);
Tensor squeeze(const Tensor& t);
Tensor unsqueeze(const Tensor& t, int64_t dim);
Tensor narrow(const Tensor& t, int64_t dim, int64_t start, int64_t length);
Tensor select(const Tensor& t, int64_t dim, int64_t index);
Tensor slice(const Tensor& t, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);
Tensor unfold(const Tensor& t, int64_t dim, int64_t size, int64_t step);
Tensor diagonal(const Tensor& t, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
Tensor as_strided(const Tensor& t, const Dims& sizes, const Dims& strides, std::optional<int64_t> offset = {});
Tensor movedim(const Tensor& t, const Dims& source, const Dims& destination);
TensorList unbind(const Tensor& t, int64_t dim);
TensorList split(const Tensor& t, const Dims& lengths, int64_t dim);
Tensor view_as_real(const Tensor& t);
Tensor view_as_complex(const Tensor& t);

// reductions
Tensor sum(const Tensor& t);
Tensor sum(const Tensor& t, const Dims& dims, bool keepdim = false, std::optional<DType> dtype = {});
Tensor mean(const Tensor& t, const Dims& dims, bool keepdim = false, std::optional<DType> dtype = {});
Tensor amax(const Tensor& t, const Dims& dims, bool keepdim = false);
Tensor amin(const Tensor& t, const Dims& dims, bool keepdim = false);
Tensor sum_to_size(const Tensor& t, const Dims& sizes);  // undoes broadcasting

// triangles and diagonals
Tensor triangle(const Tensor& t, int64_t diagonal, bool upper);  // triu or tril
Tensor diag_embed(const Tensor& t, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);

// products
Tensor matmul(const Tensor& a, const Tensor& b, Out out = {});
Tensor mm(const Tensor& a, const Tensor& b, Out out = {});
Tensor bmm(const Tensor& a, const Tensor& b, Out out = {});

// indexing
Tensor index_select(const Tensor& t, int64_t dim, const Tensor& index);
Tensor gather(const Tensor& t, int64_t dim, const Tensor& index);
Tensor scatter_add(const Tensor& t, int64_t dim, const Tensor& index, const Tensor& source);
Tensor cat(const TensorList& tensors, int64_t dim, Out out = {});
Tensor stack(const TensorList& tensors, int64_t dim, Out out = {});
Tensor flip(const Tensor& t, const Dims& dims);
Tensor cumsum(const Tensor& t, int64_t dim);
Tensor argsort(const Tensor& t, int64_t dim, bool descending);
Tensor searchsorted(const Tensor& boundaries, const Tensor& values, bool right);  // boundaries: sorted along the last dimension

bool is_nonzero(const Tensor& t);  // bool() of a one-element tensor
Scalar item(const Tensor& t);

// The dtype that a binary operator computes in, by PyTorch's rules for dimensions and wrapped numbers.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, const Scalar& b);
// Refuses tensors on different devices, naming both.
void check_same_device(const char* op, const Tensor& a, const Tensor& b);

}  // namespace wisp
