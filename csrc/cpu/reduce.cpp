// Reductions (see reduce.h). Every operation is one of four folds (sum, product, max, min) over elements that were
// brought into contiguous blocks of a compute type and mapped (squared, made absolute, shifted by the mean, ...).
//
// Two loops do all the work: `rows` folds runs of elements into one result each, `columns` folds whole rows into
// many results side by side. Floats are summed over short stretches in float and beyond in double.
#include "core/merged.h"
#include "kernels/reduce.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "../core/scratch.h"
#include "../core/threads.h"
#include "kernels/copy.h"
#include "isa.h"
#include "reduce_fold.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int max_dims = 64;
constexpr int64_t grain = 32768;        // elements a thread should have at least
constexpr int64_t block = 1024;         // elements brought in at a time where they aren't usable in place
constexpr int64_t column_block = 1024;  // results folded side by side
constexpr int64_t piece_rows = 120;     // of wide rows in a piece, at least
constexpr int64_t column_stretch = 64;  // rows folded in lanes before they join the totals

// ---- the problem -----------------------------------------------------------------------------------------------

// Its loops: over what is kept in the order of the results, over what is reduced from the largest stride to the smallest (in
// their own order where positions count).
struct Problem {
    const char* in;
    DType in_dtype, compute;
    int64_t item;
    MergedDims<1> kept, reduced;
    int64_t results = 1, length = 1;  // results, and elements folded into each
    Map map = Map::none;
    double power = 0;
    bool in_place = false;  // the elements need neither conversion nor map
    const MadeElements* made;

    Problem(const ReduceArguments& a, DType compute_dtype, bool keep_order) {
        in = static_cast<const char*>(a.in);
        made = a.made;
        in_dtype = a.in_dtype;
        compute = compute_dtype;
        item = item_size(in_dtype);
        int order[MergedDims<1>::most], folded = 0;
        auto distance = [&](int k) { return a.strides[k] < 0 ? -a.strides[k] : a.strides[k]; };
        for (int k = 0; k < a.ndim; k++) {
            if (a.reduced >> k & 1) {
                length *= a.sizes[k];
                int at = folded++;
                for (; !keep_order && at > 0 && distance(order[at - 1]) < distance(k); at--) order[at] = order[at - 1];
                order[at] = k;
            } else {
                results *= a.sizes[k];
                kept.add(a.sizes[k], [&](int) { return a.strides[k]; });
            }
        }
        for (int i = 0; i < folded; i++) reduced.add(a.sizes[order[i]], [&](int) { return a.strides[order[i]]; });
        kept.at_least_one();
        reduced.at_least_one();
    }

    // Whether results should be folded side by side rather than one after the other.
    bool by_columns() const {
        const int64_t across = kept.strides[0][kept.ndim - 1], along = reduced.strides[0][reduced.ndim - 1];
        const int64_t width = kept.sizes[kept.ndim - 1], run = reduced.sizes[reduced.ndim - 1];
        if (width < 2 || length < 2) return false;
        if (run < 16 && width >= 16) return true;
        if (in_place && across == 1 && along == width && width <= 64) return true;  // see the groups in columns
        return width >= 4 && (across < 0 ? -across : across) < (along < 0 ? -along : along);
    }
    int64_t offset_of(int64_t result) const {
        if (kept.ndim == 1) return result * kept.strides[0][0];
        int64_t offset = 0;
        for (int k = kept.ndim - 1; k >= 0; k--) {
            offset += result % kept.sizes[k] * kept.strides[0][k];
            result /= kept.sizes[k];
        }
        return offset;
    }
    // Calls f(offset) for each combination of the reduced dimensions but the last `skip`.
    template <class F> WISP_INLINE void each_run(int64_t offset, int skip, F&& f) const {
        const int dims = reduced.ndim - skip;
        const int64_t *sizes = reduced.sizes, *strides = reduced.strides[0];
        if (dims <= 0) return f(offset);
        const int last = dims - 1;
        int64_t at[max_dims], runs = 1;
        for (int k = 0; k < dims; k++) {
            at[k] = 0;
            if (k < last) runs *= sizes[k];
        }
        for (int64_t r = 0; r < runs; r++) {
            for (int64_t i = 0; i < sizes[last]; i++) f(offset + i * strides[last]);
            for (int k = last - 1; k >= 0; k--) {
                offset += strides[k];
                if (++at[k] < sizes[k]) break;
                offset -= strides[k] * sizes[k];
                at[k] = 0;
            }
        }
    }
};

