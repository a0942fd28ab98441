// Products of bf16 matrices on processors with tiles (AMX), for gemm.cpp. Sums are float.
//
// One instruction multiplies 16 rows of 32 steps of k by 16 columns of them. Its left operand lies as a matrix does whose rows run
// along k, and is read in place; the right one lies in pairs of neighbouring steps, [pair][column], and is packed. So of a product and
// its transpose, Cᵀ = Bᵀ·Aᵀ, the one is computed that packs less. An element is summed step after step, whoever computes it.
#pragma once
#include "cpu/gemm_bf16.h"
#if defined(WISP_TILES)

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t amx_side = 32;                     // rows and columns of C at a time: two tiles by two
constexpr int64_t amx_depth = 32;                    // steps of k in a tile
constexpr int64_t amx_block = amx_side * amx_depth;  // elements of 32 lanes by 32 steps
constexpr int64_t amx_piece = 512;                   // steps that are summed at a time: 32 KB of the right operand stay in L1
constexpr int64_t amx_longest = 1024;                // k for which a block of C has whole rows and columns in L2
constexpr int64_t amx_rows_bytes = 256 << 10;        // of these rows
constexpr int64_t amx_columns_bytes = 1024 << 10;    // of these columns
constexpr int64_t amx_square = 16;                   // blocks of sums in a row or column of those that are in L2 else

// An operand: lanes are rows of the left one, columns of the right one.
struct AmxSide {
    const bf16* at;
    int64_t lanes, lane, step;  // how many; strides to the next lane and to the next step of k
    const bf16* element(int64_t l, int64_t q) const { return at + l * lane + q * step; }
    // What packing an element costs on either side.
    double left_cost() const { return step == 1 ? 0 : lane == 1 ? 2 : 8; }
    double right_cost() const { return lane == 1 ? 1 : step == 1 ? 1.5 : 8; }
};

// The transpose of 16 rows of 16 pairs, of which `columns` rows are wanted.
WISP_INLINE void turn_pairs(const uint16_t* from, int64_t row, uint32_t* to, int64_t columns) {
    turn_rows<float>([=](int i) __attribute__((always_inline)) { return reinterpret_cast<const float*>(from + i * row); }, 16, 16,
                     [&](int i, Register<float> v) __attribute__((always_inline)) {
                         if (i < columns) store(reinterpret_cast<float*>(to + 16 * i), v);
                     });
}

// Up to 32 lanes by 32 steps as [lane][step], zeros for the steps that are missing.
inline void pack_along(const bf16* from, int64_t lane, int64_t step, int64_t lanes, int64_t steps, uint16_t* to) {
    for (int64_t l = 0; l < lanes; ++l, from += lane, to += amx_depth)
        if (step == 1) {
            *(RegisterOf<uint16_t>::loose*)to = load_halves(&from->bits, steps);
        } else {
            for (int64_t q = 0; q < amx_depth; ++q) to[q] = q < steps ? from[q * step].bits : 0;
        }
}

// The same as [half of the lanes][pair of steps][16 lanes][2]; a second half only where there are more than 16 lanes.
inline void pack_across(const bf16* from, int64_t lane, int64_t step, int64_t lanes, int64_t steps, uint32_t* to) {
    if (lane == 1) {
        using Halves = Register<uint16_t>;
        for (int64_t q = 0; q < amx_depth; q += 2, from += 2 * step, to += 16) {
            __builtin_prefetch(from + amx_depth * step);  // the block of steps after this one
            __builtin_prefetch(from + (amx_depth + 1) * step);
            const Halves low = q < steps ? load_halves(&from->bits, lanes) : Halves{};
            const Halves high = q + 1 < steps ? load_halves(&from[step].bits, lanes) : Halves{};
            *(Halves*)to = first_pairs(low, high);
            if (lanes > 16) *(Halves*)(to + 256) = last_pairs(low, high);
        }
        return;
    }
    if (step == 1 && steps == amx_depth && lanes % 16 == 0) {
        for (int64_t l = 0; l < lanes; ++l) __builtin_prefetch(from + l * lane + 2 * amx_depth);  // two blocks ahead
        for (int64_t l = 0; l < lanes; l += 16, to += 256) turn_pairs(&from[l * lane].bits, lane, to, 16);
        return;
    }
    alignas(64) uint16_t rows[amx_block];
    pack_along(from, lane, step, lanes, steps, rows);
    if (lanes % 16 != 0) std::memset(rows + lanes * amx_depth, 0, size_t(16 - lanes % 16) * amx_depth * sizeof(uint16_t));
    for (int64_t l = 0; l < lanes; l += 16) turn_pairs(rows + l * amx_depth, amx_depth, to + l * 16, 16);
}

