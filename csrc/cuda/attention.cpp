// Launches the kernels of attention: tiles of the tensor cores for half types and float, plain ones for double and what does not fit.
#include <algorithm>
#include <optional>

#include "../kernels/attention.h"
#include "../core/errors.h"
#include "attention.h"
#include "pointwise.h"
#include "random.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

// As kernels/attention_common.cuh has it.
struct Arguments {
    AttentionTensor query, key, value, out, grad, grad_query, grad_key, grad_value;
    void *logsumexp, *base_2, *product;
    const void* mask;
    int64_t mask_batch, mask_head, mask_row, mask_column;
    uint64_t seed, offset, keep_below;
    const void* moved;  // of a captured graph, or null
    double scale, keep_scale;
    int heads, share, queries, keys, width, value_width, causal, mask_is_bool, dropout;
    void *pieces, *piece_logsumexp;
    const void* kept;
    void* slopes;
    int slope_rows, slope_columns, first_head;
};

Arguments arguments_of(const AttentionArgs& a, const AttentionTensor& out, const void* logsumexp) {
    Arguments x{};
    x.query = a.query, x.key = a.key, x.value = a.value, x.out = out;
    x.logsumexp = const_cast<void*>(logsumexp);
    x.mask = a.mask, x.mask_is_bool = a.mask_is_bool;
    x.mask_batch = a.mask_batch, x.mask_head = a.mask_head, x.mask_row = a.mask_row, x.mask_column = a.mask_column;
    x.seed = a.stream.seed, x.offset = a.stream.offset, x.keep_below = a.keep_below, x.moved = capture_cell();
    x.scale = a.scale, x.keep_scale = a.keep_scale;
    x.heads = int(a.heads), x.share = int(a.heads / a.key_heads), x.queries = int(a.queries), x.keys = int(a.keys);
    x.width = int(a.width), x.value_width = int(a.value_width);
    x.causal = a.causal, x.dropout = a.dropout;
    return x;
}

// The heads that share keys, with a query each, are as many queries of one head: nothing counts elements differently.
bool heads_are_rows(const AttentionArgs& a) { return a.queries == 1 && !a.causal && a.heads > a.key_heads; }
AttentionTensor heads_as_rows(const AttentionTensor& t, int64_t share) {
    return {t.data, t.batch_stride, t.head_stride * share, t.head_stride};
}
AttentionArgs heads_as_rows(AttentionArgs a) {
    a.queries = a.heads / a.key_heads, a.heads = a.key_heads;
    a.query = heads_as_rows(a.query, a.queries);
    a.mask_row = a.mask_head, a.mask_head *= a.queries;
    return a;
}

enum Pass { forward_pass, queries_pass, keys_pass };
constexpr const char* names[] = {"attention_forward", "attention_backward_queries", "attention_backward_keys"};

constexpr int widths[] = {32, 64, 96, 128, 256};
int width_class(const AttentionArgs& a) {
    int i = 0;
    while (widths[i] < a.width || widths[i] < a.value_width) i++;
    return i;
}

// How a kernel of attention.cuh cuts its work.
struct TilePlan {
    int rows, columns, blocks;
    bool overlap;
    int halves = 1, ahead = 1;
    bool apart = false;  // a block over keys makes the gradients of keys or of values
};
TilePlan tile_plan(Pass pass, int width, bool is_float, bool wide, int general, bool few) {
    if (is_float) {
        if (width <= 64) return wide && pass == queries_pass ? TilePlan{128, 64, 1, false} : TilePlan{64, 32, wide ? 2 : 1, false};
        return wide && pass == forward_pass && !few ? TilePlan{128, 32, 1, false} : TilePlan{64, 32, 1, false};
    }
    const bool apart = width == 256 && pass == keys_pass;
    if (!wide) return {64, width <= 64 ? 64 : 32, 1, false, 1, 1, apart};
    if (width == 256) {
        if (pass == forward_pass) return few ? TilePlan{64, 64, 1, false} : TilePlan{128, general ? 32 : 64, 1, false};
        return {128, apart && general != 2 ? 64 : 32, 1, false, 1, 1, apart};
    }
    if (width <= 64) return {64, 64, general == 2 && pass == keys_pass ? 2 : 3, general != 2 && pass != keys_pass};
    if (general) return {64, 64, 2, false};
    if (pass == forward_pass) return few ? TilePlan{64, 64, 2, false, 1, 2} : TilePlan{128, 64, 2, false, 2};
    return pass == queries_pass ? TilePlan{128, 64, 1, true} : TilePlan{64, 64, 2, true};
}