// n elements from `offset` on, as compute-typed values after the map: in place or in `buffer` (block elements).
template <class T> WISP_INLINE const T* fetch(const Problem& p, int64_t offset, int64_t stride, int64_t n, T* buffer, const T* parameters,
                                              int64_t parameter_step) {
    const char* from = p.in + offset * p.item;
    if (p.in_place && stride == 1) return reinterpret_cast<const T*>(from);
    alignas(64) char raw[block * 16];
    if (stride != 1) {
        char* to = p.in_place ? reinterpret_cast<char*>(buffer) : raw;
        copy.gather_block(to, from, stride, p.item, n);
        if (p.in_place) return buffer;
        from = raw;
    }
    if constexpr (std::is_floating_point_v<T>) {
        if (is_complex(p.in_dtype)) {  // norms: magnitudes first
            const bool squared = p.map == Map::square;
            if (p.in_dtype == DType::c64) {
                alignas(64) float narrow[block];
                magnitudes(narrow, reinterpret_cast<const float*>(from), n, squared);
                copy.convert(buffer, p.compute, narrow, DType::f32, n);
            } else {
                alignas(64) double wide[block];
                magnitudes(wide, reinterpret_cast<const double*>(from), n, squared);
                copy.convert(buffer, p.compute, wide, DType::f64, n);
            }
            if (p.map != Map::power) return buffer;
            alignas(64) T middle[block];
            std::memcpy(middle, buffer, size_t(n) * sizeof(T));
            map_block(p.map, buffer, middle, n, parameters, parameter_step, p.power);
            return buffer;
        }
        if (p.in_dtype == p.compute) {
            map_block(p.map, buffer, reinterpret_cast<const T*>(from), n, parameters, parameter_step, p.power);
            return buffer;
        }
    }
    if constexpr (std::is_floating_point_v<T>) {
        if (p.map != Map::none) {
            alignas(64) T middle[block];
            copy.convert(middle, p.compute, from, p.in_dtype, n);
            map_block(p.map, buffer, middle, n, parameters, parameter_step, p.power);
            return buffer;
        }
    }
    copy.convert(buffer, p.compute, from, p.in_dtype, n);
    return buffer;
}

// ---- the two loops ---------------------------------------------------------------------------------------------

// The sums of `count` rows of N numbers: in sixteen rows at a time neighbours are added until one number is left of each.
template <int N, class Total> void sums_of_short_rows(const float* in, int64_t count, Total* totals) {
    using Sixteen = float __attribute__((vector_size(64)));
    using Line = float __attribute__((vector_size(64), aligned(4), may_alias));
    int32_t __attribute__((vector_size(64))) even, odd;
    for (int l = 0; l < 16; l++) even[l] = 2 * l, odd[l] = 2 * l + 1;
    for (int64_t r = 0; r < count; r += 16) {
        const int64_t high = least(16, count - r);
        alignas(64) float rest[16 * N];
        const float* from = in + r * N;
        if (high < 16) {
            for (int64_t i = 0; i < 16 * N; i++) rest[i] = i < high * N ? from[i] : 0;
            from = rest;
        }
        Sixteen v[N];
        for (int i = 0; i < N; i++) v[i] = *reinterpret_cast<const Line*>(from + 16 * i);
        for (int left = N / 2; left > 0; left /= 2)
            for (int i = 0; i < left; i++)
                v[i] = __builtin_shuffle(v[2 * i], v[2 * i + 1], even) + __builtin_shuffle(v[2 * i], v[2 * i + 1], odd);
        for (int64_t i = 0; i < high; i++) totals[r + i] = Total(v[0][i]);
    }
}

template <class Fold, class T, class Total> bool short_rows(const Problem& p, int64_t begin, int64_t count, Total* totals) {
    if constexpr (std::is_same_v<Fold, Sum> && std::is_same_v<T, float>) {
        const int64_t n = p.length;
        if (!p.in_place || p.reduced.ndim != 1 || p.reduced.strides[0][0] != 1 || p.kept.ndim != 1 || p.kept.strides[0][0] != n)
            return false;
        const float* in = reinterpret_cast<const float*>(p.in) + begin * n;
        if (n == 4) return sums_of_short_rows<4>(in, count, totals), true;
        if (n == 8) return sums_of_short_rows<8>(in, count, totals), true;
        if (n == 16) return sums_of_short_rows<16>(in, count, totals), true;
    }
    return false;
}

// The totals of results [begin, begin + count), one after the other, of elements of type S that `Reading` can fold as they lie.
template <class Fold, class Reading, class S, class T>
void rows_as_read(const Problem& p, int64_t begin, int64_t count, typename Fold::template Total<T>* totals) {
    using Total = typename Fold::template Total<T>;
    constexpr int64_t most = longest_run<Reading, T>;
    const int64_t n = p.reduced.sizes[p.reduced.ndim - 1];
    const S* const in = reinterpret_cast<const S*>(p.in);
    for (int64_t r = 0; r < count; r++) {
        Total total = widened<Total>(Fold::template start<T>());
        auto add = [&](int64_t offset) {
            for (int64_t i = 0; i < n; i += most) total = Fold::step(total, fold_run<Reading, T>(in + offset + i, least(n - i, most)));
        };
        if (p.reduced.ndim == 1) add(p.offset_of(begin + r));
        else if (p.length > 0) p.each_run(p.offset_of(begin + r), 1, add);
        totals[r] = total;
    }
}

