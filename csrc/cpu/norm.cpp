// Normalisation kernels. Each row is read twice for its mean and its variance: one pass would lose digits.
#include "kernels/norm.h"

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/vector.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t elements_per_task = 8192;

int64_t task_rows(int64_t row_length) { return 1 + elements_per_task / (row_length + 1); }

// ---- layer and RMS norm

template <class T> struct LayerArgs {
    const T *x, *weight, *bias;
    T* y;
    Compute<T>*mean, *rstd;
    int64_t n;
    double eps;
};

template <class T> WISP_INLINE void layer_norm_row(const LayerArgs<T>& a, int64_t row) {
    using C = Compute<T>;
    const T* x = a.x + row * a.n;
    T* y = a.y + row * a.n;
    double total[1];
    C mean = 0;
    if (a.mean) {
        sum_along<C>(a.n, total, [&](int64_t i, auto vector, Vector<C>* out) { out[0] = vector.load(x + i); });
        mean = a.mean[row] = C(total[0] / double(a.n));
    }
    sum_along<C>(a.n, total, [&](int64_t i, auto vector, Vector<C>* out) {
        const Vector<C> d = vector.load(x + i) - mean;
        out[0] = d * d;
    });
    const C rstd = a.rstd[row] = C(1 / __builtin_sqrt(total[0] / double(a.n) + a.eps));
    if (a.weight && a.bias) {
        each_vector<C>(a.n, [&](int64_t i, auto vector) {
            const Vector<C> v = (vector.load(x + i) - mean) * rstd;
            vector.store(y + i, v * vector.load(a.weight + i) + vector.load(a.bias + i));
        });
    } else if (a.weight) {
        each_vector<C>(
            a.n, [&](int64_t i, auto vector) { vector.store(y + i, (vector.load(x + i) - mean) * rstd * vector.load(a.weight + i)); });
    } else {
        each_vector<C>(a.n, [&](int64_t i, auto vector) {
            const Vector<C> v = (vector.load(x + i) - mean) * rstd;
            vector.store(y + i, a.bias ? v + vector.load(a.bias + i) : v);
        });
    }
}

template <class T> void layer_norm_as(const T* x, const T* weight, const T* bias, T* y, Compute<T>* mean, Compute<T>* rstd, int64_t rows,
                                      int64_t n, double eps) {
    const LayerArgs<T> args{x, weight, bias, y, mean, rstd, n, eps};
    parallel_for(rows, task_rows(n), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++) layer_norm_row(args, row);
    });
}

// Adds what one row gives to the sums of grad * xhat and of grad, and writes grad_x. A null mean means RMS.
template <class T> WISP_INLINE void layer_norm_backward_row(const T* g, const T* x, const T* weight, const Compute<T>* mean_of_row,
                                                            Compute<T> rstd, T* dx, Compute<T>* weight_sum, Compute<T>* bias_sum,
                                                            int64_t n) {
    using C = Compute<T>;
    const C mean = mean_of_row ? *mean_of_row : C(0);
    double total[2];
    sum_along<C>(n, total, [&](int64_t i, auto vector, Vector<C>* out) {
        const Vector<C> grad = vector.load(g + i), xhat = (vector.load(x + i) - mean) * rstd;
        if (weight_sum) vector.store(weight_sum + i, vector.load((const C*)weight_sum + i) + grad * xhat);
        if (bias_sum) vector.store(bias_sum + i, vector.load((const C*)bias_sum + i) + grad);
        out[0] = weight ? grad * vector.load(weight + i) : grad;
        out[1] = out[0] * xhat;
    });
    if (!dx) return;
    const C shift = mean_of_row ? C(total[0] / double(n)) : C(0), slope = C(total[1] / double(n));
    each_vector<C>(n, [&](int64_t i, auto vector) {
        Vector<C> grad = vector.load(g + i);
        if (weight) grad *= vector.load(weight + i);
        const Vector<C> xhat = (vector.load(x + i) - mean) * rstd;
        vector.store(dx + i, (grad - shift - xhat * slope) * rstd);
    });
}

