// Fourier transforms by cuFFT. Plans are made once per shape and kept.
#include "../kernels/fft.h"

#include <unordered_map>

#include "../core/device.h"
#include "../core/errors.h"
#include "../core/scalar.h"
#include "plan_key.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

// X(name in the table, symbol, parameters)
#define WISP_CUFFT(X)                                                                                                                  \
    X(create, cufftCreate, (int* plan))                                                                                                \
    X(destroy, cufftDestroy, (int))                                                                                                    \
    X(own_memory, cufftSetAutoAllocation, (int, int))                                                                                  \
    X(make, cufftMakePlanMany64,                                                                                                       \
      (int, int rank, long long* sizes, long long*, long long, long long, long long*, long long, long long, int type, long long batch, \
       size_t* work))                                                                                                                  \
    X(set_memory, cufftSetWorkArea, (int, void*))                                                                                      \
    X(set_stream, cufftSetStream, (int, Handle))                                                                                       \
    X(execute, cufftXtExec, (int, void*, void*, int direction))

struct Cufft {
    WISP_CUFFT(WISP_FIELD)
};

const Cufft& cufft() {
    static const Cufft table = open_table<Cufft>(
        {"cuFFT", "Fourier transforms on the GPU need", "cufft", {"libcufft.so.12", "libcufft.so.11"}}, {WISP_CUFFT(WISP_SYMBOL)});
    return table;
}

void must(Result r, const char* what) {
    if (r == 2) throw DeviceOutOfMemory("CUDA out of memory: cuFFT, ", what);
    if (r != 0) throw RuntimeError("cuFFT error ", r, " (", what, ")");
}

struct Key {
    int64_t type, rank, sizes[3], batch, device;
};
struct TransformPlan {
    int handle;
    size_t work;
};

const TransformPlan& plan_for(const Key& key) {
    static std::unordered_map<Key, TransformPlan, HashBytes<Key>, SameBytes<Key>> plans;
    if (auto it = plans.find(key); it != plans.end()) return it->second;
    const Cufft& c = cufft();
    if (plans.size() >= 1024) {  // shapes that never come back
        for (auto& [k, p] : plans) c.destroy(p.handle);
        plans.clear();
    }
    TransformPlan p{};
    must(c.create(&p.handle), "making a plan");
    must(c.own_memory(p.handle, 0), "making a plan");
    long long sizes[3];
    for (int i = 0; i < 3; i++) sizes[i] = key.sizes[i];
    const Result r = c.make(p.handle, int(key.rank), sizes, nullptr, 1, 0, nullptr, 1, 0, int(key.type), key.batch, &p.work);
    if (r != 0) c.destroy(p.handle);
    must(r, "making a plan");
    return plans.emplace(key, p).first->second;
}

// Without scaling; half_to_real destroys its input.
void execute(FftKind kind, bool f64, int rank, const int64_t* sizes, int64_t batch, void* in, void* out, bool inverse) {
    Key key{};
    key.type = (kind == FftKind::complex ? 0x29 : kind == FftKind::real_to_half ? 0x2a : 0x2c) + (f64 ? 0x40 : 0);
    key.rank = rank;
    for (int i = 0; i < rank; i++) key.sizes[i] = sizes[i];
    key.batch = batch;
    key.device = current_device().index;
    const Cufft& c = cufft();
    before_work();
    const Handle stream = current_stream();
    const TransformPlan& p = plan_for(key);
    Scratch work(std::max<size_t>(p.work, 1));
    must(c.set_stream(p.handle, stream), "choosing the stream");
    must(c.set_memory(p.handle, work.data()), "giving memory");
    Timed timed("cuFFT transform");
    must(c.execute(p.handle, in, out, inverse ? 1 : -1), "a transform");
}

void rows(FftKind kind, bool f64, int rank, const int64_t* sizes, const void* in, void* out, int64_t count, bool inverse, double scale) {
    const int64_t n = sizes[rank - 1], half = n / 2 + 1;
    const DType real = f64 ? DType::f64 : DType::f32, complex = complex_of(real);
    const bool to_real = kind == FftKind::half_to_real;
    void* from = const_cast<void*>(in);
    // cuFFT reads pairs of real numbers, and a part of a tensor may begin in the middle of one.
    const bool copied = to_real || (kind == FftKind::real_to_half && reinterpret_cast<uintptr_t>(in) % size_t(item_size(complex)));
    size_t bytes = size_t(count) * size_t(to_real ? half * item_size(complex) : n * item_size(real));
    for (int i = 0; i + 1 < rank; i++) bytes *= size_t(to_real ? 1 : sizes[i]);
    Scratch copy(copied ? bytes : 0);
    if (copied) {
        from = copy.data();
        within(from, in, bytes);
    }
    if (to_real) {                      // frequencies that stand for themselves are real, whatever is given
        const double zero[2] = {0, 0};  // numbers are of 16 bytes
        const int64_t apart = 2 * half;
        for (int64_t at = 0; at < half; at += n % 2 == 0 ? half - 1 : half)
            copy_elements({static_cast<char*>(from) + (2 * at + 1) * item_size(real), real, &apart, nullptr},
                          {nullptr, real, nullptr, zero}, Dims{count}, false);
    }
    execute(kind, f64, rank, sizes, count, from, out, inverse);
    if (scale == 1) return;
    int64_t all = count * (kind == FftKind::real_to_half ? half : n);
    for (int i = 0; i + 1 < rank; i++) all *= sizes[i];
    const DType d = to_real ? real : complex;
    const int64_t one = 1;
    alignas(16) char number[16];
    Scalar(scale).store(number, d);
    const Operand result{static_cast<char*>(out), d, &one, nullptr}, operands[3] = {result, result, {nullptr, d, nullptr, number}};
    elementwise(Pointwise::mul, which_forward, d, operands, 3, Dims{all}, nullptr);
}

}  // namespace

const FftKernels fft = {rows, nullptr, nullptr, 3, true, 0};

}  // namespace wisp::cuda