// The sum of elements that are made on the way, in the order of those that lie in memory.
template <class T> WISP_INLINE typename Sum::Total<T> sum_as_made(const Problem& p) {
    const MadeElements& m = *p.made;
    const int64_t n = p.reduced.sizes[0], at = p.in - static_cast<const char*>(m.operands[0]);  // in bytes
    typename Sum::Total<T> total{};
    alignas(64) T buffer[stretch];
    for (int64_t i = 0; i < n; i += stretch) {
        char* pointers[3] = {reinterpret_cast<char*>(buffer)};
        for (int k = 0; k < 2; k++)
            pointers[k + 1] = const_cast<char*>(static_cast<const char*>(m.operands[k])) + at + i * int64_t(sizeof(T));
        m.kernel(pointers, least(n - i, stretch), m.params, 0);
        total = Sum::step(total, fold_run<Sum, T>(buffer, least(n - i, stretch)));
    }
    return total;
}

template <class Fold, class T>
void rows(const Problem& p, int64_t begin, int64_t count, const T* parameters, typename Fold::template Total<T>* totals) {
    if constexpr (std::is_same_v<Fold, Sum> && std::is_floating_point_v<T>)
        if (p.made) return void(*totals = sum_as_made<T>(p));
    using Total = typename Fold::template Total<T>;
    const int last = p.reduced.ndim - 1;
    const int64_t n = p.reduced.sizes[last], stride = p.reduced.strides[0][last];
    if (stride == 1) {
        if (p.in_place || (std::is_same_v<Fold, Count> && p.in_dtype == DType::boolean))
            return rows_as_read<Fold, Fold, T, T>(p, begin, count, totals);
        if constexpr (std::is_same_v<Fold, Sum> && std::is_floating_point_v<T>) {
            if (p.map == Map::square && p.in_dtype == p.compute) return rows_as_read<Fold, SumOfSquares, T, T>(p, begin, count, totals);
            if (p.map == Map::nonnan && p.in_dtype == p.compute) return rows_as_read<Fold, SumOfNumbers, T, T>(p, begin, count, totals);
        }
        if constexpr (std::is_same_v<T, float>)
            if (p.map == Map::none && p.in_dtype == DType::bf16) return rows_as_read<Fold, Fold, bf16, T>(p, begin, count, totals);
    }
    alignas(64) T buffer[block];
    for (int64_t r = 0; r < count; r++) {
        Total total = widened<Total>(Fold::template start<T>());
        if (p.length > 0) {
            p.each_run(p.offset_of(begin + r), 1, [&](int64_t offset) {
                for (int64_t i = 0; i < n; i += block) {
                    const int64_t m = least(n - i, block);
                    total = Fold::step(total, fold_run<Fold, T>(fetch(p, offset + i * stride, stride, m, buffer, parameters + r, 0), m));
                }
            });
        }
        totals[r] = total;
    }
}

// Joins what the lanes hold to the totals, and empties the lanes.
template <class Fold, class T> WISP_INLINE void flush(typename Fold::template Total<T>* __restrict totals, T* __restrict lanes, int64_t n) {
    using Total = typename Fold::template Total<T>;
    for (int64_t j = 0; j < n; j++) {
        totals[j] = Fold::step(totals[j], widened<Total>(lanes[j]));
        lanes[j] = Fold::template start<T>();
    }
}