unsigned tile_bytes(int rows, int width) { return unsigned((width + 63) / 64 * rows * 128); }
unsigned shared_bytes(Pass pass, const TilePlan& p, int width, bool is_float) {
    const int stages = p.ahead + (p.overlap && pass != keys_pass ? 2 : 1);
    const unsigned tiles =
        tile_bytes(p.rows, width) * (pass == forward_pass ? 1 : 2) + tile_bytes(p.columns, width) * (p.apart ? stages + 1 : 2 * stages);
    return tiles * (is_float ? 3 : 1) + (pass == keys_pass ? 8 * stages * p.columns + 512 : 0);
}
const char* text(bool b) { return b ? "true" : "false"; }
bool is_wide() { return device_info(current_device().index).major == 9; }

// Tiles begin with rows at multiples of 16 bytes.
bool is_aligned(const AttentionTensor& t) {
    return (uintptr_t(t.data) | uintptr_t((t.batch_stride | t.head_stride | t.row_stride) * 2)) % 16 == 0;
}
bool is_aligned(const Arguments& x) {
    for (const AttentionTensor* t : {&x.query, &x.key, &x.value, &x.out, &x.grad, &x.grad_query, &x.grad_key, &x.grad_value})
        if (!is_aligned(*t)) return false;
    return x.width % 8 == 0 && x.value_width % 8 == 0;
}

// Launches a kernel of forward of which `pieces` blocks share the keys, and joins their results.
void launch_pieces(const AttentionArgs& a, Arguments& x, Kernel* k, Grid grid, unsigned threads, unsigned shared, int64_t pieces) {
    if (pieces <= 1) return launch_with(k, grid, {threads}, shared, x);
    static Instances<4> join("cuda/kernels/attention_parts.cuh");
    const int type = a.dtype == DType::bf16 ? 0 : a.dtype == DType::f16 ? 1 : a.dtype == DType::f32 ? 2 : 3;
    const int64_t rows = a.batch * a.heads * a.queries, item = type == 3 ? 8 : 4;
    Scratch memory(size_t(pieces * rows * (a.value_width + 1) * item));
    x.pieces = memory.data(), x.piece_logsumexp = memory.as<char>() + pieces * rows * a.value_width * item;
    launch_with(k, {grid.x, grid.y, unsigned(pieces)}, {threads}, shared, x);
    launch_with(join(type, [&] { return str("attention_join<", type_text(a.dtype), ", ", type == 3 ? "double" : "float", ">"); }),
                {unsigned((rows + 3) / 4)}, {128}, 0, x, int(pieces), rows);
}

// If a forward pass has few blocks and many keys, the keys are cut too.
void launch_some(Pass pass, const AttentionArgs& a, Arguments& x, Kernel* k, Grid grid, unsigned threads, unsigned shared,
                 int blocks_at_once) {
    const int64_t room = int64_t(device_info(current_device().index).multiprocessors) * blocks_at_once / (int64_t(grid.x) * grid.y);
    const bool cut = pass == forward_pass && !a.causal && a.keys >= 512;
    launch_pieces(a, x, k, grid, threads, shared, cut ? std::min({a.keys / 64, room, int64_t(32)}) : 1);
}

