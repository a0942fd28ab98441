// Kernels that are one function of an index (see kernels/each.h), by a thread each.
#include "../kernels/each.h"

#include "pointwise.h"
#include "sorting.h"

namespace wisp::cuda {
namespace {

template <class Arguments> void run(const char* name, const Arguments& a, DType dtype, int64_t n) {
    static Instances<2> instances("cuda/kernels/each.cuh");
    Kernel* kernel = instances(dtype == DType::f64, [&] { return str("each<kernels::", name, ", ", type_text(dtype), ">"); });
    if (n) launch_with(kernel, threads(n), {256}, 0, a, n);
}

}  // namespace

#define X(Arguments, name) [](const Arguments& a, DType dtype, int64_t n) { run(#Arguments, a, dtype, n); },
const EachKernels each = {WISP_EACH(X)};
#undef X

}  // namespace wisp::cuda
