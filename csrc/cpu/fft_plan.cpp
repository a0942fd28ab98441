// Tables of Fourier transforms: how a length is factored, twiddles, and Bluestein's chirp; made once per length.
#include <cmath>
#include <complex>
#include <map>
#include <mutex>
#include <numbers>
#include <tuple>
#include <vector>

#include "core/errors.h"
#include "fft_plan.h"

namespace wisp::cpu {
namespace {

std::shared_ptr<const FftPlan> fft_plan(int64_t n, bool f64, bool real = false);

using Complex = std::complex<double>;

// exp(-2 pi i k / n), with k reduced so that large arguments lose nothing.
Complex root(int64_t k, int64_t n) {
    k %= n;
    const double angle = -2 * std::numbers::pi * double(k) / double(n);
    return {std::cos(angle), std::sin(angle)};
}

int64_t without(int64_t n, int64_t factor) {
    while (n % factor == 0) n /= factor;
    return n;
}

bool smooth(int64_t n) {
    for (int p : {2, 3, 5, 7, 11, 13}) n = without(n, p);
    return n == 1;
}

struct OwnedPlan : FftPlan {
    std::vector<std::unique_ptr<double[]>> blocks;

    // A table of complex numbers in the plan's precision, 64-byte aligned.
    const void* keep(const std::vector<Complex>& values, bool f64) {
        blocks.emplace_back(new double[(values.size() * (f64 ? 16 : 8) + 64) / 8 + 1]);
        auto* start = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(blocks.back().get()) + 63) / 64 * 64);
        for (size_t i = 0; i < values.size(); i++) {
            if (f64) reinterpret_cast<Complex*>(start)[i] = values[i];
            else reinterpret_cast<std::complex<float>*>(start)[i] = std::complex<float>(values[i]);
        }
        return start;
    }
};

std::vector<int> factors(int64_t n) {
    std::vector<int> list;
    for (int p : {13, 11, 7, 5, 3})
        while (n % p == 0) list.push_back(p), n /= p;
    int twos = 0;
    while (n % 2 == 0) twos++, n /= 2;
    if (twos % 3 == 1 && twos > 1) list.push_back(4), list.push_back(4), twos -= 4;
    if (twos % 3 == 2) list.push_back(4), twos -= 2;
    if (twos == 1) list.push_back(2), twos = 0;
    for (; twos > 0; twos -= 3) list.push_back(8);
    return list;
}

void make_stages(OwnedPlan& plan, bool f64) {
    int64_t rest = plan.n, stride = 1;
    for (int radix : factors(plan.n)) {
        const int64_t points = rest / radix;
        std::vector<Complex> twiddles;
        for (int64_t p = 0; p < points; p++)
            for (int k = 1; k < radix; k++) twiddles.push_back(root(p * k, rest));
        plan.stages[plan.stage_count++] = {radix, points, stride, plan.keep(twiddles, f64)};
        rest = points;
        stride *= radix;
    }
}

// Folds n = rows * columns so that few lanes are idle and both sides are short.
void make_fold(OwnedPlan& plan, bool f64) {
    const int64_t lanes = f64 ? 8 : 16, n = plan.n;
    int64_t best = 0;
    double least = 0;
    for (int64_t rows = 2; rows * 2 <= n && rows <= 65536; rows++) {
        if (n % rows) continue;
        const int64_t columns = n / rows;
        if (columns > 65536) continue;
        auto padded = [&](int64_t k) { return double((k + lanes - 1) / lanes * lanes); };
        double cost = padded(columns) * double(rows) + padded(rows) * double(columns);
        const int64_t longer = rows > columns ? rows : columns;
        cost *= 1 + 0.15 * std::log2(double(longer) * double(longer) / double(n));
        if (!best || cost < least) best = rows, least = cost;
    }
    if (!best) return;
    plan.rows = fft_plan(best, f64);
    plan.columns = fft_plan(n / best, f64);
    std::vector<Complex> fine;  // (re, im) vectors: written as pairs of consecutive values of one vector
    for (int64_t row = 0; row < best; row++)
        for (int part = 0; part < 2; part++)
            for (int64_t lane = 0; lane < lanes; lane += 2) {
                const Complex a = root(row * lane, n), b = root(row * (lane + 1), n);
                fine.push_back(part == 0 ? Complex(a.real(), b.real()) : Complex(a.imag(), b.imag()));
            }
    plan.fine = plan.keep(fine, f64);
    plan.base = int64_t(std::ceil(std::sqrt(double(n))));
    std::vector<Complex> high, low;
    for (int64_t k = 0; k * plan.base < n; k++) high.push_back(root(k * plan.base, n));
    for (int64_t k = 0; k < plan.base; k++) low.push_back(root(k, n));
    plan.high = static_cast<const double*>(plan.keep(high, true));
    plan.low = static_cast<const double*>(plan.keep(low, true));
}