// Whether attention_few.cuh can do it, where memory is all that counts.
bool is_few(const AttentionArgs& a, const Arguments& x) {
    return a.queries <= 16 && !a.causal && !a.dropout && item_size(a.dtype) == 2 && a.width <= 128 && a.value_width <= 128 && is_aligned(x);
}
void launch_few(const AttentionArgs& a, Arguments& x) {
    static Instances<2 * 2 * 2 * 3 * 4> instances("cuda/kernels/attention_few.cuh");
    const DeviceInfo& device = device_info(current_device().index);
    const bool wide = a.width > 64 || a.value_width > 64, tall = a.queries > 8;
    const int mask = !a.mask ? 0 : a.mask_is_bool ? 1 : 2;
    // As many blocks share a head's keys as fill the processors twice and have something to do: a cluster of them, unless one is too small
    // for few heads with very many keys.
    const int64_t heads = a.batch * a.heads, steps = (a.keys + 127) / 128;
    const int64_t blocks = std::clamp(device.multiprocessors * int64_t(2) / heads, int64_t(1), std::max(steps, int64_t(1)));
    int size = 0;  // of a cluster, to base 2
    if (device.major >= 9 && !(blocks > 16 && steps > 64))
        while (size < 3 && blocks >= 2 << size) size++;
    Kernel* k = instances((((a.dtype == DType::bf16) * 2 + wide) * 2 + tall) * 12 + mask * 4 + size, [&] {
        return str("attention_few<", type_text(a.dtype), ", ", wide ? 128 : 64, ", ", text(tall), ", ", mask, ", ", 1 << size, ">");
    });
    if (size) return launch_with(k, {unsigned(heads), 1, 1u << size}, {128}, 0, x);
    launch_pieces(a, x, k, {unsigned(heads)}, 128, 0, std::min(blocks, int64_t(32)));
}

// key_heads: of a launch for some of them, from x.first_head on.
void launch_tiles(Pass pass, const AttentionArgs& a, Arguments& x, int64_t key_heads = 0) {
    static Instances<3 * 3 * 5 * 24> instances("cuda/kernels/attention.cuh");
    const bool is_float = a.dtype == DType::f32, few = pass == forward_pass && a.queries <= 64;
    const int c = width_class(a), width = widths[c];
    const bool wide = is_wide(), aligned = is_float || is_aligned(x);
    const int general = a.mask || !(a.scale > 0) || !aligned || (a.dropout && !x.kept) ? 2 : a.dropout;
    const TilePlan p = tile_plan(pass, width, is_float, wide, general, few);
    const int type = is_float ? 2 : a.dtype == DType::bf16;
    Kernel* k = instances((((((pass * 3 + type) * 5 + c) * 2 + wide) * 3 + general) * 2 + aligned) * 2 + few, [&] {
        const std::string apart = pass == keys_pass ? str(text(p.apart), ", ") : std::string(),
                          halves = pass == forward_pass ? str(p.halves, ", ") : std::string(),
                          ahead = pass == forward_pass ? str(p.ahead, ", ") : std::string();
        return str(names[pass], "<", type_text(a.dtype), ", ", width, ", ", apart, p.rows, ", ", p.columns, ", ", halves, p.blocks, ", ",
                   ahead, text(p.overlap), ", ", text(wide), ", ", general, ", ", text(aligned), ">");
    });
    const int64_t rows = pass == keys_pass ? a.keys : a.queries,
                  heads = key_heads ? key_heads : a.batch * (pass == keys_pass ? a.key_heads : a.heads);
    const Grid grid{unsigned(heads), unsigned((rows + p.rows - 1) / p.rows), p.apart ? 2u : 1u};
    const unsigned shared = shared_bytes(pass, p, width, is_float);
    launch_some(pass, a, x, k, grid, unsigned(p.rows * 2 / p.halves), shared, p.blocks);
}

