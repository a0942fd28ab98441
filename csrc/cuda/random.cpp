// Launches the kernels of random numbers and dropout.
#include <algorithm>

#include "../kernels/dropout.h"
#include "../kernels/random.h"
#include "../core/errors.h"
#include "pointwise.h"
#include "random.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

struct Draw {  // as in the kernels
    uint64_t seed, offset;
    const void* moved;
};
thread_local const void* cell_of_capture = nullptr;
Draw draw_of(RandomStream s) { return {s.seed, s.offset, cell_of_capture}; }

// Groups of 16 blocks of the generator make 16 * per_block elements; a thread has one block or four.
Grid blocks_for(int64_t n, int64_t per_block, int64_t of_thread = 1) {
    const int64_t threads = (n + 16 * per_block - 1) / (16 * per_block) * 16 / of_thread;
    return {unsigned((threads + 255) / 256)};
}

template <class T>
void fill(const char* generator, int64_t per_block, T* out, int64_t n, RandomStream s, int64_t first, double a, double b) {
    if (n == 0) return;
    if (first != 0) throw RuntimeError("random numbers on cuda start at the first element");
    launch_with(find_kernel("cuda/kernels/random.cuh", str("random_fill<", generator, ">")), blocks_for(n, per_block, 4), {256}, 0, out, n,
                draw_of(s), a, b);
}

void uniform_f32(float* out, int64_t n, RandomStream s, int64_t first, float from, float range) {
    fill("UniformFloat", 4, out, n, s, first, from, range);
}
void uniform_f64(double* out, int64_t n, RandomStream s, int64_t first, double from, double range) {
    fill("UniformDouble", 2, out, n, s, first, from, range);
}
void normal_f32(float* out, int64_t n, RandomStream s, int64_t first, float mean, float dev) {
    fill("NormalFloat", 4, out, n, s, first, mean, dev);
}
void normal_f64(double* out, int64_t n, RandomStream s, int64_t first, double mean, double dev) {
    fill("NormalDouble", 2, out, n, s, first, mean, dev);
}
void bits32(uint32_t* out, int64_t n, RandomStream s, int64_t first) { fill("Bits32", 4, out, n, s, first, 0, 0); }
void bits64(uint64_t* out, int64_t n, RandomStream s, int64_t first) { fill("Bits64", 2, out, n, s, first, 0, 0); }

void apply_dropout(DType d, const void* x, void* y, int64_t n, RandomStream s, uint64_t threshold, double scale) {
    if (n == 0) return;
    launch_with(find_kernel("cuda/kernels/random.cuh", str("dropout<", type_text(d), ">")), blocks_for(n, 4, 4), {256}, 0, x, y, n,
                draw_of(s), threshold, scale);
}

void integers(int64_t* out, int64_t n, RandomStream s, int64_t from, uint64_t range) {
    if (n == 0) return;
    const bool narrow = range != 0 && range <= (uint64_t(1) << 32);
    launch_with(find_kernel("cuda/kernels/random.cuh", "random_integers"), blocks_for(n, narrow ? 4 : 2), {256}, 0, out, n, draw_of(s),
                from, range);
}

void bernoulli(float* out, int64_t n, RandomStream s, uint64_t limit) {
    if (n == 0) return;
    launch_with(find_kernel("cuda/kernels/random.cuh", "random_bernoulli"), blocks_for(n, 4, 4), {256}, 0, out, n, draw_of(s), limit);
}

void exponential_f32(float* out, int64_t n, RandomStream s, float mean) { fill("ExponentialFloat", 4, out, n, s, 0, mean, 0); }

