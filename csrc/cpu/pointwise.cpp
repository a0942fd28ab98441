// The pointwise driver: brings operands of any layout and dtype into contiguous blocks of a kernel's type and the
// result out again; contiguous operands of the right type are used where they lie.
#include <cstring>

#include "core/errors.h"
#include "core/merged.h"
#include "core/threads.h"
#include "kernels/copy.h"
#include "kernels/pointwise_call.h"

namespace wisp::cpu {
namespace {

constexpr int64_t block_length = 1024;  // elements: a few kilobytes per operand, within L1
constexpr int64_t direct_block = 16384;
constexpr int64_t flat_unit = 1024;  // so that threads end together, and each begins on a cache line
constexpr int64_t tile = 2048;       // elements of a repeated row's copies
constexpr int64_t grain = 32768;     // elements below which threads don't pay
constexpr int max_operands = 6;

void fill_block(char* to, const char* value, int64_t item, int64_t n) {
    if (item == 1) return void(std::memset(to, *value, size_t(n)));
    const size_t bytes = size_t(item * n);
    std::memcpy(to, value, std::min(bytes, size_t(item)));
    for (size_t done = size_t(item); done < bytes; done *= 2) std::memcpy(to + done, to, std::min(done, bytes - done));
}

enum Mode : uint8_t { absent, direct, constant, gathered };

struct BlockPlan {
    PointwiseKernel kernel;
    const PointwiseOperand* operands;
    int count;
    const Param* params;
    MergedDims<max_operands> dims;       // strides in bytes; the innermost is `inner`
    int outer;                           // dimensions without the innermost
    int64_t inner, pieces, piece;        // inner length, how many pieces it is cut into, their length
    int64_t inner_stride[max_operands];  // in elements
    DType block[max_operands];           // what the kernel reads or writes
    Mode mode[max_operands];
    bool everywhere[max_operands];  // one value for the whole tensor
    unsigned constants;             // operands that the kernel reads as one number
    int64_t tile_rows;              // rows that run_tiles takes at a time
};

// Operands that the expression lacks are given as the first: the kernel's reads of them are dead, but must be valid.
void fill_absent(const BlockPlan& p, char** pointers) {
    for (int k = 2; k < max_operands; k++)
        if (k >= p.count || p.mode[k] == absent) pointers[k] = pointers[1];
}

void convert_one(char* to, const BlockPlan& p, int k, const char* from) {
    const DType dtype = p.operands[k].dtype;
    if (dtype == p.block[k]) std::memcpy(to, from, size_t(item_size(dtype)));
    else cpu::copy.convert(to, p.block[k], from, dtype, 1);
}

// The usual broadcast: rows of contiguous elements, or a number per row.
void run_rows(const BlockPlan& p, int64_t begin, int64_t end) {
    char* row[max_operands];
    int64_t step[max_operands];
    for (int k = 0; k < p.count; k++) {
        step[k] = p.outer ? p.dims.strides[k][0] : 0;
        row[k] = p.operands[k].data + begin * step[k];
    }
    for (int64_t r = begin; r < end; r++) {
        fill_absent(p, row);
        p.kernel(row, p.inner, p.params, p.constants);
        for (int k = 0; k < p.count; k++) row[k] += step[k];
    }
}

// No broadcast but of numbers: each thread calls the kernel on all of its stretch.
void run_flat(const BlockPlan& p, int64_t begin, int64_t end) {
    const int64_t first = begin * flat_unit;
    char* pointers[max_operands];
    for (int k = 0; k < p.count; k++) {
        const int64_t step = p.mode[k] == direct ? item_size(p.operands[k].dtype) : 0;
        pointers[k] = p.operands[k].data + first * step;
    }
    fill_absent(p, pointers);
    p.kernel(pointers, std::min(end * flat_unit, p.inner) - first, p.params, p.constants);
}

// One row against many (a bias): the repeated row is laid out several times, so that the kernel runs over long stretches
// of the others, which then begin on cache lines even where a row does not end on one. A unit is a tile of rows.
void run_tiles(const BlockPlan& p, int64_t begin, int64_t end) {
    alignas(64) char buffers[max_operands - 1][tile * 8];
    char* pointers[max_operands];
    const int64_t rows = p.dims.sizes[0];
    for (int k = 1; k < p.count; k++)
        if (p.mode[k] != absent && p.dims.strides[k][0] == 0) {
            const size_t bytes = size_t(p.inner * item_size(p.operands[k].dtype));
            for (int64_t r = 0; r < p.tile_rows; r++) std::memcpy(buffers[k - 1] + size_t(r) * bytes, p.operands[k].data, bytes);
        }
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * p.tile_rows, n = std::min(p.tile_rows, rows - first) * p.inner;
        for (int k = 0; k < p.count; k++) {
            const int64_t step = p.dims.strides[k][0];
            pointers[k] = step ? p.operands[k].data + first * step : buffers[k - 1];
        }
        fill_absent(p, pointers);
        p.kernel(pointers, n, p.params, 0);
    }
}

// Runs units [begin, end); a unit is one piece of one row.
void run_units(const BlockPlan& p, int64_t begin, int64_t end) {
    alignas(64) char buffers[max_operands][block_length * 16];
    int64_t index[p.dims.most];
    char* row[max_operands];
    const int dims = p.outer;
    const auto& strides = p.dims.strides;
    int64_t r = begin / p.pieces, piece = begin % p.pieces;
    for (int k = 0; k < p.count; k++) row[k] = p.operands[k].data;
    for (int64_t d = dims - 1, rest = r; d >= 0; d--) {
        index[d] = rest % p.dims.sizes[d];
        rest /= p.dims.sizes[d];
        for (int k = 0; k < p.count; k++) row[k] += index[d] * strides[k][d];
    }
    const int64_t longest = std::min(p.piece, p.inner);
    for (int k = 1; k < p.count; k++)
        if (p.everywhere[k]) {
            alignas(16) char value[16];
            convert_one(value, p, k, p.operands[k].data);
            fill_block(buffers[k], value, item_size(p.block[k]), p.constants & (1u << k) ? 1 : longest);
        }
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t at = piece * p.piece, n = std::min(p.piece, p.inner - at);
        char* pointers[max_operands];
        for (int k = 0; k < p.count; k++) {
            if (p.mode[k] == absent) continue;
            const DType dtype = p.operands[k].dtype, block = p.block[k];
            char* data = row[k] + at * p.inner_stride[k] * item_size(dtype);
            if (p.mode[k] == direct) {
                pointers[k] = data;
                continue;
            }
            pointers[k] = buffers[k];
            if (k == 0 || p.everywhere[k]) continue;
            if (p.constants & (1u << k)) {
                convert_one(buffers[k], p, k, data);
            } else if (p.mode[k] == constant) {
                alignas(16) char value[16];
                convert_one(value, p, k, data);
                fill_block(buffers[k], value, item_size(block), n);
            } else if (dtype == block) {
                cpu::copy.gather_block(buffers[k], data, p.inner_stride[k], item_size(dtype), n);
            } else if (p.inner_stride[k] == 1) {
                cpu::copy.convert(buffers[k], block, data, dtype, n);
            } else {
                alignas(64) char narrow[block_length * 16];
                cpu::copy.gather_block(narrow, data, p.inner_stride[k], item_size(dtype), n);
                cpu::copy.convert(buffers[k], block, narrow, dtype, n);
            }
        }
        fill_absent(p, pointers);
        p.kernel(pointers, n, p.params, p.constants);
        if (p.mode[0] != direct) {
            const DType dtype = p.operands[0].dtype, block = p.block[0];
            char* data = row[0] + at * p.inner_stride[0] * item_size(dtype);
            if (dtype == block) {
                cpu::copy.scatter_block(data, p.inner_stride[0], buffers[0], item_size(dtype), n);
            } else if (p.inner_stride[0] == 1) {
                cpu::copy.convert(data, dtype, buffers[0], block, n);
            } else {
                alignas(64) char narrow[block_length * 16];
                cpu::copy.convert(narrow, dtype, buffers[0], block, n);
                cpu::copy.scatter_block(data, p.inner_stride[0], narrow, item_size(dtype), n);
            }
        }
        if (++piece == p.pieces) {
            piece = 0;
            for (int64_t d = dims - 1; d >= 0; d--) {
                for (int k = 0; k < p.count; k++) row[k] += strides[k][d];
                if (++index[d] < p.dims.sizes[d]) break;
                for (int k = 0; k < p.count; k++) row[k] -= strides[k][d] * p.dims.sizes[d];
                index[d] = 0;
            }
        }
    }
}

