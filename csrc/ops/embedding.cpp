// Front doors of embedding and embedding_bag.
#include "../kernels/embedding.h"

#include "../autograd/told.h"
#include "../kernels/index.h"
#include "../python/registry.h"
#include "fused.h"

namespace wisp {
namespace {

Tensor checked_indices(const Tensor& index, int64_t rows, bool bag = false) {
    if (index.dtype() != DType::i64 && index.dtype() != DType::i32)
        throw RuntimeError("Expected tensor for argument #1 'indices' to have one of the following scalar types: ", "Long, Int; but got ",
                           type_name(index.dtype()), "Tensor instead (while checking arguments for embedding)");
    const Tensor i = kernel_input(index, DType::i64);
    const int64_t bad = kernels::embedding().first_bad(i.device_data<int64_t>(), i.numel(), rows);
    if (bad >= 0 && bag)
        throw RuntimeError("embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be ",
                           item(select(reshape(i, {-1}), 0, bad)).to_int(), " with ", rows, " rows");
    if (bad >= 0)
        throw IndexError("index out of range in self: got ", item(select(reshape(i, {-1}), 0, bad)).to_int(),
                         ", "
                         "but the table has ",
                         rows, " rows");
    return i;
}

Tensor embedding_rows(const Tensor& weight, const Tensor& index, int64_t padding, bool by_count);

// The gradient of the table. It is linear in g, so its own gradient is a lookup.
Tensor table_gradient(const Tensor& g, const Tensor& index, int64_t rows, int64_t padding, bool by_count) {
    const int64_t width = g.size(-1);
    const Tensor grad = kernel_input(g);
    Tensor table = empty({rows, width}, g.dtype());
    {
        Unlocked unlocked(table.numel());
        kernels::embedding().backward(g.dtype(), grad.device_data(), index.device_data<int64_t>(), table.device_data(), index.numel(), rows,
                                      width, padding, by_count);
    }
    if (needs_grad(g))
        record(table, "EmbeddingDenseBackwardBackward0", {g}, {index}, [rows, padding, by_count](Backward& bw) {
            const Tensor gg = bw.grad(), index = bw.saved(0);
            Tensor picked = embedding_rows(gg, index, -1, false);
            Tensor keep = ones_like(index);
            if (by_count) keep = gather(scatter_add(zeros({rows}, DType::i64), 0, flatten(index), flatten(keep)), 0, flatten(index));
            Tensor factor = reciprocal(to(reshape(keep, index.sizes()), gg.dtype()));
            if (padding >= 0) factor = where(eq(index, Scalar(padding)), Scalar(0.0), factor);
            bw.set(0, picked * unsqueeze(factor, -1));
        });
    return table;
}

Tensor embedding_rows(const Tensor& weight, const Tensor& index, int64_t padding, bool by_count) {
    if (weight.dim() != 2) throw RuntimeError("'weight' must be 2-D");
    const Tensor table = kernel_input(weight), i = checked_indices(index, weight.size(0));
    Dims sizes = index.sizes();
    sizes.push_back(weight.size(1));
    Tensor y = empty(sizes, weight.dtype());
    {
        Unlocked unlocked(y.numel());
        kernels::embedding().gather(table.device_data(), table.size(0), i.device_data<int64_t>(), y.device_data(), i.numel(),
                                    weight.size(1) * weight.item_size());
    }
    if (needs_grad(weight))
        record(y, "EmbeddingBackward0", {weight}, {i},
               told<"padding_idx scale_grad_by_freq sparse weight_sym_argsize_0 | indices">(
                   [rows = weight.size(0), padding, by_count](Backward& bw) {
                       bw.set(0, table_gradient(bw.grad(), bw.saved(0), rows, padding, by_count));
                   },
                   padding, by_count, false, weight.size(0)));
    return y;
}

// ---- bags

struct BagResult {
    Tensor y, picked;
};

kernels::BagArgs bag_args(const Tensor& table, const Tensor& index, const Tensor& offsets, const Tensor& sample_weight, int64_t padding,
                          int mode) {
    return {table.dtype(),         table.device_data(),          table.size(0),
            table.size(1),         index.device_data<int64_t>(), offsets.device_data<int64_t>(),
            offsets.numel() - 1,   pointer(sample_weight),       padding,
            kernels::BagMode(mode)};
}

// For each of n indices, the number of its bag; those outside of all bags have `inside` false.
struct BagOfEach {
    Tensor bag, inside;
};
BagOfEach bag_of_each(const Tensor& offsets, int64_t n) {
    GradMode off(false);
    const int64_t bags = offsets.numel() - 1;
    const Tensor i = arange(n), found = searchsorted(contiguous(narrow(offsets, 0, 1, bags)), i, true);
    const Tensor inside = logical_and(ge(i, select(offsets, 0, 0)), lt(found, Scalar(bags)));
    return {minimum(found, Scalar(bags - 1)), inside};
}

// index: 1-D. offsets: int64, with the end of the last bag. The gradient that must be differentiable is the formula.
BagResult embedding_bag(const Tensor& weight, const Tensor& index_, const Tensor& offsets, const Tensor& sample_weight, int64_t padding,
                        int mode, bool by_count) {
    const Tensor table = kernel_input(weight), index = checked_indices(index_, weight.size(0), true),
                 w = kernel_input(sample_weight, weight.dtype());
    const int64_t bags = offsets.numel() - 1;
    BagResult r{empty({bags, weight.size(1)}, weight.dtype()), mode == 2 ? empty({bags, weight.size(1)}, DType::i64) : Tensor()};
    {
        Unlocked unlocked(index.numel() * weight.size(1));
        kernels::embedding().bag(bag_args(table, index, offsets, w, padding, mode), r.y.device_data(),
                                 r.picked ? r.picked.device_data<int64_t>() : nullptr);
    }
    if (needs_grad(weight, sample_weight))
        record(r.y, "EmbeddingBagBackward0", {weight, sample_weight}, {weight, index, offsets, sample_weight, r.picked},
               [padding, mode, by_count](Backward& bw) {
                   const Tensor g = bw.grad(), weight = bw.saved(0), index = bw.saved(1), offsets = bw.saved(2),
                                sample_weight = bw.saved(3), picked = bw.saved(4);
                   if (needs_grad(g, weight, sample_weight) || by_count || !kernels::embedding().bag_backward) {
                       if (mode == 2) {
                           const Tensor rows = where(lt(picked, Scalar(0)), Scalar(0), picked);
                           const Tensor kept = where(lt(picked, Scalar(0)), Scalar(0.0), g);
                           return bw.set(0, scatter_add(zeros(weight.sizes(), g.dtype()), 0, rows, kept));
                       }
                       if (offsets.numel() < 2) {
                           if (bw.needs(0)) bw.set(0, zeros(weight.sizes(), g.dtype()));
                           if (bw.needs(1)) bw.set(1, zeros(index.sizes(), g.dtype()));
                           return;
                       }
                       const BagOfEach of = bag_of_each(offsets, index.numel());
                       const Tensor bag = of.bag, each = index_select(g, 0, bag);
                       Tensor factor = to(logical_and(ne(index, Scalar(padding)), of.inside), g.dtype());
                       Tensor scale = factor;
                       if (sample_weight) scale = factor * sample_weight;
                       if (mode == 1) {
                           const Tensor counts = scatter_add(zeros({offsets.numel() - 1}, g.dtype()), 0, bag, factor);
                           scale = factor / index_select(where(eq(counts, Scalar(0)), Scalar(1.0), counts), 0, bag);
                       }
                       if (bw.needs(0)) bw.set(0, table_gradient(each * unsqueeze(scale, -1), index, weight.size(0), padding, by_count));
                       if (bw.needs(1)) bw.set(1, sum(each * embedding_rows(weight, index, -1, false), {1}) * factor);
                       return;
                   }
                   const Tensor grad = kernel_input(g, weight.dtype()), table = kernel_input(weight),
                                w = kernel_input(sample_weight, weight.dtype());
                   Tensor dw = bw.needs(0) ? empty(weight.sizes(), weight.dtype()) : Tensor(),
                          ds = bw.needs(1) ? zeros(index.sizes(), weight.dtype()) : Tensor();
                   {
                       Unlocked unlocked(weight.numel());
                       kernels::embedding().bag_backward(bag_args(table, index, offsets, w, padding, mode), grad.device_data(),
                                                         picked ? picked.device_data<int64_t>() : nullptr, dw ? dw.device_data() : nullptr,
                                                         ds ? ds.device_data() : nullptr);
                   }
                   bw.set(0, dw);
                   bw.set(1, ds);
               });
    return r;
}

}  // namespace

static const Operators operators = {
    {"embedding(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False)",
     [](const Tensor& weight, const Tensor& index, int64_t padding, bool by_count, bool) {
         return embedding_rows(weight, index, padding, by_count);
     },
     complex_half | function,
     R"(Rows of `weight` by their numbers.
        >>> wisp.embedding(wisp.tensor([[1.0, 2.0], [3.0, 4.0]]), wisp.tensor([1, 0]))
        tensor([[3., 4.],
                [1., 2.]]))"},
    // The checked core of embedding_bag: 1-D indices, offsets with the end of the last bag, mode 0 sum, 1 mean, 2 max.
    {"_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, Tensor? per_sample_weights, int padding_idx, "
     "int mode, bool scale_grad_by_freq)",
     [](const Tensor& weight, const Tensor& index, const Tensor& offsets, const Tensor& sample_weight, int64_t padding, int64_t mode,
        bool by_count) {
         const Tensor ends = kernel_input(offsets, DType::i64);
         const char* must_rise = "embedding_bag: offsets must rise from 0 to at most the number of indices";
         const Tensor kept = empty(ends.sizes(), DType::i64);
         if (!kernels::embedding().rise(kept.device_data<int64_t>(), ends.device_data<int64_t>(), ends.numel(), index.numel(), must_rise))
             throw RuntimeError(must_rise, ", ", index.numel());
         BagResult r = embedding_bag(weight, index, kept, sample_weight, padding, int(mode), by_count);
         return std::tuple<Tensor, Tensor>(r.y, r.picked);
     },
     function},
};

}  // namespace wisp
