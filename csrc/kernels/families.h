// The families of kernels, and the way to them.
//
// A family is a struct of function pointers in csrc/kernels/<family>.h. The CPU fills one table per instruction set in
// csrc/cpu/<family>.cpp (see cpu/isa.h; select.cpp chooses when the library is loaded), the GPU one in csrc/cuda/<family>.cpp.
// Tables of the meta device are in csrc/ops/meta.cpp, or null where its tensors are refused.
// A front door calls the table of the device that its operator works on, and does not ask which one that is:
//     kernels::softmax().forward(...)
// A new family is a line here.
#pragma once
#include "core/device.h"
#include "core/errors.h"

#define WISP_FAMILIES(X)           \
    X(AttentionKernels, attention) \
    X(ConvKernels, conv)           \
    X(CopyKernels, copy)           \
    X(CtcKernels, ctc)             \
    X(DropoutKernels, dropout)     \
    X(EmbeddingKernels, embedding) \
    X(FftKernels, fft)             \
    X(GemmKernels, gemm)           \
    X(ImageKernels, image)         \
    X(IndexKernels, index)         \
    X(LossKernels, loss)           \
    X(NormKernels, norm)           \
    X(OptimizerKernels, optimizer) \
    X(PoolKernels, pool)           \
    X(RandomKernels, random)       \
    X(ReduceKernels, reduce)       \
    X(RnnKernels, rnn)             \
    X(ScanKernels, scan)           \
    X(SoftmaxKernels, softmax)     \
    X(SparseKernels, sparse)

// The CPU has one table for all instruction sets.
#define WISP_PLAIN_FAMILIES(X)     \
    X(EachKernels, each)           \
    X(PointwiseKernels, pointwise) \
    X(ProgramKernels, program)     \
    X(SortKernels, sort)

// Parts of the CPU's families, which only its own code calls.
#define WISP_CPU_PARTS(X)                      \
    X(ConvWeightKernels, conv_weight)          \
    X(UnaryKernels, pointwise_unary)           \
    X(ActivationKernels, pointwise_activation) \
    X(BinaryKernels, pointwise_binary)

namespace wisp {

#define WISP_DECLARE(Type, name)       \
    namespace kernels { struct Type; } \
    namespace cpu { extern const kernels::Type& name; }
#define WISP_BOTH(Type, name)                                                     \
    WISP_DECLARE(Type, name)                                                      \
    namespace cuda { extern const kernels::Type name; }                           \
    namespace meta { extern const kernels::Type* const name; }                    \
    namespace kernels {                                                           \
    inline const Type& name() { return here(cpu::name, cuda::name, meta::name); } \
    }

namespace kernels {

// In the place of a kernel that a device lacks.
struct Absent {
    template <class R, class... A> using Function = R (*)(A...);
    template <class R, class... A> constexpr operator Function<R, A...>() const {
        return [](A...) -> R { throw MissingKernel("there is no kernel for tensors on cuda; move them with .cpu() for this operator"); };
    }
};

template <class Table> [[gnu::always_inline]] inline const Table& here(const Table& cpu, const Table& cuda, const Table* const& meta) {
    const DeviceType type = current_device().type;
    if (type == DeviceType::cpu) [[likely]]
        return cpu;
    if (type == DeviceType::cuda) return cuda;
    if (!meta) refuse_meta();
    return *meta;
}

}  // namespace kernels

WISP_FAMILIES(WISP_BOTH)
WISP_PLAIN_FAMILIES(WISP_BOTH)
WISP_CPU_PARTS(WISP_DECLARE)
#undef WISP_BOTH
#undef WISP_DECLARE

namespace cpu { using namespace kernels; }
namespace cuda { using namespace kernels; }

}  // namespace wisp
