// Pinned memory of the host, which the GPU copies from and to while the host goes on.
//
// Taking it from the driver is slow, so freed blocks are kept, by powers of two. A block that copies were asked of is
// used again only when the streams of those copies have come past them.
#include <unistd.h>

#include <map>
#include <vector>

#include "../core/errors.h"
#include "../core/storage.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

struct Block {
    void* data;
    size_t bytes;
    std::vector<Handle> streams;  // with copies since it was taken
    std::vector<Handle> events;   // that must pass before it is taken again
};

std::multimap<size_t, Block*> free_blocks;
std::vector<Block*> waiting;
PinnedStats stats{};
int process = 0;

void put_back(Block* b) {
    free_blocks.emplace(b->bytes, b);
    stats.used.sub(1);
    stats.used_bytes.sub(int64_t(b->bytes));
}

void collect() {
    const Driver& d = driver();
    for (size_t i = 0; i < waiting.size();) {
        Block* b = waiting[i];
        while (!b->events.empty() && d.event_query(b->events.back()) == 0) {
            d.event_destroy(b->events.back());
            b->events.pop_back();
        }
        if (!b->events.empty()) {
            i++;
            continue;
        }
        put_back(b);
        waiting[i] = waiting.back();
        waiting.pop_back();
    }
}

void give_back(Storage* storage) {
    auto* b = static_cast<Block*>(storage->owner);
    if (process != getpid()) return;  // a forked child has no business with the driver
    for (Handle stream : b->streams) {
        Handle event = nullptr;
        if (driver().event_create(&event, 2) == 0 && driver().event_record(event, stream) == 0) b->events.push_back(event);
    }
    b->streams.clear();
    if (b->events.empty()) put_back(b);
    else waiting.push_back(b);
}

}  // namespace

Storage* pinned_storage(size_t asked) {
    check_device(-1);
    process = getpid();
    size_t bytes = 4096;
    while (bytes < asked) bytes *= 2;
    if (!waiting.empty()) collect();
    Block* b;
    if (auto it = free_blocks.find(bytes); it != free_blocks.end()) {
        b = it->second;
        free_blocks.erase(it);
    } else {
        void* data = nullptr;
        check(driver().host_allocate(&data, bytes, 1), "allocating pinned memory");  // 1: for every context
        b = new Block{data, bytes, {}, {}};
        stats.owned.add(1);
        stats.owned_bytes.add(int64_t(bytes));
    }
    stats.used.add(1);
    stats.used_bytes.add(int64_t(bytes));
    return Storage::wrap(b->data, asked, give_back, b);
}

bool is_pinned(const Storage* storage) { return storage->release == give_back; }

PinnedStats pinned_stats() { return stats; }

void reset_pinned_stats(bool peaks) {
    for (Counter* c : {&stats.owned, &stats.owned_bytes, &stats.used, &stats.used_bytes}) c->reset(peaks);
}

void note_copy(const Storage* storage, Handle stream) {
    auto* b = static_cast<Block*>(storage->owner);
    for (Handle known : b->streams)
        if (known == stream) return;
    b->streams.push_back(stream);
}

}  // namespace wisp::cuda
