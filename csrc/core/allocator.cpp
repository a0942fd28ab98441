// Caching allocator: free lists per size class over malloc (small) and huge-page mappings (large).
#include "allocator.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "errors.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace wisp {
namespace {

// Four classes per power of two from 64 bytes on: at most 25 % of a block is unused.
constexpr int class_count = 4 * 34;
constexpr size_t huge_page = size_t(2) << 20, huge_threshold = size_t(1) << 20;

int class_of(size_t bytes) {
    if (bytes <= 64) return 0;
    const int log = 63 - __builtin_clzll(bytes - 1);  // 2^log < bytes <= 2^(log + 1)
    const int quarter = int((bytes - 1) >> (log - 2)) & 3;
    return 4 * (log - 6) + quarter + 1;
}

size_t class_bytes(int c) {
    if (c == 0) return 64;
    const int log = (c - 1) / 4 + 6, quarter = (c - 1) % 4;
    return (size_t(1) << log) + (size_t(quarter + 1) << (log - 2));
}

struct Free {
    Free* next;
};

Free* lists[class_count];
AllocatorStats stats;

void* fresh(size_t bytes) {
    bytes += allocation_tail;
    if (bytes < huge_threshold) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    const size_t rounded = (bytes + huge_page - 1) / huge_page * huge_page;
    void* data = std::aligned_alloc(huge_page, rounded);
    if (data) madvise(data, rounded, MADV_HUGEPAGE);
    return data;
}

}  // namespace

void* allocate(size_t bytes) {
    stats.live_bytes += int64_t(bytes);
    stats.live_blocks++;
    const int c = class_of(bytes);
#if defined(__SANITIZE_ADDRESS__)
    // No cache and no tail: the sanitizer sees every block end where the tensor ends.
    void* data = c < class_count ? std::aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr;
    if (data) ASAN_POISON_MEMORY_REGION(static_cast<char*>(data) + bytes, (bytes + 63) / 64 * 64 - bytes);
#else
    void* data = nullptr;
    if (c < class_count) {
        if (Free* head = lists[c]) {
            lists[c] = head->next;
            stats.cached_bytes -= int64_t(class_bytes(c));
            return head;
        }
        data = fresh(class_bytes(c));
        if (!data) {
            empty_cache();
            data = fresh(class_bytes(c));
        }
    }
#endif
    if (!data) {
        stats.live_bytes -= int64_t(bytes);
        stats.live_blocks--;
        throw OutOfMemory("not enough memory: tried to allocate ", bytes, " bytes; ", stats.live_bytes, " bytes are live in ",
                          stats.live_blocks, " tensors. Use smaller batches, free tensors that are no longer needed, or run "
                          "inference under no_grad()");
    }
    return data;
}

void deallocate(void* data, size_t bytes) {
    stats.live_bytes -= int64_t(bytes);
    stats.live_blocks--;
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(data, (bytes + 63) / 64 * 64);
    std::free(data);
#else
    const int c = class_of(bytes);
    auto* block = static_cast<Free*>(data);
    block->next = lists[c];
    lists[c] = block;
    stats.cached_bytes += int64_t(class_bytes(c));
#endif
}

void empty_cache() {
    for (Free*& list : lists)
        while (Free* head = list) {
            list = head->next;
            std::free(head);
        }
    stats.cached_bytes = 0;
}

AllocatorStats allocator_stats() { return stats; }

}  // namespace wisp
