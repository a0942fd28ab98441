// The tables of kernels of the GPU, with the interfaces of csrc/cpu, and the choice between the two.
#pragma once
#include "../core/device.h"
#include "../core/errors.h"
#include "../cpu/attention.h"
#include "../cpu/dropout.h"
#include "../cpu/embedding.h"
#include "../cpu/image.h"
#include "../cpu/index.h"
#include "../cpu/norm.h"
#include "../cpu/optimizer.h"
#include "../cpu/pool.h"
#include "../cpu/random.h"
#include "../cpu/rnn.h"
#include "../cpu/scan.h"
#include "../cpu/softmax.h"
#include "../cpu/sort.h"
#include "../cpu/sparse.h"

namespace wisp {

namespace cuda {
extern const cpu::AttentionKernels attention;
extern const cpu::DropoutKernels dropout;
extern const cpu::EmbeddingKernels embedding;
extern const cpu::ImageKernels image;
extern const cpu::IndexKernels index;
extern const cpu::NormKernels norm;
extern const cpu::OptimizerKernels optimizer;
extern const cpu::PoolKernels pool;
extern const cpu::RandomKernels random;
extern const cpu::RnnKernels rnn;
extern const cpu::ScanKernels scan;
extern const cpu::SoftmaxKernels softmax;
extern const cpu::SortKernels sort;
extern const cpu::SparseKernels sparse;

// In the place of a kernel that the GPU lacks.
struct Absent {
    template <class R, class... A> using Function = R (*)(A...);
    template <class R, class... A> constexpr operator Function<R, A...>() const {
        return [](A...) -> R { throw MissingKernel("there is no kernel for tensors on cuda; move them with .cpu() for this operator"); };
    }
};
}  // namespace cuda

// The table of the device that the running operator works on: on_device(cpu::softmax, cuda::softmax).forward(...).
template <class Table> const Table& on_device(const Table& cpu, const Table& cuda) {
    const Device d = current_device();
    if (d.type == DeviceType::meta) throw MissingKernel("a meta tensor has no data; make it with device='cpu'");
    return d.is_cuda() ? cuda : cpu;
}

}  // namespace wisp