// Where operands lie transposed, a band of rows at a time: squares of them are turned into blocks, so that each of their lines is
// read once. A unit is a band.
constexpr int64_t band_rows = 32, band_columns = 128;
bool is_transposed(const BlockPlan& p, int k) {
    const int64_t item = item_size(p.operands[k].dtype);
    return k > 0 && p.mode[k] == gathered && p.operands[k].dtype == p.block[k] && item <= 8 && p.dims.strides[k][p.outer - 1] == item;
}
void run_bands(const BlockPlan& p, int64_t begin, int64_t end) {
    alignas(64) char buffers[max_operands - 1][band_rows * band_columns * 8];
    const int last = p.outer - 1;
    const int64_t all_rows = p.dims.sizes[last], bands = (all_rows + band_rows - 1) / band_rows;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % bands * band_rows, rows = std::min(band_rows, all_rows - first);
        char* corner[max_operands];
        for (int k = 0; k < p.count; k++) corner[k] = p.operands[k].data + first * p.dims.strides[k][last];
        for (int64_t d = last - 1, rest = unit / bands; d >= 0; rest /= p.dims.sizes[d], d--)
            for (int k = 0; k < p.count; k++) corner[k] += rest % p.dims.sizes[d] * p.dims.strides[k][d];
        for (int64_t at = 0; at < p.inner; at += band_columns) {
            const int64_t n = std::min(band_columns, p.inner - at);
            char* pointers[max_operands];
            int64_t step[max_operands];
            for (int k = 0; k < p.count; k++) {
                if (p.mode[k] == absent) continue;
                const DType dtype = p.operands[k].dtype;
                const int64_t item = item_size(dtype), turned[] = {n, 1}, from[] = {1, p.inner_stride[k]}, sizes[] = {rows, n};
                pointers[k] = corner[k] + at * p.inner_stride[k] * item;
                step[k] = p.dims.strides[k][last];
                if (p.mode[k] != gathered) continue;
                cpu::copy.copy(buffers[k - 1], dtype, turned, pointers[k], dtype, from, sizes, 2, false);
                pointers[k] = buffers[k - 1];
                step[k] = n * item;
            }
            for (int64_t r = 0; r < rows; r++) {
                fill_absent(p, pointers);
                p.kernel(pointers, n, p.params, p.constants);
                for (int k = 0; k < p.count; k++)
                    if (p.mode[k] != absent) pointers[k] += step[k];
            }
        }
    }
}

