// Parts that the front doors for images share.
#pragma once
#include <vector>

#include "ops.h"

namespace wisp {

// Where each element of a padded or resampled image comes from, along the last three dimensions.
struct IndexMap {
    enum Kind : uint8_t { reflect, replicate, circular, nearest, nearest_exact };
    Kind kind;
    int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
    int64_t left[3] = {0, 0, 0};  // padding before the first element
    float scale[3] = {1, 1, 1};   // of the nearest kinds: input per output

    std::vector<int64_t> table(int d) const;
};
Tensor apply_map(const IndexMap& m, int dims, const Tensor& input, bool backward, const char* name);

}  // namespace wisp
