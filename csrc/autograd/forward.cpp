// Forward mode: tensors carry tangents, and recording an operator gives its results theirs.
//
// No operator has a formula of its own for this. The backward of a recorded node, g = A(v), is linear in the incoming
// gradient v, and A is the transpose of the operator's Jacobian J; so J times a tangent t is the gradient of <A(v), t>
// with respect to v, which the engine can compute because backward is made of recorded operators. Where the operator is
// elementwise and real, A is its own transpose, and backward is simply called with the tangent.
//
// Levels nest: while the tangent of a level is computed, the tangents of the levels outside it are propagated through
// that computation, and those of the level itself and of inner ones are invisible.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../ops/ops.h"
#include "../ops/wrapper.h"
#include "engine.h"

namespace wisp {
namespace {

thread_local std::vector<int64_t> levels;  // that this thread is in, ascending
thread_local int64_t limit = INT64_MAX;    // levels from here on are invisible
int64_t next_level = 1;
std::unordered_map<int64_t, std::unordered_set<TensorObject*>> holders;  // who has a tangent of a level; not counted

// Hides a level and the inner ones.
class Below {
public:
    explicit Below(int64_t level) : before_(limit) { limit = std::min(limit, level); }
    ~Below() { limit = before_; }
    Below(const Below&) = delete;

private:
    int64_t before_;
};

void set_tangent(const Tensor& t, int64_t level, Tensor value) {
    if (!value && !t->dual) return;
    TensorExtra& e = extra(t);
    e.tangent_version = t.version();
    int64_t at = 0;
    while (at < e.tangents.size() && e.tangents[at].level < level) at++;
    const bool present = at < e.tangents.size() && e.tangents[at].level == level;
    Tensor old;  // freed last: that may free other holders
    if (value) {
        if (present) {
            std::swap(old, e.tangents[at].value);
            e.tangents[at].value = std::move(value);
        } else {
            e.tangents.push_back({level, std::move(value)});
            for (int64_t i = e.tangents.size() - 1; i > at; i--) std::swap(e.tangents[i], e.tangents[i - 1]);
            holders[level].insert(t.get());
        }
    } else if (present) {
        std::swap(old, e.tangents[at].value);
        for (int64_t i = at; i + 1 < e.tangents.size(); i++) std::swap(e.tangents[i], e.tangents[i + 1]);
        e.tangents.pop_back();
        if (auto it = holders.find(level); it != holders.end()) it->second.erase(t.get());
    }
    t->dual = !e.tangents.empty();
}

// A copy of `value` (zeros if undefined) in the layout of `base`, and in it the place of `view`.
Tensor laid_out(const Tensor& base, const Tensor& value) {
    Tensor copy = empty_strided(base.sizes(), base.strides(), base.dtype());
    if (value) copy_(copy, value);
    else zero_(copy);
    return copy;
}
Tensor place_in(const Tensor& copy, const Tensor& base, const Tensor& view) {
    return as_strided(copy, view.sizes(), view.strides(), view.offset() - base.offset());
}

}  // namespace

Tensor tangent_of(const Tensor& t, int64_t level) {
    if (!t) return {};
    if (t->base && t->base->dtype == t->dtype && (t->dual || t->base->dual) &&
        (t->dual ? t->extra->tangent_version : t->view_version) != t.version()) {
        // The base was written to since.
        const Tensor base = Tensor::borrow(t->base);
        const Tensor whole = tangent_of(base, level);
        if (!whole) return {};
        Below below(level);
        return place_in(laid_out(base, whole), base, t);
    }
    if (!t->dual) return {};
    for (Tangent& tangent : t->extra->tangents)
        if (tangent.level == level) return tangent.value;
    return {};
}

namespace {

// self was written to and has this tangent now; its base shares the place.
void replace_tangent(const Tensor& self, int64_t level, const Tensor& value) {
    if (self->base && self->base->dtype == self->dtype) {
        const Tensor base = Tensor::borrow(self->base);
        const Tensor whole = tangent_of(base, level);
        if (whole || value) {
            Below below(level);
            Tensor copy = laid_out(base, whole);
            Tensor place = place_in(copy, base, self);
            if (value) copy_(place, value);
            else zero_(place);
            set_tangent(base, level, copy);
        }
    }
    set_tangent(self, level, value);
}

struct Inputs {
    std::span<const Tensor> tensors;
    TensorList tangents;
    bool any = false;
};

// One flag per input: whether its gradient is wanted.
class Wanted {
public:
    explicit Wanted(const Inputs& in) {
        for (const Tensor& t : in.tangents) flags_.push_back(t.defined());
    }
    void only(int64_t i) {
        for (int64_t k = 0; k < flags_.size(); k++) flags_[k] = k == i;
    }
    const bool* data() const { return flags_.data(); }

private:
    Small<bool, 8> flags_;
};

bool differentiated_further(const Node& node, const Inputs& in) {
    if (grad_state() != grad_on) return false;
    bool tracked = is_recorded(node);
    for (const Tensor& t : in.tangents) tracked |= t && t.in_graph();
    return tracked;
}

TensorList jacobian_product(Node& node, const Inputs& in, std::span<const Tensor> results, int64_t level) {
    Below below(level);
    const bool create = differentiated_further(node, in);
    BackwardRequest request;
    Small<Tensor, 1> v;
    Small<int64_t, 1> position;
    v.resize(std::max<int64_t>(node.outputs.size(), 1));
    for (int64_t k = 0; k < node.outputs.size(); k++) {
        if (k >= int64_t(results.size()) || !results[k] || !is_differentiable(node.outputs[k].dtype)) continue;
        v[k] = zeros(node.outputs[k].sizes, node.outputs[k].dtype);
        v[k]->requires_grad = true;
        request.inputs.push_back(v[k]);
        position.push_back(k);
    }
    {
        GradMode on(grad_on);
        TensorList gradients;
        gradients.resize(node.next.size());
        Small<Tensor, 1> incoming = v;
        const Wanted wanted(in);
        Backward bw{node, incoming.data(), gradients.data(), true, wanted.data()};
        node.apply(bw);
        for (int64_t i = 0; i < gradients.size(); i++) {
            if (!in.tangents[i] || !gradients[i]) continue;
            const Tensor& x = in.tensors[i];
            Tensor g = fit_gradient(gradients[i], {x.sizes(), x.dtype(), x.device()}, node, i);
            if (!g.in_graph()) continue;
            request.roots.push_back(g);
            request.grads.push_back(in.tangents[i]);
        }
    }
    TensorList products;
    products.resize(int64_t(results.size()));
    if (request.roots.empty()) return products;
    request.create_graph = request.retain_graph = create;
    request.accumulate = false;
    request.allow_unused = true;
    TensorList found = run_backward(request);
    for (int64_t i = 0; i < found.size(); i++) products[position[i]] = found[i];
    return products;
}

// Backward of a real elementwise operator multiplies by the derivative, whichever way.
Tensor elementwise_product(Node& node, const Inputs& in, const Tensor& result, int64_t level) {
    Below below(level);
    const bool create = differentiated_further(node, in), further = create || forward_visible();
    GradMode mode(create ? grad_on : further ? grad_forward : grad_off);
    Tensor sum;
    Wanted wanted(in);
    for (int64_t i = 0; i < in.tangents.size(); i++) {
        if (!in.tangents[i]) continue;
        wanted.only(i);
        Small<Tensor, 1> incoming{expand(to(in.tangents[i], result.dtype()), result.sizes())};
        TensorList gradients;
        gradients.resize(node.next.size());
        Backward bw{node, incoming.data(), gradients.data(), further, wanted.data()};
        node.apply(bw);
        if (!gradients[i]) continue;
        Tensor g = to(gradients[i], result.dtype());
        if (!(g.sizes() == result.sizes())) g = expand(g, result.sizes());
        if (sum && !further && sum.exclusively_owned()) add_(sum, g);
        else sum = sum ? add(sum, g) : g;
    }
    return sum;
}

bool is_real(const Inputs& in, const Tensor& result) {
    bool real = is_floating(result.dtype());
    for (int64_t i = 0; i < in.tangents.size(); i++) real &= !in.tangents[i] || is_floating(in.tensors[size_t(i)].dtype());
    return real;
}

}  // namespace

bool forward_visible() { return !levels.empty() && levels.front() < limit; }

bool has_tangent(const Tensor& t) {
    for (int64_t level : levels)
        if (level < limit && tangent_of(t, level)) return true;
    return false;
}

Node* tangent_marker() {
    static Node* const marker = [] {
        Node* n = new_node("Tangent");
        n->apply = [](Backward&) {};
        n->outputs.emplace_back();
        return n;
    }();
    return marker;
}

void copy_tangents(const Tensor& to, const Tensor& from) {
    for (int64_t level : levels)
        if (level < limit)
            if (Tensor t = tangent_of(from, level)) set_tangent(to, level, t);
}

void forget_tangents(TensorObject* o) {
    for (Tangent& t : o->extra->tangents)
        if (auto it = holders.find(t.level); it != holders.end()) it->second.erase(o);
    o->dual = false;
}

void carry_tangents(const Tensor& self, const Tensor& from) {
    for (int64_t level : levels) {
        if (level >= limit) break;
        Tensor t = tangent_of(from, level);
        if (t) {
            Below below(level);
            t = t.dtype() == self.dtype() ? clone(t) : to(t, self.dtype());
        }
        if (t || self.requires_grad()) replace_tangent(self, level, t);
    }
}

void propagate_tangents(Node& node, std::span<const Tensor> inputs, std::span<const Tensor> results, bool in_place, bool elementwise) {
    const std::vector<int64_t> active = levels;  // a Python function may enter and leave others
    for (int64_t level : active) {
        if (level >= limit) break;
        Inputs in{inputs, {}};
        for (const Tensor& t : inputs) {
            in.tangents.push_back(tangent_of(t, level));
            in.any |= in.tangents.back().defined();
        }
        if (!in.any) continue;
        TensorList products;
        bool done = false;
        if (node.context) {
            Below below(level);
            done = function_jvp(node, in.tangents, results, products);
        }
        try {
            if (!done && elementwise && is_real(in, results[0])) products.push_back(elementwise_product(node, in, results[0], level));
            else if (!done) products = jacobian_product(node, in, results, level);
        } catch (const NotImplemented& error) {
            throw NotImplemented("Trying to use forward AD with ", node.name, " that does not support it: ", error.what());
        }
        for (int64_t k = 0; k < int64_t(results.size()); k++) {
            const Tensor& result = results[size_t(k)];
            if (!result || !is_differentiable(result.dtype())) continue;
            Tensor t = k < products.size() ? products[k] : Tensor();
            if (in_place && t && !node.context &&
                std::any_of(in.tangents.begin(), in.tangents.end(), [&](const Tensor& i) { return i.same(t); })) {
                Below below(level);
                t = clone(t);  // an input's own
            } else if (in_place && !t) {
                Below below(level);
                t = zeros(result.sizes(), result.dtype());  // overwritten, it keeps a tangent
            }
            if (in_place) replace_tangent(result, level, t);
            else set_tangent(result, level, t);
            for (Saved& s : node.saved)  // backward sees the result with its tangent
                if (s.output == k && s.tensor) set_tangent(s.tensor, level, t);
        }
    }
    Node* const marker = tangent_marker();
    for (Edge& e : node.next)
        if (e.node.get() == marker) e = Edge();
}

// --- for Python ----------------------------------------------------------------------------------------------------------

int64_t enter_dual_level() {
    levels.push_back(next_level++);
    enter_forward(true);
    return levels.back();
}

void exit_dual_level(int64_t level) {
    if (levels.empty() || levels.back() != level)
        throw RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.");
    levels.pop_back();
    enter_forward(false);
    auto it = holders.find(level);
    if (it == holders.end()) return;
    std::vector<Tensor> kept;
    for (TensorObject* o : it->second) kept.push_back(Tensor::borrow(o));
    for (const Tensor& t : kept) set_tangent(t, level, {});
    holders.erase(level);
}

int64_t hide_tangents(int64_t level) { return std::exchange(limit, level); }

// The same values, as another point of the graph.
static Tensor same(const Tensor& t) {
    if (is_wrapper(t)) return call_wrapper("view_as", {t, t});
    Tensor r = alias(t);
    if (needs_grad(t)) record(r, "ViewBackward0", {t}, {}, [](Backward& bw) { bw.set(0, bw.grad()); });
    return r;
}

Tensor make_dual(const Tensor& primal, const Tensor& tangent, int64_t level) {
    if (std::find(levels.begin(), levels.end(), level) == levels.end())
        throw RuntimeError("make_dual: level ", level, " of forward mode is not active; enter it with dual_level()");
    if (!(primal.sizes() == tangent.sizes()))
        throw RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. "
            "Tensor is of size ",
            primal.sizes(), " while the given forward gradient is of size ", tangent.sizes(), ".");
    if (is_complex(tangent.dtype()) && !is_complex(primal.dtype()))
        throw RuntimeError("make_dual: a complex tangent (", tangent.dtype(), ") for a real tensor (", primal.dtype(), ")");
    if (tangent_of(primal, level))
        throw RuntimeError("Making a dual Tensor based on a Tensor that already has a forward gradient at the same level ", level,
                           " is not supported.");
    Tensor dual = same(primal);
    Below below(level);
    // A tangent of other memory than the primal's is copied: writes to the one that is unpacked are not seen outside.
    const bool alike = is_wrapper(tangent) || is_wrapper(primal) || tangent.storage()->bytes == primal.storage()->bytes;
    set_tangent(dual, level, is_wrapper(tangent) ? tangent : to(alike ? tangent : clone(tangent), primal.dtype()));
    return dual;
}

Tensor primal_of(const Tensor& t, int64_t level) {
    Below below(level);
    return same(t);
}

Tensor without_graph(const Tensor& t) {
    Tensor r = alias(t);
    copy_tangents(r, t);
    return r;
}

}  // namespace wisp
