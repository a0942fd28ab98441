// Matrix products (see gemm.h): the real product with its blocking and threading, and the other dtypes on top of it.
//
// Paths of the real product: one row or column (gemv), a handful of rows, or more that are long, times a transposed matrix
// (dot products), few rows times one (the transposed product), small or medium (each thread packs what it must for its
// share), large (what must be packed of B is shared by all threads).
#include "kernels/gemm.h"

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/gemm_rows.h"

#include <cstdlib>
#include <type_traits>
#include <utility>

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int slot_b = 4, slot_a = 5, slot_partial = 6, slot_convert = 7;
constexpr double thread_flops = 6e5;  // below this a product runs in the calling thread
constexpr double shared_flops = 6e7;  // from here on the threads share one packed B
constexpr int64_t row_block = 192;    // rows of A that a thread packs at a time: with 512 deep, under half of an L2
constexpr int64_t pass_rows = 256;    // rows of A that use a packed panel of B before the next

template <class F> WISP_INLINE void run_parallel(int64_t chunks, F&& body) {
    if (chunks == 1) return body(int64_t(0));
    detail::run_chunks(chunks, [](void* f, int64_t i) { (*static_cast<std::remove_reference_t<F>*>(f))(i); }, &body);
}

// How deep a block of k is: all blocks about equally deep, a whole number of cache lines, by k alone.
template <class T> constexpr int64_t deepest = sizeof(T) == 4 ? 512 : 320;
template <class T> int64_t depth_of(int64_t k) {
    if (k <= deepest<T>) return k;
    return divide_up(divide_up(k, divide_up(k, deepest<T>)), 16) * 16;
}

// The number of vectors and rows of a tile, so that panels come out about equally wide and high.
template <class T> int vectors_for(int64_t n) {
    const int64_t all = divide_up(n, lanes<T>);
    return int(divide_up(all, divide_up(all, max_vectors)));
}
int rows_for(int64_t m, int vectors) { return int(divide_up(m, divide_up(m, max_rows_of(vectors)))); }

// Whether A has no direction in which the tiles can read it as it lies: lines far apart fight for a few cache sets and pages. Where they
// are not very far apart, that costs less than packing for the use of a few panels of `width` columns.
template <class T> bool scattered(const Product<T>& p, int64_t width) {
    return p.a_col != 1 && (p.a_row != 1 || p.a_col * int64_t(sizeof(T)) > (p.n > 4 * width ? 1024 : 8192));
}
// Whether `rows` rows of A are to find B packed: where it is transposed, where lines are very far apart, and where they are
// far apart and so many rows use them that packing costs less than the caches and pages that a block of them spreads over.
template <class T> bool packs_right(const Product<T>& p, int64_t rows) {
    const int64_t apart = p.b_row * int64_t(sizeof(T));
    return p.b_col != 1 || apart > 8192 || (apart > 1024 && rows >= (least(p.k, depth_of<T>(p.k)) * apart >= 2 << 20 ? 16 : 64));
}

// One tile of C at (i, j).
template <class T> WISP_INLINE void run_tile(int rows, int vectors, int columns, bool unit, bool padded, int64_t k, const T* a,
                                             int64_t a_row, int64_t a_col, const T* b, int64_t b_row, T* c, int64_t c_row, int64_t i,
                                             int64_t j, const Finish<T>& finish, const T* ahead = nullptr, int64_t ahead_step = 0) {
    constexpr int L = lanes<T>;
    if (!ahead) ahead = b;
    const int last = columns - (vectors - 1) * L;
    const Tile<T> kernel = tile_for<T>(rows, vectors, unit, !padded && last < L);
    c += i * c_row + j;
    if (finish.direct) {
        const T* d = finish.d ? finish.d + i * finish.d_row + j : nullptr;
        return kernel(k, a, a_row, a_col, b, b_row, c, c_row, d, finish.d_row, finish.add, last, ahead, ahead_step);
    }
    alignas(64) T sums[most_rows * max_vectors * L];
    const int64_t width = vectors * L;
    kernel(k, a, a_row, a_col, b, b_row, sums, width, nullptr, 0, false, last, ahead, ahead_step);
    for (int r = 0; r < rows; ++r) finish.put(sums + r * width, c + r * c_row, i + r, j, columns);
}

// C = beta * D or zeros: all that is left of a product with k = 0.
template <class T> void fill_without_product(const Product<T>& p) {
    for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) p.c[i * p.c_row + j] = p.d ? p.beta * p.d[i * p.d_row + j * p.d_col] : T(0);
}

// ---- in one thread ------------------------------------------------------------------------------------------------