template <class T> void layer_norm_backward_as(const T* g, const T* x, const T* weight, const Compute<T>* mean, const Compute<T>* rstd,
                                               T* dx, T* dweight, T* dbias, int64_t rows, int64_t n) {
    using C = Compute<T>;
    if (!dweight && !dbias) {
        parallel_for(rows, task_rows(n), [=](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; row++)
                layer_norm_backward_row<T>(g + row * n, x + row * n, weight, mean ? mean + row : nullptr, rstd[row],
                                           dx ? dx + row * n : nullptr, nullptr, nullptr, n);
        });
        return;
    }
    // A fixed number of chunks, each with sums of its own, added in order.
    const int64_t wanted = rows / 16, chunks = wanted < 1 ? 1 : wanted > 16 ? 16 : wanted;
    const int64_t padded = (n + 15) / 16 * 16;
    C* sums = static_cast<C*>(scratch(0, size_t(chunks * 2 * padded) * sizeof(C)));
    parallel_for(chunks, 1 + elements_per_task / (rows / chunks * n + 1), [=](int64_t begin, int64_t end) {
        for (int64_t chunk = begin; chunk < end; chunk++) {
            C* weight_sum = sums + chunk * 2 * padded;
            C* bias_sum = weight_sum + padded;
            std::memset(weight_sum, 0, size_t(2 * padded) * sizeof(C));
            const int64_t last = rows * (chunk + 1) / chunks;
            for (int64_t row = rows * chunk / chunks; row < last; row++)
                layer_norm_backward_row<T>(g + row * n, x + row * n, weight, mean ? mean + row : nullptr, rstd[row],
                                           dx ? dx + row * n : nullptr, dweight ? weight_sum : nullptr, dbias ? bias_sum : nullptr, n);
        }
    });
    each_vector<C>(n, [&](int64_t i, auto vector) {
        Vector<C> weight_total = {}, bias_total = {};
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            weight_total += load(sums + chunk * 2 * padded + i);
            bias_total += load(sums + (chunk * 2 + 1) * padded + i);
        }
        if (dweight) vector.store(dweight + i, weight_total);
        if (dbias) vector.store(dbias + i, bias_total);
    });
}

// ---- runs along the spatial dimension

// y = (x - mean) * scale + bias along one channel.
template <class T> WISP_INLINE void affine_run(const T* x, T* y, int64_t n, Compute<T> mean, Compute<T> scale, Compute<T> bias) {
    using C = Compute<T>;
    each_vector<C>(n, [&](int64_t i, auto vector) { vector.store(y + i, (vector.load(x + i) - mean) * scale + bias); });
}
// dx = g * scale - shift - (x - mean) * slope along one channel.
template <class T> WISP_INLINE void affine_backward_run(const T* g, const T* x, T* dx, int64_t n, Compute<T> mean, Compute<T> scale,
                                                        Compute<T> shift, Compute<T> slope) {
    using C = Compute<T>;
    each_vector<C>(
        n, [&](int64_t i, auto vector) { vector.store(dx + i, vector.load(g + i) * scale - shift - (vector.load(x + i) - mean) * slope); });
}
// totals: the sum of g, the sum of g * (x - mean).
template <class T> WISP_INLINE void grad_sums(const T* g, const T* x, int64_t n, Compute<T> mean, double (&totals)[2]) {
    using C = Compute<T>;
    sum_along<C>(n, totals, [&](int64_t i, auto vector, Vector<C>* out) {
        out[0] = vector.load(g + i);
        out[1] = out[0] * (vector.load(x + i) - mean);
    });
}

// ---- group norm

template <class T> void group_norm_as(const T* x, const T* weight, const T* bias, T* y, Compute<T>* mean, Compute<T>* rstd, int64_t batch,
                                      int64_t groups, int64_t channels, int64_t spatial, double eps) {
    using C = Compute<T>;
    const int64_t n = channels * spatial;
    parallel_for(batch * groups, task_rows(n), [=](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++) {
            const LayerArgs<T> args{x, nullptr, nullptr, y, mean, rstd, n, eps};
            if (!weight && !bias) {
                layer_norm_row(args, row);
                continue;
            }
            const T* in = x + row * n;
            double total[1];
            sum_along<C>(n, total, [&](int64_t i, auto vector, Vector<C>* out) { out[0] = vector.load(in + i); });
            const C center = mean[row] = C(total[0] / double(n));
            sum_along<C>(n, total, [&](int64_t i, auto vector, Vector<C>* out) {
                const Vector<C> d = vector.load(in + i) - center;
                out[0] = d * d;
            });
            rstd[row] = C(1 / __builtin_sqrt(total[0] / double(n) + eps));
            for (int64_t k = 0; k < channels; k++) {
                const int64_t channel = row % groups * channels + k;
                const C scale = weight ? rstd[row] * C(weight[channel]) : rstd[row];
                affine_run(in + k * spatial, y + row * n + k * spatial, spatial, center, scale, bias ? C(bias[channel]) : C(0));
            }
        }
    });
}

