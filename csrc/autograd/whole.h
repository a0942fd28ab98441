// An operator that other operators compute, but that is one node of the graph, with PyTorch's name:
//
//     return whole("RenormBackward0", {x}, [&] { return x * factors(x); });
//
// What the steps record becomes the inside of the node. Backward runs it as a graph of its own, differentiably if asked,
// so such an operator needs no derivative; one that is hot has its own (record() in node.h), which is quicker.
#pragma once
#include <tuple>

#include "node.h"

namespace wisp {

uint64_t upcoming_sequence();  // of the next node that is made

// Puts what was recorded since then, from the inputs to the results, into one node. Leaves the graph as it is where that
// can't be done: the results depend on a tensor that is not listed, or are views of one.
void fold(std::span<const Tensor> results, const char* name, std::span<const Tensor> inputs, uint64_t since);

template <class F> Tensor whole(const char* name, std::initializer_list<Tensor> inputs, F&& steps) {
    const uint64_t since = upcoming_sequence();
    const Tensor result = steps();
    fold({&result, 1}, name, spanned(inputs), since);
    return result;
}

// The same with several results.
template <class F> auto whole_of_many(const char* name, std::initializer_list<Tensor> inputs, F&& steps) {
    const uint64_t since = upcoming_sequence();
    auto results = steps();
    std::apply(
        [&](const auto&... t) {
            const Tensor list[] = {t...};
            fold(list, name, spanned(inputs), since);
        },
        results);
    return results;
}

}  // namespace wisp
