// Kernels that are one function of an index (see kernels/each.h), in threads.
#include "kernels/each.h"

#include "core/threads.h"

namespace wisp::cpu {
namespace {

constexpr int64_t grain = 1024;

template <class Arguments> void run(const Arguments& a, DType dtype, int64_t n) {
    parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        if (dtype == DType::f64)
            for (int64_t i = begin; i < end; i++) a.template at<double>(i);
        else
            for (int64_t i = begin; i < end; i++) a.template at<float>(i);
    });
}

#define X(Arguments, name) &run<Arguments>,
const EachKernels table = {WISP_EACH(X)};
#undef X

}  // namespace

const EachKernels& each = table;

}  // namespace wisp::cpu