// The part of C in rows [i0, i1) and columns [j0, j1). Packs B where the tiles would otherwise read it badly or often.
template <class T> void serial(const Product<T>& p, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    constexpr int L = lanes<T>;
    const int vectors = vectors_for<T>(j1 - j0);
    const int64_t width = vectors * L;
    const int rows = rows_for(i1 - i0, vectors);
    const int64_t m = i1 - i0, n = j1 - j0, depth = depth_of<T>(p.k), block = rows * divide_up(m, rows * divide_up(m, pass_rows));
    const bool pack_left = n > width && m > 1 && scattered(p, width), pack_right = packs_right(p, m);
    T* panel_b = pack_right ? static_cast<T*>(scratch(slot_b, size_t(depth * width) * sizeof(T))) : nullptr;
    T* panel_a = pack_left ? static_cast<T*>(scratch(slot_a, size_t((least(block, m) + L) * depth) * sizeof(T) + 64)) : nullptr;
    for (int64_t q = 0; q < p.k; q += depth) {
        const int64_t deep = least(depth, p.k - q);
        const Finish<T> finish(p, q == 0);
        for (int64_t ib = i0; ib < i1; ib += block) {
            const int64_t ie = least(ib + block, i1);
            if (pack_left) pack_panels(p.a + ib * p.a_row + q * p.a_col, p.a_row, p.a_col, deep, ie - ib, rows, panel_a);
            for (int64_t j = j0; j < j1; j += width) {
                const int columns = int(least(width, j1 - j)), used = int(divide_up(columns, L));
                const T* b = p.b + q * p.b_row + j * p.b_col;
                int64_t b_row = p.b_row;
                if (pack_right) {
                    pack_b(b, p.b_row, p.b_col, deep, columns, panel_b, used * L);
                    b = panel_b, b_row = used * L;
                }
                for (int64_t i = ib, tile = 0; i < ie; i += rows, ++tile) {
                    const int high = int(least(rows, ie - i));
                    // The first tiles bring the next panel of B, a vector each.
                    const T* ahead = !pack_right && tile < vectors && j + width < j1 ? b + width + tile * L : nullptr;
                    if (pack_left)
                        run_tile(high, used, columns, true, pack_right, deep, panel_a + (i - ib) * deep, 1, int64_t(high), b, b_row, p.c,
                                 p.c_row, i, j, finish, ahead, ahead ? b_row : 0);
                    else
                        run_tile(high, used, columns, p.a_row == 1, pack_right, deep, p.a + i * p.a_row + q * p.a_col, p.a_row, p.a_col, b,
                                 b_row, p.c, p.c_row, i, j, finish, ahead, ahead ? b_row : 0);
                }
            }
        }
    }
}

// ---- threads ------------------------------------------------------------------------------------------------------

// Large products. Operands are read where they lie if they have a contiguous direction that suits the tiles: A any, B
// along n, with steps across it that are not too far. Else A is packed by each share of C for itself, B by all threads together,
// block by block.
template <class T> void shared_panels(const Product<T>& p) {
    constexpr int L = lanes<T>;
    constexpr int64_t widest = 2048;
    const int vectors = vectors_for<T>(p.n);
    const int64_t width = vectors * L, depth = depth_of<T>(p.k);
    const int rows = rows_for(p.m, vectors);
    const int64_t threads = num_threads();
    const bool pack_left = scattered(p, width), pack_right = packs_right(p, p.m);
    const int64_t block_columns = least(divide_up(p.n, width), widest / width) * width;
    // Equally many shares for every thread; where there are too few rows, columns are cut as well, and each share of
    // them packs its rows again.
    const int64_t row_panels = divide_up(p.m, rows);
    const int64_t wanted = divide_up(divide_up(p.m, row_block), threads) * threads;
    const int64_t row_shares = least(wanted, most(1, row_panels / 4)), enough = pack_left ? threads : 2 * threads;
    const int64_t panels = block_columns / width;
    const int64_t column_shares = row_shares >= enough ? 1 : least(panels, divide_up(enough, row_shares));

    // One block of k for the rows of a share and panels [from, to) of the columns from jb on.
    auto multiply = [&](int64_t share, int64_t q, int64_t jb, int64_t from, int64_t to, const T* packed) {
        const int64_t deep = least(depth, p.k - q), i0 = row_panels * share / row_shares * rows;
        const int64_t i1 = least(row_panels * (share + 1) / row_shares * rows, p.m);
        const Finish<T> finish(p, q == 0);
        const T* left = p.a + i0 * p.a_row + q * p.a_col;
        if (pack_left) {
            T* panel = static_cast<T*>(scratch(slot_a, size_t((i1 - i0 + L) * deep) * sizeof(T) + 64));
            pack_panels(left, p.a_row, p.a_col, deep, i1 - i0, rows, panel);
            left = panel;
        }
        // What tiles ask for while they compute: the next panel of B, a vector each, behind the last one the first of
        // the next block of k; and in the first panel lines of a transposed A, each one tile ahead of its first use.
        const bool lines = !pack_left && p.a_row == 1;
        const int64_t shift = int64_t(reinterpret_cast<uintptr_t>(left) / sizeof(T) % L);
        int64_t line = 1;
        for (int64_t t = from; t < to; ++t) {
            const int64_t j = jb + t * width;
            const int columns = int(least(width, p.n - j)), used = int(divide_up(columns, L));
            const T* b = packed ? packed + t * width * deep : p.b + q * p.b_row + j;
            const int64_t b_row = packed ? used * L : p.b_row;
            const T* next = t + 1 < to                  ? b + (packed ? width * deep : width)
                            : !packed && q + deep < p.k ? p.b + (q + deep) * p.b_row + jb + from * width
                                                        : nullptr;
            int wanted_vectors = next ? vectors : 0;
            for (int64_t i = i0; i < i1; i += rows) {
                const int high = int(least(rows, i1 - i));
                const T* ahead = nullptr;
                int64_t ahead_step = 0;
                if (lines && t == from && shift + i - i0 + 2 * rows > line * L) ahead = left + line++ * L - shift, ahead_step = p.a_col;
                else if (wanted_vectors > 0) ahead = next + --wanted_vectors * L, ahead_step = b_row;
                if (pack_left)
                    run_tile(high, used, columns, true, pack_right, deep, left + (i - i0) * deep, int64_t(1), int64_t(high), b, b_row, p.c,
                             p.c_row, i, j, finish, ahead, ahead_step);
                else
                    run_tile(high, used, columns, p.a_row == 1, pack_right, deep, left + (i - i0) * p.a_row, p.a_row, p.a_col, b, b_row,
                             p.c, p.c_row, i, j, finish, ahead, ahead_step);
            }
        }
    };
    T* packed = pack_right ? static_cast<T*>(scratch(slot_b, size_t(depth * block_columns) * sizeof(T))) : nullptr;
    for (int64_t jb = 0; jb < p.n; jb += block_columns) {
        const int64_t je = least(jb + block_columns, p.n), count = divide_up(je - jb, width);
        auto shares = [&](int64_t q_from, int64_t q_to) {
            run_parallel(row_shares * column_shares, [&](int64_t share) {
                const int64_t s = share % column_shares;
                for (int64_t q = q_from; q < q_to; q += depth)
                    multiply(share / column_shares, q, jb, count * s / column_shares, count * (s + 1) / column_shares, packed);
            });
        };
        if (!pack_right) {
            shares(0, p.k);
            continue;
        }
        for (int64_t q = 0; q < p.k; q += depth) {
            const int64_t deep = least(depth, p.k - q), pieces = least(count, 4 * threads);
            run_parallel(pieces, [&](int64_t piece) {
                for (int64_t t = count * piece / pieces; t < count * (piece + 1) / pieces; ++t) {
                    const int64_t j = jb + t * width;
                    const int columns = int(least(width, je - j));
                    pack_b(p.b + q * p.b_row + j * p.b_col, p.b_row, p.b_col, deep, columns, packed + t * width * deep,
                           int(divide_up(columns, L)) * L);
                }
            });
            shares(q, q + 1);
        }
    }
}

