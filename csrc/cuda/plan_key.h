// Keys of the maps that keep a library's plans: structs of numbers without padding, compared and hashed as bytes.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace wisp::cuda {

template <class Key> struct SameBytes {
    bool operator()(const Key& a, const Key& b) const { return std::memcmp(&a, &b, sizeof a) == 0; }
};

// Of a multiple of 8 bytes; `h` is the hash of what comes before them.
inline uint64_t hash_bytes(const void* data, size_t bytes, uint64_t h = 1469598103934665603u) {
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word;
        std::memcpy(&word, static_cast<const char*>(data) + i, 8);
        h = (h ^ word) * 1099511628211u;
    }
    return h ^ h >> 29;
}

template <class Key> struct HashBytes {
    static_assert(std::is_trivially_copyable_v<Key> && sizeof(Key) % 8 == 0);
    size_t operator()(const Key& key) const { return hash_bytes(&key, sizeof key); }
};

}  // namespace wisp::cuda
