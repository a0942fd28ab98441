// Device memory: large segments from the driver, cut into blocks that are handed out in stream order and merged again.
//
// Best fit with splitting and merging, as memory on a GPU is what limits a model. Every block belongs to the stream that
// it was made for; one that another stream used too (record_use) waits for an event there before it is free. Small blocks that
// were freed first lie in lists by their exact size, as a training step asks for the same sizes again and again.
//
// What a captured graph uses comes from a private pool: a replay writes there at any time, so those blocks are never lent to
// other work nor given back while a graph of the pool lives.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "../core/above.h"
#include "../core/device.h"
#include "../core/errors.h"
#include "../core/storage.h"
#include "runtime.h"

namespace wisp::cuda {

struct MemoryBlock {
    char* data;
    size_t bytes;
    void* stream;
    void* key;     // what may use it: its stream, or in a private pool a number of our own
    int64_t pool;  // 0, or the private pool
    bool free = false;
    bool small = false;
    bool exact = false;                               // of the size that was asked for, straight from the driver
    MemoryBlock *before = nullptr, *after = nullptr;  // neighbours in the segment
    MemoryBlock* next = nullptr;                      // in a list of one size
    std::vector<void*> users;                         // streams other than its own
};

namespace {

using Block = MemoryBlock;

constexpr size_t unit = 512, small_limit = size_t(1) << 20, small_segment = size_t(2) << 20, large_segment = size_t(20) << 20;

struct BySize {
    bool operator()(const Block* a, const Block* b) const {
        if (a->key != b->key) return a->key < b->key;
        if (a->bytes != b->bytes) return a->bytes < b->bytes;
        return a->data < b->data;
    }
};

// Freed small blocks of a stream by their size in units; they are not merged with their neighbours as long as they lie here.
struct Lists {
    Handle key;
    Block* of[small_limit / unit + 1] = {};
};

struct Pool {
    std::set<Block*, BySize> free[2];  // large, small
    std::vector<std::unique_ptr<Lists>> lists;
    std::vector<std::pair<Handle, Block*>> waiting;  // events that must pass before the block is free
    std::set<Block*> segments;                       // their first blocks
    std::vector<Block*> later;                       // freed during a capture, which must not see the events that they need
    MemoryStats stats{};
    int64_t limit = INT64_MAX;
};
Pool pools[64];

// Private pools, by number: how many graphs hold each, and the key of each stream that took memory from it.
std::map<int64_t, int> held;
std::map<std::pair<int64_t, Handle>, Handle> keys;
thread_local int64_t private_pool = 0;    // of this thread's allocations
thread_local bool captured_only = false;  // just those on streams that are being captured
int captures = 0;                         // under way

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

Block*& list_for(Pool& pool, Handle key, size_t bytes) {
    for (auto& l : pool.lists)
        if (l->key == key) return l->of[bytes / unit];
    pool.lists.push_back(std::make_unique<Lists>());
    pool.lists.back()->key = key;
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

// Whole free segments go back to the driver: all that no graph holds, or just those of private pools that are gone.
void return_segments(Pool& pool, bool orphans_only = false) {
    before_work();  // what is kept may use memory that is free by now
    if (!orphans_only) empty_lists(pool);
    for (auto& set : pool.free)
        for (auto it = set.begin(); it != set.end();) {
            Block* b = *it;
            if (b->before || b->after || (b->pool ? held.count(b->pool) > 0 : orphans_only)) {
                ++it;
                continue;
            }
            it = set.erase(it);
            driver().memory_free(Pointer(b->data));
            pool.stats.reserved.sub(int64_t(b->bytes));
            pool.stats.segments.sub(1);
            pool.segments.erase(b);
            delete b;
        }
}

// Where the memory of a stream is to come from now: the stream itself, or a key of the private pool in use.
Handle key_for(Handle stream) {
    if (!private_pool) [[likely]]
        return stream;
    int capturing = 0;
    if (captured_only && (driver().stream_capturing(stream, &capturing) != 0 || !capturing)) return stream;
    Handle& key = keys[{private_pool, stream}];
    static uintptr_t next = 1;  // odd: no stream's address
    if (!key) key = reinterpret_cast<Handle>(next += 2);
    return key;
}

Block* take(Pool& pool, size_t bytes, Handle key, bool small, bool any = false) {
    Block wanted{nullptr, bytes, nullptr, key, 0};
    auto it = pool.free[small].lower_bound(&wanted);
    if (it == pool.free[small].end() || (*it)->key != key) return nullptr;
    Block* b = *it;
    // A large block is not spent on a request that would leave most of it unusable, unless nothing else is left.
    if (!any && !small && b->bytes - bytes > large_segment && bytes < large_segment / 2 && b->bytes > 4 * large_segment) return nullptr;
    pool.free[small].erase(it);
    return b;
}

Block* fresh(Pool& pool, size_t bytes, Handle stream, Handle key, bool small) {
    const size_t segment = small                       ? small_segment
                           : bytes < large_segment / 2 ? large_segment
                                                       : (bytes + small_segment - 1) / small_segment * small_segment;
    Pointer p = 0;
    if (int64_t(segment) > pool.limit - pool.stats.reserved.now || driver().memory_allocate(&p, segment) != 0) return nullptr;
    pool.stats.segments.add(1);
    pool.stats.reserved.add(int64_t(segment));
    Block* b = new Block{reinterpret_cast<char*>(p), segment, stream, key, key == stream ? 0 : private_pool};
    b->small = small;
    pool.segments.insert(b);
    return b;
}

// With PYTORCH_NO_CUDA_MEMORY_CACHING set every tensor is an allocation of the driver's own, of its very size, so that
// compute-sanitizer sees each byte that is read or written beside it.
bool cached = !std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");

Block* allocate_exactly(Pool& pool, size_t bytes) {
    Pointer p = 0;
    if (driver().memory_allocate(&p, bytes) != 0) return nullptr;
    Block* b = new Block{reinterpret_cast<char*>(p), bytes, current_stream(), current_stream(), 0};
    b->exact = true;
    pool.segments.insert(b);
    pool.stats.reserved.add(int64_t(bytes));
    return b;
}

void free_exactly(Pool& pool, Block* b) {
    before_work();  // what is kept may use it
    driver().context_synchronize();
    driver().memory_free(Pointer(b->data));
    pool.stats.reserved.sub(int64_t(b->bytes));
    pool.segments.erase(b);
    delete b;
}

Block* allocate(size_t asked, int index) {
    Pool& pool = pools[index];
    const size_t bytes = std::max<size_t>((asked + unit - 1) / unit * unit, unit);
    const bool small = bytes <= small_limit;
    const Handle stream = current_stream(), key = key_for(stream);
    if (asked > size_t(INT64_MAX) - large_segment)
        throw DeviceOutOfMemory("CUDA out of memory. Tried to allocate ", asked, " bytes on cuda:", index);
    if (!pool.waiting.empty()) collect(pool, false);
    Block* b = nullptr;
    if (!cached && !private_pool) [[unlikely]]
        b = allocate_exactly(pool, asked);
    if (!b && small) {
        Block*& first = list_for(pool, key, bytes);
        if ((b = first)) first = b->next;
    }
    if (!b) b = take(pool, bytes, key, small);
    if (!b && small) {
        empty_lists(pool);
        b = take(pool, bytes, key, small);
    }
    if (!b) b = fresh(pool, bytes, stream, key, small);
    if (!b) {
        pool.stats.retries++;
        if (!captures) {  // a capture would be broken by waiting
            before_work();
            driver().context_synchronize();
            collect(pool, true);
            return_segments(pool);
        }
        b = take(pool, bytes, key, small, true);
        if (!b) b = fresh(pool, bytes, stream, key, small);
    }
    if (!b) {
        pool.stats.failures++;
        size_t free = 0, total = 0;
        driver().memory_info(&free, &total);
        throw DeviceOutOfMemory(
            "CUDA out of memory. Tried to allocate ", asked, " bytes on cuda:", index, ": ", int64_t(total), " bytes in all, ",
            int64_t(free), " free, ", pool.stats.allocated.now, " held by tensors, ", pool.stats.reserved.now - pool.stats.allocated.now,
            " cached in pieces that are too small",
            pool.limit < INT64_MAX ? str(", ", pool.limit, " allowed by set_per_process_memory_fraction") : std::string(),
            ". Use smaller batches, free tensors that are no longer needed, run inference under no_grad(), or use checkpointing");
    }
    if (!b->exact && b->bytes >= bytes + (small ? unit : small_limit)) {
        Block* rest = new Block{b->data + bytes, b->bytes - bytes, b->stream, b->key, b->pool};
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
    pool.stats.blocks.add(1);
    pool.stats.allocated.add(int64_t(b->bytes));
    return b;
}

void free_after_users(Pool& pool, Block* b) {
    before_work();
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

void deallocate(Block* b, int index) {
    Pool& pool = pools[index];
    pool.stats.allocated.sub(int64_t(b->bytes));
    pool.stats.blocks.sub(1);
    if (b->exact && !captures) return free_exactly(pool, b);
    if (!b->users.empty()) {
        if (captures) pool.later.push_back(b);
        else free_after_users(pool, b);
    } else if (b->small && b->bytes <= small_limit && (!b->pool || held.count(b->pool))) {
        Block*& first = list_for(pool, b->key, b->bytes);
        b->next = first;
        first = b;
    } else {
        const bool orphan = b->pool && !held.count(b->pool);
        give(pool, b);
        if (orphan && !captures) return_segments(pool, true);
    }
}

}  // namespace

int64_t new_pool() {
    static int64_t last = 0;
    return ++last;
}

void use_pool(int64_t pool, bool captured) {
    private_pool = pool;
    captured_only = captured;
}
int64_t pool_in_use() { return private_pool; }
bool is_captured() { return private_pool && captured_only; }

void hold_pool(int64_t pool) { held[pool]++; }

void let_go_of_pool(int64_t number) {
    auto it = held.find(number);
    if (it == held.end() || --it->second > 0) return;
    held.erase(it);
    for (Pool& pool : pools) {
        empty_lists(pool);
        std::erase_if(pool.lists, [&](const auto& l) {
            return std::any_of(keys.begin(), keys.end(), [&](const auto& k) { return k.first.first == number && k.second == l->key; });
        });
    }
    std::erase_if(keys, [&](const auto& k) { return k.first.first == number; });
    if (captures) return;  // the memory goes back with the next that does
    for (int i = 0; i < 64; i++)
        if (!pools[i].free[0].empty() || !pools[i].free[1].empty()) {
            ensure_context(i);
            return_segments(pools[i], true);
        }
}

void capture_begins() { captures++; }
void capture_ends() {
    if (--captures > 0) return;
    for (int i = 0; i < 64; i++)
        while (!pools[i].later.empty()) {
            OnDevice on({DeviceType::cuda, int8_t(i)});
            ensure_context(i);
            Block* b = pools[i].later.back();
            pools[i].later.pop_back();
            free_after_users(pools[i], b);
        }
}

void provide(Storage* storage) {
    if (storage->bytes == 0) return;
    OnDevice on(storage->device);
    Block* b = allocate(storage->bytes, storage->device.index);
    storage->address = b->data;
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

void tidy_memory() {
    for (Pool& pool : pools)
        if (!pool.lists.empty()) empty_lists(pool);
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
void reset_stats(int index, bool peaks) {
    MemoryStats& s = pools[index].stats;
    for (Counter* c : {&s.allocated, &s.reserved, &s.blocks, &s.segments}) c->reset(peaks);
    if (!peaks) s.retries = s.failures = 0;
}
void limit_memory(int index, int64_t bytes) { pools[index].limit = bytes; }

bool use_caching(bool keep) {
    const bool before = cached;
    cached = keep;
    return before;
}

std::vector<PieceOfMemory> memory_pieces(int index) {
    Pool& pool = pools[index];
    empty_lists(pool);  // what lies in them does not look free
    std::set<const Block*> waiting(pool.later.begin(), pool.later.end());
    for (const auto& [event, b] : pool.waiting) waiting.insert(b);
    std::vector<PieceOfMemory> pieces;
    for (const Block* first : pool.segments)
        for (const Block* b = first; b; b = b->after)
            pieces.push_back({b->data, int64_t(b->bytes), b->stream, b->pool, b == first, b->free ? 'f' : waiting.count(b) ? 'w' : 'u'});
    return pieces;
}

static const bool known_to_the_core = (accelerator = {check_device, provide, release, between}, true);

}  // namespace wisp::cuda