template <class T> void group_norm_backward_as(const T* g, const T* x, const T* weight, const Compute<T>* mean, const Compute<T>* rstd,
                                               T* dx, T* dweight, T* dbias, int64_t batch, int64_t groups, int64_t channels,
                                               int64_t spatial) {
    using C = Compute<T>;
    const int64_t n = channels * spatial, all_channels = groups * channels;
    C* sums = static_cast<C*>(scratch(0, size_t(2 * batch * all_channels) * sizeof(C)));
    parallel_for(batch * groups, task_rows(2 * n), [=](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++) {
            const T *in = x + row * n, *grad = g + row * n;
            C* row_sums = sums + 2 * row * channels;
            double all_grad = 0, all_product = 0;
            for (int64_t k = 0; k < channels; k++) {
                double totals[2];
                grad_sums(grad + k * spatial, in + k * spatial, spatial, mean[row], totals);
                row_sums[2 * k] = C(totals[0]);
                row_sums[2 * k + 1] = C(totals[1] * double(rstd[row]));
                const double w = weight ? double(C(weight[row % groups * channels + k])) : 1.0;
                all_grad += w * totals[0];
                all_product += w * totals[1];
            }
            if (!dx) continue;
            const double r = double(rstd[row]);
            const C shift = C(r * all_grad / double(n)), slope = C(r * r * r * all_product / double(n));
            for (int64_t k = 0; k < channels; k++) {
                const C w = weight ? C(weight[row % groups * channels + k]) : C(1);
                affine_backward_run(grad + k * spatial, in + k * spatial, dx + row * n + k * spatial, spatial, mean[row], rstd[row] * w,
                                    shift, slope);
            }
        }
    });
    if (!dweight && !dbias) return;
    for (int64_t channel = 0; channel < all_channels; channel++) {
        double grad_total = 0, product_total = 0;
        for (int64_t b = 0; b < batch; b++) {
            grad_total += double(sums[2 * (b * all_channels + channel)]);
            product_total += double(sums[2 * (b * all_channels + channel) + 1]);
        }
        if (dweight) dweight[channel] = T(C(product_total));
        if (dbias) dbias[channel] = T(C(grad_total));
    }
}

// ---- batch norm

// Where the spatial size is small, the vectors go across the channels: the columns of a (batch, channels * spatial)
// matrix are summed, then those of a channel. value(place in the matrix, column, vector, out) gives K vectors to add;
// totals[k * columns + column] are double.
constexpr int64_t rows_per_block = 256;
template <class C> WISP_INLINE bool is_narrow(int64_t spatial) { return spatial < lanes<C>; }

template <class C, int K, class Value> void sum_down(int64_t batch, int64_t columns, double* totals, Value value) {
    const int64_t blocks = (columns + lanes<C> - 1) / lanes<C>;
    parallel_for(blocks, 1 + elements_per_task / (batch * lanes<C>), [=](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; block++) {
            const int64_t column = block * lanes<C>, left = columns - column;
            const int64_t width = left < lanes<C> ? left : lanes<C>;
            double sums[K * lanes<C>] = {};
            for (int64_t start = 0; start < batch; start += rows_per_block) {
                const int64_t stop = start + rows_per_block < batch ? start + rows_per_block : batch;
                Vector<C> part[K] = {}, v[K];
                for (int64_t b = start; b < stop; b++) {
                    if (width == lanes<C>) value(b * columns + column, column, WholeVector<C>{}, v);
                    else value(b * columns + column, column, PartVector<C>{width}, v);
                    for (int k = 0; k < K; k++) part[k] += v[k];
                }
                for (int k = 0; k < K; k++)
                    for (int64_t j = 0; j < lanes<C>; j++) sums[k * lanes<C> + j] += double(part[k][j]);
            }
            for (int k = 0; k < K; k++)
                for (int64_t j = 0; j < width; j++) totals[k * columns + column + j] = sums[k * lanes<C> + j];
        }
    });
}
WISP_INLINE double channel_total(const double* totals, int64_t channel, int64_t spatial) {
    double sum = 0;
    for (int64_t j = 0; j < spatial; j++) sum += totals[channel * spatial + j];
    return sum;
}
// A number per channel, for each of its columns.
template <class C, class Value> WISP_INLINE void spread(C* to, int64_t channels, int64_t spatial, Value value) {
    for (int64_t c = 0; c < channels; c++) {
        const C v = value(c);
        for (int64_t j = 0; j < spatial; j++) *to++ = v;
    }
}

