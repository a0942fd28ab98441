// The parts of the family of norms (kernels/norm.h) that have files of their own.
#pragma once
#include "../kernels/norm.h"

namespace wisp::cuda {

void batch_norm_stats(const BatchNorm& n, const void* x, void* mean, void* rstd, DType running, void* running_mean, void* running_var,
                      double momentum, double eps);
void batch_norm_from_running(const BatchNorm& n, DType running, const void* running_mean, const void* running_var, void* mean, void* rstd,
                             double eps);
void batch_norm_apply(const BatchNorm& n, const void* x, const void* mean, const void* rstd, void* y);
void batch_norm_backward(const BatchNorm& n, const void* g, const void* x, const void* mean, const void* rstd, void* dx, void* dw, void* db,
                         bool training);

void group_norm_factors(const GroupNorm& n, const void* x, void* mean, void* rstd, void* scale, void* shift, double eps);
void group_norm_gradients(const GroupNorm& n, DType g_dtype, const void* g, const void* x, const void* mean, const void* rstd, void* slope,
                          void* shift, void* dw, void* db);
void group_norm_map(const GroupNorm& n, const void* x, const void* scale, const void* shift, DType y_dtype, void* y);
void group_norm_map_back(const GroupNorm& n, DType g_dtype, const void* g, const void* x, const void* scale, const void* slope,
                         const void* shift, void* dx);

}  // namespace wisp::cuda
