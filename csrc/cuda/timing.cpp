// Times of kernels for the profiler: an event before and one behind each launch or library call.
//
// Between the two the GPU may wait a few microseconds for the host, which counts for the kernel; that is the price of
// needing nothing but the driver.
#include <time.h>

#include "../core/device.h"
#include "runtime.h"

namespace wisp::cuda {

bool timing = false;

namespace {

struct Pair {
    std::string name;
    Handle from, to;
    int64_t owner;
    int device;
};
std::vector<Pair> pairs;
struct Start {
    Handle event = nullptr;
    int64_t host = 0;  // nanoseconds
};
Start starts[64];
int64_t (*owner_now)() = nullptr;

int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

Handle recorded() {
    Handle e = nullptr;
    if (driver().event_create(&e, 0) != 0 || driver().event_record(e, current_stream()) != 0) return nullptr;
    return e;
}

}  // namespace

void Timed::begin(const char* name) {
    int capturing = 0;
    driver().stream_capturing(current_stream(), &capturing);
    if (capturing) return;  // events would become part of the graph
    const int index = current_device().is_cuda() && current_device().index >= 0 ? current_device().index : current_index();
    if (!starts[index].event) {
        driver().context_synchronize();
        starts[index] = {recorded(), now()};
    }
    pairs.push_back({name, recorded(), nullptr, owner_now ? owner_now() : -1, index});
    at_ = int64_t(pairs.size()) - 1;
}
void Timed::end() {
    if (at_ < int64_t(pairs.size())) pairs[size_t(at_)].to = recorded();
}

void start_timing(int64_t (*owner)()) {
    owner_now = owner;
    timing = device_count() > 0;
}

std::vector<TimedKernel> stop_timing() {
    std::vector<TimedKernel> all;
    if (!timing) return all;
    timing = false;
    const Driver& d = driver();
    for (const Pair& p : pairs) {
        float at = 0, length = 0;
        if (p.from && p.to && d.event_synchronize(p.to) == 0 && d.event_elapsed(&at, starts[p.device].event, p.from) == 0 &&
            d.event_elapsed(&length, p.from, p.to) == 0)
            all.push_back({p.name, starts[p.device].host + int64_t(double(at) * 1e6), int64_t(double(length) * 1e6), p.owner, p.device});
        for (Handle e : {p.from, p.to})
            if (e) d.event_destroy(e);
    }
    pairs.clear();
    for (Start& s : starts) {
        if (s.event) d.event_destroy(s.event);
        s = {};
    }
    return all;
}

}  // namespace wisp::cuda
