// The kernels of the meta device, whose tensors have no memory: they do nothing, so that a front door gives the shapes of its results.
// What tells the front door something that depends on values refuses, unless it is whether they are in order, which is taken for granted.
// The flags and the kernels that are not there (nullptr) are those of the CPU, so that layouts and nodes are, too; where the CPU looks
// through values beforehand, the way of the GPU is taken.
#include "kernels/attention.h"
#include "kernels/conv.h"
#include "kernels/copy.h"
#include "kernels/ctc.h"
#include "kernels/dropout.h"
#include "kernels/each.h"
#include "kernels/embedding.h"
#include "kernels/fft.h"
#include "kernels/gemm.h"
#include "kernels/image.h"
#include "kernels/index.h"
#include "kernels/lapack.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/pool.h"
#include "kernels/random.h"
#include "kernels/reduce.h"
#include "kernels/rnn.h"
#include "kernels/scan.h"
#include "kernels/softmax.h"
#include "kernels/sort.h"
#include "kernels/sparse.h"

namespace wisp::meta {

using namespace kernels;

namespace {

struct Nothing {
    template <class R, class... A> using Function = R (*)(A...);
    template <class... A> constexpr operator Function<void, A...>() const {
        return [](A...) {};
    }
    template <class... A> constexpr operator Function<bool, A...>() const {
        return [](A...) { return true; };
    }
    template <class... A> constexpr operator Function<int64_t, A...>() const {
        return [](A...) -> int64_t { return -1; };  // the place of what is wrong: nowhere
    }
    template <class... A> constexpr operator Function<Weights, A...>() const {
        return [](A...) { return Weights::fine; };
    }
};
constexpr Nothing _;

struct Refused {
    template <class R, class... A> using Function = R (*)(A...);
    template <class R, class... A> constexpr operator Function<R, A...>() const {
        return [](A...) -> R { refuse_meta(); };
    }
};
constexpr Refused no;

const AttentionKernels attention_table = {
    _, _, false, true, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, "ScaledDotProductFlashAttentionForCpuBackward0"};
const ConvKernels conv_table = {_, _, nullptr, false};
const CopyKernels copy_table = {_, _, _, _, _, _, _, _, _};
const CtcKernels ctc_table = {_, _};
const DropoutKernels dropout_table = {_};
#define X(Arguments, name) _,
const EachKernels each_table = {WISP_EACH(X)};
#undef X
const EmbeddingKernels embedding_table = {_, _, _, _, _, _};
const FftKernels fft_table = {_, nullptr, nullptr, 3, true, 0};
const GemmKernels gemm_table = {_, _, _};
const ImageKernels image_table = {_, _, _, _, _, _, _, _, true};
const IndexKernels index_table = {nullptr, _, _, _, _, _, _, _, no, _, no, nullptr, _, _, nullptr, _, 0, nullptr, nullptr};
const LapackKernels lapack_table = {_, _, _, _, _, _, _, _, _, _, _, _, _, _};
const LossKernels loss_table = {_, _};
const NormKernels norm_table = {_, _, _, _, _, _, _, _, false};
const OptimizerKernels optimizer_table = {_, _, _, _, no};
const PoolKernels pool_table = {_, _, _, _, _, _, _, _, _, _, false};
const RandomKernels random_table = {_, _, _, _, _, _, _, _, _, _, _, nullptr, nullptr, _, _, nullptr, _, _};
const ReduceKernels reduce_table = {_};
const RnnKernels rnn_table = {_, _, false};
const ScanKernels scan_table = {_};
const SoftmaxKernels softmax_table = {_, _};
const SparseKernels sparse_table = {_, _, _, _};
const SortKernels sort_table = {_, _, _, _, _, no, _, no, no};

}  // namespace

#define WISP_THERE(name) const decltype(name##_table)* const name = &name##_table;
WISP_THERE(attention)
WISP_THERE(conv)
WISP_THERE(copy)
WISP_THERE(ctc)
WISP_THERE(dropout)
WISP_THERE(each)
WISP_THERE(embedding)
WISP_THERE(fft)
WISP_THERE(gemm)
WISP_THERE(image)
WISP_THERE(index)
WISP_THERE(loss)
WISP_THERE(norm)
WISP_THERE(optimizer)
WISP_THERE(pool)
WISP_THERE(random)
WISP_THERE(reduce)
WISP_THERE(rnn)
WISP_THERE(scan)
WISP_THERE(softmax)
WISP_THERE(sort)
WISP_THERE(sparse)
#undef WISP_THERE

const LapackKernels& lapack(DType) { return lapack_table; }

// Front doors of these look at the device themselves.
const PointwiseKernels* const pointwise = nullptr;
const ProgramKernels* const program = nullptr;

}  // namespace wisp::meta
