#include "whole.h"

#include <algorithm>
#include <unordered_set>

#include "engine.h"

namespace wisp {
namespace {

bool leads_to(const Small<Edge, 3>& inputs, const Edge& e) {
    return std::any_of(inputs.begin(), inputs.end(), [&](const Edge& i) { return i.node.get() == e.node.get() && i.number == e.number; });
}

// Whether every way from the results ends at an input. Nodes that are older than the steps are not looked into.
bool closed(const Small<Edge, 3>& results, const Small<Edge, 3>& inputs, uint64_t since) {
    std::unordered_set<Node*> seen;
    std::vector<Node*> stack;
    auto follow = [&](const Edge& e) {
        if (!e.node || leads_to(inputs, e)) return true;
        if (e.node->variable || e.node->sequence < since) return false;
        if (seen.insert(e.node.get()).second) stack.push_back(e.node.get());
        return true;
    };
    for (const Edge& e : results)
        if (leads_to(inputs, e) || !follow(e)) return false;
    while (!stack.empty()) {
        Node* n = stack.back();
        stack.pop_back();
        for (const Edge& e : n->next)
            if (!follow(e)) return false;
    }
    return true;
}

// A result that is a view of what the steps made is an ordinary tensor to the caller.
bool forget_base(const Tensor& t, uint64_t since) {
    if (!t->base) return true;
    if (!t->base->grad_fn || t->base->grad_fn->sequence < since) return false;
    Py_CLEAR(t->base);
    t->view_kind = view_plain;
    return true;
}

}  // namespace

void fold(std::span<const Tensor> results, const char* name, std::span<const Tensor> inputs, uint64_t since) {
    // In forward mode the steps have made the tangents.
    if (grad_state() != grad_on || forward_depth_of_thread()) return;
    if (std::none_of(results.begin(), results.end(), [](const Tensor& t) { return t.defined() && t.requires_grad(); })) return;
    Small<Edge, 3> roots, ends;
    for (const Tensor& t : results) roots.push_back(gradient_edge(t));
    for (const Tensor& t : inputs) ends.push_back(gradient_edge(t));
    if (!closed(roots, ends, since)) return;
    for (const Tensor& t : results)
        if (t.defined() && !forget_base(t, since)) return;
    NodePtr node = NodePtr::steal(new_node(name)), steps = NodePtr::steal(new_node("steps"));
    node->next = std::move(ends);
    steps->next = std::move(roots);
    node->apply = run_steps;
    for (int64_t i = 0; i < int64_t(results.size()); i++) {
        const Tensor& t = results[i];
        node->outputs.push_back(t.defined() ? OutputInfo{t.sizes(), t.dtype(), t.device()} : OutputInfo{});
        if (steps->next[i].node) set_history(t, node.get(), uint32_t(i));
    }
    node->inner = steps.release();
}

}  // namespace wisp