template <class R> void update_running(R* running_mean, R* running_var, const double* mean, const double* var, int64_t channels,
                                       double count, double momentum) {
    const double unbias = count > 1 ? count / (count - 1) : nan_f;
    for (int64_t c = 0; c < channels; c++) {
        using C = Compute<R>;
        if (running_mean) running_mean[c] = R(C((1 - momentum) * double(C(running_mean[c])) + momentum * mean[c]));
        if (running_var) running_var[c] = R(C((1 - momentum) * double(C(running_var[c])) + momentum * var[c] * unbias));
    }
}

template <class T> void stats_as(const T* x, Compute<T>* mean, Compute<T>* rstd, DType running, void* running_mean, void* running_var,
                                 double momentum, int64_t batch, int64_t channels, int64_t spatial, double eps) {
    using C = Compute<T>;
    const double count = double(batch) * double(spatial);
    double* means = static_cast<double*>(scratch(0, size_t(2 * channels) * sizeof(double)));
    double* vars = means + channels;
    if (is_narrow<C>(spatial)) {
        const int64_t columns = channels * spatial;
        double* totals = static_cast<double*>(scratch(1, size_t(columns) * (sizeof(double) + sizeof(C))));
        C* centers = reinterpret_cast<C*>(totals + columns);
        sum_down<C, 1>(batch, columns, totals, [=](int64_t at, int64_t, auto vector, Vector<C>* out) { out[0] = vector.load(x + at); });
        for (int64_t c = 0; c < channels; c++) means[c] = channel_total(totals, c, spatial) / count;
        spread(centers, channels, spatial, [&](int64_t c) { return C(means[c]); });
        sum_down<C, 1>(batch, columns, totals, [=](int64_t at, int64_t column, auto vector, Vector<C>* out) {
            const Vector<C> d = vector.load(x + at) - vector.load((const C*)centers + column);
            out[0] = d * d;
        });
        for (int64_t c = 0; c < channels; c++) vars[c] = channel_total(totals, c, spatial) / count;
    } else {
        parallel_for(channels, task_rows(batch * spatial), [=](int64_t begin, int64_t end) {
            for (int64_t c = begin; c < end; c++) {
                double sum = 0, square = 0, total[1];
                for (int64_t b = 0; b < batch; b++) {
                    const T* run = x + (b * channels + c) * spatial;
                    sum_along<C>(spatial, total, [&](int64_t i, auto vector, Vector<C>* out) { out[0] = vector.load(run + i); });
                    sum += total[0];
                }
                const C center = C(sum / count);
                for (int64_t b = 0; b < batch; b++) {
                    const T* run = x + (b * channels + c) * spatial;
                    sum_along<C>(spatial, total, [&](int64_t i, auto vector, Vector<C>* out) {
                        const Vector<C> d = vector.load(run + i) - center;
                        out[0] = d * d;
                    });
                    square += total[0];
                }
                means[c] = sum / count;
                vars[c] = square / count;
            }
        });
    }
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = C(means[c]);
        rstd[c] = C(1 / __builtin_sqrt(vars[c] + eps));
    }
    if (running_mean || running_var)
        with_floating(running, [&](auto zero) {
            using R = decltype(zero);
            update_running((R*)running_mean, (R*)running_var, means, vars, channels, count, momentum);
        });
}