// True: what is wrong with the values is known at the next synchronisation.
bool from_values(const char* kernel, DType d, int64_t per_thread, void* out, const void* values, int64_t n, RandomStream s,
                 const char* message) {
    if (n)
        launch_with(find_kernel("cuda/kernels/random.cuh", str(kernel, "<", type_text(d), ">")), blocks_for(n, per_thread), {256}, 0, out,
                    values, n, draw_of(s), message, report_cell());
    return true;
}
bool bernoulli_of(DType d, void* out, const void* probability, int64_t n, RandomStream s, const char* message) {
    return from_values("random_bernoulli_of", d, d == DType::f64 ? 2 : 4, out, probability, n, s, message);
}
bool poisson(DType d, void* out, const void* rate, int64_t n, RandomStream s, const char* message) {
    return from_values("random_poisson", d, 2, out, rate, n, s, message);
}
bool race(DType d, double* out, const void* probability, int64_t n, RandomStream s, const char* message) {
    return from_values("random_race", d, 2, out, probability, n, s, message);
}

void race_winners(DType d, int64_t* winners, const void* probability, int64_t rows, int64_t categories, RandomStream s, const char* wrong,
                  const char* nothing) {
    if (rows == 0) return;
    const int64_t processors = device_info(current_index()).multiprocessors;
    const int parts = int(std::clamp<int64_t>(processors * 8 / rows, 1, (categories + 2047) / 2048));
    Scratch best(size_t(rows * parts) * 16);
    auto* keys = best.as<double>();
    auto* places = reinterpret_cast<int64_t*>(keys + rows * parts);
    launch_with(find_kernel("cuda/kernels/random.cuh", str("random_race_best<", type_text(d), ">")), {unsigned(rows), unsigned(parts)},
                {256}, 0, keys, places, probability, categories, draw_of(s), wrong, report_cell());
    static Kernel* const join = find_kernel("cuda/kernels/random.cuh", "random_race_winners");
    launch_with(join, {unsigned((rows + 255) / 256)}, {256}, 0, winners, keys, places, rows, parts, nothing, report_cell());
}

Weights weighted(int64_t* out, double* sums, const double* weights, const double* uniform, int64_t rows, int64_t categories, int64_t draws,
                 const char* wrong, const char* nothing) {
    if (!out || categories > 16384) return Weights::too_many;
    static Kernel* const kernel = find_kernel("cuda/kernels/random.cuh", "random_weighted");
    if (rows)
        launch_with(kernel, {unsigned(rows)}, {256}, 0, out, sums, weights, uniform, categories, draws, wrong, nothing, report_cell());
    return Weights::fine;
}

void binomial(double* out, const double* count, const double* probability, int64_t n, RandomStream s) {
    if (n == 0) return;
    Scratch seeds(size_t(n) * 8);
    bits64(seeds.as<uint64_t>(), n, s, 0);
    launch_with(find_kernel("cuda/kernels/random.cuh", "random_binomial"), {unsigned((n + 127) / 128)}, {128}, 0, out, count, probability,
                seeds.as<uint64_t>(), n);
}

void transform(Distribution distribution, double* values, int64_t n, double a, double b) {
    if (n == 0) return;
    launch_with(find_kernel("cuda/kernels/random.cuh", "random_transform"), {unsigned((n + 127) / 128)}, {128}, 0, values, n,
                int(distribution), a, b);
}

void drawn_f32(Distribution distribution, float* out, int64_t n, RandomStream s, double a, double b) {
    if (n == 0) return;
    launch_with(find_kernel("cuda/kernels/random.cuh", str("random_drawn<", int(distribution), ">")), blocks_for(n, 2), {256}, 0, out, n,
                draw_of(s), a, b);
}

}  // namespace

const RandomKernels random = {uniform_f32,  uniform_f64, normal_f32,      normal_f64,   bits32,  bits64,
                              integers,     bernoulli,   exponential_f32, bernoulli_of, poisson, race,
                              race_winners, binomial,    transform,       drawn_f32,    nullptr, weighted};
const DropoutKernels dropout = {apply_dropout};

void set_capture_cell(const void* cell) { cell_of_capture = cell; }
const void* capture_cell() { return cell_of_capture; }

}  // namespace wisp::cuda