// The same side by side; the results lie in one row of the last kept dimension, count <= column_block.
template <class Fold, class T>
void columns(const Problem& p, int64_t begin, int64_t count, const T* parameters, typename Fold::template Total<T>* totals) {
    using Total = typename Fold::template Total<T>;
    const int64_t across = p.kept.strides[0][p.kept.ndim - 1], first = p.offset_of(begin);
    for (int64_t j = 0; j < count; j++) totals[j] = widened<Total>(Fold::template start<T>());
    if (p.length == 0) return;
    // Products soon leave the range of floats, where each step would take a hundred times as long.
    constexpr int64_t deep = std::is_same_v<Fold, Product> ? 24 : column_stretch;
    alignas(64) T lanes[column_block];
    alignas(64) T buffers[4][block];
    const int last = p.reduced.ndim - 1;
    const int64_t n = p.reduced.sizes[last], along = p.reduced.strides[0][last];
    int64_t width = count, group = 1;
    // Narrow rows that follow one another in memory are folded several at a time.
    if (p.in_place && across == 1 && along == count && count <= 64) {
        group = 256 / count;
        for (int64_t g = group; g > group / 2; g--) {
            if (g * count % 16 == 0) {
                group = g;
                break;
            }
        }
        if (group > n) group = n;
        width = group * count;
    }
    const int64_t steps = n / group;
    for (int64_t j = 0; j < width; j++) lanes[j] = Fold::template start<T>();
    alignas(64) Total wide[column_block];
    Total* sums = group > 1 ? wide : totals;
    if (group > 1)
        for (int64_t j = 0; j < width; j++) wide[j] = widened<Total>(Fold::template start<T>());
    int64_t in_lanes = 0;
    p.each_run(first, 1, [&](int64_t offset) {
        const int64_t step = along * group;
        int64_t i = 0;
        auto row = [&](int64_t k, int64_t w) { return fetch(p, offset + k * step, across, w, buffers[k & 3], parameters, int64_t(1)); };
        // Eight rows at a time where they lie ready: the lanes are loaded and stored half as often.
        for (; p.in_place && across == 1 && i + 8 <= steps; i += 8) {
            const T* x[8];
            for (int k = 0; k < 8; k++) x[k] = row(i + k, width);
            const T* __restrict a = x[0], * __restrict b = x[1], * __restrict c = x[2], * __restrict d = x[3];
            const T* __restrict e = x[4], * __restrict f = x[5], * __restrict g = x[6], * __restrict h = x[7];
            for (int64_t j = 0; j < width; j++) {
                const T four = Fold::step(Fold::step(Fold::step(Fold::step(lanes[j], a[j]), b[j]), c[j]), d[j]);
                lanes[j] = Fold::step(Fold::step(Fold::step(Fold::step(four, e[j]), f[j]), g[j]), h[j]);
            }
            if ((in_lanes += 8) >= deep) {
                flush<Fold>(sums, lanes, width);
                in_lanes = 0;
            }
        }
        for (; i + 4 <= steps; i += 4) {
            const T* __restrict a = row(i, width), * __restrict b = row(i + 1, width);
            const T* __restrict c = row(i + 2, width), * __restrict d = row(i + 3, width);
            for (int64_t j = 0; j < width; j++) lanes[j] = Fold::step(Fold::step(Fold::step(Fold::step(lanes[j], a[j]), b[j]), c[j]), d[j]);
            if ((in_lanes += 4) >= deep) {
                flush<Fold>(sums, lanes, width);
                in_lanes = 0;
            }
        }
        for (; i < steps; i++) {
            const T* __restrict a = row(i, width);
            for (int64_t j = 0; j < width; j++) lanes[j] = Fold::step(lanes[j], a[j]);
            in_lanes++;
        }
        if (i * group < n) {  // rows that fill no group
            const T* __restrict a = row(i, (n - i * group) * count);
            for (int64_t j = 0; j < (n - i * group) * count; j++) lanes[j] = Fold::step(lanes[j], a[j]);
            in_lanes++;
        }
        if (in_lanes >= deep - 8) {
            flush<Fold>(sums, lanes, width);
            in_lanes = 0;
        }
    });
    flush<Fold>(sums, lanes, width);
    for (int64_t g = 0; group > 1 && g < group; g++)
        for (int64_t j = 0; j < count; j++) totals[j] = Fold::step(totals[j], wide[g * count + j]);
}

// ---- positions -------------------------------------------------------------------------------------------------

// Where x first has `value` (or NaN); n if nowhere.
template <class T> WISP_INLINE int64_t find(const T* x, int64_t n, T value) {
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        int found = 0;
        for (int j = 0; j < 64; j++) found |= (x[i + j] == value) | (x[i + j] != x[i + j]);
        if (found) break;
    }
    for (; i < n; i++)
        if (x[i] == value || x[i] != x[i]) return i;
    return n;
}

template <class T> void positions_in_rows(const Problem& p, int64_t begin, int64_t count, const T* values, int64_t* indices) {
    const int last = p.reduced.ndim - 1;
    const int64_t n = p.reduced.sizes[last], stride = p.reduced.strides[0][last];
    alignas(64) T buffer[block];
    for (int64_t r = 0; r < count; r++) {
        int64_t before = 0, found = -1;
        p.each_run(p.offset_of(begin + r), 1, [&](int64_t offset) {
            for (int64_t i = 0; i < n && found < 0; i += block) {
                const int64_t m = n - i < block ? n - i : block;
                const T* x = fetch(p, offset + i * stride, stride, m, buffer, values, 0);
                const int64_t at = find(x, m, values[r]);
                if (at < m) found = before + i + at;
            }
            before += n;
        });
        indices[r] = found < 0 ? 0 : found;
    }
}

template <class T> void positions_in_columns(const Problem& p, int64_t begin, int64_t count, const T* values, int64_t* indices) {
    using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    const int64_t across = p.kept.strides[0][p.kept.ndim - 1];
    alignas(64) T buffer[block];
    alignas(64) Index found[column_block];
    for (int64_t j = 0; j < count; j++) indices[j] = -1;
    int64_t row = 0, base = 0, open = 0;
    auto settle = [&] {  // stretches, so that 32 bits do
        for (int64_t j = 0; j < count; j++)
            if (indices[j] < 0 && found[j] != Index(column_stretch)) indices[j] = base + found[j];
    };
    p.each_run(p.offset_of(begin), 0, [&](int64_t offset) {
        if (open == 0)
            for (int64_t j = 0; j < count; j++) found[j] = Index(column_stretch);
        const T* __restrict x = fetch(p, offset, across, count, buffer, values, 0);
        const Index now = Index(row - base);
        for (int64_t j = 0; j < count; j++) {
            const bool hit = ((x[j] == values[j]) | (x[j] != x[j])) & (found[j] > now);
            found[j] = hit ? now : found[j];
        }
        row++;
        if (++open == column_stretch) {
            settle();
            base = row;
            open = 0;
        }
    });
    if (open) settle();
    for (int64_t j = 0; j < count; j++) indices[j] = indices[j] < 0 ? 0 : indices[j];
}