// [lane][step] of any operand.
inline void pack_rows(const AmxSide& x, int64_t l, int64_t q, int64_t lanes, int64_t steps, uint16_t* to) {
    if (x.lane != 1 || x.step == 1) return pack_along(x.element(l, q), x.lane, x.step, lanes, steps, to);
    alignas(64) uint32_t pairs[amx_block / 2];
    pack_across(x.element(l, q), 1, x.step, lanes, steps, pairs);
    const auto* const from = reinterpret_cast<const uint16_t*>(pairs);
    for (int64_t h = 0; h < lanes; h += 16)
        turn_pairs(from + h * amx_depth, amx_depth, reinterpret_cast<uint32_t*>(to + h * amx_depth), lanes - h);
}

// Rounds alpha * sums + beta * D to up to 32 rows and columns of C.
WISP_BF16_PAIRS inline void amx_round(const GemmArgs& g, const float* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const bool adds = g.d && g.beta != 0;
    const Register<float> alpha = splat<float>(float(g.alpha)), beta = splat<float>(float(g.beta));
    bf16* to = static_cast<bf16*>(g.c) + row * g.c_row + column;
    const bf16* from = static_cast<const bf16*>(g.d) + (adds ? row * g.d_row + column * g.d_col : 0);
    if (!adds && g.alpha == 1 && columns == amx_side) {
        for (int64_t i = 0; i < rows; ++i, to += g.c_row) {
            round_to_bf16(&to->bits, load(sums + i * amx_side));
            round_to_bf16(&to[16].bits, load(sums + i * amx_side + 16));
        }
        return;
    }
    alignas(64) uint16_t gathered[16];
    for (int64_t i = 0; i < rows; ++i, to += g.c_row, from += g.d_row)
        for (int64_t j = 0; j < columns; j += 16) {
            const int64_t count = least(16, columns - j);
            Register<float> x = alpha * load(sums + i * amx_side + j);
            if (adds) {
                const uint16_t* d = &from[j * g.d_col].bits;
                if (g.d_col != 1) {
                    for (int64_t c = 0; c < count; ++c) gathered[c] = from[(j + c) * g.d_col].bits;
                    d = gathered;
                }
                x += beta * load_bf16(d, count);
            }
            round_to_bf16(&to[j].bits, x, count);
        }
}

// Where a stack of rows of the left operand is: whole tiles of steps, then one of those that are left.
struct AmxRows {
    const void* at;
    int64_t row, step, count;  // bytes between rows and between tiles; tiles
    const void* rest;          // null: none
};

// Sums of up to 32 rows by 16 or 32 columns, added to those that are there. The same columns meet many rows, one stack after the other:
// they stay in the first cache, past which the rows go.
template <bool high, bool wide> __attribute__((noinline)) void amx_sums(const AmxRows& rows, const uint16_t* b, float* sums, bool add) {
    constexpr int64_t pitch = amx_side * sizeof(float);
    float* const lower = sums + 16 * amx_side;
    if (add) {
        load_tile<0>(sums, pitch);
        if (wide) load_tile<1>(sums + 16, pitch);
        if (high) load_tile<2>(lower, pitch);
        if (high && wide) load_tile<3>(lower + 16, pitch);
    } else {
        zero_tile<0>();
        if (wide) zero_tile<1>();
        if (high) zero_tile<2>();
        if (high && wide) zero_tile<3>();
    }
    auto step = [&](const char* a, int64_t row) __attribute__((always_inline)) {
        load_tile<6>(b, 64);
        load_tile_once<4>(a, row);
        multiply_tiles<0, 4, 6>();
        if (wide) load_tile<7>(b + 512, 64);
        if (wide) multiply_tiles<1, 4, 7>();
        if (high) load_tile_once<5>(a + 16 * row, row);
        if (high) multiply_tiles<2, 5, 6>();
        if (high && wide) multiply_tiles<3, 5, 7>();
        b += wide ? 1024 : 512;
    };
    const char* a = static_cast<const char*>(rows.at);
    for (int64_t q = 0; q < rows.count; ++q, a += rows.step) step(a, rows.row);
    if (rows.rest) step(static_cast<const char*>(rows.rest), amx_depth * sizeof(bf16));
    store_tile<0>(sums, pitch);
    if (wide) store_tile<1>(sums + 16, pitch);
    if (high) store_tile<2>(lower, pitch);
    if (high && wide) store_tile<3>(lower + 16, pitch);
}

