// Tensors of classes with __torch_dispatch__: shells of a shape without memory, whose operators are Python's affair.
#pragma once
#include "../core/tensor.h"

namespace wisp {

extern int wrapper_classes;  // that exist: until there is one, nothing is looked at

bool is_wrapper(const Tensor& t);
// The operator of this name on tensors of which one is such a shell.
Tensor call_wrapper(const char* name, std::initializer_list<Tensor> args);
// The backward of a node of the core whose incoming gradients are such shells.
struct Backward;
void call_wrapped_backward(Backward& bw);

}  // namespace wisp