// ---- driver ----------------------------------------------------------------------------------------------------

template <class Fold, class T> void evaluate_range(const Problem& p, bool by_columns, int64_t begin, int64_t count, const T* parameters,
                                                   typename Fold::template Total<T>* totals) {
    if (short_rows<Fold, T>(p, begin, count, totals)) return;
    if (by_columns) columns<Fold>(p, begin, count, parameters, totals);
    else rows<Fold>(p, begin, count, parameters, totals);
}

// Totals of all results where these are few and long: the outermost reduced dimension is cut into pieces whose
// number depends on the sizes alone, and the totals of the pieces are joined in order.
template <class Fold, class T>
void evaluate_pieces(const Problem& p, bool by_columns, const T* parameters, typename Fold::template Total<T>* totals) {
    using Total = typename Fold::template Total<T>;
    const int64_t outer = p.reduced.sizes[0], results = p.results, work = p.length * results;
    int64_t pieces = work / grain < 64 ? work / grain : 64;
    const int64_t most = by_columns && results > 64 ? p.length / piece_rows : outer;  // joining totals has its price
    if (pieces > most) pieces = most;
    if (pieces > outer) pieces = outer;
    if (pieces < 1) pieces = 1;
    int64_t size = (outer + pieces - 1) / pieces;
    if (p.reduced.ndim == 1 && !by_columns && size >= stretch) size = (size + stretch - 1) / stretch * stretch;
    if (p.reduced.ndim == 1 && by_columns && size >= 16) size = (size + 7) / 8 * 8;  // columns takes eight rows at a time
    pieces = size ? (outer + size - 1) / size : 1;
    if (pieces <= 1) return evaluate_range<Fold>(p, by_columns, 0, results, parameters, totals);
    auto* partial = static_cast<Total*>(scratch(0, size_t(pieces * results) * sizeof(Total)));
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; k++) {
            Problem part = p;
            part.in += k * size * p.reduced.strides[0][0] * p.item;
            part.reduced.sizes[0] = outer - k * size < size ? outer - k * size : size;
            evaluate_range<Fold>(part, by_columns, 0, results, parameters, partial + k * results);
        }
    });
    for (int64_t r = 0; r < results; r++) totals[r] = partial[r];
    for (int64_t k = 1; k < pieces; k++) {
        const Total* __restrict part = partial + k * results;
        Total* __restrict to = totals;
        for (int64_t r = 0; r < results; r++) to[r] = Fold::step(to[r], part[r]);
    }
}

template <class T> constexpr DType compute_dtype_of = DType::i64;
template <> constexpr DType compute_dtype_of<float> = DType::f32;
template <> constexpr DType compute_dtype_of<double> = DType::f64;
template <> constexpr DType compute_dtype_of<int32_t> = DType::i32;
template <> constexpr DType compute_dtype_of<uint64_t> = DType::u64;
template <> constexpr DType compute_dtype_of<uint8_t> = DType::boolean;
template <> constexpr DType compute_dtype_of<Pair<float>> = DType::c64;
template <> constexpr DType compute_dtype_of<Pair<double>> = DType::c128;

