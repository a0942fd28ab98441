// For operators that are linear (at least piecewise): PyTorch's gradient of such an operator still depends on the
// operator's input, with derivative zero, so that a second derivative exists and is zeros instead of an error.
#pragma once
#include "ops.h"

namespace wisp {

// Sets the gradient of input `i`, and with create_graph lets it depend on that input.
inline void set_piecewise_linear(Backward& bw, int i, const Tensor& gradient, const char* name) {
    if (bw.create_graph && !gradient.in_graph()) {
        NodePtr node = NodePtr::steal(new_node(name));
        node->next.push_back(bw.node.next[i]);
        set_closure(*node, [sizes = gradient.sizes(), dtype = gradient.dtype()](Backward& second) { second.set(0, zeros(sizes, dtype)); });
        add_output(*node, gradient);
    }
    bw.set(i, gradient);
}

}  // namespace wisp
