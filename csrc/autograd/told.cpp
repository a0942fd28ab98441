// What nodes tell of themselves. See told.h.
#include "told.h"

#include <unordered_map>

namespace wisp {

namespace {

using Tell = void (*)(const Node&, Telling&);
std::unordered_map<void (*)(Backward&), Tell>& telling_closures() {
    static std::unordered_map<void (*)(Backward&), Tell> all;
    return all;
}

Dims sizes_of(const Edge& input) {
    if (!input.node) return {};
    return input.node->variable ? input.node->variable->layout.sizes : input.node->outputs[input.number].sizes;
}

}  // namespace

bool enter_telling(void (*apply)(Backward&), Tell tell) { return telling_closures().emplace(apply, tell).second; }

bool ask(const Node& node, Telling& told) {
    const auto found = telling_closures().find(node.apply);
    if (found == telling_closures().end()) return false;
    found->second(node, told);
    return true;
}

void Telling::say(std::string_view words, const ToldValue* values) {
    int place = -1;  // of a tensor, behind the bar
    while (!words.empty()) {
        const size_t end = std::min(words.find(' '), words.size());
        const std::string word(words.substr(0, end));
        words.remove_prefix(std::min(end + 1, words.size()));
        if (word == "|") place = 0;
        else if (place >= 0) {
            if (word.back() == '*') tensors.push_back({word.substr(0, word.size() - 1), place, int(node.saved.size()) - place});
            else if (word != "-") tensors.push_back({word, place < node.saved.size() ? place : -1});
            place++;
        } else if (word == "self_sym_sizes") numbers.emplace_back(word, sizes_of(node.next[0]));
        else if (word == "self_sym_numel") numbers.emplace_back(word, product(sizes_of(node.next[0])));
        else numbers.emplace_back(word, *values++);
    }
}

}  // namespace wisp