// One operation on values of T: how the folds are put together, and what is done to their totals.
template <class T> struct Operation {
    Reduction kind;
    const ReduceArguments& a;
    const Problem& p;

    Problem with_map(Map map) const {
        Problem mapped = p;
        mapped.map = map;
        mapped.in_place = false;
        return mapped;
    }
    void write(void* out, int64_t at, const void* values, DType dtype, int64_t count) const {
        copy.convert(static_cast<char*>(out) + at * item_size(a.out_dtype), a.out_dtype, values, dtype, count);
    }
    void write_total(int64_t at, const T* values, int64_t count) const { write(a.out, at, values, compute_dtype_of<T>, count); }

    // f(begin, count, totals) turns the totals of some results into results.
    template <class Fold, class F> void simple(bool by_columns, F&& finish) const {
        over_batches(by_columns, [&](int64_t begin, int64_t count, bool pieces) {
            alignas(64) typename Fold::template Total<T> totals[column_block];
            fold<Fold>(by_columns, begin, count, pieces, static_cast<const T*>(nullptr), totals);
            finish(begin, count, totals);
        });
    }
    template <class Fold> void fold(bool by_columns, int64_t begin, int64_t count, bool pieces, const T* parameters,
                                    typename Fold::template Total<T>* totals) const {
        if (pieces) evaluate_pieces<Fold>(p, by_columns, parameters, totals);
        else evaluate_range<Fold>(p, by_columns, begin, count, parameters, totals);
    }

    // Calls f(begin, count, pieces) for batches of results: on all threads where there are enough of them, else
    // once for all (few, long) results with pieces set.
    template <class F> void over_batches(bool by_columns, F&& f) const {
        const int64_t work = p.results * (p.length > 0 ? p.length : 1);
        const int64_t width = by_columns ? p.kept.sizes[p.kept.ndim - 1] : p.results;
        int64_t batch = column_block;
        if (!by_columns && p.length > 0 && p.length * batch > 65536) batch = p.length > 65536 ? 1 : 65536 / p.length;
        if (by_columns) {
            const int64_t share = (width / num_threads() + 31) / 32 * 32;
            batch = share < 64 ? 64 : share < batch ? share : batch;
        }
        const int64_t per_row = (width + batch - 1) / batch, batches = p.results / width * per_row;
        if (p.results <= column_block && (by_columns ? p.kept.ndim == 1 : batches < 8) && work >= 2 * grain &&
            (p.length >= 8 * p.results || (by_columns && p.reduced.ndim == 1 && p.length >= 4 * piece_rows)))
            return f(0, p.results, true);
        const int64_t batch_work = work / batches > 0 ? work / batches : 1;
        parallel_for(batches, (grain + batch_work - 1) / batch_work, [&](int64_t first, int64_t end) {
            for (int64_t b = first; b < end; b++) {
                const int64_t column = b % per_row * batch, left = width - column;
                f(b / per_row * width + column, left < batch ? left : batch, false);
            }
        });
    }

    template <class Fold> void sum_or_product(bool by_columns) const {
        simple<Fold>(by_columns, [&](int64_t begin, int64_t count, auto* totals) {
            using Total = std::remove_reference_t<decltype(*totals)>;
            if constexpr (std::is_floating_point_v<Total>) {
                if (a.divisor != 1)
                    for (int64_t i = 0; i < count; i++) totals[i] /= a.divisor;
            } else if constexpr (is_pair<Total>) {
                if (a.divisor != 1)
                    for (int64_t i = 0; i < count; i++) totals[i] = {totals[i].real / a.divisor, totals[i].imag / a.divisor};
            }
            write(a.out, begin, totals, compute_dtype_of<Total>, count);
        });
    }

    template <class Fold> void extreme(bool by_columns) const {
        simple<Fold>(by_columns, [&](int64_t begin, int64_t count, auto* totals) {
            if (a.out) write_total(begin, totals, count);
            if (!a.indices) return;
            if (by_columns) positions_in_columns(p, begin, count, totals, a.indices + begin);
            else positions_in_rows(p, begin, count, totals, a.indices + begin);
        });
    }

    void norm(bool by_columns) const {
        const double power = a.parameter, root = 1 / power;
        auto finish = [&](int64_t begin, int64_t count, auto* totals) {
            using Total = std::remove_reference_t<decltype(*totals)>;
            if (power == 2)
                for (int64_t i = 0; i < count; i++) totals[i] = Total(__builtin_sqrt(double(totals[i])));
            else if (p.map == Map::power)
                for (int64_t i = 0; i < count; i++) totals[i] = Total(__builtin_pow(double(totals[i]), root));
            write(a.out, begin, totals, compute_dtype_of<Total>, count);
        };
        if (power == __builtin_inf() && p.length > 0) simple<Max>(by_columns, finish);
        else if (power == -__builtin_inf()) simple<Min>(by_columns, finish);
        else simple<Sum>(by_columns, finish);
    }

    void variance(bool by_columns) const {
        over_batches(by_columns, [&](int64_t begin, int64_t count, bool pieces) { variances(by_columns, begin, count, pieces); });
    }
    void variances(bool by_columns, int64_t begin, int64_t count, bool pieces) const {
        const Problem mapped = with_map(Map::deviation);
        const Operation &plain = *this, shifted{kind, a, mapped};
        typename Sum::Total<T> totals[column_block];
        T means[column_block];
        plain.template fold<Sum>(by_columns, begin, count, pieces, static_cast<const T*>(nullptr), totals);
        for (int64_t i = 0; i < count; i++) means[i] = T(totals[i] / double(p.length));
        if (a.out) {
            shifted.template fold<Sum>(by_columns, begin, count, pieces, means, totals);
            const double n = double(p.length), unit = sizeof(T) == 4 ? 0x1p-18 : 0x1p-43;  // what a sum may be off by
            [[maybe_unused]] bool poor = false;
            bool level = false;  // level: what was summed may be the error of a mean
            for (int64_t i = 0; i < count; i++) {
                poor |= !(totals[i] >= 1e-30 && totals[i] < __builtin_inf());
                level |= totals[i] > 0 && totals[i] <= n * (unit * means[i]) * (unit * means[i]);
            }
            if constexpr (std::is_same_v<T, float>) {  // squares of floats that are no floats are summed again in double
                if (poor || level) {
                    Problem wide = p;
                    wide.compute = DType::f64;
                    wide.in_place = false;
                    return Operation<double>{kind, a, wide}.variances(by_columns, begin, count, pieces);
                }
            } else if (level) {  // numbers that are equal have no variance
                const Problem less = with_map(Map::difference);
                double rest[column_block];
                Operation{kind, a, less}.template fold<Sum>(by_columns, begin, count, pieces, means, rest);
                for (int64_t i = 0; i < count; i++) {
                    const double more = rest[i] / n, left = totals[i] - rest[i] * more;
                    means[i] += more;
                    totals[i] = left < 0 ? 0 : left;  // NaN stays
                }
            }
            const double free = double(p.length) - a.parameter, divisor = free > 0 ? free : 0;
            for (int64_t i = 0; i < count; i++) {
                totals[i] /= divisor;
                if (a.root) totals[i] = __builtin_sqrt(totals[i]);
            }
            write(a.out, begin, totals, DType::f64, count);
        }
        if (a.mean) write(a.mean, begin, means, compute_dtype_of<T>, count);
    }

    void logsumexp(bool by_columns) const {
        const Problem mapped = with_map(Map::exponential);
        const Operation &plain = *this, shifted{kind, a, mapped};
        over_batches(by_columns, [&](int64_t begin, int64_t count, bool pieces) {
            typename Sum::Total<T> totals[column_block];
            T highest[column_block];
            plain.template fold<Max>(by_columns, begin, count, pieces, static_cast<const T*>(nullptr), highest);
            for (int64_t i = 0; i < count; i++)
                if (highest[i] == Limits<T>::low || highest[i] == Limits<T>::high) highest[i] = 0;
            shifted.template fold<Sum>(by_columns, begin, count, pieces, highest, totals);
            for (int64_t i = 0; i < count; i++) totals[i] = __builtin_log(totals[i]) + highest[i];
            write(a.out, begin, totals, DType::f64, count);
        });
    }
};