// What dropout keeps, a bit for each weight, where that is not too much: the passes would draw each number several times.
class KeptBits {
public:
    // drawn: the memory that forward was given has them.
    KeptBits(const AttentionArgs& a, Arguments& x, bool drawn) : bits_(a.kept ? 0 : bytes(a)) {
        if (bytes(a) == 0) return;
        x.kept = a.kept ? a.kept : bits_.data();
        if (drawn && a.kept) return;
        static Kernel* const kernel = find_kernel("cuda/kernels/attention_parts.cuh", "attention_kept");
        const int64_t blocks = (groups(a) * 16 + 255) / 256, most = int64_t(device_info(current_device().index).multiprocessors) * 32;
        launch_with(kernel, {unsigned(std::min(blocks, most))}, {256}, 0, x, x.kept, groups(a));
    }
    static size_t bytes(const AttentionArgs& a) {
        return a.dropout && groups(a) <= (int64_t(64) << 20) / 8 ? size_t(groups(a)) * 8 + 16 : 0;
    }

private:
    static int64_t groups(const AttentionArgs& a) { return (a.batch * a.heads * a.queries * a.keys + 63) / 64; }
    Scratch bits_;
};

// The gradients of the scores are made once instead of twice where a head is wide enough or dropout slow enough for that to be quicker,
// and there is memory to keep them in: of all heads, or of as many at a time as keep the processors busy.
int64_t slope_blocks(int64_t rows) { return (rows + 127) / 128 * 8; }
struct SlopePlan {
    int64_t key_heads = 0;  // at a time; 0: not at all
    size_t bytes = 0;
};
SlopePlan slope_plan(const AttentionArgs& a) {
    constexpr int64_t most = int64_t(256) << 20;
    if (item_size(a.dtype) != 2 || (width_class(a) <= 1 && !a.dropout)) return {};
    const int64_t all = a.batch * a.key_heads, share = a.heads / a.key_heads, blocks = (a.keys + 127) / 128;
    const int64_t each = share * slope_blocks(a.queries) * slope_blocks(a.keys) * 512, at_once = std::min(all, most / each);
    if (at_once < all && at_once * blocks < device_info(current_device().index).multiprocessors) return {};
    const int64_t launches = (all + at_once - 1) / at_once, key_heads = (all + launches - 1) / launches;
    return {key_heads, size_t(key_heads * each)};
}

void launch_products(const AttentionArgs& a, const Arguments& x) {
    static Instances<4> instances("cuda/kernels/attention_slopes.cuh");
    const bool aligned = is_aligned(x);
    const int64_t rows = a.batch * a.heads * a.queries;
    launch_with(instances((a.dtype == DType::bf16) * 2 + aligned,
                          [&] { return str("attention_products<", type_text(a.dtype), ", ", text(aligned), ">"); }),
                {unsigned((rows + 63) / 64)}, {256}, 0, x, rows);
}

void launch_slopes(const AttentionArgs& a, const Arguments& x, int64_t heads) {
    static Instances<2 * 5 * 8> instances("cuda/kernels/attention_slopes.cuh");
    const int c = width_class(a), width = widths[c], columns = 64;
    const bool wide = is_wide(), aligned = is_aligned(x), few = a.queries <= 64 || !wide;
    const int rows = few ? 64 : 128, blocks = width > 128 ? 1 : 2;
    Kernel* k = instances(((((a.dtype == DType::bf16) * 5 + c) * 2 + wide) * 2 + aligned) * 2 + few, [&] {
        return str("attention_queries_of_slopes<", type_text(a.dtype), ", ", width, ", ", rows, ", ", columns, ", ", blocks, ", ",
                   text(wide), ", ", text(aligned), ">");
    });
    launch_with(k, {unsigned(heads), unsigned((a.queries + rows - 1) / rows)}, {unsigned(rows * 2)},
                3 * (tile_bytes(columns, width) + unsigned(rows * columns * 2)), x);
}

