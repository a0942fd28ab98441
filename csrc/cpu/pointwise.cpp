// The pointwise driver: brings operands of any layout and dtype into contiguous blocks of a kernel's type and the
// result out again; contiguous operands of the right type are used where they lie.
#include <cstring>

#include "core/errors.h"
#include "core/threads.h"
#include "kernels/copy.h"
#include "kernels/pointwise_call.h"

namespace wisp::cpu {
namespace {

struct BlockOperand {
    char* data;
    DType dtype;             // in memory
    DType block;             // that the kernel reads or writes
    const int64_t* strides;  // of the result's shape, 0 where broadcast
};

constexpr int64_t block = 1024;  // elements: a few kilobytes per operand, within L1
constexpr int64_t direct_block = 16384;
constexpr int64_t tile = 2048;    // elements of a repeated row's copies
constexpr int64_t grain = 32768;  // elements below which threads don't pay
constexpr int max_operands = 6, max_dims = 64;

void fill_block(char* to, const char* value, int64_t item, int64_t n) {
    switch (item) {
    case 1: std::memset(to, *value, size_t(n)); break;
    case 2:
        for (int64_t i = 0; i < n; i++) std::memcpy(to + 2 * i, value, 2);
        break;
    case 4: {
        uint32_t v;
        std::memcpy(&v, value, 4);
        auto* p = reinterpret_cast<uint32_t*>(to);
        for (int64_t i = 0; i < n; i++) p[i] = v;
        break;
    }
    case 8: {
        uint64_t v;
        std::memcpy(&v, value, 8);
        auto* p = reinterpret_cast<uint64_t*>(to);
        for (int64_t i = 0; i < n; i++) p[i] = v;
        break;
    }
    default:
        for (int64_t i = 0; i < n; i++) std::memcpy(to + 16 * i, value, 16);
    }
}

enum Mode : uint8_t { direct, constant, gathered };

struct BlockPlan {
    PointwiseKernel kernel;
    const BlockOperand* operands;
    int count;
    const Param* params;
    int dims;  // collapsed, without the inner one
    int64_t shape[max_dims];
    int64_t strides[max_operands][max_dims];  // in bytes
    int64_t inner, pieces, piece;             // inner length, how many pieces it is cut into, their length
    int64_t inner_stride[max_operands];       // in elements
    Mode mode[max_operands];
    bool everywhere[max_operands];  // one value for the whole tensor
    unsigned constants;             // operands that the kernel reads as one number
    int64_t tile_rows;              // rows that run_tiles takes at a time
};

// The usual broadcast: rows of contiguous elements, or a number per row.
void run_rows(const BlockPlan& p, int64_t begin, int64_t end) {
    char* row[max_operands];
    int64_t step[max_operands];
    for (int k = 0; k < p.count; k++) {
        step[k] = p.dims ? p.strides[k][0] : 0;
        row[k] = p.operands[k].data + begin * step[k];
    }
    for (int k = p.count; k < max_operands; k++) row[k] = nullptr, step[k] = 0;
    for (int64_t r = begin; r < end; r++) {
        p.kernel(row, p.inner, p.params, p.constants);
        for (int k = 0; k < p.count; k++) row[k] += step[k];
    }
}

// One row against many (a bias): the repeated row is laid out several times, so that the kernel runs over long stretches
// of the others, which then begin on cache lines even where a row does not end on one. A unit is a tile of rows.
void run_tiles(const BlockPlan& p, int64_t begin, int64_t end) {
    alignas(64) char buffers[max_operands - 1][tile * 8];
    char* pointers[max_operands] = {};
    const int64_t rows = p.shape[0];
    for (int k = 1; k < p.count; k++)
        if (p.strides[k][0] == 0) {
            const size_t bytes = size_t(p.inner * item_size(p.operands[k].dtype));
            for (int64_t r = 0; r < p.tile_rows; r++) std::memcpy(buffers[k - 1] + size_t(r) * bytes, p.operands[k].data, bytes);
        }
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * p.tile_rows, n = std::min(p.tile_rows, rows - first) * p.inner;
        for (int k = 0; k < p.count; k++) pointers[k] = p.strides[k][0] ? p.operands[k].data + first * p.strides[k][0] : buffers[k - 1];
        for (int k = p.count; k < max_operands; k++) pointers[k] = pointers[1];
        p.kernel(pointers, n, p.params, 0);
    }
}

// Runs units [begin, end); a unit is one piece of one row.
void run_units(const BlockPlan& p, int64_t begin, int64_t end) {
    alignas(64) char buffers[max_operands][block * 16];
    int64_t index[max_dims];
    char* row[max_operands];
    const int dims = p.dims;
    int64_t r = begin / p.pieces, piece = begin % p.pieces;
    for (int k = 0; k < p.count; k++) row[k] = p.operands[k].data;
    for (int64_t d = dims - 1, rest = r; d >= 0 && dims; d--) {
        index[d] = rest % p.shape[d];
        rest /= p.shape[d];
        for (int k = 0; k < p.count; k++) row[k] += index[d] * p.strides[k][d];
    }
    const int64_t longest = std::min(p.piece, p.inner);
    for (int k = 1; k < p.count; k++)
        if (p.everywhere[k]) {
            const BlockOperand& o = p.operands[k];
            alignas(16) char value[16];
            cpu::copy.convert(value, o.block, o.data, o.dtype, 1);
            fill_block(buffers[k], value, item_size(o.block), p.constants & (1u << k) ? 1 : longest);
        }
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t at = piece * p.piece, n = std::min(p.piece, p.inner - at);
        char* pointers[max_operands];
        for (int k = 0; k < p.count; k++) {
            const BlockOperand& o = p.operands[k];
            char* data = row[k] + at * p.inner_stride[k] * item_size(o.dtype);
            if (p.mode[k] == direct) {
                pointers[k] = data;
                continue;
            }
            pointers[k] = buffers[k];
            if (k == 0 || p.everywhere[k]) continue;
            if (p.constants & (1u << k)) {
                cpu::copy.convert(buffers[k], o.block, data, o.dtype, 1);
            } else if (p.mode[k] == constant) {
                alignas(16) char value[16];
                cpu::copy.convert(value, o.block, data, o.dtype, 1);
                fill_block(buffers[k], value, item_size(o.block), n);
            } else if (o.dtype == o.block) {
                cpu::copy.gather_block(buffers[k], data, p.inner_stride[k], item_size(o.dtype), n);
            } else if (p.inner_stride[k] == 1) {
                cpu::copy.convert(buffers[k], o.block, data, o.dtype, n);
            } else {
                alignas(64) char narrow[block * 16];
                cpu::copy.gather_block(narrow, data, p.inner_stride[k], item_size(o.dtype), n);
                cpu::copy.convert(buffers[k], o.block, narrow, o.dtype, n);
            }
        }
        for (int k = p.count; k < max_operands; k++) pointers[k] = pointers[1];
        p.kernel(pointers, n, p.params, p.constants);
        if (p.mode[0] != direct) {
            const BlockOperand& o = p.operands[0];
            char* data = row[0] + at * p.inner_stride[0] * item_size(o.dtype);
            if (o.dtype == o.block) {
                cpu::copy.scatter_block(data, p.inner_stride[0], buffers[0], item_size(o.dtype), n);
            } else if (p.inner_stride[0] == 1) {
                cpu::copy.convert(data, o.dtype, buffers[0], o.block, n);
            } else {
                alignas(64) char narrow[block * 16];
                cpu::copy.convert(narrow, o.dtype, buffers[0], o.block, n);
                cpu::copy.scatter_block(data, p.inner_stride[0], narrow, item_size(o.dtype), n);
            }
        }
        if (++piece == p.pieces) {
            piece = 0;
            for (int64_t d = dims - 1; d >= 0; d--) {
                for (int k = 0; k < p.count; k++) row[k] += p.strides[k][d];
                if (++index[d] < p.shape[d]) break;
                for (int k = 0; k < p.count; k++) row[k] -= p.strides[k][d] * p.shape[d];
                index[d] = 0;
            }
        }
    }
}

