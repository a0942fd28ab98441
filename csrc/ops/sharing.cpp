// How the memory of two tensors meets (sharing.h).
#include "sharing.h"

namespace wisp {

static bool have_same_strides(const Tensor& a, const Tensor& b) {
    for (int64_t i = 0; i < a.dim(); i++)
        if (a.sizes()[i] != 1 && a.strides()[i] != b.strides()[i]) return false;  // the stride of one element reaches nothing
    return true;
}

static bool are_dense(const Tensor& a, const Tensor& b) {
    return a.layout().is_non_overlapping_and_dense() && b.layout().is_non_overlapping_and_dense();
}

Sharing sharing_in_storage(const Tensor& a, const Tensor& b) {
    const int64_t begin = a.offset() * a.item_size(), end = begin + a.layout().extent() * a.item_size();
    const int64_t first = b.offset() * b.item_size(), last = first + b.layout().extent() * b.item_size();
    if (begin == first && a.item_size() == b.item_size() && a.sizes() == b.sizes() && have_same_strides(a, b))
        return Sharing::same_elements;
    if (begin >= last || first >= end) return Sharing::none;
    return are_dense(a, b) ? Sharing::some_elements : Sharing::unclear;
}

void refuse_sharing(const std::string& name) {
    throw RuntimeError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
        "Please clone() the tensor before performing the operation. (",
        name, ")");
}

void check_apart(const Tensor& self, const Tensor& other, const char* name) {
    if (!other || self.storage() != other.storage() || self.numel() == 0 || other.numel() == 0) return;
    const Sharing s = sharing(self, other);
    if (s == Sharing::some_elements || (s == Sharing::same_elements && (self.same(other) || are_dense(self, other)))) refuse_sharing(name);
}

}  // namespace wisp