// The shapes of the tiles for so many rows of the left operand.
class AmxShapes {
public:
    AmxShapes() = default;
    ~AmxShapes() { release_tiles(); }
    AmxShapes(const AmxShapes&) = delete;
    void set(int64_t rows) {
        if (rows == rows_) return;
        rows_ = rows;
        TileShapes shapes;
        for (int t = 0; t < 8; ++t) {
            const bool lower = t == 2 || t == 3 || t == 5;
            shapes.row_bytes[t] = 64;
            shapes.rows[t] = uint8_t(t >= 6 ? 16 : !lower ? least(rows, 16) : rows > 16 ? rows - 16 : 16);
        }
        configure_tiles(shapes);
    }

private:
    int64_t rows_ = 0;
};

class AmxProduct {
public:
    AmxProduct(const GemmArgs& g, int64_t threads)
        : g_(g), left_{static_cast<const bf16*>(g.a), g.m, g.a_row, g.a_col}, right_{static_cast<const bf16*>(g.b), g.n, g.b_col, g.b_row} {
        const double m = double(g.m), n = double(g.n), across = m * n / double(g.k);  // turned sums
        turned_ = n * right_.left_cost() + m * left_.right_cost() + across < m * left_.left_cost() + n * right_.right_cost();
        if (turned_) std::swap(left_, right_);
        piece_ = even(g.k, amx_piece);
        deep_ = divide_up(g.k, amx_depth) * amx_depth;
        stacks_ = divide_up(left_.lanes, amx_side);
        panels_ = divide_up(right_.lanes, amx_side);
        // L2 holds the rows of a block in full length and the columns of a share; where k is too long for that, a block's sums.
        const bool longer = deep_ > amx_longest;
        depth_ = longer ? piece_ : deep_;
        tall_ = longer ? amx_square : most(1, amx_rows_bytes / (2 * amx_side * deep_));
        wide_ = longer ? amx_square : most(1, amx_columns_bytes / (2 * amx_side * deep_));
        cut(threads);
    }
    // Elements of the operands that are packed beforehand.
    int64_t left_size() const { return left_before_ ? stacks_ * amx_side * deep_ : 0; }
    int64_t right_size() const { return right_before_ ? panels_ * amx_side * deep_ : 0; }

    void run(uint16_t* left, uint16_t* right) {
        packed_left_ = left, packed_right_ = right;
        const bool together = row_cuts_ * column_cuts_ > 1;
        auto pack_left = [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) pack_stack(i, 0, g_.k, left + i * amx_side * deep_);
        };
        auto pack_right = [&](int64_t begin, int64_t end) {
            pack_panels(begin, end, 0, g_.k, right + begin * amx_side * deep_, amx_side * deep_);
        };
        if (left_before_) parallel_for(stacks_, together ? 1 : stacks_, pack_left);
        if (right_before_) parallel_for(panels_, together ? 1 : panels_, pack_right);
        auto body = [&](int64_t at) {
            const int64_t r = at / column_cuts_, s = at % column_cuts_;
            share(stacks_ * r / row_cuts_, stacks_ * (r + 1) / row_cuts_, panels_ * s / column_cuts_, panels_ * (s + 1) / column_cuts_);
        };
        run_parallel(row_cuts_ * column_cuts_, body);
    }