DType sum_type(DType out) { return out == DType::u64 ? DType::i64 : compute_dtype(out); }

DType compute_type(Reduction kind, const ReduceArguments& a) {
    switch (kind) {
    case Reduction::any:
    case Reduction::all:
    case Reduction::count_nonzero: return DType::boolean;
    case Reduction::max:
    case Reduction::min:
        if (a.in_dtype == DType::f64 || a.in_dtype == DType::u64) return a.in_dtype;
        if (is_floating(a.in_dtype)) return DType::f32;
        return a.in_dtype == DType::i64 || a.in_dtype == DType::u32 ? DType::i64 : DType::i32;
    case Reduction::sum:
        if (a.in_dtype == DType::boolean && a.divisor == 1 && !is_complex(a.out_dtype)) return DType::boolean;  // a count
        return sum_type(a.out_dtype);
    case Reduction::norm:
        if (a.parameter == 0) return DType::boolean;
        return a.out_dtype == DType::f64 || a.out_dtype == DType::c128 ? DType::f64 : DType::f32;
    default: return sum_type(a.out_dtype);
    }
}

// Both at once: what one has read the other finds in the cache.
template <class T> void extremes_at_once(const ReduceArguments& a) {
    const T* x = static_cast<const T*>(a.in);
    const int64_t n = a.sizes[0], pieces = (n + grain - 1) / grain;
    auto* low = static_cast<T*>(scratch(0, size_t(2 * pieces) * sizeof(T)));
    T* high = low + pieces;
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; k++) {
            low[k] = Limits<T>::high, high[k] = Limits<T>::low;
            for (int64_t i = k * grain; i < least(n, (k + 1) * grain); i += stretch) {
                const int64_t m = least(stretch, least(n, (k + 1) * grain) - i);
                low[k] = Min::step(low[k], fold_run<Min, T>(x + i, m));
                high[k] = Max::step(high[k], fold_run<Max, T>(x + i, m));
            }
        }
    });
    for (int64_t k = 1; k < pieces; k++) low[0] = Min::step(low[0], low[k]), high[0] = Max::step(high[0], high[k]);
    *static_cast<T*>(a.out) = low[0];
    *static_cast<T*>(a.mean) = high[0];
}

// A few rows that a compiled program has just made: as `rows` folds them, without describing the problem first. Not inlined: the folds
// of other shapes would be made for more callers, and worse.
__attribute__((noinline)) bool few_rows(Reduction kind, const ReduceArguments& a) {
    if (a.sizes[1] < 64 || a.sizes[1] > stretch || a.sizes[0] * a.sizes[1] >= grain || a.in_dtype != DType::f32 ||
        a.out_dtype != DType::f32 || a.indices || !a.out || (kind != Reduction::sum && kind != Reduction::max))
        return false;
    const float* in = static_cast<const float*>(a.in);
    float* out = static_cast<float*>(a.out);
    for (int64_t r = 0; r < a.sizes[0]; r++, in += a.strides[0]) {
        if (kind == Reduction::max) {
            out[r] = Max::step(Max::start<float>(), fold_run<Max, float>(in, a.sizes[1]));
            continue;
        }
        const double total = Sum::step(0.0, fold_run<Sum, float>(in, a.sizes[1]));
        out[r] = float(a.divisor == 1 ? total : total / a.divisor);
    }
    return true;
}