// Few rows times a transposed B: the transposed product, Cᵀ = Bᵀ·Aᵀ, so that not B but the smaller A is packed. The
// rows of Bᵀ are read where they lie; a strip of Cᵀ is turned while it is in L1.
constexpr int64_t most_strip = 64;  // rows of Bᵀ at a time
template <class T> void from_the_right(const Product<T>& p) {
    constexpr int L = lanes<T>;
    constexpr int64_t piece = 128;  // steps of k that are packed at a time
    const int vectors = vectors_for<T>(p.m);
    const int64_t width = vectors * L, panels = divide_up(p.m, width), depth = depth_of<T>(p.k), threads = num_threads();
    // Strips so high that threads end together.
    int64_t strip = most_strip, longest = INT64_MAX;
    for (const int64_t high : {most_strip, int64_t(48), int64_t(32)}) {
        const int64_t rows_of_one = divide_up(divide_up(p.n, high) * panels, threads) * high;
        if (rows_of_one < longest) strip = high, longest = rows_of_one;
    }
    const int rows = rows_for(least(p.n, strip), vectors);
    T* packed = static_cast<T*>(scratch(slot_b, size_t(panels * width * p.k) * sizeof(T)));
    const int64_t cuts = divide_up(p.k, piece);
    auto pack = [&](int64_t at) {
        const int64_t i = at / cuts * width, q = at % cuts * piece;
        pack_b(p.a + i * p.a_row + q * p.a_col, p.a_col, p.a_row, least(piece, p.k - q), int(least(width, p.m - i)),
               packed + i * p.k + q * width, int(width));
    };
    const Finish<T> finish(p, true);
    auto multiply = [&](int64_t at) {
        alignas(64) T sums[(most_strip + most_rows + L) * max_vectors * L];
        const int64_t j0 = at / panels * strip, i0 = at % panels * width;
        const int64_t high = least(strip, p.n - j0), wide = least(width, p.m - i0);
        for (int64_t q = 0; q < p.k; q += depth)
            for (int64_t r = 0; r < high; r += rows) {
                if (q == 0)  // C comes meanwhile
                    for (int64_t i = wide * r / high; i < wide * least(r + rows, high) / high; ++i)
                        for (int64_t j = 0; j < high; j += L) __builtin_prefetch(p.c + (i0 + i) * p.c_row + j0 + j);
                tile_for<T>(int(least(rows, high - r)), vectors, false, false)(
                    least(depth, p.k - q), p.b + (j0 + r) * p.b_col + q, p.b_col, int64_t(1), packed + i0 * p.k + q * width, width,
                    sums + r * width, width, nullptr, 0, q > 0, L, packed, int64_t(0));
            }
        for (int64_t i = 0; i < wide; i += L)
            for (int64_t r = 0; r < high; r += L) {
                const int count = int(least(L, high - r)), turned = int(least(L, wide - i));
                const T* from = sums + r * width + i;
                T* to = p.c + (i0 + i) * p.c_row + j0 + r;
                const T* d = finish.d ? finish.d + (i0 + i) * finish.d_row + j0 + r : nullptr;
                if (!finish.direct || finish.add || count < L)
                    turn_block(from, width, L, turned, [&](int t, Vec<T> v) __attribute__((always_inline)) {
                        alignas(64) T part[L];
                        store(part, v);
                        finish.put(part, to + t * p.c_row, i0 + i + t, j0 + r, count);
                    });
                else if (d)
                    turn_block(from, width, L, turned, [&](int t, Vec<T> v) __attribute__((always_inline)) {
                        store(to + t * p.c_row, v + load(d + t * finish.d_row));
                    });
                else
                    turn_block(from, width, L, turned, [&](int t, Vec<T> v) __attribute__((always_inline)) { store(to + t * p.c_row, v); });
            }
    };
    const int64_t units = divide_up(p.n, strip) * panels;
    if (panels >= threads && panels % threads == 0) {  // a thread packs what it uses: nobody waits, nothing changes caches
        run_parallel(panels, [&](int64_t panel) {
            for (int64_t at = panel * cuts; at < (panel + 1) * cuts; ++at) pack(at);
            for (int64_t at = panel; at < units; at += panels) multiply(at);
        });
        return;
    }
    if (2. * double(p.m) * double(p.n) * double(p.k) < thread_flops) {
        for (int64_t at = 0; at < panels * cuts; ++at) pack(at);
        for (int64_t at = 0; at < units; ++at) multiply(at);
    } else {
        run_parallel(panels * cuts, pack);
        run_parallel(units, multiply);
    }
}

