// What a node tells of itself besides its inputs: `grad_fn._saved_dim`, by which programs that draw graphs look.
//
//     record(y, "SoftmaxBackward0", {x}, {y}, told<"dim | result">([dim](Backward& bw) { ... }, dim));
//
// names the numbers that follow the closure and, behind the bar, the saved tensors in their order ("-": none; "indices*": all that are
// left). `self_sym_sizes` and `self_sym_numel` among the numbers are of the first input, and need no value. A closure may take the numbers
// as parameters, in place of copies of its own, so that it still fits into the node. Names are asked for by the closure's type when
// somebody looks.
#pragma once
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "../core/scalar.h"
#include "node.h"

namespace wisp {

struct ToldDims {  // as bits
    uint64_t mask;
};
using ToldValue = std::variant<std::monostate, bool, int64_t, double, Scalar, Dims, ToldDims, const char*>;

struct Telling {
    const Node& node;
    std::vector<std::pair<std::string, ToldValue>> numbers;
    struct Place {  // among what is saved; of a list of tensors, the first and how many
        std::string name;
        int at, count = -1;  // at -1: there is none this time
    };
    std::vector<Place> tensors;
    void say(std::string_view words, const ToldValue* values);
};

template <size_t n> struct Words {
    char text[n];
    constexpr Words(const char (&s)[n]) { std::copy_n(s, n, text); }
};

template <Words words, class F, class... V> struct Told : F {
    std::tuple<V...> values;
    void operator()(Backward& bw) const {
        const F& own = *this;
        if constexpr (std::is_invocable_v<const F&, Backward&>) own(bw);
        else std::apply([&own, &bw](const auto&... v) { own(bw, v...); }, values);
    }
    void tell(Telling& t) const {
        std::apply(
            [&](const auto&... v) {
                const ToldValue all[] = {ToldValue(v)..., ToldValue()};
                t.say(words.text, all);
            },
            values);
    }
};
// It is made in the node, of the closure where that is: closures hold shapes, which cost a little to move.
template <Words words, class F, class... V> struct ToldParts {
    using Closure = Told<words, std::remove_const_t<F>, V...>;
    F& f;
    std::tuple<V...> values;
    operator Closure() { return {std::move(f), values}; }
};
template <Words words, class F, class... V> ToldParts<words, std::remove_reference_t<F>, V...> told(F&& f, const V&... values) {
    return {f, {values...}};
}

// What the node tells, if its closure does: numbers by name, and where its tensors are.
bool ask(const Node& node, Telling& told);

}  // namespace wisp
