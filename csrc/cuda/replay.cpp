// Launches that are kept back, and sent together as a graph.
//
// In a region of mode="reduce-overhead" a launch or a product is written down instead of being sent, which costs a copy of its
// arguments. What is written down is sent when anything else is asked of the device. When the same work was sent before (the same
// kernels, grids and products in the same order), it is captured as a graph, and from then on sent by launching that; arguments of
// kernels that differ from the graph's are changed in it first. So a graph only ever does what would have been sent without it.
#include <algorithm>
#include <cstring>
#include <list>

#include "../core/device.h"
#include "plan_key.h"
#include "runtime.h"

namespace wisp::cuda {

bool work_kept = false;
constinit thread_local bool keeps_work = false;
ReplayCounts replay_counts;

namespace {

constexpr int longest = 256;       // records that are kept: the device should not wait for long
constexpr int shortest = 4;        // that a graph pays for
constexpr size_t most_known = 64;  // graphs

// A launch or a call. Its bytes, and those of a call's data, are compared; the arguments of a launch may differ.
struct Record {
    Handle function = nullptr;                                // of a launch
    void (*call)(const void* data, Handle stream) = nullptr;  // of a library
    const char* title = nullptr;
    Grid grid{}, block{};
    unsigned shared = 0;
    uint16_t arguments = 0;  // how many
    uint16_t early = 0;      // see send_launch
    uint64_t bytes = 0;      // of the arguments, or of the data
};

static_assert(sizeof(Record) == 64);

struct Work {
    std::vector<char> records;    // each with its data, or the sizes of its arguments
    std::vector<char> arguments;  // of launches, each at a multiple of 16
    uint64_t hash = 0;
    int count = 0;
    size_t last = 0, last_arguments = 0;  // where those of the last record are
    uint64_t hash_before = 0;             // the last record
    Handle stream = nullptr;
    Device device;

    char* extend(std::vector<char>& to, size_t bytes) {
        const size_t at = to.size();
        to.resize(at + (bytes + 15) / 16 * 16);
        return to.data() + at;
    }
    void clear() {
        records.clear();
        arguments.clear();
        hash = 0;
        count = 0;
    }
};
Work kept;

struct Known {
    Work work;
    Handle graph = nullptr, executable = nullptr;
    std::vector<Handle> nodes;  // of the launches
    bool fails = false;

