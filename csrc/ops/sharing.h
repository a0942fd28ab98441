// How the memory of two tensors meets, for whoever writes to one while the other is read.
#pragma once
#include "ops.h"

namespace wisp {

enum class Sharing { none, same_elements, some_elements, unclear };

// Same: at every index both have the same element. Unclear: parts with gaps between them, which may meet or not.
Sharing sharing_in_storage(const Tensor& a, const Tensor& b);
inline Sharing sharing(const Tensor& a, const Tensor& b) { return a.storage() == b.storage() ? sharing_in_storage(a, b) : Sharing::none; }

[[noreturn]] void refuse_sharing(const std::string& name);

// Refuses an in-place write to self that reads other in an order of its own, where both share elements.
void check_apart(const Tensor& self, const Tensor& other, const char* name);

}  // namespace wisp
