// Front door of scaled_dot_product_attention: the blockwise kernel where it applies, else the formula.
#include "../kernels/attention.h"

#include <cmath>

#include "../compile/tape.h"
#include "../core/generator.h"
#include "../python/registry.h"
#include "fused.h"

namespace wisp {
namespace {

// ---- the formula

Tensor causal_mask(int64_t queries, int64_t keys) { return unsqueeze(arange(queries), 1) >= arange(keys); }

// (..., heads, rows, width) with each head repeated.
Tensor repeat_heads(const Tensor& t, int64_t times) {
    if (times == 1) return t;
    Dims wide = t.sizes(), flat = t.sizes();
    const int64_t at = t.dim() - 3;
    wide.insert(at + 1, times);
    flat[at] *= times;
    return reshape(expand(unsqueeze(t, at + 1), wide), flat);
}
Tensor sum_repeated(const Tensor& t, int64_t times) {
    if (times == 1) return t;
    Dims wide = t.sizes();
    const int64_t at = t.dim() - 3;
    wide[at] /= times;
    wide.insert(at + 1, times);
    return sum(reshape(t, wide), {at + 1});
}

// softmax(q k' * scale + mask); rows that see no key give zeros.
Tensor attention_weights(const Tensor& q, const Tensor& k, const Tensor& mask, bool causal, double scale) {
    Tensor scores = matmul(q * Scalar(scale), transpose(k, -2, -1));
    const Tensor visible = causal ? causal_mask(q.size(-2), k.size(-2)) : mask && mask.dtype() == DType::boolean ? mask : Tensor();
    if (visible) scores = where(visible, scores, Scalar(-INFINITY));
    else if (mask) scores = scores + mask;
    if ((!visible && !mask) || scores.numel() == 0) return softmax(scores, -1);
    Tensor blind;
    {
        GradMode off(false);
        blind = amax(scores, {-1}, true) == Scalar(-INFINITY);
    }
    return where(blind, Scalar(0.0), softmax(where(blind, Scalar(0.0), scores), -1));
}

Tensor by_formula(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, double dropout_p, bool causal, double scale,
                  int64_t share) {
    const Tensor keys = repeat_heads(k, share), values = repeat_heads(v, share);
    return matmul(dropout(attention_weights(q, keys, mask, causal, scale), dropout_p, true), values);
}

// ---- the kernel

// Four dimensions with adjacent columns, by a view where possible.
Tensor four(const Tensor& t_) {
    GradMode off(false);
    Tensor t = t_;
    while (t.dim() < 4) t = unsqueeze(t, t.dim() == 2 ? 0 : 1);
    if (t.dim() > 4) t = reshape(t, {-1, t.size(-3), t.size(-2), t.size(-1)});
    return t.stride(-1) == 1 || t.size(-1) <= 1 ? t : contiguous(t);
}
kernels::AttentionTensor place(const Tensor& t) { return {t.device_data(), t.stride(0), t.stride(1), t.stride(2)}; }

// A result with the heads inside the rows in memory: joining heads afterwards is then a view.
Tensor empty_heads(int64_t batch, int64_t heads, int64_t rows, int64_t width, DType d) {
    const Tensor base = empty({batch, rows, heads, width}, d);
    return alias(base, base.layout().transpose(1, 2));
}

// A gradient of what `four` made a tensor of: laid out as that is, where it can be, so that it becomes a leaf's gradient without a copy.
Tensor empty_gradient(const Tensor& t) {
    if (t.stride(-1) == 1 && t.layout().is_non_overlapping_and_dense()) return empty_strided(t.sizes(), t.strides(), t.dtype());
    return empty_heads(t.size(0), t.size(1), t.size(2), t.size(3), t.dtype());
}
Tensor with_sizes(const Tensor& t, const Dims& sizes) {
    if (t.sizes() == sizes) return t;
    const std::optional<Layout> layout = t.layout().view(sizes);
    return layout ? alias(t, *layout) : reshape(t, sizes);
}

struct Problem {
    int64_t share;
    double scale;
    bool causal;
    double dropout_p = 0;
    uint64_t seed = 0, offset = 0;  // of the draw that dropout uses
};

// What keys and values are read from: in a compiled region their heads may be copies that are still to be made (`repeat_interleave`).
struct Sources {
    Tensor key, value;
};
kernels::AttentionTensor place_or_source(const Tensor& t, bool may_repeat, Tensor& source) {
    if (!may_repeat) return place(t);
    compile::Repeated r = compile::repeated_source(t);
    if (!r.source) return place(t);
    source = r.source;
    return {const_cast<void*>(compile::peek(source)), source.stride(0), source.stride(1), source.stride(2), r.times};
}

kernels::AttentionArgs attention_args(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                      Sources& sources) {
    kernels::AttentionArgs a{};
    a.dtype = q.dtype();
    a.batch = q.size(0), a.heads = q.size(1), a.key_heads = k.size(1);
    a.queries = q.size(2), a.keys = k.size(2), a.width = q.size(3), a.value_width = v.size(3);
    a.query = place(q);
    a.scale = p.scale, a.causal = p.causal;
    if (p.dropout_p > 0) {
        const double keep = 1 - p.dropout_p;
        a.dropout = true;
        a.stream = {p.seed, p.offset};
        a.keep_below = uint64_t(std::llround(keep * 4294967296.0));
        a.keep_scale = keep > 0 ? 1 / keep : 0;
    }
    if (mask) {
        a.mask = mask.device_data();
        a.mask_is_bool = mask.dtype() == DType::boolean;
        a.mask_batch = mask.stride(0), a.mask_head = mask.stride(1), a.mask_row = mask.stride(2), a.mask_column = mask.stride(3);
    }
    const auto reads_repeated = kernels::attention().reads_repeated;
    const bool may_repeat = reads_repeated && reads_repeated(a);
    a.key = place_or_source(k, may_repeat, sources.key), a.value = place_or_source(v, may_repeat, sources.value);
    return a;
}

// The mask as (batch, heads, queries, keys) with zero strides where it repeats.
Tensor four_mask(const Tensor& mask, const Tensor& q, int64_t keys) {
    if (!mask) return mask;
    GradMode off(false);
    Dims sizes = q.sizes();
    sizes.back() = keys;
    Tensor m = expanded(mask.dtype() == DType::boolean ? mask : to(mask, q.dtype()), sizes);
    while (m.dim() < 4) m = unsqueeze(m, m.dim() == 2 ? 0 : 1);
    return m.dim() > 4 ? reshape(m, {-1, m.size(-3), m.size(-2), m.size(-1)}) : m;
}

int64_t work_of(const Tensor& q, const Tensor& k) { return q.numel() * k.size(-2); }

void attention_backward(Backward& bw, const Problem& p) {
    const Tensor g = bw.grad(), q = bw.saved(0), k = bw.saved(1), v = bw.saved(2), mask = bw.saved(3);
    if (needs_grad(g, q, k, v) || (mask && needs_grad(mask))) {
        auto dropped = [&](const Tensor& t) { return p.dropout_p > 0 ? dropout_of(t, p.dropout_p, p.seed, p.offset) : t; };
        const Tensor keys = repeat_heads(k, p.share), values = repeat_heads(v, p.share);
        const Tensor weights = attention_weights(q, keys, mask, p.causal, p.scale);
        const Tensor slopes = dropped(matmul(g, transpose(values, -2, -1)));
        const Tensor scores = weights * (slopes - sum(slopes * weights, {-1}, true)), scaled = scores * Scalar(p.scale);
        if (bw.needs(0)) bw.set(0, matmul(scaled, keys));
        if (bw.needs(1)) bw.set(1, sum_repeated(matmul(transpose(scaled, -2, -1), q), p.share));
        if (bw.needs(2)) bw.set(2, sum_repeated(matmul(transpose(dropped(weights), -2, -1), g), p.share));
        if (mask && bw.needs(3)) bw.set(3, scores);
        return;
    }
    const Tensor q4 = four(q), k4 = four(k), v4 = four(v), g4 = four(to(g, q.dtype())), y4 = bw.saved(4), lse = bw.saved(5);
    const Tensor m4 = four_mask(mask, q, k.size(-2));
    Sources sources;
    kernels::AttentionArgs a = attention_args(p, q4, k4, v4, m4, sources);
    if (const Tensor kept = bw.saved(6)) a.kept = kept.device_data();
    const Tensor dq = empty_gradient(q4), dk = empty_gradient(k4), dv = empty_gradient(v4);
    Tensor dmask;
    kernels::AttentionMaskGradient mask_place;
    if (mask && bw.needs(3)) {
        dmask = zeros(mask.sizes(), q.dtype());
        const Tensor d4 = four_mask(dmask, q, k.size(-2));
        mask_place = {dmask.device_data(), d4.stride(0), d4.stride(1), d4.stride(2), d4.stride(3)};
    }
    {
        Unlocked unlocked(work_of(q, k));
        kernels::attention().backward(a, place(g4), place(y4), lse.device_data(), place(dq), place(dk), place(dv), mask_place);
    }
    if (dmask) bw.set(3, dmask);
    if (bw.needs(0)) bw.set(0, with_sizes(dq, q.sizes()));
    if (bw.needs(1)) bw.set(1, with_sizes(dk, k.sizes()));
    if (bw.needs(2)) bw.set(2, with_sizes(dv, v.sizes()));
}

Tensor by_kernel(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Problem& p) {
    const Tensor q4 = four(q), k4 = four(k), v4 = four(v), m4 = four_mask(mask, q, k.size(-2));
    const bool recording = needs_grad(q, k, v) || (mask && needs_grad(mask));
    Sources sources;
    kernels::AttentionArgs a = attention_args(p, q4, k4, v4, m4, sources);
    a.forward_only = !recording;
    const Tensor y4 = empty_heads(a.batch, a.heads, a.queries, a.value_width, q.dtype());
    const Tensor lse = empty({a.batch, a.heads, a.queries}, compute_dtype(q.dtype()));
    Tensor kept;
    if (recording && a.dropout && kernels::attention().kept_bytes)
        if (const size_t bytes = kernels::attention().kept_bytes(a)) kept = empty({int64_t(bytes)}, DType::u8), a.kept = kept.device_data();
    {
        Unlocked unlocked(work_of(q, k));
        kernels::attention().forward(a, place(y4), lse.device_data());
    }
    Dims sizes = q.sizes();
    sizes.back() = v.size(-1);
    Tensor y = q.dim() == 4 ? alias(y4) : reshape(y4, sizes);
    if (recording)
        record(y, kernels::attention().node, {q, k, v, mask}, {q, k, v, mask, y4, lse, kept},
               [p, sources](Backward& bw) { attention_backward(bw, p); });  // which are kept, so that backward can read them, too
    return y;
}

// Same dimensions but for rows and, with shared heads, heads.
bool fits_kernel(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
    if (q.dim() < 2 || k.dim() != q.dim() || v.dim() != q.dim()) return false;
    for (int64_t i = 0; i + 2 < q.dim(); i++)
        if (k.size(i) != v.size(i) || (i + 3 != q.dim() && q.size(i) != k.size(i))) return false;
    if (q.numel() == 0 || k.numel() == 0 || v.numel() == 0) return false;
    const kernels::AttentionKernels& takes = kernels::attention();
    if (mask)
        for (int64_t i = 0; i < mask.dim(); i++)
            if (mask.stride(i) > takes.farthest) return false;
    if (std::max(q.size(-1), v.size(-1)) > (q.dtype() == DType::f64 ? takes.widest_double : takes.widest)) return false;
    if (std::max(q.size(-2), k.size(-2)) > takes.longest) return false;
    return !wants_grad(mask) || (takes.mask_gradient && q.dim() <= 4);
}

// PyTorch's formula for the processor refuses a mask beside `causal`; its kernel takes both, and what is empty is not looked at.
bool takes_both(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, double dropout_p, bool enable_gqa) {
    if (q.numel() == 0 || k.numel() == 0 || v.numel() == 0) return true;
    if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4 || dropout_p > 0 || mask.requires_grad()) return false;
    if (q.device().type == DeviceType::meta || q.size(3) != v.size(3) || q.stride(3) != 1 || k.stride(3) != 1 || v.stride(3) != 1)
        return false;
    if (q.size(0) != k.size(0) || k.size(0) != v.size(0) || k.size(1) != v.size(1)) return false;
    if (enable_gqa ? q.size(1) % k.size(1) != 0 : q.size(1) != k.size(1)) return false;
    const Dims scores{q.size(0), q.size(1), q.size(2), k.size(2)};
    if (mask.dim() != 2 && mask.dim() != 4) return false;
    for (int64_t i = 1; i <= mask.dim(); i++)
        if (mask.size(-i) != 1 && mask.size(-i) != scores[4 - i]) return false;
    return true;
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, double dropout_p, bool causal,
                                    std::optional<double> scale_, bool enable_gqa) {
    if (q.dtype() != k.dtype() || q.dtype() != v.dtype())
        throw RuntimeError("Expected query, key, and value to have the same dtype, but got query.dtype: ", q.dtype(),
                           " key.dtype: ", k.dtype(), " and value.dtype: ", v.dtype(), " instead.");
    if (q.dim() < 2 || k.dim() < 2 || v.dim() < 2)
        throw RuntimeError("Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: ", q.dim(),
                           ", key.dim: ", k.dim(), " and value.dim: ", v.dim(), " instead.");
    if (q.size(-1) != k.size(-1) || k.size(-2) != v.size(-2))
        throw RuntimeError("scaled_dot_product_attention: query ", q.sizes(), ", key ", k.sizes(), " and value ", v.sizes(),
                           " do not fit: query and key need the same width, key and value the same length");
    if (mask && mask.dtype() != DType::boolean && mask.dtype() != DType::f32 && mask.dtype() != q.dtype())
        throw RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, "
            "but got attn_mask.dtype: ",
            mask.dtype(), " and  query.dtype: ", q.dtype(), " instead.");
    auto wide = [](const Tensor& t) { return t && is_reduced(t.dtype()) ? to(t, DType::f32) : t; };
    if (is_reduced(q.dtype()) && !kernels::attention().half)
        return to(scaled_dot_product_attention(wide(q), wide(k), wide(v), wide(mask), dropout_p, causal, scale_, enable_gqa), q.dtype());
    check_floating("scaled_dot_product_attention", q);
    if (mask && causal) {  // both hold, as in PyTorch's fused attention
        if (q.device().type != DeviceType::cuda && !takes_both(q, k, v, mask, dropout_p, enable_gqa))
            throw RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True");
        const Tensor before = causal_mask(q.size(-2), k.size(-2));
        const Tensor both = mask.dtype() == DType::boolean ? logical_and(mask, before) : where(before, mask, Scalar(-INFINITY));
        return scaled_dot_product_attention(q, k, v, both, dropout_p, false, scale_, enable_gqa);
    }
    const double scale = scale_ ? *scale_ : 1 / std::sqrt(double(q.size(-1)));
    int64_t share = 1;
    if (enable_gqa) {
        if (q.dim() < 3 || k.dim() < 3 || k.size(-3) == 0 || q.size(-3) % k.size(-3) || k.size(-3) != v.size(-3))
            throw RuntimeError("Number of heads in key and value must divide the number of heads in query, got ", q.sizes(), " and ",
                               k.sizes());
        share = q.size(-3) / k.size(-3);
    } else if (q.dim() >= 3 && k.dim() >= 3 && q.size(-3) != k.size(-3) && q.size(-3) != 1 && k.size(-3) != 1) {
        throw RuntimeError("The size of tensor a (", q.size(-3), ") must match the size of tensor b (", k.size(-3),
                           ") at non-singleton dimension ", q.dim() - 3);
    }
    const bool same_heads = q.dim() < 3 || (k.dim() == q.dim() && q.size(-3) == k.size(-3) * share);
    if (!(dropout_p >= 0 && dropout_p <= 1)) throw ValueError("dropout probability has to be between 0 and 1, but got ", dropout_p);
    if (same_heads && fits_kernel(q, k, v, mask)) {
        Problem p{share, scale, causal, dropout_p};
        if (dropout_p > 0) p.seed = default_generator().seed, p.offset = default_generator().next();
        return by_kernel(q, k, v, mask, p);
    }
    // Scores are not rounded to half precision, as they are not by the kernel.
    return to(by_formula(wide(q), wide(k), wide(v), wide(mask), dropout_p, causal, scale, share), q.dtype());
}

}  // namespace

static const Operators operators = {
    {"nn.functional.scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
     "float dropout_p=0.0, bool is_causal=False, float? scale=None, bool enable_gqa=False)",
     scaled_dot_product_attention, function | in_lower,
     R"(`softmax(query @ key.T * scale) @ value`, with a mask, causal masking, dropout.
        >>> wisp.nn.functional.scaled_dot_product_attention(wisp.ones(1, 2, 4), wisp.ones(1, 3, 4), wisp.ones(1, 3, 4)).shape
        torch.Size([1, 2, 4]))"},
};

}  // namespace wisp