    Known() = default;
    Known(Known&& o) = delete;
    ~Known() {
        if (executable) driver().graph_executable_destroy(executable);
        if (graph) driver().graph_destroy(graph);
    }
};
std::list<Known>& known = *new std::list<Known>;  // the one that was used last is the first; the driver may be gone at the end

// Goes through the work: on_launch(record, pointers to its arguments, its number) and on_call(record, data).
template <class OnLaunch, class OnCall> void each(const Work& w, OnLaunch on_launch, OnCall on_call) {
    const char* at = w.records.data();
    char* arguments = const_cast<char*>(w.arguments.data());
    void* pointers[64];
    int launches = 0;
    for (int i = 0; i < w.count; i++) {
        const Record& r = *reinterpret_cast<const Record*>(at);
        at += sizeof(Record);
        if (r.call) {
            on_call(r, static_cast<const void*>(at));
            at += (r.bytes + 15) / 16 * 16;
            continue;
        }
        const uint32_t* sizes = reinterpret_cast<const uint32_t*>(at);
        at += (r.arguments * sizeof(uint32_t) + 15) / 16 * 16;
        char* argument = arguments;
        for (uint32_t k = 0; k < r.arguments; k++) {
            pointers[k] = argument;
            argument += (sizes[k] + 15) / 16 * 16;
        }
        arguments += r.bytes;
        on_launch(r, pointers, launches++);
    }
}

void send(const Work& w) {
    each(
        w,
        [&](const Record& r, void** arguments, int) {
            check(send_launch(r.function, r.grid, r.block, r.shared, r.early, w.stream, arguments), r.title);
        },
        [&](const Record& r, const void* data) { r.call(data, w.stream); });
}

// Makes the graph of work that came a second time. False: it can't be captured, and nothing was sent.
bool capture(Known& k, const Work& w) {
    const Driver& d = driver();
    if (d.stream_capture_begin(w.stream, 2) != 0) return false;  // 2: relaxed
    bool fine = true;
    try {
        each(
            w,
            [&](const Record& r, void** arguments, int) {
                fine &= send_launch(r.function, r.grid, r.block, r.shared, r.early, w.stream, arguments) == 0;
                // What comes next in the stream depends on the node that was just made.
                int status = 0;
                unsigned long long id = 0;
                const Handle* last = nullptr;
                const void* edges = nullptr;
                size_t count = 0;
                fine &= d.stream_capture_info(w.stream, &status, &id, nullptr, &last, &edges, &count) == 0 && count == 1;
                k.nodes.push_back(fine ? last[0] : nullptr);
            },
            [&](const Record& r, const void* data) { r.call(data, w.stream); });
    } catch (...) { fine = false; }
    fine &= d.stream_capture_end(w.stream, &k.graph) == 0 && k.graph;
    return fine && d.graph_instantiate(&k.executable, k.graph, 0) == 0;
}

// Gives the graph the arguments of this work. False: the driver would not.
bool adapt(Known& k, const Work& w) {
    if (k.work.arguments.size() == w.arguments.size() && std::memcmp(k.work.arguments.data(), w.arguments.data(), w.arguments.size()) == 0)
        return true;
    bool fine = true;
    const char* before = k.work.arguments.data();
    each(
        w,
        [&](const Record& r, void** arguments, int number) {
            const char* old = before;
            before += r.bytes;
            if (!fine || r.bytes == 0 || std::memcmp(old, arguments[0], r.bytes) == 0) return;
            KernelNode node{r.function, r.grid.x, r.grid.y, r.grid.z, r.block.x, r.block.y, r.block.z, r.shared, arguments};
            fine = driver().graph_set_kernel(k.executable, k.nodes[size_t(number)], &node) == 0;
            replay_counts.adapted++;
        },
        [](const Record&, const void*) {});
    k.work.arguments = w.arguments;
    return fine;
}

bool is_same(const Work& a, const Work& b) {
    return a.hash == b.hash && a.count == b.count && a.stream == b.stream && a.device == b.device && a.records == b.records;
}

void send_or_replay(const Work& w) {
    if (w.count < shortest) return send(w);
    auto it = std::find_if(known.begin(), known.end(), [&](const Known& k) { return is_same(k.work, w); });
    if (it == known.end()) {
        known.emplace_front().work = w;
        if (known.size() > most_known) known.pop_back();
        return send(w);
    }
    known.splice(known.begin(), known, it);
    Known& k = known.front();
    if (k.fails) return send(w);
    if (!k.executable) {
        k.fails = !capture(k, w);
        k.work.arguments = w.arguments;
        replay_counts.graphs += !k.fails;
    } else if (!adapt(k, w)) {
        k.fails = true;
    }
    if (k.fails) return send(w);
    check(driver().graph_launch(k.executable, w.stream), "launching what was kept back");
    replay_counts.replayed += w.count;
}

void begin_record(const Handle stream) {
    if (work_kept && (kept.stream != stream || !(kept.device == current_device()) || kept.count >= longest)) send_kept();
    if (work_kept) return;
    kept.clear();
    kept.stream = stream;
    kept.device = current_device();
    work_kept = true;
}

void end_record(size_t from) {
    kept.last = from;
    kept.hash_before = kept.hash;
    kept.hash = hash_bytes(kept.records.data() + from, kept.records.size() - from, kept.hash);
    kept.count++;
    replay_counts.kept++;
}

}  // namespace

void keep_launch(const char* title, Handle function, Grid grid, Grid block, unsigned shared, bool early, Handle stream, void** arguments,
                 const uint32_t* sizes, int count) {
    begin_record(stream);
    const size_t from = kept.records.size();
    kept.last_arguments = kept.arguments.size();
    Record r;
    r.function = function, r.title = title, r.grid = grid, r.block = block, r.shared = shared, r.arguments = uint16_t(count),
    r.early = early;
    for (int i = 0; i < count; i++) {
        std::memcpy(kept.extend(kept.arguments, sizes[i]), arguments[i], sizes[i]);
        r.bytes += (sizes[i] + 15) / 16 * 16;
    }
    std::memcpy(kept.extend(kept.records, sizeof r), static_cast<const void*>(&r), sizeof r);
    std::memcpy(kept.extend(kept.records, size_t(count) * sizeof *sizes), sizes, size_t(count) * sizeof *sizes);
    end_record(from);
}

void keep_call(void (*call)(const void* data, Handle stream), const void* data, size_t bytes, Handle stream) {
    begin_record(stream);
    const size_t from = kept.records.size();
    Record r;
    r.call = call, r.bytes = bytes;
    std::memcpy(kept.extend(kept.records, sizeof r), static_cast<const void*>(&r), sizeof r);
    std::memcpy(kept.extend(kept.records, bytes), data, bytes);
    end_record(from);
}

KeptLaunch last_kept(Handle function, Handle stream) {
    if (!work_kept || kept.count == 0 || kept.stream != stream || !(kept.device == current_device())) return {};
    const Record& r = *reinterpret_cast<const Record*>(kept.records.data() + kept.last);
    if (r.function != function) return {};
    return {kept.arguments.data() + kept.last_arguments, r.grid};
}

void widen_kept(Grid grid) {
    reinterpret_cast<Record*>(kept.records.data() + kept.last)->grid = grid;
    kept.hash = hash_bytes(kept.records.data() + kept.last, kept.records.size() - kept.last, kept.hash_before);
}

bool may_keep() {
    if (launches_wait) launch_waiting();
    return !timing && !is_captured();
}

void send_kept() {
    work_kept = false;
    static Work sent;  // its memory is used again
    std::swap(sent, kept);
    OnDevice on(sent.device);
    ensure_context(sent.device.index);
    send_or_replay(sent);
}

}  // namespace wisp::cuda
