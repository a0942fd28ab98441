// Front doors of softmax, log_softmax and softmin.
#include "../kernels/softmax.h"

#include "../autograd/told.h"
#include "../python/registry.h"
#include "fused.h"

namespace wisp {
namespace {

struct Split {
    int64_t outer = 1, n = 1, inner = 1;
    Split(const Dims& sizes, int64_t dim) {
        for (int64_t i = 0; i < sizes.size(); i++) (i < dim ? outer : i > dim ? inner : n) *= sizes[i];
    }
};

Tensor softmax_backward(const Tensor& g, const Tensor& y, int64_t dim, bool logarithm) {
    if (needs_grad(g, y)) {
        if (logarithm) return g - exp(y) * sum(g, {dim}, true);
        return (g - sum(g * y, {dim}, true)) * y;
    }
    const Tensor grad = kernel_input(g, y.dtype()), out = kernel_input(y);
    Tensor dx = empty(y.sizes(), y.dtype());
    if (y.device().type == DeviceType::meta) return dx;
    const Split s(y.sizes(), dim);
    Unlocked unlocked(y.numel());
    kernels::softmax().backward(y.dtype(), grad.device_data(), out.device_data(), dx.device_data(), s.outer, s.n, s.inner, logarithm);
    return dx;
}

Tensor softmax_of(const Tensor& x, int64_t dim_, bool logarithm) {
    const int64_t dim = wrap_dim(dim_, x.dim());
    check_floating(logarithm ? "log_softmax_lastdim_kernel_impl" : "softmax_lastdim_kernel_impl", x);
    const Tensor in = kernel_input(x);
    Tensor y = empty(x.sizes(), x.dtype());
    const Split s(x.sizes(), dim);
    if (x.device().type != DeviceType::meta) {
        Unlocked unlocked(x.numel());
        kernels::softmax().forward(x.dtype(), in.device_data(), y.device_data(), s.outer, s.n, s.inner, logarithm);
    }
    if (needs_grad(x))
        record(y, logarithm ? "LogSoftmaxBackward0" : "SoftmaxBackward0", {x}, {y},
               told<"dim | result">(
                   [logarithm](Backward& bw, int64_t dim) { bw.set(0, softmax_backward(bw.grad(), bw.saved(0), dim, logarithm)); }, dim));
    return y;
}

// The dim that PyTorch's functions take when none is given, with its warning.
int64_t implicit_dim(const char* name, const Tensor& x, std::optional<int64_t> dim) {
    if (dim) return *dim;
    warn(str("Implicit dimension choice for ", name, " has been deprecated. Change the call to include dim=X as an argument."));
    return x.dim() == 0 || x.dim() == 1 || x.dim() == 3 ? 0 : 1;
}
Tensor cast(const Tensor& x, std::optional<DType> dtype) { return dtype ? to(x, *dtype) : x; }

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) { return softmax_of(x, dim, false); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return softmax_of(x, dim, true); }

static const Operators operators = {
    {"softmax(Tensor input, int dim, dtype? dtype=None, *, Tensor!? out=None)",
     [](const Tensor& x, int64_t dim, std::optional<DType> dtype) { return softmax(cast(x, dtype), dim); },
     function | method | cuda_float32,
     R"(Exponentials along a dimension, divided by their sum.
        >>> wisp.softmax(wisp.tensor([0.0, 0.0]), dim=0)
        tensor([0.5000, 0.5000]))"},
    {"log_softmax(Tensor input, int dim, dtype? dtype=None, *, Tensor!? out=None)",
     [](const Tensor& x, int64_t dim, std::optional<DType> dtype) { return log_softmax(cast(x, dtype), dim); },
     function | method | cuda_float32,
     R"(The logarithm of `softmax`, exact where that would be 0.
        >>> wisp.log_softmax(wisp.tensor([0.0, 0.0]), dim=0)
        tensor([-0.6931, -0.6931]))"},
    {"special.softmax(Tensor input, int dim, dtype? dtype=None)",
     [](const Tensor& x, int64_t dim, std::optional<DType> dtype) { return softmax(cast(x, dtype), dim); }, function | cuda_float32,
     R"(Exponentials along a dimension, divided by their sum.
        >>> wisp.special.softmax(wisp.tensor([0.0, 0.0]), 0)
        tensor([0.5000, 0.5000]))"},
    {"special.log_softmax(Tensor input, int dim, *, dtype? dtype=None)",
     [](const Tensor& x, int64_t dim, std::optional<DType> dtype) { return log_softmax(cast(x, dtype), dim); }, function | cuda_float32,
     R"(The logarithm of `softmax`.
        >>> wisp.special.log_softmax(wisp.tensor([0.0, 0.0]), 0)
        tensor([-0.6931, -0.6931]))"},
    {"nn.functional.softmax(Tensor input, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
     [](const Tensor& x, std::optional<int64_t> dim, int64_t, std::optional<DType> dtype) {
         return softmax(cast(x, dtype), implicit_dim("softmax", x, dim));
     },
     function | cuda_float32},
    {"nn.functional.log_softmax(Tensor input, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
     [](const Tensor& x, std::optional<int64_t> dim, int64_t, std::optional<DType> dtype) {
         return log_softmax(cast(x, dtype), implicit_dim("log_softmax", x, dim));
     },
     function | cuda_float32},
    {"nn.functional.softmin(Tensor input, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
     [](const Tensor& x, std::optional<int64_t> dim, int64_t, std::optional<DType> dtype) {
         return softmax(cast(neg(x), dtype), implicit_dim("softmin", x, dim));
     },
     function,
     R"(`softmax` of the elements with the other sign.
        >>> wisp.nn.functional.softmin(wisp.tensor([0.0, 0.0]), dim=0)
        tensor([0.5000, 0.5000]))"},
};

}  // namespace wisp