// A plain transform in double, for the tables of Bluestein's convolution only.
std::vector<Complex> plain_fft(const std::vector<Complex>& x) {
    const int64_t n = int64_t(x.size());
    std::vector<Complex> a = x, b(x.size());
    std::vector<Complex> roots(x.size());
    for (int64_t k = 0; k < n; k++) roots[size_t(k)] = root(k, n);
    int64_t rest = n, stride = 1;
    for (int radix : factors(n)) {
        const int64_t points = rest / radix;
        for (int64_t p = 0; p < points; p++)
            for (int k = 0; k < radix; k++)
                for (int64_t q = 0; q < stride; q++) {
                    Complex sum = 0;
                    for (int j = 0; j < radix; j++)
                        sum += a[size_t(q + stride * (p + points * j))] * roots[size_t(int64_t(j) * k % radix * (n / radix))];
                    b[size_t(q + stride * (radix * p + k))] = sum * roots[size_t(p * k % rest * (n / rest))];
                }
        a.swap(b);
        rest = points;
        stride *= radix;
    }
    return a;
}

int64_t convolution_length(int64_t least) {
    int64_t best = 0;
    for (int64_t odd : {1, 3, 5, 9, 15}) {
        int64_t n = odd;
        while (n < least) n *= 2;
        if (!best || n < best) best = n;
    }
    return best;
}

void make_bluestein(OwnedPlan& plan, bool f64) {
    const int64_t n = plan.n, m = convolution_length(2 * n - 1);
    plan.convolution = fft_plan(m, f64);
    std::vector<Complex> chirp, reply(static_cast<size_t>(m));
    for (int64_t k = 0; k < n; k++) {
        chirp.push_back(root(int64_t(static_cast<__int128>(k) * k % (2 * n)), 2 * n));
        const Complex back = std::conj(chirp.back()) / double(m);
        reply[size_t(k)] = back;
        if (k) reply[size_t(m - k)] = back;
    }
    plan.chirp = plan.keep(chirp, f64);
    plan.spectrum = plan.keep(plain_fft(reply), f64);
}

std::shared_ptr<const FftPlan> make_plan(int64_t n, bool f64, bool real) {
    auto plan = std::make_shared<OwnedPlan>();
    plan->n = n;
    if (smooth(n)) {
        if (n <= 65536) make_stages(*plan, f64);
        if (n > 64) make_fold(*plan, f64);
    } else {
        make_bluestein(*plan, f64);
    }
    if (real) {
        std::vector<Complex> twiddles;
        for (int64_t k = 0; k <= n / 2; k++) twiddles.push_back(root(k, 2 * n));
        plan->real_twiddles = plan->keep(twiddles, f64);
    }
    return plan;
}

std::shared_ptr<const FftPlan> fft_plan(int64_t n, bool f64, bool real) {
    static std::mutex lock;
    static auto& plans = *new std::map<std::tuple<int64_t, bool, bool>, std::shared_ptr<const FftPlan>>;
    {
        std::lock_guard guard(lock);
        if (auto found = plans.find({n, f64, real}); found != plans.end()) return found->second;
    }
    auto plan = make_plan(n, f64, real);  // asks for further plans: not under the lock
    std::lock_guard guard(lock);
    if (plans.size() >= 96) plans.clear();  // those in use are kept by their users
    return plans.emplace(std::tuple(n, f64, real), plan).first->second;
}

}  // namespace

HeldPlan hold_plan(int64_t n, bool f64, bool real) {
    if (n >= int64_t(1) << 30) throw RuntimeError("fft: transforms of 2**30 points or more are not supported, got ", n);
    auto* owner = new std::shared_ptr(fft_plan(n, f64, real));
    return {owner->get(), owner};
}

void let_go_of_plan(HeldPlan held) { delete static_cast<std::shared_ptr<const FftPlan>*>(held.owner); }

}  // namespace wisp::cpu