// As kernels/attention_parts.cuh has it.
struct PartsArguments {
    AttentionTensor from[4];
    void* to[4];
    int heads[4], rows[4], width[4];
    uint32_t chunks[4];
};
// Bytes of the parts of a float tensor, and strides of where they lie.
int64_t parts_row(int64_t width) { return (width + 7) / 8 * 24; }
size_t parts_bytes(const AttentionArgs& a, int64_t heads, int64_t rows, int64_t width) {
    return size_t(a.batch * heads * rows * parts_row(width)) * 2;
}
AttentionTensor parts_at(void* data, int64_t heads, int64_t rows, int64_t width) {
    const int64_t row = parts_row(width);
    return {data, heads * rows * row, rows * row, row};
}

// Where the floats that tiles are made from are replaced by their parts, for the length of a pass over them.
class FloatParts {
public:
    FloatParts(const AttentionArgs& a, Arguments& x, bool backward)
        : query_(parts_bytes(a, a.heads, a.queries, a.width)),
          key_(parts_bytes(a, a.key_heads, a.keys, a.width)),
          value_(parts_bytes(a, a.key_heads, a.keys, a.value_width)),
          grad_(backward ? parts_bytes(a, a.heads, a.queries, a.value_width) : 0) {
        static Instances<1> split("cuda/kernels/attention_parts.cuh");
        PartsArguments p{};
        int count = 0;
        uint32_t most = 0;
        auto add = [&](AttentionTensor& t, const Scratch& to, int64_t heads, int64_t rows, int64_t width) {
            p.from[count] = t, p.to[count] = to.data();
            p.heads[count] = int(heads), p.rows[count] = int(rows), p.width[count] = int(width);
            p.chunks[count] = uint32_t(a.batch * heads * rows * ((width + 7) / 8));
            most = std::max(most, p.chunks[count++]);
            t = parts_at(to.data(), heads, rows, width);
        };
        add(x.query, query_, a.heads, a.queries, a.width);
        add(x.key, key_, a.key_heads, a.keys, a.width);
        add(x.value, value_, a.key_heads, a.keys, a.value_width);
        if (backward) add(x.grad, grad_, a.heads, a.queries, a.value_width);
        launch_with(split(0, [] { return std::string("attention_split"); }), {(most + 255) / 256, unsigned(count)}, {256}, 0, p);
    }

private:
    Scratch query_, key_, value_, grad_;
};

void launch_plain(Pass pass, const AttentionArgs& a, Arguments& x) {
    static Instances<3 * 2 * 5 * 2> instances("cuda/kernels/attention_plain.cuh");
    const bool few = pass == forward_pass && a.queries <= 32;
    const int c = width_class(a), width = widths[c], item = int(item_size(a.dtype)),
              tile = item == 4 && width <= 64 && !few ? 64
                     : width * item <= 512            ? 32
                                                      : 16;
    Kernel* k = instances(((pass * 2 + (item == 8)) * 5 + c) * 2 + few,
                          [&] { return str("plain_", names[pass], "<", type_text(a.dtype), ", ", width, ", ", tile, ">"); });
    const int pad = 16 / item, tiles = pass == forward_pass ? 3 : 4;
    const int64_t rows = pass == keys_pass ? a.keys : a.queries;
    launch_some(pass, a, x, k, {unsigned(a.batch * (pass == keys_pass ? a.key_heads : a.heads)), unsigned((rows + tile - 1) / tile)}, 256,
                unsigned((tiles * tile * (width + pad) + tile * (tile + pad)) * item), 4);
}

// Whether tensor cores multiply; else the plain kernels do. The parts of floats are worth their memory where rows meet many others.
bool has_tiles(const AttentionArgs& a, bool backward) {
    if (item_size(a.dtype) == 2) return true;
    const int width = widths[width_class(a)];
    if (a.dtype != DType::f32 || width > 128 || a.queries < 32) return false;
    const bool wide = is_wide();
    unsigned most = 0;
    for (Pass pass : {forward_pass, queries_pass, keys_pass})
        if (backward == (pass != forward_pass))
            most = std::max(most, shared_bytes(pass, tile_plan(pass, width, true, wide, 2, false), width, true));
    return int(most) <= device_info(current_device().index).shared_per_block;
}

