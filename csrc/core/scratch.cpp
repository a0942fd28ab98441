// Thread-local working memory for kernels.
#include "scratch.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace wisp {

namespace {
// Blocks of medium size are cut from one piece of huge pages per thread, where they don't compete for lines of a cache.
struct Blocks {
    static constexpr size_t arena_size = size_t(4) << 20, medium = size_t(32) << 10;
    void* data[8] = {};
    size_t size[8] = {};
    char* arena = nullptr;
    size_t used = 0;
    bool own(void* p) const { return arena && p >= arena && p < arena + arena_size; }
    void* take(size_t bytes) {
        if (bytes < medium || bytes > arena_size / 2) return std::aligned_alloc(64, bytes);
        if (!arena) {
            arena = static_cast<char*>(std::aligned_alloc(arena_size / 2, arena_size));
            if (arena) madvise(arena, arena_size, MADV_HUGEPAGE);
        }
        if (!arena || used + bytes > arena_size) return std::aligned_alloc(64, bytes);
        used += bytes;
        return arena + used - bytes;
    }
    void give_back(int slot) {
        if (!own(data[slot])) std::free(data[slot]);
        else if (static_cast<char*>(data[slot]) + size[slot] == arena + used) used -= size[slot];
    }
    ~Blocks() {
        for (int slot = 0; slot < 8; slot++)
            if (!own(data[slot])) std::free(data[slot]);
        std::free(arena);
    }
};
}  // namespace

void* scratch(int slot, size_t bytes) {
    static thread_local Blocks blocks;
    if (bytes > blocks.size[slot]) {
        const size_t rounded = (bytes + bytes / 4 + 4096) / 64 * 64;
        blocks.give_back(slot);
        blocks.data[slot] = blocks.take(rounded);
        blocks.size[slot] = blocks.data[slot] ? rounded : 0;
        if (!blocks.data[slot]) throw std::bad_alloc();
    }
    return blocks.data[slot];
}

}  // namespace wisp