template <class T> void apply_as(const T* x, const Compute<T>* mean, const Compute<T>* rstd, const T* weight, const T* bias, T* y,
                                 int64_t batch, int64_t channels, int64_t spatial) {
    using C = Compute<T>;
    if (is_narrow<C>(spatial)) {
        const int64_t columns = channels * spatial;
        C* centers = static_cast<C*>(scratch(1, size_t(3 * columns) * sizeof(C)));
        C *scales = centers + columns, *shifts = scales + columns;
        spread(centers, channels, spatial, [&](int64_t c) { return mean[c]; });
        spread(scales, channels, spatial, [&](int64_t c) { return weight ? rstd[c] * C(weight[c]) : rstd[c]; });
        spread(shifts, channels, spatial, [&](int64_t c) { return bias ? C(bias[c]) : C(0); });
        parallel_for(batch, task_rows(columns), [=](int64_t begin, int64_t end) {
            for (int64_t b = begin; b < end; b++)
                each_vector<C>(columns, [&](int64_t i, auto vector) {
                    const Vector<C> v = vector.load(x + b * columns + i) - vector.load((const C*)centers + i);
                    vector.store(y + b * columns + i, v * vector.load((const C*)scales + i) + vector.load((const C*)shifts + i));
                });
        });
        return;
    }
    parallel_for(batch * channels, task_rows(spatial), [=](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++) {
            const int64_t c = row % channels;
            const C scale = weight ? rstd[c] * C(weight[c]) : rstd[c];
            affine_run(x + row * spatial, y + row * spatial, spatial, mean[c], scale, bias ? C(bias[c]) : C(0));
        }
    });
}

template <class T> void batch_norm_backward_as(const T* g, const T* x, const Compute<T>* mean, const Compute<T>* rstd, const T* weight,
                                               T* dx, T* dweight, T* dbias, int64_t batch, int64_t channels, int64_t spatial,
                                               bool training) {
    using C = Compute<T>;
    const double count = double(batch) * double(spatial);
    // Per channel: the factor of grad, the constant, the factor of x - mean in grad_x.
    C* terms = static_cast<C*>(scratch(0, size_t(3 * channels + 3 * 64) * sizeof(C)));
    C *scale = terms, *shift = scale + channels, *slope = shift + channels;
    auto finish = [=](int64_t c, double grad_total, double product_total) {
        const double r = double(rstd[c]), w = weight ? double(C(weight[c])) : 1.0;
        if (dweight) dweight[c] = T(C(product_total * r));
        if (dbias) dbias[c] = T(C(grad_total));
        scale[c] = C(r * w);
        shift[c] = training ? C(r * w * grad_total / count) : C(0);
        slope[c] = training ? C(r * r * r * w * product_total / count) : C(0);
    };
    if (is_narrow<C>(spatial)) {
        const int64_t columns = channels * spatial;
        double* totals = static_cast<double*>(scratch(1, size_t(columns) * (2 * sizeof(double) + 4 * sizeof(C))));
        C* centers = reinterpret_cast<C*>(totals + 2 * columns);
        C *scales = centers + columns, *shifts = scales + columns, *slopes = shifts + columns;
        spread(centers, channels, spatial, [&](int64_t c) { return mean[c]; });
        sum_down<C, 2>(batch, columns, totals, [=](int64_t at, int64_t column, auto vector, Vector<C>* out) {
            out[0] = vector.load(g + at);
            out[1] = out[0] * (vector.load(x + at) - vector.load((const C*)centers + column));
        });
        for (int64_t c = 0; c < channels; c++) finish(c, channel_total(totals, c, spatial), channel_total(totals + columns, c, spatial));
        if (!dx) return;
        spread(scales, channels, spatial, [&](int64_t c) { return scale[c]; });
        spread(shifts, channels, spatial, [&](int64_t c) { return shift[c]; });
        spread(slopes, channels, spatial, [&](int64_t c) { return slope[c]; });
        parallel_for(batch, task_rows(columns), [=](int64_t begin, int64_t end) {
            for (int64_t b = begin; b < end; b++)
                each_vector<C>(columns, [&](int64_t i, auto vector) {
                    const int64_t at = b * columns + i;
                    const Vector<C> centered = vector.load(x + at) - vector.load((const C*)centers + i);
                    const Vector<C> v = vector.load(g + at) * vector.load((const C*)scales + i);
                    vector.store(dx + at, v - vector.load((const C*)shifts + i) - centered * vector.load((const C*)slopes + i));
                });
        });
        return;
    }
    parallel_for(channels, task_rows(2 * batch * spatial), [=](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; c++) {
            double grad_total = 0, product_total = 0, totals[2];
            for (int64_t b = 0; b < batch; b++) {
                const int64_t at = (b * channels + c) * spatial;
                grad_sums(g + at, x + at, spatial, mean[c], totals);
                grad_total += totals[0];
                product_total += totals[1];
            }
            finish(c, grad_total, product_total);
            if (!dx) continue;
            for (int64_t b = 0; b < batch; b++) {
                const int64_t at = (b * channels + c) * spatial;
                affine_backward_run(g + at, x + at, dx + at, spatial, mean[c], scale[c], shift[c], slope[c]);
            }
        }
    });
}

