// Launches optimizer steps: lists of tensors travel as arguments of the kernel, up to a hundred at a time.
#include <algorithm>
#include <vector>

#include "../kernels/optimizer.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/optimizer.cuh";
constexpr int list_length = 96, short_length = 16;
constexpr int64_t piece = 8192;

template <int Length> struct ListOf {  // as in the kernel
    int count;
    int first_block[Length + 1];
    OptimizerTensor tensors[Length];
};
using List = ListOf<list_length>;

// Calls run(dtype, list, blocks) for lists that together hold every tensor, one dtype each.
template <class Run> void in_lists(const OptimizerTensor* tensors, int64_t count, Run run) {
    for (DType d : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        List list;
        list.count = 0;
        list.first_block[0] = 0;
        for (int64_t i = 0; i <= count; i++) {
            const bool last = i == count;
            if (list.count && (last || list.count == list_length)) {
                run(d, list, unsigned(list.first_block[list.count]));
                list.count = 0;
            }
            if (last || tensors[i].dtype != d || tensors[i].n == 0) continue;
            list.tensors[list.count] = tensors[i];
            list.first_block[list.count + 1] = list.first_block[list.count] + int((tensors[i].n + piece - 1) / piece);
            list.count++;
        }
    }
}

void step(OptimizerRule rule, const OptimizerSettings& settings, const OptimizerTensor* tensors, int64_t count) {
    in_lists(tensors, count, [&](DType d, const List& list, unsigned blocks) {
        static Instances<512> steps(file);
        auto kernel = [&](int length) {
            return steps((int(d) * 16 + int(rule)) * 2 + (length == list_length),
                         [&] { return str("optimizer_step<", type_text(d), ", ", int(rule), ", ", length, ">"); });
        };
        if (list.count > short_length) return launch_with(kernel(list_length), {blocks}, {256}, 0, list, settings);
        // Arguments are copied by every launch: few tensors travel in a short list.
        ListOf<short_length> few;
        few.count = list.count;
        std::copy_n(list.first_block, list.count + 1, few.first_block);
        std::copy_n(list.tensors, list.count, few.tensors);
        launch_with(kernel(short_length), {blocks}, {256}, 0, few, settings);
    });
}

void sum_squares(const OptimizerTensor* tensors, int64_t count, double* total) {
    int64_t parts = 0, done = 0;
    for (int64_t i = 0; i < count; i++) parts += (tensors[i].n + piece - 1) / piece;
    Scratch sums(size_t(std::max<int64_t>(parts, 1)) * sizeof(double));
    in_lists(tensors, count, [&](DType d, const List& list, unsigned blocks) {
        static Instances<16> squares(file);
        launch_with(squares(int(d), [&] { return str("squares_of_list<", type_text(d), ">"); }), {blocks}, {256}, 0, list,
                    sums.as<double>() + done);
        done += blocks;
    });
    static Instances<1> join(file);
    launch_with(join(0, [] { return "sum_of_parts"; }), {1}, {256}, 0, sums.as<double>(), done, total);
}

void scale(const OptimizerTensor* tensors, int64_t count, double factor) {
    in_lists(tensors, count, [&](DType d, const List& list, unsigned blocks) {
        launch_with(find_kernel(file, str("scale_list<", type_text(d), ">")), {blocks}, {256}, 0, list, factor);
    });
}

void unscale(const OptimizerTensor* tensors, int64_t count, const float* factor, float* found) {
    in_lists(tensors, count, [&](DType d, const List& list, unsigned blocks) {
        launch_with(find_kernel(file, str("unscale_list<", type_text(d), ">")), {blocks}, {256}, 0, list, factor, found);
    });
}

struct StepList {  // as in the kernel
    void* steps[list_length];
};

void adam_numbers(const OptimizerSettings& s, void* const* steps, int64_t count, DType dtype, const void* lr, DType lr_dtype,
                  double* numbers) {
    static Instances<4> kernels(file);
    Kernel* kernel = kernels((dtype == DType::f64) * 2 + (lr_dtype == DType::f64),
                             [&] { return str("adam_numbers<", type_text(dtype), ", ", type_text(lr_dtype), ">"); });
    for (int64_t i = 0; i < count; i += list_length) {
        StepList list;
        const int n = int(std::min<int64_t>(list_length, count - i));
        std::copy_n(steps + i, n, list.steps);
        launch_with(kernel, {1}, {list_length}, 0, list, n, s.beta1, s.beta2, s.lr, lr, numbers + 4 * i);
    }
}

}  // namespace

const OptimizerKernels optimizer = {step, sum_squares, scale, unscale, adam_numbers};

}  // namespace wisp::cuda