// constants: whether the kernel takes one constant operand in place.
void run_blocks(PointwiseKernel kernel, const BlockOperand* operands, int count, const Dims& sizes, int64_t numel, const Param* params,
                bool constants) {
    BlockPlan p;
    p.kernel = kernel;
    p.operands = operands;
    p.count = count;
    p.params = params;

    // Dimensions by falling stride of the result, then neighbours merged where every operand allows it.
    int order[max_dims];
    int n = 0;
    if (sizes.size() > max_dims) throw RuntimeError("tensors of more than 64 dimensions are not supported, got ", sizes.size());
    for (int64_t d = 0; d < sizes.size(); d++)
        if (sizes[d] > 1) order[n++] = int(d);
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && operands[0].strides[order[j - 1]] < operands[0].strides[order[j]]; j--) std::swap(order[j - 1], order[j]);
    int dims = 0;
    int64_t shape[max_dims], strides[max_operands][max_dims];
    for (int i = 0; i < n; i++) {
        const int d = order[i];
        bool merge = dims > 0;
        for (int k = 0; merge && k < count; k++) merge = strides[k][dims - 1] == operands[k].strides[d] * sizes[d];
        if (!merge) shape[dims++] = 1;
        shape[dims - 1] *= sizes[d];
        for (int k = 0; k < count; k++) strides[k][dims - 1] = operands[k].strides[d];
    }
    p.inner = dims ? shape[dims - 1] : 1;
    p.dims = std::max(dims - 1, 0);
    bool all_direct = true;
    for (int k = 0; k < count; k++) {
        const int64_t s = dims ? strides[k][dims - 1] : 1;
        p.inner_stride[k] = s;
        p.mode[k] = s == 1 && operands[k].dtype == operands[k].block ? direct : s == 0 ? constant : gathered;
        if (p.inner == 1 && operands[k].dtype == operands[k].block) p.mode[k] = direct;
        if (k == 0 && p.mode[0] == constant) p.mode[0] = gathered;
        p.everywhere[k] = p.mode[k] == constant;
        for (int d = 0; d < p.dims; d++) {
            if (strides[k][d] != 0) p.everywhere[k] = false;
            p.strides[k][d] = strides[k][d] * item_size(operands[k].dtype);
        }
        all_direct &= p.mode[k] == direct;
    }
    int64_t rows = 1;
    for (int d = 0; d < p.dims; d++) {
        p.shape[d] = shape[d];
        rows *= shape[d];
    }
    p.piece = all_direct ? direct_block : block;
    p.pieces = (p.inner + p.piece - 1) / p.piece;
    if (p.pieces == 1) p.piece = p.inner;
    p.constants = constants && p.mode[1] == constant ? 2 : constants && p.mode[2] == constant ? 4 : 0;
    bool plain = p.pieces == 1 && p.dims <= 1;
    for (int k = 0; plain && k < count; k++)
        plain = p.mode[k] == direct || (p.mode[k] == constant && (p.constants & (1u << k)) && operands[k].dtype == operands[k].block);
    bool tiles = p.dims == 1 && all_direct && rows > 1 && 2 * p.inner <= tile;
    for (int k = 0; tiles && k < count; k++) {
        const int64_t item = item_size(operands[k].dtype);
        tiles = item <= 8 && (p.strides[k][0] == p.inner * item || (k > 0 && p.strides[k][0] == 0));
    }
    p.tile_rows = tiles ? std::min(rows, tile / p.inner) : 1;
    if (tiles && p.tile_rows * p.inner % 16 && p.tile_rows >= 16) p.tile_rows -= p.tile_rows % 16;
    const int64_t units = tiles ? (rows + p.tile_rows - 1) / p.tile_rows : rows * p.pieces;
    const auto run = tiles ? run_tiles : plain ? run_rows : run_units;
    if (numel <= grain) {
        run(p, 0, units);
        return;
    }
    parallel_for(units, std::max<int64_t>(1, grain / (p.piece * p.tile_rows)), [&](int64_t b, int64_t e) { run(p, b, e); });
}