// ---- by dtype

void layer_norm(DType d, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t rows, int64_t n,
                double eps) {
    with_floating(d, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        layer_norm_as((const T*)x, (const T*)weight, (const T*)bias, (T*)y, (C*)mean, (C*)rstd, rows, n, eps);
    });
}
void layer_norm_backward(DType d, const void* grad, const void* x, const void* weight, const void* mean, const void* rstd, void* grad_x,
                         void* grad_weight, void* grad_bias, int64_t rows, int64_t n) {
    with_floating(d, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        layer_norm_backward_as((const T*)grad, (const T*)x, (const T*)weight, (const C*)mean, (const C*)rstd, (T*)grad_x, (T*)grad_weight,
                               (T*)grad_bias, rows, n);
    });
}
void group_norm(DType d, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t batch,
                int64_t groups, int64_t channels, int64_t spatial, double eps) {
    with_floating(d, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        group_norm_as((const T*)x, (const T*)weight, (const T*)bias, (T*)y, (C*)mean, (C*)rstd, batch, groups, channels, spatial, eps);
    });
}
void group_norm_backward(DType d, const void* grad, const void* x, const void* weight, const void* mean, const void* rstd, void* grad_x,
                         void* grad_weight, void* grad_bias, int64_t batch, int64_t groups, int64_t channels, int64_t spatial) {
    with_floating(d, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        group_norm_backward_as((const T*)grad, (const T*)x, (const T*)weight, (const C*)mean, (const C*)rstd, (T*)grad_x, (T*)grad_weight,
                               (T*)grad_bias, batch, groups, channels, spatial);
    });
}
void batch_norm_stats(const BatchNorm& n, const void* x, void* mean, void* rstd, DType running, void* running_mean, void* running_var,
                      double momentum, double eps) {
    with_floating(n.dtype, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        stats_as((const T*)x, (C*)mean, (C*)rstd, running, running_mean, running_var, momentum, n.batch, n.channels, n.spatial, eps);
    });
}
void batch_norm_from_running(const BatchNorm& n, DType running, const void* running_mean, const void* running_var, void* mean, void* rstd,
                             double eps) {
    with_floating(running, [&](auto zero) {
        using R = decltype(zero);
        auto fill = [&](auto* mean_out, auto* rstd_out) {
            using C = std::remove_pointer_t<decltype(mean_out)>;
            for (int64_t c = 0; c < n.channels; c++) {
                mean_out[c] = C(((const R*)running_mean)[c]);
                rstd_out[c] = C(1 / __builtin_sqrt(double(Compute<R>(((const R*)running_var)[c])) + eps));
            }
        };
        if (n.dtype == DType::f64) fill((double*)mean, (double*)rstd);
        else fill((float*)mean, (float*)rstd);
    });
}
void batch_norm_apply(const BatchNorm& n, const void* x, const void* mean, const void* rstd, void* y) {
    with_floating(n.dtype, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        apply_as((const T*)x, (const C*)mean, (const C*)rstd, (const T*)n.weight, (const T*)n.bias, (T*)y, n.batch, n.channels, n.spatial);
    });
}
void batch_norm_backward(const BatchNorm& n, const void* grad, const void* x, const void* mean, const void* rstd, void* grad_x,
                         void* grad_weight, void* grad_bias, bool training) {
    with_floating(n.dtype, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        batch_norm_backward_as((const T*)grad, (const T*)x, (const C*)mean, (const C*)rstd, (const T*)n.weight, (T*)grad_x, (T*)grad_weight,
                               (T*)grad_bias, n.batch, n.channels, n.spatial, training);
    });
}

}  // namespace

extern const NormKernels norm_table = {&layer_norm,          &layer_norm_backward, &group_norm,
                                       &group_norm_backward, &batch_norm_stats,    &batch_norm_from_running,
                                       &batch_norm_apply,    &batch_norm_backward, false};

}  // namespace wisp::cpu::WISP_ISA