// Medium products: each thread takes a share of the columns or of the rows and packs for itself.
template <class T> void shares(const Product<T>& p) {
    const int64_t threads = num_threads();
    const int vectors = vectors_for<T>(p.n);
    const int64_t width = vectors * lanes<T>, column_panels = divide_up(p.n, width);
    const int rows = rows_for(p.m, vectors);
    const int64_t row_panels = divide_up(p.m, rows);
    // Cutting columns packs no B twice; cutting rows shares out A.
    // The gradient of a weight goes by rows where B fits the caches, as the weight's rows are what other passes share out.
    const bool keep_rows = p.a_row == 1 && row_panels >= 4 * threads && p.k * p.n * int64_t(sizeof(T)) <= 400000;
    // Rows that pass over all of B anyway are better read by one thread than by all of them (see by_halves).
    const bool by_rows = p.m >= p.n && p.m >= pass_rows * threads;
    const bool by_columns = !by_rows && column_panels >= threads && (p.b_col != 1 || (p.n >= p.m && !keep_rows) || row_panels < threads);
    const int64_t panels = by_columns ? column_panels : row_panels;
    const int64_t per_thread = by_columns ? 2 : p.b_col != 1 ? 1 : packs_right(p, p.m / (2 * threads)) ? 2 : 4;  // each packs B anew
    const int64_t pieces = least(panels, per_thread * threads);
    run_parallel(pieces, [&](int64_t s) {
        // Columns are cut between panels; rows evenly, as a tile of fewer rows costs no more than its share.
        if (by_columns) serial(p, 0, p.m, panels * s / pieces * width, least(panels * (s + 1) / pieces * width, p.n));
        else serial(p, p.m * s / pieces, p.m * (s + 1) / pieces, 0, p.n);
    });
}

template <class T> void real_product(Product<T> p);

// A long k and a small C: pieces of k at the same time, their sums added in order. The pieces depend on k alone, and none is so long
// that it would be cut again: it would put its own pieces where this one's lie.
constexpr int64_t split_from = 8192;
template <class T> void split_depth(const Product<T>& p) {
    const int64_t pieces = most(least(16, divide_up(p.k, 4096)), divide_up(p.k, split_from - 1)), size = p.m * p.n;
    T* partial = static_cast<T*>(scratch(slot_partial, size_t(pieces * size) * sizeof(T)));
    run_parallel(pieces, [&](int64_t s) {
        const int64_t from = p.k * s / pieces, to = p.k * (s + 1) / pieces;
        Product<T> part = p;
        part.k = to - from;
        part.a += from * p.a_col, part.b += from * p.b_row;
        part.c = partial + s * size, part.c_row = p.n;
        part.d = nullptr, part.alpha = 1, part.beta = 0;
        real_product(part);
    });
    const Finish<T> finish(p, true);
    for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
            T sum = 0;
            for (int64_t s = 0; s < pieces; ++s) sum += partial[s * size + i * p.n + j];
            finish.put(&sum, p.c + i * p.c_row + j, i, j, 1);
        }
}

// The gradient of a weight is a sum over rows that threads share out everywhere else: here as well, half of k to half of the threads,
// and the two results are added. Rows that all threads have read are slow to write to when their memory is used again, since the
// processors must agree about every line. In one thread the sums are the same, as each half is one block.
template <class T> bool is_weight_gradient(const Product<T>& p, double flops) {
    return p.a_row == 1 && p.b_col == 1 && p.k >= 256 && p.k <= 2 * deepest<T> && flops >= 3e7 && 2 * p.m * p.n <= p.k * (p.m + p.n);
}
template <class T> void by_halves(const Product<T>& p) {
    const int64_t half = divide_up(p.k / 2, 16) * 16, threads = num_threads(), pieces = most(threads, divide_up(p.m, row_block));
    Product<T> first = p, second = p;
    first.k = half, second.k = p.k - half;
    second.a += half * p.a_col, second.b += half * p.b_row;
    if (threads == 1) {
        second.d = p.c, second.d_row = p.c_row, second.d_col = 1, second.beta = 1;
        for (int64_t i = 0; i < pieces; ++i)
            for (const auto& part : {first, second}) serial(part, p.m * i / pieces, p.m * (i + 1) / pieces, 0, p.n);
        return;
    }
    second.c = static_cast<T*>(scratch(slot_partial, size_t(p.m * p.n) * sizeof(T))), second.c_row = p.n;
    second.d = nullptr, second.alpha = 1, second.beta = 0;
    run_parallel(2 * pieces, [&](int64_t s) {
        const int64_t i = s % pieces;
        serial(s < pieces ? first : second, p.m * i / pieces, p.m * (i + 1) / pieces, 0, p.n);
    });
    parallel_for(p.m, most(1, 16384 / p.n), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            for (int64_t j = 0; j < p.n; ++j) p.c[i * p.c_row + j] += p.alpha * second.c[i * p.n + j];
    });
}

// A product of a few tiles: no blocks, no threads, and a transposed B is turned in memory on the stack.
template <class T> WISP_INLINE bool tiny(const Product<T>& p) {
    constexpr int L = lanes<T>, deepest = 64;
    if (p.n > max_vectors * L || p.k > deepest || p.m > 64) return false;
    const int n = int(p.n), k = int(p.k), m = int(p.m), vectors = int(unsigned(n + L - 1) / L);
    const int most_high = max_rows_of(vectors);
    const int rows = m <= most_high ? m : int(rows_for(m, vectors));
    const Finish<T> finish(p, true);
    alignas(64) T panel[deepest * max_vectors * L];
    const bool pack = p.b_col != 1;
    if (pack) pack_b(p.b, p.b_row, p.b_col, p.k, n, panel, vectors * L);
    const T* b = pack ? panel : p.b;
    const int64_t b_row = pack ? vectors * L : p.b_row;
    for (int i = 0; i < m; i += rows)
        run_tile(m - i < rows ? m - i : rows, vectors, n, p.a_row == 1, pack, int64_t(k), p.a + i * p.a_row, p.a_row, p.a_col, b, b_row,
                 p.c, p.c_row, i, 0, finish);
    return true;
}

