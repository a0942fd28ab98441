// Dropout kernel: random words for a block in cache, then one pass over the block.
#include "kernels/dropout.h"

#include "core/threads.h"
#include "cpu/vector.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t block = 1024;

template <class T> void apply_as(const T* x, T* y, int64_t n, RandomStream stream, uint64_t threshold, double scale_) {
    using C = Compute<T>;
    const C scale = C(scale_);
    const bool all = threshold > 0xffffffffu;
    const uint32_t limit = uint32_t(threshold);
    parallel_for((n + block - 1) / block, 8, [=](int64_t begin, int64_t end) {
        alignas(64) uint32_t words[block];
        for (int64_t b = begin; b < end; b++) {
            const int64_t first = b * block, count = n - first < block ? n - first : block;
            random.bits32(words, count, stream, first);
            const T* __restrict from = x + first;
            T* __restrict to = y + first;
            for (int64_t i = 0; i < count; i++) {
                const C kept = C(from[i]) * scale;
                to[i] = T(all || words[i] < limit ? kept : C(0));
            }
        }
    });
}

void apply(DType d, const void* x, void* y, int64_t n, RandomStream stream, uint64_t threshold, double scale) {
    with_floating(d, [=](auto zero) {
        using T = decltype(zero);
        apply_as(static_cast<const T*>(x), static_cast<T*>(y), n, stream, threshold, scale);
    });
}

}  // namespace

extern const DropoutKernels dropout_table = {&apply};

}  // namespace wisp::cpu::WISP_ISA
