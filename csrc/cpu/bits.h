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

// memcpy for rows. The library's own hands some thousand bytes to `rep movsb`, which some processors run at a tenth of their speed
// when the two ends are not aligned alike.
WISP_INLINE void copy_bytes_of_row(void* to, const void* from, size_t bytes) {
    if (bytes < 1024 || bytes > size_t(1) << 20) {
        std::memcpy(to, from, bytes);
        return;
    }
    typedef char Line __attribute__((vector_size(64), aligned(1), may_alias));
    char* d = static_cast<char*>(to);
    const char* s = static_cast<const char*>(from);
    char* const end = d + bytes;
    const Line last = *reinterpret_cast<const Line*>(s + bytes - 64);
    *reinterpret_cast<Line*>(d) = *reinterpret_cast<const Line*>(s);
    const size_t head = 64 - (reinterpret_cast<uintptr_t>(d) & 63);
    for (d += head, s += head; end - d >= 256; d += 256, s += 256) {
        const Line a = reinterpret_cast<const Line*>(s)[0], b = reinterpret_cast<const Line*>(s)[1];
        const Line c = reinterpret_cast<const Line*>(s)[2], e = reinterpret_cast<const Line*>(s)[3];
        reinterpret_cast<Line*>(d)[0] = a, reinterpret_cast<Line*>(d)[1] = b;
        reinterpret_cast<Line*>(d)[2] = c, reinterpret_cast<Line*>(d)[3] = e;
        asm volatile("" ::: "memory");  // or the compiler sees a memcpy in the loop
    }
    for (; end - d > 64; d += 64, s += 64) {
        *reinterpret_cast<Line*>(d) = *reinterpret_cast<const Line*>(s);
        asm volatile("" ::: "memory");
    }
    *reinterpret_cast<Line*>(end - 64) = last;
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