template <class T> void real_product(Product<T> p) {
    if (p.m <= 0 || p.n <= 0) return;
    if (p.k <= 0) return fill_without_product(p);
    if (p.n == 1 && p.m > 1 && p.c_row == 1) {  // a column: the same numbers as a row, transposed
        std::swap(p.m, p.n);
        std::swap(p.a, p.b);
        std::swap(p.a_row, p.b_col);
        std::swap(p.a_col, p.b_row);
        std::swap(p.d_row, p.d_col);
        p.c_row = p.n;
    }
    // A stride along a single step is free to choose: take the one that reads as contiguous.
    if (p.k == 1) p.a_col = p.b_row = 1;
    if (p.m == 1) p.a_row = p.a_col == 1 ? p.k : 1;
    if (p.n == 1 && p.b_row != 1) p.b_col = 1;
    const double flops = 2. * double(p.m) * double(p.n) * double(p.k);
    if (p.k >= split_from && p.m * p.n <= 4096) return split_depth(p);
    // Dot products pack nothing and share no memory between threads, but each sum costs as much as a few steps of k, and many rows
    // times a B that no cache holds are better off where a tile of more rows reads it.
    const bool streams = p.m >= 3 * lanes<T> && p.k * p.n * int64_t(sizeof(T)) >= 8 << 20;
    const bool deep = max_vectors == 4 && p.m <= 64 && p.k >= 256 && p.k >= 6 * p.m && !streams;
    if (p.a_col == 1 && p.b_row == 1 && p.k >= 2 * lanes<T> && (p.m <= 8 || deep)) {
        const double work = p.m == 1 ? 4 * flops : flops;  // a single row is bound by memory
        const int64_t pieces = work < thread_flops ? 1 : most(1, least(p.n / 8, 4 * num_threads()));
        const int64_t eights = p.n / 8;  // columns are computed four at a time, those of a single row eight
        return run_parallel(
            pieces, [&](int64_t s) { dot_product(p, eights * s / pieces * 8, s + 1 == pieces ? p.n : eights * (s + 1) / pieces * 8); });
    }
    if (tiny(p)) return;
    if (p.m == 1 && p.b_col == 1 && p.n > lanes<T>) {
        const int64_t pieces = flops < thread_flops / 4 ? 1 : most(1, least(p.n / 128, 2 * num_threads()));
        return run_parallel(pieces, [&](int64_t s) { row_sweep(p, p.n * s / pieces, p.n * (s + 1) / pieces); });
    }
    if (p.b_row == 1 && p.b_col != 1 && p.m >= 3 * lanes<T> && p.k >= 64 && p.n >= 256 &&
        double(p.m) * double(p.k + p.n) <= double(p.k) * double(p.n))
        return from_the_right(p);
    // Writing an element of C costs as much as some steps of k.
    if (flops + 16. * double(p.m) * double(p.n) < thread_flops) return serial(p, 0, p.m, 0, p.n);
    if (is_weight_gradient(p, flops)) return by_halves(p);
    // Rows that pass over a panel of B at once: threads that pack their own columns wait for nobody.
    const bool few_rows = p.m < 24 || (p.m <= pass_rows && p.n >= 2 * num_threads() * max_vectors * lanes<T>);
    if (flops < shared_flops || few_rows) return shares(p);
    shared_panels(p);
}

template <class T> Product<T> product_of(const GemmArgs& g) {
    return {g.m,
            g.n,
            g.k,
            static_cast<const T*>(g.a),
            g.a_row,
            g.a_col,
            static_cast<const T*>(g.b),
            g.b_row,
            g.b_col,
            static_cast<T*>(g.c),
            g.c_row,
            g.beta == 0 ? nullptr : static_cast<const T*>(g.d),
            g.d_row,
            g.d_col,
            T(g.alpha),
            T(g.beta)};
}
template <class T> void real_one(const GemmArgs& g) { real_product(product_of<T>(g)); }

}  // namespace
}  // namespace wisp::cpu::WISP_ISA

#include "cpu/gemm_amx.h"
#include "cpu/gemm_bf16.h"