// p: with the kernel, the operands and their blocks. constants: whether the kernel takes one constant operand in place.
void run_blocks(BlockPlan& p, const Dims& sizes, int64_t numel, bool constants) {
    const PointwiseOperand* operands = p.operands;
    const int count = p.count;
    if (std::count_if(sizes.begin(), sizes.end(), [](int64_t n) { return n != 1; }) > p.dims.most)  // those of one element need no loop
        throw RuntimeError("tensors of more than 64 dimensions are not supported, got ", sizes.size());
    p.dims.add_sorted(
        sizes.data(), int(sizes.size()), [&](int k, int d) { return operands[k].strides ? operands[k].strides[d] : 0; }, count);
    p.dims.at_least_one(count);
    p.outer = p.dims.ndim - 1;
    p.inner = p.dims.sizes[p.outer];
    bool all_direct = true;
    for (int k = 0; k < count; k++) {
        const bool same = operands[k].dtype == p.block[k];
        const int64_t s = p.inner_stride[k] = p.dims.strides[k][p.outer];
        Mode mode = same && (s == 1 || p.inner == 1) ? direct : s == 0 && k > 0 ? constant : gathered;
        if (!operands[k].data) mode = absent;
        p.everywhere[k] = mode == constant;
        const int64_t item = item_size(operands[k].dtype);
        for (int d = 0; d < p.outer; d++) p.everywhere[k] &= p.dims.strides[k][d] == 0, p.dims.strides[k][d] *= item;
        p.mode[k] = mode;
        all_direct &= mode <= direct;
    }
    int64_t rows = 1;
    for (int d = 0; d < p.outer; d++) rows *= p.dims.sizes[d];
    p.constants = constants && p.mode[1] == constant ? 2 : constants && p.mode[2] == constant ? 4 : 0;
    const auto used_as_is = [&](int k) {
        return p.mode[k] <= direct || (p.mode[k] == constant && (p.constants & (1u << k)) && operands[k].dtype == p.block[k]);
    };
    bool in_place = true, bands = p.outer > 0 && p.inner >= 16;  // in place: nothing goes through a block
    for (int k = 0; k < count; k++) {
        in_place &= used_as_is(k);
        bands = bands && (used_as_is(k) || is_transposed(p, k));
    }
    bands &= !in_place;
    p.piece = in_place ? direct_block : block_length;
    p.pieces = (p.inner + p.piece - 1) / p.piece;
    if (p.pieces == 1) p.piece = p.inner;
    const bool plain = in_place && (p.outer == 0 || (p.pieces == 1 && p.outer == 1));
    if (plain && p.outer == 0) {
        parallel_for((p.inner + flat_unit - 1) / flat_unit, grain / flat_unit, [&](int64_t b, int64_t e) { run_flat(p, b, e); });
        return;
    }
    bool tiles = p.outer == 1 && all_direct && rows > 1 && 2 * p.inner <= tile;
    for (int k = 0; tiles && k < count; k++) {
        const int64_t item = item_size(operands[k].dtype), step = p.dims.strides[k][0];
        tiles = item <= 8 && (step == p.inner * item || (k > 0 && step == 0));
    }
    p.tile_rows = tiles ? std::min(rows, tile / p.inner) : 1;
    if (tiles && p.tile_rows * p.inner % 16 && p.tile_rows >= 16) p.tile_rows -= p.tile_rows % 16;
    int64_t units = tiles ? (rows + p.tile_rows - 1) / p.tile_rows : rows * p.pieces;
    if (bands) {
        const int64_t height = p.dims.sizes[p.outer - 1];
        units = rows / height * ((height + band_rows - 1) / band_rows);
        p.tile_rows = band_rows, p.piece = p.inner;
    }
    const auto run = tiles ? run_tiles : plain ? run_rows : bands ? run_bands : run_units;
    if (numel <= grain) {
        run(p, 0, units);
        return;
    }
    parallel_for(units, std::max<int64_t>(1, grain / (p.piece * p.tile_rows)), [&](int64_t b, int64_t e) { run(p, b, e); });
}