void reduce_any(Reduction kind, const ReduceArguments& a) {
    if (kind == Reduction::extremes) {
        if (a.in_dtype == a.out_dtype && a.ndim == 1 && a.reduced == 1 && a.strides[0] == 1 && a.sizes[0] > 0) {
            if (a.in_dtype == DType::f32) return extremes_at_once<float>(a);
            if (a.in_dtype == DType::i64) return extremes_at_once<int64_t>(a);
        }
        ReduceArguments largest = a;
        largest.out = a.mean;
        reduce_any(Reduction::min, a);
        return reduce_any(Reduction::max, largest);
    }
    const DType compute = compute_type(kind, a);
    if (kind == Reduction::sum && a.in_dtype == DType::f32 && a.out_dtype == DType::f32 && a.ndim == 1 && a.reduced == 1 &&
        a.strides[0] == 1 && a.sizes[0] <= stretch) {  // the usual small sum
        const double total = fold_run<Sum, float>(static_cast<const float*>(a.in), a.sizes[0]);
        *static_cast<float*>(a.out) = float(a.divisor == 1 ? total : total / a.divisor);
        return;
    }
    if (a.ndim == 2 && a.reduced == 2 && a.strides[1] == 1 && few_rows(kind, a)) return;
    Problem p(a, compute, a.indices != nullptr);
    if (p.results == 0) return;
    if (kind == Reduction::norm && a.parameter != 0) {
        p.map = a.parameter == 2 ? Map::square : a.parameter == 1 || std::isinf(a.parameter) ? Map::absolute : Map::power;
        p.power = a.parameter;
    } else if (kind == Reduction::nansum && is_floating(compute)) {
        p.map = Map::nonnan;
    }
    p.in_place = p.map == Map::none && (p.in_dtype == compute || (compute == DType::i64 && p.in_dtype == DType::u64)) &&
                 (compute != DType::boolean || kind == Reduction::any || kind == Reduction::all);  // any byte but 0 is true
    const bool columns = p.by_columns();
    auto real = [&](auto* tag) {
        Operation<std::remove_pointer_t<decltype(tag)>> o{kind, a, p};
        switch (kind) {
        case Reduction::sum:
        case Reduction::nansum: return o.template sum_or_product<Sum>(columns);
        case Reduction::prod: return o.template sum_or_product<Product>(columns);
        case Reduction::max: return o.template extreme<Max>(columns);
        case Reduction::min: return o.template extreme<Min>(columns);
        case Reduction::norm: return o.norm(columns);
        case Reduction::variance: return o.variance(columns);
        case Reduction::logsumexp: return o.logsumexp(columns);
        default: return;
        }
    };
    auto complex = [&](auto* tag) {
        Operation<std::remove_pointer_t<decltype(tag)>> o{kind, a, p};
        if (kind == Reduction::prod) o.template sum_or_product<Product>(columns);
        else o.template sum_or_product<Sum>(columns);
    };
    auto extremes = [&](auto* tag) {
        Operation<std::remove_pointer_t<decltype(tag)>> o{kind, a, p};
        if (kind == Reduction::max) o.template extreme<Max>(columns);
        else o.template extreme<Min>(columns);
    };
    switch (compute) {
    case DType::f32: return real(static_cast<float*>(nullptr));
    case DType::f64: return real(static_cast<double*>(nullptr));
    case DType::c64: return complex(static_cast<Pair<float>*>(nullptr));
    case DType::c128: return complex(static_cast<Pair<double>*>(nullptr));
    case DType::boolean: {
        Operation<uint8_t> o{kind, a, p};
        if (kind == Reduction::any) o.template extreme<Max>(columns);
        else if (kind == Reduction::all) o.template extreme<Min>(columns);
        else o.template sum_or_product<Count>(columns);
        return;
    }
    case DType::i32: return extremes(static_cast<int32_t*>(nullptr));
    case DType::u64: return extremes(static_cast<uint64_t*>(nullptr));
    default: {
        Operation<uint64_t> o{kind, a, p};  // int64 that wraps
        if (kind == Reduction::sum || kind == Reduction::nansum) o.template sum_or_product<Sum>(columns);
        else if (kind == Reduction::prod) o.template sum_or_product<Product>(columns);
        else extremes(static_cast<int64_t*>(nullptr));
        return;
    }
    }
}

}  // namespace

extern const ReduceKernels reduce_table = {&reduce_any};

}  // namespace wisp::cpu::WISP_ISA
