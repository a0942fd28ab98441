// Launches the kernels of attention: tiles of the tensor cores for half types, plain ones for float and double.
#include "../core/errors.h"
#include "pointwise.h"
#include "random.h"
#include "runtime.h"
#include "tables.h"

namespace wisp::cuda {
namespace {

using cpu::AttentionArgs;
using cpu::AttentionTensor;

// As kernels/attention_common.cuh has it.
struct Arguments {
    AttentionTensor query, key, value, out, grad, grad_query, grad_key, grad_value;
    void *logsumexp, *product;
    const void* mask;
    int64_t mask_batch, mask_head, mask_row, mask_column;
    uint64_t seed, offset, keep_below;
    const void* moved;  // of a captured graph, or null
    double scale, keep_scale;
    int heads, share, queries, keys, width, value_width, causal, mask_is_bool, dropout, aligned;
};

bool is_aligned(const AttentionTensor& t) { return (uintptr_t(t.data) | uintptr_t((t.batch_stride | t.head_stride | t.row_stride) * 2)) % 16 == 0; }

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
    x.aligned = a.width % 8 == 0 && a.value_width % 8 == 0 && is_aligned(a.query) && is_aligned(a.key) && is_aligned(a.value) && is_aligned(out);
    return x;
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
struct Plan {
    int rows, columns, blocks;
    bool overlap;
    int slice = 0;  // columns of the gradients of keys and values that one block makes; 0: all
};
Plan plan(Pass pass, int width, bool wide, bool general) {
    if (wide) {
        if (width <= 64) return {64, 64, 3, !general && pass != keys_pass};
        if (general) return {64, pass == forward_pass ? 64 : 32, pass == keys_pass ? 1 : 2, false};
        if (pass == forward_pass) return {64, 64, 2, true};
        return pass == queries_pass ? Plan{128, 64, 1, true} : Plan{64, 32, 2, true};
    }
    return {64, width <= 64 ? 64 : 32, 1, false, width == 256 && pass == keys_pass ? 128 : 0};
}

unsigned tile_bytes(int rows, int width) { return unsigned((width + 63) / 64 * rows * 128); }
const char* text(bool b) { return b ? "true" : "false"; }

void launch_tiles(Pass pass, const AttentionArgs& a, const Arguments& x) {
    static Instances<3 * 2 * 5 * 4> instances("cuda/kernels/attention.cuh");
    const int c = width_class(a), width = widths[c];
    const bool wide = device_info(current_device().index).major == 9 && width <= 128, general = a.mask || a.dropout || !(a.scale > 0) || !x.aligned;
    const Plan p = plan(pass, width, wide, general);
    const int slice = p.slice ? p.slice : width;
    Kernel* k = instances((((pass * 2 + (a.dtype == DType::bf16)) * 5 + c) * 2 + wide) * 2 + general, [&] {
        const std::string sliced = pass == keys_pass ? str(slice, ", ") : std::string();
        return str(names[pass], "<", type_text(a.dtype), ", ", width, ", ", sliced, p.rows, ", ", p.columns, ", ", p.blocks, ", ", text(p.overlap), ", ", text(wide), ", ", text(general), ">");
    });
    const unsigned shared = tile_bytes(p.rows, width) * (pass == forward_pass ? 1 : 2) + tile_bytes(p.columns, width) * 6 + (pass == keys_pass ? 24 * p.columns : 0);
    const int64_t rows = pass == keys_pass ? a.keys : a.queries;
    launch_with(k, {unsigned(a.batch * (pass == keys_pass ? a.key_heads : a.heads)), unsigned((rows + p.rows - 1) / p.rows), unsigned(width / slice)}, {unsigned(p.rows * 2)}, shared, x);
}

void launch_plain(Pass pass, const AttentionArgs& a, const Arguments& x) {
    static Instances<3 * 2 * 5> instances("cuda/kernels/attention_plain.cuh");
    const int c = width_class(a), width = widths[c], item = int(item_size(a.dtype)), tile = item == 4 && width <= 64 ? 64 : width * item <= 512 ? 32 : 16;
    Kernel* k = instances((pass * 2 + (item == 8)) * 5 + c, [&] { return str("plain_", names[pass], "<", type_text(a.dtype), ", ", width, ", ", tile, ">"); });
    const int pad = 16 / item, tiles = pass == forward_pass ? 3 : 4;
    const int64_t rows = pass == keys_pass ? a.keys : a.queries;
    launch_with(k, {unsigned(a.batch * (pass == keys_pass ? a.key_heads : a.heads)), unsigned((rows + tile - 1) / tile)}, {256},
                unsigned((tiles * tile * (width + pad) + tile * (tile + pad)) * item), x);
}

void launch_pass(Pass pass, const AttentionArgs& a, const Arguments& x) {
    if (item_size(a.dtype) == 2) launch_tiles(pass, a, x);
    else launch_plain(pass, a, x);
}

void forward(const AttentionArgs& a, const AttentionTensor& out, void* logsumexp) { launch_pass(forward_pass, a, arguments_of(a, out, logsumexp)); }

void backward(const AttentionArgs& a, const AttentionTensor& grad, const AttentionTensor& out, const void* logsumexp, const AttentionTensor& grad_query,
              const AttentionTensor& grad_key, const AttentionTensor& grad_value, const cpu::AttentionMaskGradient& grad_mask) {
    if (grad_mask.data) throw MissingKernel("there is no kernel for the gradient of attn_mask on cuda");
    Arguments x = arguments_of(a, out, logsumexp);
    x.grad = grad, x.grad_query = grad_query, x.grad_key = grad_key, x.grad_value = grad_value;
    x.aligned = x.aligned && is_aligned(grad) && is_aligned(grad_query) && is_aligned(grad_key) && is_aligned(grad_value);
    Scratch product(size_t(a.batch * a.heads * a.queries * (a.dtype == DType::f64 ? 8 : 4)));
    x.product = product.data();
    launch_pass(queries_pass, a, x);  // leaves the products for the second pass
    launch_pass(keys_pass, a, x);
}

}  // namespace

const cpu::AttentionKernels attention = {forward, backward};

}  // namespace wisp::cuda
