// The text of the kernels, embedded in the library: what csrc/cuda/kernels holds, and the table that CPU and GPU share.
#include "compiler.h"

#define WISP_EMBED(symbol, path)                                                                \
    asm(".pushsection .rodata\n"                                                                \
        ".global wisp_text_" #symbol "\nwisp_text_" #symbol ":\n.incbin \"" path                \
        "\"\n"                                                                                  \
        ".global wisp_text_" #symbol "_end\nwisp_text_" #symbol "_end:\n.byte 0\n.popsection"); \
    extern "C" __attribute__((visibility("hidden"))) const char wisp_text_##symbol[], wisp_text_##symbol##_end[];
#define WISP_TEXTS(X)                                                  \
    X(table_unary, "ops/table/unary.h")                                \
    X(table_activation, "ops/table/activation.h")                      \
    X(table_binary, "ops/table/binary.h")                              \
    X(row, "ops/row.h")                                                \
    X(special, "cpu/special.h")                                        \
    X(expressions, "cpu/expressions.h")                                \
    X(base, "cuda/kernels/base.cuh")                                   \
    X(numbers, "cuda/kernels/numbers.cuh")                             \
    X(pointwise, "cuda/kernels/pointwise.cuh")                         \
    X(pointwise_arguments, "cuda/kernels/pointwise_arguments.cuh")     \
    X(copy, "cuda/kernels/copy.cuh")                                   \
    X(reduce, "cuda/kernels/reduce.cuh")                               \
    X(reduce_arguments, "cuda/kernels/reduce_arguments.cuh")           \
    X(rows, "cuda/kernels/rows.cuh")                                   \
    X(softmax, "cuda/kernels/softmax.cuh")                             \
    X(norm, "cuda/kernels/norm.cuh")                                   \
    X(batch_norm, "cuda/kernels/batch_norm.cuh")                       \
    X(loss, "cuda/kernels/loss.cuh")                                   \
    X(pool, "cuda/kernels/pool.cuh")                                   \
    X(pool_planes, "cuda/kernels/pool_planes.cuh")                     \
    X(pool_planes_arguments, "cuda/kernels/pool_planes_arguments.cuh") \
    X(small_conv, "cuda/kernels/small_conv.cuh")                       \
    X(small_gemm, "cuda/kernels/small_gemm.cuh")                       \
    X(small_gemm_arguments, "cuda/kernels/small_gemm_arguments.cuh")   \
    X(rnn, "cuda/kernels/rnn.cuh")                                     \
    X(index, "cuda/kernels/index.cuh")                                 \
    X(image, "cuda/kernels/image.cuh")                                 \
    X(image_types, "cpu/image.h")                                      \
    X(grid_rules, "cpu/grid_rules.h")                                  \
    X(sparse, "cuda/kernels/sparse.cuh")                               \
    X(ldl, "cuda/kernels/ldl.cuh")                                     \
    X(integer_gemm, "cuda/kernels/integer_gemm.cuh")                   \
    X(sampler_rules, "cpu/sampler_rules.h")                            \
    X(sort, "cuda/kernels/sort.cuh")                                   \
    X(philox, "cuda/kernels/philox.cuh")                               \
    X(random, "cuda/kernels/random.cuh")                               \
    X(attention_common, "cuda/kernels/attention_common.cuh")           \
    X(attention, "cuda/kernels/attention.cuh")                         \
    X(attention_plain, "cuda/kernels/attention_plain.cuh")             \
    X(attention_parts, "cuda/kernels/attention_parts.cuh")             \
    X(mma, "cuda/kernels/mma.cuh")                                     \
    X(philox_rules, "cpu/philox_rules.h")                              \
    X(random_rules, "cpu/random_rules.h")                              \
    X(optimizer, "cuda/kernels/optimizer.cuh")                         \
    X(optimizer_rules, "cpu/optimizer_rules.h")                        \
    X(optimizer_types, "cpu/optimizer.h")

#define WISP_X(symbol, path) WISP_EMBED(symbol, path)
WISP_TEXTS(WISP_X)
#undef WISP_X

namespace wisp::cuda {

const std::vector<Source>& sources() {
    static const std::vector<Source> all = {
#define WISP_X(symbol, path) {path, std::string(wisp_text_##symbol, wisp_text_##symbol##_end)},
        WISP_TEXTS(WISP_X)
#undef WISP_X
    };
    return all;
}

}  // namespace wisp::cuda
