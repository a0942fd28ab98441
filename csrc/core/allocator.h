// Caching allocator for tensor memory on the CPU: last in, first out by size class, so that a block is still in cache.
// Called with the interpreter lock held. Blocks are 64-byte aligned and end in a readable tail for vector kernels.
#pragma once
#include <cstddef>
#include <cstdint>

namespace wisp {

constexpr size_t allocation_tail = 256;

void* allocate(size_t bytes);               // throws OutOfMemory
void deallocate(void* data, size_t bytes);  // with the size that was asked for
void empty_cache();

struct AllocatorStats {
    int64_t live_bytes, live_blocks, cached_bytes;
};
AllocatorStats allocator_stats();

}  // namespace wisp
