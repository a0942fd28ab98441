// Activations that are not rows of the pointwise table.
#include "../python/registry.h"
#include "ops.h"
#include "second_order.h"

namespace wisp {
namespace {

// x where it is positive, else x * slope; the slope is broadcast to x.
Tensor prelu(const Tensor& x, const Tensor& slope) {
    Tensor y;
    {
        GradMode off(false);
        y = where(x > Scalar(0), x, slope * x);
    }
    if (needs_grad(x, slope))
        record(y, "PreluKernelBackward0", {x, slope}, {x, slope}, [](Backward& bw) {
            const Tensor x = bw.saved(0), positive = x > Scalar(0);
            if (bw.needs(0)) set_piecewise_linear(bw, 0, where(positive, bw.grad(), bw.grad() * bw.saved(1)), "PreluKernelBackward0");
            if (bw.needs(1)) bw.set(1, where(positive, Scalar(0.0), bw.grad() * x));
        });
    return y;
}

const Operators operators = {
    {"_prelu_kernel(Tensor input, Tensor weight)", prelu, function | for_python | in_lower},
};

}  // namespace
}  // namespace wisp