// Bits of contiguous operands of one type, whatever it is, are combined as 64-bit words.
bool run_words(Pointwise op, const PointwiseOperand* operands, int count, const Dims& sizes, int64_t numel) {
    if (op != Pointwise::bitwise_and && op != Pointwise::bitwise_or && op != Pointwise::bitwise_xor && op != Pointwise::bitwise_not)
        return false;
    const DType dtype = operands[0].dtype;
    const int64_t item = item_size(dtype), bytes = numel * item, words = bytes / 8;
    if (dtype == DType::boolean || item == 8) return false;
    for (int k = 0; k < count; k++) {
        if (operands[k].dtype != dtype || !operands[k].strides) return false;
        for (int64_t d = sizes.size() - 1, step = 1; d >= 0; step *= sizes[d], d--)
            if (sizes[d] != 1 && operands[k].strides[d] != step) return false;
    }
    const PointwiseKernel kernel = pointwise_row(op).forward[compute_u64];
    parallel_for(words, 4096, [&](int64_t begin, int64_t end) {
        char* pointers[max_operands];
        for (int k = 0; k < max_operands; k++) pointers[k] = operands[k < count ? k : 1].data + begin * 8;
        kernel(pointers, end - begin, nullptr, 0);
    });
    if (const size_t rest = size_t(bytes - words * 8)) {
        uint64_t last[max_operands] = {};
        char* pointers[max_operands];
        for (int k = 0; k < max_operands; k++) {
            pointers[k] = reinterpret_cast<char*>(&last[k]);
            if (k > 0) std::memcpy(&last[k], operands[k < count ? k : 1].data + words * 8, rest);
        }
        kernel(pointers, 1, nullptr, 0);
        std::memcpy(operands[0].data + words * 8, &last[0], rest);
    }
    return true;
}

void row(Pointwise op, int which, DType compute, DType result, const PointwiseOperand* operands, int count, const Dims& sizes,
         int64_t numel, const Param* params) {
    const PointwiseKernelRow& kernels = pointwise_row(op);
    const Compute type = compute_index(compute);
    if (type >= compute_i64 && run_words(op, operands, count, sizes, numel)) return;
    BlockPlan p;
    p.kernel = which ? kernels.gradient[which - 1][type] : kernels.forward[type];
    p.operands = operands;
    p.params = params;
    while (!operands[count - 1].data) count--;
    p.count = count;
    p.block[0] = result;
    for (int k = 1; k < count; k++) p.block[k] = compute;
    run_blocks(p, sizes, numel, !which && takes_constants(count - 1, compute));
}

void where(DType, const PointwiseOperand* operands, const Dims& sizes, int64_t numel) {
    const DType d = operands[0].dtype;
    BlockPlan p;
    p.kernel = pointwise_binary.where[__builtin_ctz(unsigned(item_size(d)))];
    p.operands = operands;
    p.params = nullptr;
    p.count = 4;
    p.block[0] = p.block[2] = p.block[3] = d;
    p.block[1] = operands[1].dtype == DType::u8 ? DType::u8 : DType::boolean;
    run_blocks(p, sizes, numel, false);
}

const PointwiseKernels table = {row, where};

}  // namespace

const PointwiseKernels& pointwise = table;

}  // namespace wisp::cpu