constexpr int64_t nowhere[max_dims] = {};  // strides of a number

BlockOperand block_of(const PointwiseOperand& o, DType compute, DType block) {
    if (o.number) return {static_cast<char*>(const_cast<void*>(o.number)), compute, block, nowhere};
    return {o.data, o.dtype, block, o.strides};
}

void row(Pointwise op, int which, DType compute, DType result, const PointwiseOperand* operands, int count, const Dims& sizes,
         int64_t numel, const Param* params) {
    BlockOperand blocks[max_operands];
    // What is not there is given as the first operand: the kernel's reads of it are dead, but must be valid.
    for (int k = 0; k < count; k++)
        blocks[k] = operands[k].data || operands[k].number ? block_of(operands[k], compute, k ? compute : result) : blocks[1];
    const PointwiseKernelRow& kernels = pointwise_row(op);
    const Compute type = compute_index(compute);
    run_blocks(which ? kernels.gradient[which - 1][type] : kernels.forward[type], blocks, count, sizes, numel, params,
               !which && takes_constants(count - 1, compute));
}

void where(DType compute, const PointwiseOperand* operands, const Dims& sizes, int64_t numel) {
    const DType d = operands[0].dtype;
    BlockOperand blocks[4];
    for (int k = 0; k < 4; k++) blocks[k] = block_of(operands[k], compute, k == 1 ? DType::boolean : d);
    blocks[1].dtype = DType::boolean;
    run_blocks(pointwise_binary.where[__builtin_ctz(unsigned(item_size(d)))], blocks, 4, sizes, numel, nullptr, false);
}

const PointwiseKernels table = {row, where};

}  // namespace

const PointwiseKernels& pointwise = table;

}  // namespace wisp::cpu
