// Caching allocator: free lists per size class over malloc (small), parts of huge pages (medium) and huge-page mappings
// (large). In one huge page neighbours never compete for the same lines of a cache, as scattered small pages do.
//
// Of large blocks more than `kept_for_nothing` stay only where a program has shown that it comes back for them: a size that is
// mapped anew soon after it was given back is kept the next time. And a size that is not there takes what lies free in others.
#include "allocator.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <new>

#include "errors.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace wisp {
namespace {

// Four classes per power of two from 64 bytes on: at most 25 % of a block is unused.
constexpr int class_count = 4 * 34;
constexpr size_t page = 4096, huge_page = size_t(2) << 20, huge_threshold = size_t(1) << 20, slab_threshold = size_t(32) << 10;

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

constexpr size_t kept_for_nothing = size_t(256) << 20;
size_t large_cached;  // bytes of large blocks in the lists
struct Reuse {
    int free = 0, given_back = 0, kept = 0;      // blocks in the list; given back and not asked for since; worth keeping
    std::chrono::steady_clock::time_point when;  // the last was given back
};
Reuse reuse[class_count];

// Four megabytes that blocks are cut from, one behind the other. Its header is at its beginning.
struct Slab {
    static constexpr size_t size = 2 * huge_page;
    Slab* next;
    size_t used;
    int blocks, free;  // cut from it; of them in the free lists, counted when memory is given back

    static Slab* make() {
        void* memory = std::aligned_alloc(size, size);
        if (!memory) return nullptr;
        madvise(memory, size, MADV_HUGEPAGE);
        return new (memory) Slab{nullptr, 64, 0, 0};
    }
    static Slab* of(void* block) { return reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(block) / size * size); }
};
Slab* slabs;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Pages of their own, which the system gets back at once when they are unmapped; aligned to huge ones. What is left at the end
// is small pages, of which only those that are touched exist.
void* map_pages(size_t bytes) {
    const size_t all = bytes + huge_page;
    void* memory = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    char* begin = static_cast<char*>(memory);
    char* data = reinterpret_cast<char*>(rounded_up(reinterpret_cast<uintptr_t>(begin), huge_page));
    if (data > begin) munmap(begin, size_t(data - begin));
    munmap(data + bytes, size_t(begin + all - (data + bytes)));
    madvise(data, bytes, MADV_HUGEPAGE);
    return data;
}

constexpr int first_large = 4 * (19 - 6) + 4;  // the class of a megabyte, with its tail the first that has pages of its own
void unmap_large(void* block, int c) { munmap(block, rounded_up(class_bytes(c) + allocation_tail, page)); }

bool is_medium(size_t class_size) { return class_size >= slab_threshold && class_size + allocation_tail < huge_threshold; }

void* cut_from_slab(size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    Slab* slab = slabs;
    for (int tries = 0; slab && tries < 4 && slab->used + bytes > Slab::size; tries++) slab = slab->next;
    if (!slab || slab->used + bytes > Slab::size) {
        slab = Slab::make();
        if (!slab) return nullptr;
        slab->next = slabs;
        slabs = slab;
    }
    void* block = reinterpret_cast<char*>(slab) + slab->used;
    slab->used += bytes;
    slab->blocks++;
    return block;
}

void* fresh(size_t bytes) {
    const bool medium = is_medium(bytes);
    bytes += allocation_tail;
    if (medium) return cut_from_slab(bytes);
    if (bytes < huge_threshold) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return map_pages(rounded_up(bytes, page));
}

// Gives back free large blocks of any size until `bytes` are gone, or what is left is little.
void make_room(size_t bytes) {
    size_t gone = 0;
    for (int c = class_count - 1; c >= first_large && gone < bytes && large_cached > kept_for_nothing; c--)
        while (Free* head = lists[c]) {
            lists[c] = head->next;
            stats.cached_bytes -= int64_t(class_bytes(c));
            large_cached -= class_bytes(c);
            reuse[c].free--;
            reuse[c].kept = 0;
            gone += class_bytes(c);
            unmap_large(head, c);
            if (gone >= bytes || large_cached <= kept_for_nothing) break;
        }
}

void* fresh_large(int c) {
    Reuse& r = reuse[c];
    if (r.given_back > 0) {
        r.given_back--;
        if (std::chrono::steady_clock::now() - r.when < std::chrono::seconds(1)) r.kept++;
    }
    if (large_cached > kept_for_nothing) make_room(class_bytes(c));
    return fresh(class_bytes(c));
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
            if (c >= first_large) {
                large_cached -= class_bytes(c);
                reuse[c].free--;
            }
            return head;
        }
        data = c >= first_large ? fresh_large(c) : fresh(class_bytes(c));
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
                          stats.live_blocks,
                          " tensors. Use smaller batches, free tensors that are no longer needed, or run "
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
    if (c >= first_large) {
        Reuse& r = reuse[c];
        if (large_cached + class_bytes(c) > kept_for_nothing && r.free >= r.kept) {
            r.given_back++;
            r.when = std::chrono::steady_clock::now();
            unmap_large(data, c);
            return;
        }
        large_cached += class_bytes(c);
        r.free++;
    }
    auto* block = static_cast<Free*>(data);
    block->next = lists[c];
    lists[c] = block;
    stats.cached_bytes += int64_t(class_bytes(c));
#endif
}

void empty_cache() {
    // Slabs of which every block is free are given back whole; blocks of the others stay.
    for (Slab* slab = slabs; slab; slab = slab->next) slab->free = 0;
    for (int c = 0; c < class_count; c++)
        for (Free* block = is_medium(class_bytes(c)) ? lists[c] : nullptr; block; block = block->next) Slab::of(block)->free++;
    for (int c = 0; c < class_count; c++) {
        Free* kept = nullptr;
        while (Free* head = lists[c]) {
            lists[c] = head->next;
            const bool medium = is_medium(class_bytes(c));
            if (medium && Slab::of(head)->free < Slab::of(head)->blocks) {
                head->next = kept;
                kept = head;
                continue;
            }
            if (c >= first_large) unmap_large(head, c);
            else if (!medium) std::free(head);
            stats.cached_bytes -= int64_t(class_bytes(c));
        }
        lists[c] = kept;
        reuse[c].free = 0;
    }
    large_cached = 0;
    for (Slab** at = &slabs; *at;) {
        Slab* slab = *at;
        if (slab->free < slab->blocks) {
            at = &slab->next;
        } else {
            *at = slab->next;
            std::free(slab);
        }
    }
}

AllocatorStats allocator_stats() { return stats; }

}  // namespace wisp
