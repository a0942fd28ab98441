// What few tensors have, made when it is needed: .grad, hooks, tangents.
#include "../core/above.h"
#include "engine.h"

namespace wisp {

TensorExtra& extra(const Tensor& t) {
    if (!t->extra) {
        t->extra = new TensorExtra();
        track(t.get());
    }
    return *t->extra;
}

void delete_extra(TensorObject* o) {
    TensorExtra* e = o->extra;
    if (e->retains_grad && o->grad_fn && o->grad_fn->hooks) {
        auto& list = o->grad_fn->hooks->retain_grad;
        for (int64_t i = 0; i < list.size(); i++)
            if (list[i] == o) {
                std::swap(list[i], list.back());
                list.pop_back();
                break;
            }
    }
    if (!e->tangents.empty()) forget_tangents(o);
    Py_XDECREF(e->hooks);
    Py_XDECREF(e->post_accumulate_hooks);
    o->extra = nullptr;
    delete e;
}

Tensor grad_of(const Tensor& t) { return t->extra ? t->extra->grad : Tensor(); }
void set_grad(const Tensor& t, Tensor grad) { extra(t).grad = std::move(grad); }

void retain_grad(const Tensor& t) {
    if (!t.in_graph()) throw RuntimeError("can't retain_grad on Tensor that has requires_grad=False");
    Node* n = grad_fn_of(t);
    if (!n || extra(t).retains_grad) return;
    extra(t).retains_grad = true;
    hooks_of(*n).retain_grad.push_back(t.get());
}

static const bool known_to_the_core = (drop_extra = delete_extra, true);

}  // namespace wisp