private:
    // How long a part of k is: about equally long, whole tiles.
    static int64_t even(int64_t k, int64_t longest) { return divide_up(divide_up(k, divide_up(k, longest)), amx_depth) * amx_depth; }

    // Shares of rows by columns that take least time, each packing what it needs; but an operand is packed beforehand where shares would
    // do so again and again. Nanoseconds as measured: what matters is their proportions.
    void cut(int64_t threads) {
        const double k = double(g_.k), line = 0.067 * k, right = 0.15 * k, multiply = 6e-4 * k * amx_side;
        const double left = left_.step == 1 ? line : 0.2 * k;
        auto time_of = [&](int64_t stacks, int64_t panels, bool before) {
            const double rows = double(stacks * amx_side);
            return rows * (before ? line : left) + double(panels) * (amx_side * right + rows * multiply);
        };
        const double all = time_of(stacks_, panels_, false);
        int64_t wanted = most(1, least(threads, int64_t(all / 4000)));
        if (threads > 1 && all > 3e6 * double(threads)) wanted = 4 * threads;  // a thread that is late costs less
        double shortest = 0;
        for (int64_t r = 1; r <= least(wanted, stacks_); ++r) {
            const int64_t s = least(panels_, divide_up(wanted, r)), panels = divide_up(panels_, s);
            const bool before = left_.step != 1 && (s > 1 || panels > wide_);
            const double beforehand = before ? 1.5 * double(left_.lanes) * left / double(wanted) : 0;
            const double time = time_of(divide_up(stacks_, r), panels, before) + beforehand;
            if (r > 1 && time >= shortest) continue;
            shortest = time, row_cuts_ = r, column_cuts_ = s, left_before_ = before,
            right_before_ = (depth_ < deep_ && divide_up(stacks_, r) > tall_) || r > 4;
        }
    }

    // Stacks [i0, i1) by panels [j0, j1), a block of C after the other.
    void share(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
        const int64_t k = g_.k, tall = least(i1 - i0, tall_), wide = least(j1 - j0, wide_);
        const int64_t panel = amx_side * (right_before_ ? deep_ : depth_);
        // Rows that begin anywhere in a line of the cache are two lines to a tile.
        const bool aligned = left_.lane % amx_depth == 0 && reinterpret_cast<uintptr_t>(left_.at) % 64 == 0;
        const bool copies = !left_before_ && (left_.step != 1 || ((!aligned || depth_ < deep_) && j1 - j0 >= 2));
        const bool rests = !left_before_ && !copies && k % amx_depth != 0;
        const bool one_pass = depth_ >= k, one_piece = piece_ >= k;
        const int64_t left_size = copies ? tall * amx_side * depth_ : rests ? (i1 - i0) * amx_block : 0;
        auto* const a = left_size == 0 ? nullptr : static_cast<uint16_t*>(scratch(slot_a, size_t(left_size) * sizeof(bf16)));
        auto* const here = right_before_ ? nullptr : static_cast<uint16_t*>(scratch(slot_b, size_t(wide * panel) * sizeof(bf16)));
        const int64_t blocks = one_piece ? 1 : one_pass ? tall : tall * wide;
        auto* const sums = static_cast<float*>(scratch(slot_partial, size_t(blocks * amx_block) * sizeof(float)));
        if (rests)
            for (int64_t i = i0; i < i1; ++i)
                pack_rows(left_, i * amx_side, k / amx_depth * amx_depth, rows_of(i), k % amx_depth, a + (i - i0) * amx_block);
        AmxShapes shapes;
        for (int64_t jb = j0; jb < j1; jb += wide)
            for (int64_t ib = i0; ib < i1; ib += tall)
                for (int64_t q = 0; q < k; q += depth_) {
                    const int64_t ie = least(ib + tall, i1), je = least(jb + wide, j1), steps = least(depth_, k - q);
                    if (here && ib == i0) pack_panels(jb, je, q, steps, here, panel);
                    if (copies)
                        for (int64_t i = ib; i < ie; ++i) pack_stack(i, q, steps, a + (i - ib) * amx_side * depth_);
                    for (int64_t j = jb; j < je; ++j)
                        for (int64_t s = 0; s < steps; s += piece_) {
                            const int64_t columns = columns_of(j), deep = least(piece_, steps - s);
                            const uint16_t* const right = (here ? here + (j - jb) * panel : packed_right_ + j * panel) +
                                                          (here ? s : q + s) * (columns > 16 ? 32 : 16);
                            for (int64_t i = ib; i < ie; ++i) {
                                const int64_t rows = rows_of(i);
                                float* const sum = sums + (one_piece ? 0 : one_pass ? i - ib : (i - ib) * wide + j - jb) * amx_block;
                                const AmxRows left = copies ? side_by_side(a + (i - ib) * amx_side * depth_ + s * amx_side, deep)
                                                            : left_rows(i, q + s, deep, rests ? a + (i - i0) * amx_block : nullptr);
                                shapes.set(rows);
                                sum_of(rows > 16, columns > 16)(left, right, sum, q + s > 0);
                                if (q + s + deep >= k) finish(sum, i * amx_side, rows, j * amx_side, columns);
                            }
                        }
                }
    }
    int64_t columns_of(int64_t panel) const { return least(amx_side, right_.lanes - panel * amx_side); }
    int64_t rows_of(int64_t stack) const { return least(amx_side, left_.lanes - stack * amx_side); }
    static auto sum_of(bool high, bool wide) -> decltype(&amx_sums<true, true>) {
        return high ? wide ? amx_sums<true, true> : amx_sums<true, false> : wide ? amx_sums<false, true> : amx_sums<false, false>;
    }
    // Steps [from_k, from_k + steps) of panels [from, to).
    void pack_panels(int64_t from, int64_t to, int64_t from_k, int64_t steps, uint16_t* out, int64_t panel) const {
        if (right_.lane != 1) {
            for (int64_t j = from; j < to; ++j, out += panel)
                for (int64_t q = 0; q < steps; q += amx_depth)
                    pack_across(right_.element(j * amx_side, from_k + q), right_.lane, right_.step, columns_of(j),
                                least(amx_depth, steps - q), reinterpret_cast<uint32_t*>(out + q * (columns_of(j) > 16 ? 32 : 16)));
            return;
        }
        // Two lines of all panels at a time: memory brings what comes next.
        using Halves = Register<uint16_t>;
        for (int64_t q = 0; q < divide_up(steps, amx_depth) * amx_depth; q += 2) {
            const bf16* const low = right_.element(0, from_k + q);
            for (int64_t j = from; j < to; ++j) {
                const int64_t column = j * amx_side, columns = columns_of(j);
                const Halves x = q < steps ? load_halves(&low[column].bits, columns) : Halves{};
                const Halves y = q + 1 < steps ? load_halves(&low[column + right_.step].bits, columns) : Halves{};
                const int64_t tile = q / amx_depth * amx_depth;
                uint16_t* const at = out + (j - from) * panel + tile * (columns > 16 ? 32 : 16) + (q - tile) * 16;
                *(Halves*)at = first_pairs(x, y);
                if (columns > 16) *(Halves*)(at + 512) = last_pairs(x, y);
            }
        }
    }
    void pack_stack(int64_t stack, int64_t q, int64_t steps, uint16_t* to) const {
        const int64_t rows = rows_of(stack);
        if (left_.step == 1)  // each row at once: memory brings what comes next
            for (int64_t r = 0; r < rows; ++r) {
                const bf16* const from = left_.element(stack * amx_side + r, q);
                for (int64_t s = 0; s < steps; s += amx_depth)
                    *(Register<uint16_t>*)(to + s * amx_side + r * amx_depth) = load_halves(&from[s].bits, steps - s);
            }
        else
            for (int64_t s = 0; s < steps; s += amx_depth, to += amx_block)
                pack_rows(left_, stack * amx_side, q + s, rows, least(amx_depth, steps - s), to);
    }
    static AmxRows side_by_side(const uint16_t* at, int64_t steps) {
        return {at, amx_depth * int64_t(sizeof(bf16)), amx_block * int64_t(sizeof(bf16)), divide_up(steps, amx_depth), nullptr};
    }
    AmxRows left_rows(int64_t stack, int64_t q, int64_t steps, const uint16_t* rest) const {
        constexpr int64_t bytes = sizeof(bf16);
        if (left_before_) return side_by_side(packed_left_ + stack * amx_side * deep_ + q * amx_side, steps);
        return {left_.element(stack * amx_side, q), left_.lane * bytes, amx_depth * bytes, steps / amx_depth,
                steps % amx_depth != 0 ? rest : nullptr};
    }
    // Sums become elements of C.
    void finish(const float* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) const {
        if (!turned_) return amx_round(g_, sums, row, rows, column, columns);
        alignas(64) float across[amx_block];
        for (int64_t c = 0; c < columns; c += 16)
            for (int64_t r = 0; r < rows; r += 16)
                turn_block<float>(sums + r * amx_side + c, amx_side, 16, 16, [&](int i, Register<float> v) __attribute__((always_inline)) {
                    store(across + (c + i) * amx_side + r, v);
                });
        amx_round(g_, across, column, columns, row, rows);
    }

    const GemmArgs& g_;
    AmxSide left_, right_;
    bool turned_, left_before_ = false, right_before_ = false;
    int64_t piece_, depth_, deep_;  // steps that are summed at a time, before others of C's block, and in all
    int64_t stacks_, panels_, tall_, wide_, row_cuts_ = 1, column_cuts_ = 1;
    uint16_t *packed_left_ = nullptr, *packed_right_ = nullptr;
};

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
#endif