namespace wisp::cpu::WISP_ISA {
namespace {

// ---- other dtypes -------------------------------------------------------------------------------------------------

// Working memory that is kept while it is small and given back when it is large.
class Workspace {
public:
    explicit Workspace(size_t bytes)
        : own_(bytes > (size_t(32) << 20) ? std::aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr),
          at_(static_cast<char*>(own_ ? own_ : scratch(slot_convert, bytes))) {}
    ~Workspace() { std::free(own_); }
    Workspace(const Workspace&) = delete;
    template <class T> T* take(int64_t count) {
        T* p = reinterpret_cast<T*>(at_);
        at_ += bytes_for<T>(count);
        return p;
    }
    template <class T> static size_t bytes_for(int64_t count) { return (size_t(count) * sizeof(T) + 63) / 64 * 64; }

private:
    void* own_;
    char* at_;
};

// Copies a strided matrix into contiguous rows, converting; by columns where those are the contiguous ones.
template <class To, class From, class Convert>
void gather(To* to, const From* from, int64_t rows, int64_t columns, int64_t row, int64_t column, Convert convert) {
    parallel_for(rows, most(1, 32768 / most(columns, 1)), [=](int64_t i0, int64_t i1) {
        if (column == 1) {
            for (int64_t i = i0; i < i1; ++i)
                for (int64_t j = 0; j < columns; ++j) to[i * columns + j] = convert(from[i * row + j]);
        } else {
            constexpr int64_t tile = 32;  // a square that stays in L1 whichever way it is walked
            for (int64_t ib = i0; ib < i1; ib += tile)
                for (int64_t j = 0; j < columns; ++j)
                    for (int64_t i = ib; i < least(ib + tile, i1); ++i) to[i * columns + j] = convert(from[i * row + j * column]);
        }
    });
}

// Rounds alpha * sums + beta * D to C; rows of sums are `pitch` apart.
template <class Half> void round_to(const GemmArgs& g, const float* sums_of, int64_t pitch) {
    const auto* d = g.beta == 0 ? nullptr : static_cast<const Half*>(g.d);
    auto* out = static_cast<Half*>(g.c);
    const float alpha = float(g.alpha), beta = float(g.beta);
    parallel_for(g.m, most(1, 32768 / g.n), [&](int64_t i0, int64_t i1) {
        for (int64_t i = i0; i < i1; ++i) {
            const float* sums = sums_of + i * pitch;
            Half* to = out + i * g.c_row;
            if (d) {
                const Half* from = d + i * g.d_row;
                for (int64_t j = 0; j < g.n; ++j) to[j] = Half(alpha * sums[j] + beta * float(from[j * g.d_col]));
            } else {
                for (int64_t j = 0; j < g.n; ++j) to[j] = Half(alpha * sums[j]);
            }
        }
    });
}

// A row or two times columns that lie along k: those are widened a few at a time, on the way to their dot products.
template <class Half> void reduced_rows(const GemmArgs& g) {
    constexpr int64_t at_once = 8;
    Workspace work(Workspace::bytes_for<float>(g.m * g.k) + Workspace::bytes_for<float>(g.m * g.n));
    float *a = work.take<float>(g.m * g.k), *c = work.take<float>(g.m * g.n);
    gather(a, static_cast<const Half*>(g.a), g.m, g.k, g.a_row, g.a_col, [](Half x) { return float(x); });
    parallel_for(divide_up(g.n, at_once), most(1, 16384 / g.k), [&](int64_t begin, int64_t end) {
        float* b = static_cast<float*>(scratch(slot_b, size_t(at_once * g.k) * sizeof(float)));
        for (int64_t j = begin * at_once; j < least(end * at_once, g.n); j += at_once) {
            const int64_t count = least(at_once, g.n - j);
            for (int64_t i = 0; i < count; ++i) {
                const Half* from = static_cast<const Half*>(g.b) + (j + i) * g.b_col;
                for (int64_t q = 0; q < g.k; ++q) b[i * g.k + q] = float(from[q]);
            }
            dot_product(Product<float>{g.m, count, g.k, a, g.k, 1, b, 1, g.k, c + j, g.n, nullptr, 0, 0, 1, 0}, 0, count);
        }
    });
    round_to<Half>(g, c, g.n);
}

constexpr double least_for_tiles = 16384;  // products of numbers; fewer take longer to prepare than to compute
template <class Half, bool alone = false> void reduced_one(const GemmArgs& g) {
    if (g.m <= 0 || g.n <= 0) return;
    using W = Workspace;
#if defined(WISP_TILES)
    if constexpr (std::is_same_v<Half, bf16>)
        if (double(g.m) * double(g.n) * double(g.k) > least_for_tiles && has_tiles()) {
            AmxProduct product(g, alone ? 1 : num_threads());
            W work(W::bytes_for<uint16_t>(product.left_size()) + W::bytes_for<uint16_t>(product.right_size()));
            auto* const left = work.take<uint16_t>(product.left_size());
            return product.run(left, work.take<uint16_t>(product.right_size()));
        }
#endif
#if defined(WISP_BF16_PAIRS)
    if constexpr (std::is_same_v<Half, bf16>)
        if (g.k > 0 && (g.m > 1 || g.b_row != 1) && has_bf16_pairs()) {  // one row times columns is bound by memory
            const Bf16Plan plan(g);
            W work(W::bytes_for<uint32_t>(plan.a_size()) + W::bytes_for<uint32_t>(plan.b_size()) + W::bytes_for<float>(plan.c_size()));
            auto *a = work.take<uint32_t>(plan.a_size()), *b = work.take<uint32_t>(plan.b_size());
            float* c = work.take<float>(plan.c_size());
            return bf16_product(g, plan, a, b, c);
        }
#endif
    if (g.m <= 2 && g.b_row == 1 && g.k >= 2 * lanes<float>) return reduced_rows<Half>(g);
    W work(W::bytes_for<float>(g.m * g.k) + W::bytes_for<float>(g.k * g.n) + W::bytes_for<float>(g.m * g.n));
    float *a = work.take<float>(g.m * g.k), *b = work.take<float>(g.k * g.n), *c = work.take<float>(g.m * g.n);
    const auto widen = [](Half x) { return float(x); };
    Product<float> p{g.m, g.n, g.k, a, g.k, 1, b, g.n, 1, c, g.n, nullptr, 0, 0, 1, 0};
    gather(a, static_cast<const Half*>(g.a), g.m, g.k, g.a_row, g.a_col, widen);
    if (g.b_row == 1 && g.b_col != 1) {  // keep a transposed B transposed: both copies run along memory
        gather(b, static_cast<const Half*>(g.b), g.n, g.k, g.b_col, 1, widen);
        p.b_row = 1, p.b_col = g.k;
    } else {
        gather(b, static_cast<const Half*>(g.b), g.k, g.n, g.b_row, g.b_col, widen);
    }
    real_product(p);
    round_to<Half>(g, c, g.n);
}

// Complex numbers as pairs: std::complex brings multiplications with special cases and shared templates.
template <class R> struct Pair {
    R re, im;
};

template <class R, int... i> WISP_INLINE Vec<R> swapped_pairs(Vec<R> v, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(v, v, (i ^ 1)...);
}

// A complex product is one real product of twice the width and depth, and its operands are nearly there in memory:
// a row of A is already (re, im, re, im...), so is a row of C, and B becomes pairs of rows
//     (re, im, re, im...) and (-im, re, -im, re...),
// into which the conjugates and alpha are multiplied as well.
template <class R> void complex_one(const GemmArgs& g) {
    const int64_t m = g.m, n = g.n, k = g.k;
    if (m <= 0 || n <= 0) return;
    const auto *a = static_cast<const Pair<R>*>(g.a), *b = static_cast<const Pair<R>*>(g.b);
    const auto* d = g.beta == 0 && g.beta_imag == 0 ? nullptr : static_cast<const Pair<R>*>(g.d);
    auto* c = static_cast<Pair<R>*>(g.c);
    const R sign_a = g.conj_a ? R(-1) : R(1), sign_b = g.conj_b ? R(-1) : R(1);
    const Pair<R> alpha{R(g.alpha), R(g.alpha_imag)}, beta{R(g.beta), R(g.beta_imag)};
    const bool scaled = alpha.re != R(1) || alpha.im != R(0);
    if (d && !(d == c && g.d_row == g.c_row && g.d_col == 1 && beta.re == R(1) && beta.im == R(0)))
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
                const Pair<R> x = d[i * g.d_row + j * g.d_col];
                c[i * g.c_row + j] = {beta.re * x.re - beta.im * x.im, beta.re * x.im + beta.im * x.re};
            }
    const bool copy_a = g.a_col != 1 && k > 1;
    // Whole panels of B where they suffice for the threads: each goes from its making straight into the product.
    const double flops = 8. * double(m) * double(n) * double(k);
    const int64_t widest = max_vectors * lanes<R> / 2, panels = divide_up(n, widest), width = divide_up(n, panels);
    const bool by_panels = m >= 8 && k > 0 && k < 4096 && (flops < thread_flops || panels >= 2 * num_threads());
    Workspace work(Workspace::bytes_for<R>(by_panels ? 0 : 4 * k * n) + Workspace::bytes_for<R>(copy_a ? 2 * m * k : 0));
    constexpr int L = lanes<R>;
    Vec<R> even_signs, odd_signs;
    for (int i = 0; i < L; i += 2) {
        even_signs[i] = 1, even_signs[i + 1] = sign_b;
        odd_signs[i] = -sign_a * sign_b, odd_signs[i + 1] = sign_a;
    }
    // Rows [q0, q1) of columns [j0, j1), of 2 * `pitch` numbers each.
    auto make = [&](R* to, int64_t pitch, int64_t q0, int64_t q1, int64_t j0, int64_t j1) {
        for (int64_t q = q0; q < q1; ++q) {
            R *even = to + 4 * q * pitch, *odd = even + 2 * pitch;
            const Pair<R>* from = b + q * g.b_row + j0 * g.b_col;
            int64_t j = 0;
            if (!scaled && g.b_col == 1)
                for (; j + L / 2 <= j1 - j0; j += L / 2) {
                    const Vec<R> x = load(reinterpret_cast<const R*>(from + j));
                    store(even + 2 * j, x * even_signs);
                    store(odd + 2 * j, swapped_pairs<R>(x, std::make_integer_sequence<int, L>{}) * odd_signs);
                }
            for (; j < j1 - j0; ++j) {
                Pair<R> x = from[j * g.b_col];
                x.im *= sign_b;
                if (scaled) x = {alpha.re * x.re - alpha.im * x.im, alpha.re * x.im + alpha.im * x.re};
                even[2 * j] = x.re, even[2 * j + 1] = x.im;
                odd[2 * j] = -sign_a * x.im, odd[2 * j + 1] = sign_a * x.re;
            }
        }
    };
    R* right = by_panels ? nullptr : work.take<R>(4 * k * n);
    if (!by_panels) parallel_for(k, most(1, 8192 / n), [&](int64_t q0, int64_t q1) { make(right, n, q0, q1, 0, n); });
    const R* left = reinterpret_cast<const R*>(a);
    int64_t left_row = 2 * g.a_row;
    if (copy_a) {
        auto* rows = work.take<Pair<R>>(m * k);
        gather(rows, a, m, k, g.a_row, g.a_col, [](Pair<R> x) { return x; });
        left = reinterpret_cast<const R*>(rows), left_row = 2 * k;
    }
    auto multiply = [&](const R* panel, int64_t pitch, int64_t j, int64_t count) {
        R* out = reinterpret_cast<R*>(c + j);
        return Product<R>{m,           2 * count,         2 * k,       left, left_row, 1,   panel, 2 * pitch, 1, out,
                          2 * g.c_row, d ? out : nullptr, 2 * g.c_row, 1,    R(1),     R(1)};
    };
    if (!by_panels) return real_product(multiply(right, n, 0, n));
    run_parallel(flops < thread_flops ? 1 : panels, [&](int64_t unit) {
        for (int64_t t = unit; t < (flops < thread_flops ? panels : unit + 1); ++t) {
            const int64_t j = t * width, count = least(width, n - j);
            R* panel = static_cast<R*>(scratch(slot_partial, size_t(4 * k * width) * sizeof(R)));
            make(panel, width, 0, k, j, j + count);
            serial(multiply(panel, width, j, count), 0, m, 0, 2 * count);
        }
    });
}

// to[j] += the sum over four rows of B, each times its factor.
template <class U> void add_four(U* __restrict to, const U* b0, const U* b1, const U* b2, const U* b3, const U x[4], int64_t n) {
    const U x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    for (int64_t j = 0; j < n; ++j) to[j] = U(to[j] + x0 * b0[j] + x1 * b1[j] + x2 * b2[j] + x3 * b3[j]);
}
template <class U> void add_one(U* __restrict to, const U* row, U x, int64_t n) {
    for (int64_t j = 0; j < n; ++j) to[j] = U(to[j] + x * row[j]);
}

// U is the unsigned type of the element's size: unsigned arithmetic wraps around as PyTorch's integers do.
template <class U> void integer_one(const GemmArgs& g) {
    const int64_t m = g.m, n = g.n, k = g.k, a_row = g.a_row, a_col = g.a_col;
    if (m <= 0 || n <= 0) return;
    const auto *a = static_cast<const U*>(g.a), *b = static_cast<const U*>(g.b);
    const auto* d = g.beta_integer == 0 ? nullptr : static_cast<const U*>(g.d);
    auto* c = static_cast<U*>(g.c);
    const U alpha = U(g.alpha_integer), beta = U(g.beta_integer);
    int64_t b_row = g.b_row;
    const bool copy = g.b_col != 1;
    Workspace work(copy ? Workspace::bytes_for<U>(k * n) : 64);
    if (copy) {
        U* rows = work.take<U>(k * n);
        gather(rows, b, k, n, g.b_row, g.b_col, [](U x) { return x; });
        b = rows, b_row = n;
    }
    parallel_for(m, most(1, 65536 / most(1, k * n)), [&](int64_t i0, int64_t i1) {
        for (int64_t i = i0; i < i1; ++i) {
            U* to = c + i * g.c_row;
            if (d)
                for (int64_t j = 0; j < n; ++j) to[j] = U(beta * d[i * g.d_row + j * g.d_col]);
            else std::memset(to, 0, size_t(n) * sizeof(U));
        }
        // Strips of B that stay in L1 serve all rows of A in turn.
        const int64_t strip = most(64, 4096 / int64_t(sizeof(U)));
        for (int64_t j = 0; j < n; j += strip) {
            const int64_t columns = least(strip, n - j);
            for (int64_t q = 0; q < k; q += 4)
                for (int64_t i = i0; i < i1; ++i) {
                    const U *left = a + i * a_row + q * a_col, *right = b + q * b_row + j;
                    U* to = c + i * g.c_row + j;
                    if (q + 4 <= k) {
                        const U x[4] = {U(alpha * left[0]), U(alpha * left[a_col]), U(alpha * left[2 * a_col]), U(alpha * left[3 * a_col])};
                        add_four(to, right, right + b_row, right + 2 * b_row, right + 3 * b_row, x, columns);
                    } else {
                        for (int64_t r = 0; r < k - q; ++r) add_one(to, right + r * b_row, U(alpha * left[r * a_col]), columns);
                    }
                }
        }
    });
}

// ---- dispatch -----------------------------------------------------------------------------------------------------

using One = void (*)(const GemmArgs&);
One one_of(DType dtype, bool alone) {  // `alone`: in one thread, of which others do the like
    switch (dtype) {
    case DType::f32: return &real_one<float>;
    case DType::f64: return &real_one<double>;
    case DType::bf16: return alone ? &reduced_one<bf16, true> : &reduced_one<bf16>;
    case DType::f16: return &reduced_one<f16>;
    case DType::c64: return &complex_one<float>;
    case DType::c128: return &complex_one<double>;
    case DType::u8:
    case DType::i8: return &integer_one<uint8_t>;
    case DType::i16: return &integer_one<uint16_t>;
    case DType::i32: return &integer_one<uint32_t>;
    case DType::i64: return &integer_one<uint64_t>;
    default: return nullptr;
    }
}

void matmul(DType dtype, const GemmArgs& g) {
    if (g.batch_dims == 0) {
        if (const One one = one_of(dtype, false)) one(g);
        return;
    }
    const int64_t size = item_size(dtype);
    int64_t total = 1;
    for (int t = 0; t < g.batch_dims; ++t) total *= g.batch_size[t];
    const double flops = 2. * double(g.m) * double(g.n) * double(most(1, g.k));
    // Large matrices keep all threads busy one after another; small ones go to the threads whole.
    const bool whole = flops < shared_flops && (total >= num_threads() || flops < thread_flops);
    const One one = one_of(dtype, whole);
    if (!one) return;
    auto run = [&](int64_t from, int64_t to) {
        GemmArgs matrix = g;
        matrix.batch_dims = 0;
        for (int64_t i = from; i < to; ++i) {
            int64_t rest = i, a = 0, b = 0, c = 0, d = 0;
            for (int t = g.batch_dims - 1; t >= 0; --t) {
                const int64_t at = rest % g.batch_size[t];
                rest /= g.batch_size[t];
                a += at * g.batch_a[t], b += at * g.batch_b[t], c += at * g.batch_c[t];
                if (g.d) d += at * g.batch_d[t];
            }
            matrix.a = static_cast<const char*>(g.a) + a * size;
            matrix.b = static_cast<const char*>(g.b) + b * size;
            matrix.c = static_cast<char*>(g.c) + c * size;
            if (g.d) matrix.d = static_cast<const char*>(g.d) + d * size;
            one(matrix);
        }
    };
    if (!whole) return run(0, total);
    parallel_for(total, most(1, int64_t(thread_flops / 2 / most(1, int64_t(flops)))), run);
}

}  // namespace

extern const GemmKernels gemm_table = {&matmul, &real_one<float>, nullptr};

}  // namespace wisp::cpu::WISP_ISA
