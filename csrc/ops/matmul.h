// Front doors of products, for other front doors. All are differentiable any number of times.
#pragma once
#include "ops.h"

namespace wisp {

// How a matrix enters a product: as it is, transposed, conjugated or both. Neither is ever copied for that.
struct MatrixForm {
    bool transposed = false, conjugated = false;
};

// form(a) · form(b) over the last two dimensions; the dimensions before them are broadcast. Shapes must fit.
Tensor product(const Tensor& a, MatrixForm form_a, const Tensor& b, MatrixForm form_b, const char* name = "BmmBackward0", Out out = {});

Tensor mv(const Tensor& matrix, const Tensor& vector);
Tensor dot(const Tensor& a, const Tensor& b);
Tensor vdot(const Tensor& a, const Tensor& b);
Tensor outer(const Tensor& a, const Tensor& b);
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Out out = {});
Tensor addmv(const Tensor& input, const Tensor& matrix, const Tensor& vector, const Scalar& beta, const Scalar& alpha);
Tensor addr(const Tensor& input, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha);
Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Out out = {});
Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha);
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias);  // bias may be undefined
Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias);

Tensor inner(const Tensor& a, const Tensor& b);
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b);
Tensor kron(const Tensor& a, const Tensor& b);
Tensor vecdot(const Tensor& a, const Tensor& b, int64_t dim);
Tensor multi_dot(const TensorList& tensors);
Tensor chain_matmul(const TensorList& matrices);
Tensor einsum(const std::string& equation, const TensorList& operands);

}  // namespace wisp
