// Thread-local working memory for kernels.
#include "scratch.h"

#include <cstdlib>
#include <new>

namespace wisp {

namespace {
struct Blocks {
    void* data[8] = {};
    size_t size[8] = {};
    ~Blocks() {
        for (void* p : data) std::free(p);
    }
};
}  // namespace

void* scratch(int slot, size_t bytes) {
    static thread_local Blocks blocks;
    if (bytes > blocks.size[slot]) {
        const size_t rounded = (bytes + bytes / 4 + 4096) / 64 * 64;
        std::free(blocks.data[slot]);
        blocks.data[slot] = std::aligned_alloc(64, rounded);
        blocks.size[slot] = blocks.data[slot] ? rounded : 0;
        if (!blocks.data[slot]) throw std::bad_alloc();
    }
    return blocks.data[slot];
}

}  // namespace wisp