void forward(const AttentionArgs& given, const AttentionTensor& given_out, void* logsumexp) {
    if (library_attention(given, given_out, logsumexp)) return;
    const bool rows = heads_are_rows(given);
    const AttentionArgs a = rows ? heads_as_rows(given) : given;
    Arguments x = arguments_of(a, rows ? heads_as_rows(given_out, a.queries) : given_out, logsumexp);
    if (is_few(a, x)) return launch_few(a, x);
    if (!has_tiles(a, false)) return launch_plain(forward_pass, a, x);
    const KeptBits kept(a, x, false);
    std::optional<FloatParts> parts;
    if (a.dtype == DType::f32) parts.emplace(a, x, false);
    launch_tiles(forward_pass, a, x);
}

void backward(const AttentionArgs& a, const AttentionTensor& grad, const AttentionTensor& out, const void* logsumexp,
              const AttentionTensor& grad_query, const AttentionTensor& grad_key, const AttentionTensor& grad_value,
              const AttentionMaskGradient& grad_mask) {
    if (grad_mask.data) throw MissingKernel("there is no kernel for the gradient of attn_mask on cuda");
    Arguments x = arguments_of(a, out, logsumexp);
    x.grad = grad, x.grad_query = grad_query, x.grad_key = grad_key, x.grad_value = grad_value;
    const size_t bytes = size_t(a.batch * a.heads * a.queries * (a.dtype == DType::f64 ? 8 : 4));
    const Scratch numbers(2 * bytes);
    x.base_2 = numbers.data(), x.product = numbers.as<char>() + bytes;
    const bool tiles = has_tiles(a, true);
    std::optional<KeptBits> kept;
    std::optional<FloatParts> parts;
    if (tiles) kept.emplace(a, x, true);
    if (tiles && a.dtype == DType::f32) parts.emplace(a, x, true);
    if (const SlopePlan plan = tiles ? slope_plan(a) : SlopePlan(); plan.key_heads) {
        const Scratch slopes(plan.bytes);
        x.slopes = slopes.data(), x.slope_rows = int(slope_blocks(a.queries)), x.slope_columns = int(slope_blocks(a.keys));
        launch_products(a, x);
        const int64_t share = a.heads / a.key_heads, all = a.batch * a.key_heads;
        for (int64_t first = 0; first < all; first += plan.key_heads) {
            const int64_t key_heads = std::min(plan.key_heads, all - first);
            x.first_head = int(first * share);
            launch_tiles(keys_pass, a, x, key_heads);
            launch_slopes(a, x, key_heads * share);
        }
        return;
    }
    for (Pass pass : {queries_pass, keys_pass})  // the first leaves the products for the second
        tiles ? launch_tiles(pass, a, x) : launch_plain(pass, a, x);
}

// Not more than the results take, so that memory stays linear in the length; where forward leaves bits, backward uses them.
size_t kept_bytes(const AttentionArgs& a) {
    const size_t results = size_t(a.batch * a.heads * a.queries * a.value_width * item_size(a.dtype));
    return has_tiles(a, false) && has_tiles(a, true) && KeptBits::bytes(a) <= results ? KeptBits::bytes(a) : 0;
}

bool reads_repeated(const AttentionArgs& a) { return !may_be_for_library(a); }

}  // namespace

// The widest tiles, the largest grid of the smallest ones, and masks that are counted along in 32 bits.
const AttentionKernels attention = {
    forward,    backward,      true, false, 256, 128, (1 << 20) - 1, (1 << 28) - 1, "ScaledDotProductFlashAttentionBackward0",
    kept_bytes, reads_repeated};

}  // namespace wisp::cuda
