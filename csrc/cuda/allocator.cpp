// Device memory: large segments from the driver, cut into blocks that are handed out in stream order and merged again.
//
// Best fit with splitting and merging, as memory on a GPU is what limits a model. Every block belongs to the stream that
// it was made for; one that another stream used too (record_use) waits for an event there before it is free. Small blocks that
// were freed first lie in lists by their exact size, as a training step asks for the same sizes again and again.
#include <memory>
#include <set>
#include <vector>

#include "../core/device.h"
#include "../core/errors.h"
#include "../core/storage.h"
#include "runtime.h"

namespace wisp::cuda {

struct MemoryBlock {
    char* data;
    size_t bytes;
    void* stream;
    bool free = false;
    bool small = false;
    MemoryBlock *before = nullptr, *after = nullptr;  // neighbours in the segment
    MemoryBlock* next = nullptr;                      // in a list of one size
    std::vector<void*> users;                   // streams other than its own
};

namespace {

using Block = MemoryBlock;

constexpr size_t unit = 512, small_limit = size_t(1) << 20, small_segment = size_t(2) << 20, large_segment = size_t(20) << 20;

struct BySize {
    bool operator()(const Block* a, const Block* b) const {
        if (a->stream != b->stream) return a->stream < b->stream;
        if (a->bytes != b->bytes) return a->bytes < b->bytes;
        return a->data < b->data;
    }
};

// Freed small blocks of a stream by their size in units; they are not merged with their neighbours as long as they lie here.
struct Lists {
    Handle stream;
    Block* of[small_limit / unit + 1] = {};
};

struct Pool {
    std::set<Block*, BySize> free[2];  // large, small
    std::vector<std::unique_ptr<Lists>> lists;
    std::vector<std::pair<Handle, Block*>> waiting;  // events that must pass before the block is free
    MemoryStats stats{};
};
Pool pools[64];

int working() {
    const Device d = current_device();
    return d.is_cuda() && d.index >= 0 ? d.index : current_index();
}

void give(Pool& pool, Block* b) {
    b->free = true;
    for (Block* other : {b->before, b->after})
        if (other && other->free) {
            pool.free[other->small].erase(other);
            Block *first = other == b->before ? other : b, *second = first == other ? b : other;
            first->bytes += second->bytes;
            first->after = second->after;
            if (second->after) second->after->before = first;
            delete second;
            b = first;
            b->free = true;
        }
    pool.free[b->small].insert(b);
}

Block*& list_for(Pool& pool, Handle stream, size_t bytes) {
    for (auto& l : pool.lists)
        if (l->stream == stream) return l->of[bytes / unit];
    pool.lists.push_back(std::make_unique<Lists>());
    pool.lists.back()->stream = stream;
    return pool.lists.back()->of[bytes / unit];
}

void empty_lists(Pool& pool) {
    for (auto& l : pool.lists)
        for (Block*& first : l->of)
            while (Block* b = first) {
                first = b->next;
                give(pool, b);
            }
}

void collect(Pool& pool, bool wait) {
    for (size_t i = 0; i < pool.waiting.size();) {
        auto [event, block] = pool.waiting[i];
        if (wait) driver().event_synchronize(event);
        if (driver().event_query(event) != 0) {
            i++;
            continue;
        }
        driver().event_destroy(event);
        give(pool, block);
        pool.waiting[i] = pool.waiting.back();
        pool.waiting.pop_back();
    }
}

void return_segments(Pool& pool) {
    empty_lists(pool);
    for (auto& set : pool.free)
        for (auto it = set.begin(); it != set.end();) {
            Block* b = *it;
            if (b->before || b->after) {
                ++it;
                continue;
            }
            it = set.erase(it);
            driver().memory_free(Pointer(b->data));
            pool.stats.reserved -= int64_t(b->bytes);
            delete b;
        }
}

Block* take(Pool& pool, size_t bytes, Handle stream, bool small) {
    Block wanted{nullptr, bytes, stream};
    auto it = pool.free[small].lower_bound(&wanted);
    if (it == pool.free[small].end() || (*it)->stream != stream) return nullptr;
    Block* b = *it;
    // A large block is not spent on a request that would leave most of it unusable.
    if (!small && b->bytes - bytes > large_segment && bytes < large_segment / 2 && b->bytes > 4 * large_segment) return nullptr;
    pool.free[small].erase(it);
    return b;
}

Block* fresh(Pool& pool, size_t bytes, Handle stream, bool small) {
    const size_t segment = small ? small_segment : bytes < large_segment / 2 ? large_segment : (bytes + small_segment - 1) / small_segment * small_segment;
    Pointer p = 0;
    if (driver().memory_allocate(&p, segment) != 0) return nullptr;
    pool.stats.driver_allocations++;
    pool.stats.reserved += int64_t(segment);
    pool.stats.peak_reserved = std::max(pool.stats.peak_reserved, pool.stats.reserved);
    Block* b = new Block{reinterpret_cast<char*>(p), segment, stream};
    b->small = small;
    return b;
}

Block* allocate(size_t asked, int index) {
    Pool& pool = pools[index];
    const size_t bytes = std::max<size_t>((asked + unit - 1) / unit * unit, unit);
    const bool small = bytes <= small_limit;
    const Handle stream = current_stream();
    if (!pool.waiting.empty()) collect(pool, false);
    Block* b = nullptr;
    if (small) {
        Block*& first = list_for(pool, stream, bytes);
        if ((b = first)) first = b->next;
    }
    if (!b) b = take(pool, bytes, stream, small);
    if (!b && small) {
        empty_lists(pool);
        b = take(pool, bytes, stream, small);
    }
    if (!b) b = fresh(pool, bytes, stream, small);
    if (!b) {
        pool.stats.retries++;
        driver().context_synchronize();
        collect(pool, true);
        return_segments(pool);
        b = take(pool, bytes, stream, small);
        if (!b) b = fresh(pool, bytes, stream, small);
    }
    if (!b) {
        size_t free = 0, total = 0;
        driver().memory_info(&free, &total);
        throw OutOfMemory("CUDA out of memory. Tried to allocate ", asked, " bytes on cuda:", index, ": ", int64_t(total), " bytes in all, ",
                          int64_t(free), " free, ", pool.stats.allocated, " held by tensors, ", pool.stats.reserved - pool.stats.allocated,
                          " cached in pieces that are too small. Use smaller batches, free tensors that are no longer needed, run inference under "
                          "no_grad(), or use checkpointing");
    }
    if (b->bytes >= bytes + (small ? unit : small_limit)) {
        Block* rest = new Block{b->data + bytes, b->bytes - bytes, stream};
        rest->small = small;
        rest->free = true;
        rest->before = b;
        rest->after = b->after;
        if (b->after) b->after->before = rest;
        b->after = rest;
        b->bytes = bytes;
        pool.free[small].insert(rest);
    }
    b->free = false;
    pool.stats.allocations++;
    pool.stats.allocated += int64_t(b->bytes);
    pool.stats.peak_allocated = std::max(pool.stats.peak_allocated, pool.stats.allocated);
    return b;
}

void deallocate(Block* b, int index) {
    Pool& pool = pools[index];
    pool.stats.allocated -= int64_t(b->bytes);
    if (b->users.empty()) {
        if (b->small && b->bytes <= small_limit) {
            Block*& first = list_for(pool, b->stream, b->bytes);
            b->next = first;
            first = b;
        } else {
            give(pool, b);
        }
        return;
    }
    Handle event = nullptr;
    for (Handle user : b->users) {
        driver().event_create(&event, 2);
        driver().event_record(event, user);
        driver().stream_wait(b->stream, event, 0);
        driver().event_destroy(event);
    }
    b->users.clear();
    driver().event_create(&event, 2);
    driver().event_record(event, b->stream);
    pool.waiting.emplace_back(event, b);
}

}  // namespace

void provide(Storage* storage) {
    if (storage->bytes == 0) return;
    OnDevice on(storage->device);
    Block* b = allocate(storage->bytes, storage->device.index);
    storage->data = b->data;
    storage->owner = b;
}

void release(Storage* storage) {
    if (!storage->owner) return;
    ensure_context(storage->device.index);
    deallocate(static_cast<Block*>(storage->owner), storage->device.index);
}

Scratch::Scratch(size_t bytes) : block_(bytes ? allocate(bytes, working()) : nullptr), data_(block_ ? block_->data : nullptr) {}
Scratch::~Scratch() {
    if (block_) deallocate(block_, working());
}

void record_use(Storage* storage, Handle stream) {
    if (storage->release || !storage->owner) return;  // not from here
    Block* b = static_cast<Block*>(storage->owner);
    if (b->stream == stream) return;
    for (Handle known : b->users)
        if (known == stream) return;
    b->users.push_back(stream);
}

void empty_cache(int index) {
    Pool& pool = pools[index];
    OnDevice on({DeviceType::cuda, int8_t(index)});
    ensure_context(index);
    driver().context_synchronize();
    collect(pool, true);
    return_segments(pool);
}

MemoryStats memory_stats(int index) { return pools[index].stats; }
void reset_peak(int index) {
    pools[index].stats.peak_allocated = pools[index].stats.allocated;
    pools[index].stats.peak_reserved = pools[index].stats.reserved;
}

}  // namespace wisp::cuda
