// Generator: the state of random numbers is two integers, the seed and the number of draws made so far.
// Element i of a draw depends only on (seed, offset of the draw, i): the same numbers on any device and thread count.
#pragma once
#include <cstdint>

namespace wisp {

struct Generator {
    uint64_t seed = 67280421310721u;
    uint64_t offset = 0;
    // Reserves a draw and returns its offset.
    uint64_t next() { return offset++; }
};
Generator& default_generator();

}  // namespace wisp
