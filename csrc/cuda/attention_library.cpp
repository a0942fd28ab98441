// Attention by cuDNN, where it is quicker than kernels of ours: half precision on sm_90, all keys for all queries, or, of wide heads,
// keys up to the query's own.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "../kernels/attention.h"
#include "../core/device.h"
#include "attention.h"
#include "conv.h"
#include "cudnn.h"
#include "plan_key.h"

namespace wisp::cuda {
namespace {

struct Key {
    int64_t batch, heads, key_heads, queries, keys, width;
    int64_t strides[4][3];
    int32_t dtype, device, with_sums, causal;
};

enum Place { in_memory, by_value, inside };  // by_value: a number of the host; inside: exists between operations only
struct Layout {
    int64_t sizes[4], strides[4];  // batch, heads, rows, columns
};
Handle tensor(int64_t name, int type, const Layout& l, Place place = in_memory) {
    const int64_t alignment = place == by_value ? 4 : 16;
    const bool yes = true;
    return describe(tensor_kind, {{901, type_dtype, 1, &type},
                                  {902, type_integer, 4, l.sizes},
                                  {903, type_integer, 4, l.strides},
                                  {906, type_integer, 1, &name},
                                  {900, type_integer, 1, &alignment},
                                  {907, type_boolean, place == inside, &yes},
                                  {908, type_boolean, place == by_value, &yes}});
}

enum Name : int64_t { query_name = 1, key_name, value_name, out_name, scale_name, lowest_name, sums_name, inside_name };
constexpr int float_type = 0, integer_type = 4, boolean_type = 11;

Layout layout_of(const Key& k, int which) {
    const int64_t* s = k.strides[which];
    const bool of_keys = which == 1 || which == 2;
    return {{k.batch, of_keys ? k.key_heads : k.heads, of_keys ? k.keys : k.queries, k.width}, {s[0], s[1], s[2], 1}};
}
Layout layout_of_rows(const Key& k, int64_t columns) {
    return {{k.batch, k.heads, k.queries, columns}, {k.heads * k.queries * columns, k.queries * columns, columns, 1}};
}
constexpr Layout one_number = {{1, 1, 1, 1}, {1, 1, 1, 1}};

// One operation for all.
std::vector<Handle> whole_operation(const Key& k) {
    const int type = data_type(DType(k.dtype));
    const Handle query = tensor(query_name, type, layout_of(k, 0)), key = tensor(key_name, type, layout_of(k, 1)),
                 value = tensor(value_name, type, layout_of(k, 2)), out = tensor(out_name, type, layout_of(k, 3)),
                 scale = tensor(scale_name, float_type, one_number, by_value), sums = tensor(sums_name, float_type, layout_of_rows(k, 1));
    return {describe(attention_kind, {{2800, type_descriptor, 1, &query},
                                      {2801, type_descriptor, 1, &key},
                                      {2802, type_descriptor, 1, &value},
                                      {2803, type_descriptor, 1, &out},
                                      {2804, type_descriptor, k.with_sums, &sums},
                                      {2805, type_descriptor, 1, &scale}})};
}

// That one knows no mask in the versions that are in use; an engine recognises the formula in these operations.
class Formula {
public:
    explicit Formula(const Key& k) : k_(k) {
        const int type = data_type(DType(k.dtype));
        Layout turned = layout_of(k, 1);
        std::swap(turned.sizes[2], turned.sizes[3]);
        std::swap(turned.strides[2], turned.strides[3]);
        const Handle query = tensor(query_name, type, layout_of(k, 0)), key = tensor(key_name, type, turned),
                     value = tensor(value_name, type, layout_of(k, 2)), out = tensor(out_name, type, layout_of(k, 3)),
                     scale = tensor(scale_name, float_type, one_number, by_value),
                     lowest = tensor(lowest_name, float_type, one_number, by_value);
        const Handle product = scores(), scaled = scores(), row = scores(integer_type), column = scores(integer_type),
                     seen = scores(boolean_type), masked = scores(), top = number(), less = scores(), grown = scores(), total = number(),
                     logarithm = number(), weights = scores(type),
                     sums = k.with_sums ? tensor(sums_name, float_type, layout_of_rows(k, 1)) : number();
        multiply(query, key, product);
        pointwise(1, product, scaled, scale);
        pointwise(gen_index, scaled, row, nullptr, nullptr, 2);
        pointwise(gen_index, scaled, column, nullptr, nullptr, 3);
        pointwise(303, row, seen, column, nullptr, -1, boolean_type);  // row >= column
        pointwise(601, scaled, masked, lowest, seen);
        reduce(3, masked, top);
        pointwise(9, masked, less, top);
        pointwise(13, less, grown);
        reduce(0, grown, total);
        pointwise(15, total, logarithm);
        pointwise(0, top, sums, logarithm);
        pointwise(6, grown, weights, total);
        multiply(weights, value, out);
    }
    std::vector<Handle> operations;

private:
    static constexpr int gen_index = 501;
    Handle scores(int type = float_type) { return tensor(name_++, type, layout_of_rows(k_, k_.keys), inside); }
    Handle number() { return tensor(name_++, float_type, layout_of_rows(k_, 1), inside); }
    void multiply(Handle a, Handle b, Handle c) {
        const Handle how = describe(product_kind, {{1500, type_dtype, 1, &float_type}});
        operations.push_back(describe(product_operation_kind, {{1523, type_descriptor, 1, &how},
                                                               {1520, type_descriptor, 1, &a},
                                                               {1521, type_descriptor, 1, &b},
                                                               {1522, type_descriptor, 1, &c}}));
    }
    void pointwise(int mode, Handle x, Handle y, Handle b = nullptr, Handle chosen_by = nullptr, int64_t axis = -1, int type = float_type) {
        const Handle how =
            describe(pointwise_kind, {{0, type_pointwise, 1, &mode}, {1, type_dtype, 1, &type}, {9, type_integer, axis >= 0, &axis}});
        operations.push_back(describe(pointwise_operation_kind, {{750, type_descriptor, 1, &how},
                                                                 {751, type_descriptor, 1, &x},
                                                                 {752, type_descriptor, b != nullptr, &b},
                                                                 {758, type_descriptor, chosen_by != nullptr, &chosen_by},
                                                                 {753, type_descriptor, 1, &y}}));
    }
    void reduce(int mode, Handle x, Handle y) {
        const Handle how = describe(reduction_kind, {{1600, type_reduction, 1, &mode}, {1601, type_dtype, 1, &float_type}});
        operations.push_back(describe(reduction_operation_kind,
                                      {{1612, type_descriptor, 1, &how}, {1610, type_descriptor, 1, &x}, {1611, type_descriptor, 1, &y}}));
    }
    const Key& k_;
    int64_t name_ = inside_name;
};

EnginePlan make_plan(const Key& k, Handle cudnn_handle) {
    const std::vector<Handle> operations = k.causal ? Formula(k).operations : whole_operation(k);
    for (Handle h : operations)
        if (!h) return {};
    const Handle graph =
        describe(graph_kind, {{800, type_handle, 1, &cudnn_handle}, {801, type_descriptor, int64_t(operations.size()), operations.data()}});
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

bool may_be_for_library(const AttentionArgs& a) {
    static const bool there = cudnn_version() > 0;
    return there && item_size(a.dtype) == 2 && !a.mask && !(a.causal && a.width <= 128) && !a.dropout && a.scale > 0 &&
           a.width == a.value_width && a.width >= 64 && a.width % 8 == 0 && a.queries >= 512 && a.keys >= 512 &&
           device_info(current_device().index).major == 9;
}

bool library_attention(const AttentionArgs& a, const AttentionTensor& out, void* logsumexp) {
    if (a.forward_only) logsumexp = nullptr;
    if (!may_be_for_library(a)) return false;
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
    k.causal = a.causal;
    static std::unordered_map<Key, EnginePlan, HashBytes<Key>, SameBytes<Key>> plans;
    auto it = plans.find(k);
    if (it == plans.end()) {
        if (is_captured()) return false;
        it = plans.emplace(k, make_plan(k, cudnn_handle_of(k.device))).first;
    }
    if (!it->second.plan) return false;
    const float scale = float(a.scale);
    const float lowest = cudnn_version() < 91000 ? std::numeric_limits<float>::lowest() : -INFINITY;
    int64_t names[7] = {query_name, key_name, value_name, out_name, scale_name};
    const void* pointers[7] = {a.query.data, a.key.data, a.value.data, out.data, &scale};
    int count = 5;
    if (a.causal) names[count] = lowest_name, pointers[count++] = &lowest;
    if (logsumexp) names[count] = sums_name, pointers[count++] = logsumexp;
    Timed timed("cuDNN attention");
    execute(it->second, cudnn_handle_of(k.device), names, pointers, count);
    return true;
}

}  // namespace wisp::cuda
