// Elements as bits: the same bits as another type, and elements that are moved without being understood. Include from
// kernel files only.
#pragma once
#include <cstdint>
#include <cstring>

#include "isa.h"

namespace wisp::cpu::WISP_ISA {
namespace {

template <class To, class From> WISP_INLINE To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To y;
    std::memcpy(&y, &x, sizeof y);
    return y;
}

// A place of which the compiler makes no vector: instructions that gather are slower than single loads on many processors.
WISP_INLINE int64_t one_by_one(int64_t place) {
    asm("" : "+r"(place));
    return place;
}

// An element of a bool tensor. Any byte but 0 is true: views of other dtypes, arrays of NumPy and files bring such bytes,
// so a kernel that compares, adds or counts reads them through this.
struct Bool {
    uint8_t byte;
    constexpr operator int() const { return byte != 0; }
};

struct Item16 {
    uint64_t a, b;
};

// Calls f with a null pointer of a type of `item` bytes.
template <class F> WISP_INLINE void by_item(int64_t item, F&& f) {
    switch (item) {
    case 1: return f(static_cast<uint8_t*>(nullptr));
    case 2: return f(static_cast<uint16_t*>(nullptr));
    case 4: return f(static_cast<uint32_t*>(nullptr));
    case 8: return f(static_cast<uint64_t*>(nullptr));
    default: return f(static_cast<Item16*>(nullptr));
    }
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
