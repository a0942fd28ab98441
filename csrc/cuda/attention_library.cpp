// Attention by cuDNN, where it is quicker than kernels of ours: half precision on sm_90, all keys for all queries.
#include <cstring>
#include <unordered_map>

#include "../kernels/attention.h"
#include "../core/device.h"
#include "attention.h"
#include "conv.h"
#include "cudnn.h"
#include "plan_key.h"
#include "pointwise.h"

namespace wisp::cuda {
namespace {

struct Key {
    int64_t batch, heads, key_heads, queries, keys, width;
    int64_t strides[4][3];
    int32_t dtype, device, with_sums, unused;
};

// [batch, heads, rows, columns]; by_value: a number of the host.
Handle tensor(int64_t name, DType d, int64_t batch, int64_t heads, int64_t rows, int64_t columns, const int64_t* strides, bool by_value) {
    const int64_t sizes[4] = {batch, heads, rows, columns}, steps[4] = {strides[0], strides[1], strides[2], 1},
                  alignment = by_value ? 4 : 16;
    const int type = data_type(d);
    return describe(tensor_kind, {{901, type_dtype, 1, &type},
                                  {902, type_integer, 4, sizes},
                                  {903, type_integer, 4, steps},
                                  {906, type_integer, 1, &name},
                                  {900, type_integer, 1, &alignment},
                                  {908, type_boolean, by_value ? 1 : 0, &by_value}});
}

enum Name : int64_t { query_name = 1, key_name, value_name, out_name, scale_name, sums_name };

EnginePlan make_plan(const Key& k, Handle cudnn_handle) {
    const DType d = DType(k.dtype);
    const int64_t ones[3] = {1, 1, 1}, sums_strides[3] = {k.heads * k.queries, k.queries, 1};
    const Handle query = tensor(query_name, d, k.batch, k.heads, k.queries, k.width, k.strides[0], false),
                 key = tensor(key_name, d, k.batch, k.key_heads, k.keys, k.width, k.strides[1], false),
                 value = tensor(value_name, d, k.batch, k.key_heads, k.keys, k.width, k.strides[2], false),
                 out = tensor(out_name, d, k.batch, k.heads, k.queries, k.width, k.strides[3], false),
                 scale = tensor(scale_name, DType::f32, 1, 1, 1, 1, ones, true),
                 sums = tensor(sums_name, DType::f32, k.batch, k.heads, k.queries, 1, sums_strides, false);
    for (Handle h : {query, key, value, out, scale, sums})
        if (!h) return {};
    const Handle operation = describe(attention_kind, {{2800, type_descriptor, 1, &query},
                                                       {2801, type_descriptor, 1, &key},
                                                       {2802, type_descriptor, 1, &value},
                                                       {2803, type_descriptor, 1, &out},
                                                       {2804, type_descriptor, k.with_sums, &sums},
                                                       {2805, type_descriptor, 1, &scale}});
    if (!operation) return {};
    const Handle graph = describe(graph_kind, {{800, type_handle, 1, &cudnn_handle}, {801, type_descriptor, 1, &operation}});
    if (!graph) return {};
    for (Handle configuration : configurations_of(graph, best_mode)) {
        bool same_bits = true;
        for (int note : notes_of(configuration)) same_bits = same_bits && note != nondeterministic;
        if (!same_bits) continue;
        if (const EnginePlan p = plan_of(configuration, cudnn_handle); p.plan) return p;
    }
    return {};
}

}  // namespace

bool library_attention(const AttentionArgs& a, const AttentionTensor& out, void* logsumexp) {
    if (a.forward_only) logsumexp = nullptr;
    static const bool there = cudnn_version() > 0;
    if (!there || item_size(a.dtype) != 2 || a.mask || a.causal || a.dropout || !(a.scale > 0) || a.width != a.value_width ||
        a.width < 64 || a.width % 8 || a.queries < 512 || a.keys < 512 || device_info(current_device().index).major != 9)
        return false;
    Key k{};
    k.batch = a.batch, k.heads = a.heads, k.key_heads = a.key_heads, k.queries = a.queries, k.keys = a.keys, k.width = a.width;
    const AttentionTensor* all[4] = {&a.query, &a.key, &a.value, &out};
    for (int i = 0; i < 4; i++) {
        k.strides[i][0] = all[i]->batch_stride, k.strides[i][1] = all[i]->head_stride, k.strides[i][2] = all[i]->row_stride;
        for (int64_t stride : k.strides[i])
            if (stride % 8 || stride <= 0) return false;
        if (uintptr_t(all[i]->data) % 16) return false;
    }
    k.dtype = int32_t(a.dtype), k.device = current_device().index, k.with_sums = logsumexp != nullptr;
    static std::unordered_map<Key, EnginePlan, HashBytes<Key>, SameBytes<Key>> plans;
    auto it = plans.find(k);
    if (it == plans.end()) {
        if (is_captured()) return false;
        it = plans.emplace(k, make_plan(k, cudnn_handle_of(k.device))).first;
    }
    if (!it->second.plan) return false;
    const float scale = float(a.scale);
    const int64_t names[] = {query_name, key_name, value_name, out_name, scale_name, sums_name};
    const void* const pointers[] = {a.query.data, a.key.data, a.value.data, out.data, &scale, logsumexp};
    {
        Timed timed("cuDNN attention");
        execute(it->second, cudnn_handle_of(k.device), names, pointers, logsumexp ? 6 : 5);
    }
    if (logsumexp) {  // ours are logarithms to the base 2
        const int64_t n = a.batch * a.heads * a.queries, step = 1;
        alignas(16) char number[16] = {};
        const float to_base_2 = 1.44269504f;
        std::memcpy(number, &to_base_2, 4);
        const Operand sums{static_cast<char*>(logsumexp), DType::f32, &step, nullptr};
        const Operand operands[3] = {sums, sums, {nullptr, DType::f32, nullptr, number}};
        elementwise(Pointwise::mul, which_forward, DType::f32, operands, 3, Dims(&n, 1), nullptr);
    }
    return true;
}

}  // namespace wisp::cuda
