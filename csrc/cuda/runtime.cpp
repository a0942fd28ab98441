// Devices, contexts, streams, copies and launches.
#include <Python.h>

#include "runtime.h"

#include <pthread.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "../core/device.h"
#include "../core/errors.h"

namespace wisp::cuda {

bool in_use = false;

namespace {

constexpr int max_devices = 64;

struct DeviceState {
    int handle = 0;
    Handle context = nullptr;
    Handle stream = nullptr;   // the default one
    Report* report = nullptr;  // in pinned memory that kernels can write
    DeviceInfo info;
};

DeviceState* states[max_devices];
std::mutex lock;
bool forked = false;  // from a process that had initialised the driver

thread_local int current = 0;
thread_local int context_of = -1;  // whose context is current in this thread
thread_local Handle streams[max_devices];

int counted = -1;
Result start_result = 0;  // of starting the driver

int count_devices() {
    if (counted >= 0) return counted;
    int n = 0;
    try {
        const Driver& d = driver();
        if ((start_result = d.init(0)) != 0 || d.device_count(&n) != 0) n = 0;
        pthread_atfork(nullptr, nullptr, [] { forked = true; });
    } catch (const Error&) { n = 0; }
    return counted = std::min(n, max_devices);
}

int attribute(int handle, int which) {
    int v = 0;
    driver().device_attribute(&v, which, handle);
    return v;
}

DeviceState& start(int index) {
    std::lock_guard<std::mutex> guard(lock);
    if (states[index]) return *states[index];
    auto s = std::make_unique<DeviceState>();
    const Driver& d = driver();
    check(d.device_get(&s->handle, index), "opening the device");
    check(d.context_retain(&s->context, s->handle), "making a context on the device");
    check(d.context_set(s->context), "using the device's context");
    check(d.stream_create(&s->stream, 1, 0), "making a stream");  // 1: does not wait for the legacy stream
    void* cell = nullptr;
    check(d.host_allocate(&cell, sizeof(Report), 2), "allocating the report cell");  // 2: mapped for the device
    std::memset(cell, 0, sizeof(Report));
    s->report = static_cast<Report*>(cell);
    char name[256] = "";
    d.device_name(name, sizeof name, s->handle);
    s->info.name = name;
    s->info.major = attribute(s->handle, 75);
    s->info.minor = attribute(s->handle, 76);
    s->info.multiprocessors = attribute(s->handle, 16);
    s->info.shared_per_block = attribute(s->handle, 97);
    s->info.l2_bytes = attribute(s->handle, 38);
    s->info.clock_khz = attribute(s->handle, 13);
    d.device_memory(&s->info.memory, s->handle);
    in_use = true;
    use_devices();
    states[index] = s.release();
    return *states[index];
}

}  // namespace

void check(Result result, const char* what) {
    if (result == 0) [[likely]]
        return;
    const char* text = "unknown error";
    driver().error_text(result, &text);
    if (result == 2) throw DeviceOutOfMemory("CUDA out of memory: ", what);
    throw RuntimeError("CUDA error: ", text, " (", what, ")");
}

int device_count() { return count_devices(); }

int check_device(int index) {
    if (forked) [[unlikely]]
        throw RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method");
    if (index < 0) index = current;
    const int n = count_devices();
    if (n == 0) {
        driver();               // says that there is no driver
        if (start_result == 3)  // not initialised, although that was just asked for
            throw RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess: another library used it before the fork. To use CUDA with "
                "multiprocessing, you must use the 'spawn' start method");
        throw RuntimeError(
            "CUDA is not available, no GPU was found: the driver is there, but it shows no device (CUDA_VISIBLE_DEVICES?); use "
            "device='cpu'");
    }
    if (index >= n)
        throw RuntimeError("CUDA error: invalid device ordinal: cuda:", index, " was asked for, and there are ", n,
                           " devices, cuda:0 to cuda:", n - 1);
    ensure_context(index);
    return index;
}

int current_index() { return current; }

void set_device(int index) { current = check_device(index); }

void ensure_context(int index) {
    if (context_of == index) [[likely]]
        return;
    DeviceState& s = start(index);
    check(driver().context_set(s.context), "using the device's context");
    context_of = index;
}

const DeviceInfo& device_info(int index) {
    check_device(index);
    return states[index]->info;
}

// The device that the running operator works on.
static int working() {
    const Device d = current_device();
    const int index = d.is_cuda() && d.index >= 0 ? d.index : current;
    ensure_context(index);
    return index;
}

Handle default_stream(int index) { return states[check_device(index)]->stream; }
Handle current_stream() {
    const int index = working();
    return streams[index] ? streams[index] : states[index]->stream;
}
void set_stream(int index, Handle stream) {
    before_work();
    streams[check_device(index)] = stream == states[index]->stream ? nullptr : stream;
}

void* report_cell() { return states[working()]->report; }

static void raise_report(int index) {
    volatile Report* r = states[index]->report;
    // The name is written last: without it a kernel of another stream is still writing, and the next wait will see it.
    if (r->flag == 0 || r->name == 0) [[likely]]
        return;
    const Report seen = {r->flag, r->value, r->size, r->name};
    r->name = 0;
    r->flag = 0;
    if (seen.flag == 2) throw RuntimeError(reinterpret_cast<const char*>(seen.name), " (found on cuda:", index, " by an earlier call)");
    throw IndexError(reinterpret_cast<const char*>(seen.name), ": index ", int64_t(seen.value),
                     " is out of bounds for dimension with size ", int64_t(seen.size), " (found on cuda:", index, " by an earlier call)");
}

// Waits with the interpreter lock released: other threads load data, or watch over collectives.
template <class Wait> Result unlocked(Wait wait) {
    const Driver& d = driver();  // opening it needs the lock
    PyThreadState* state = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    const Result result = wait(d);
    if (state) PyEval_RestoreThread(state);
    return result;
}

void synchronize(int index) {
    before_work();
    index = check_device(index);
    check(unlocked([](const Driver& d) { return d.context_synchronize(); }), "waiting for the device");
    raise_report(index);
}

void wait_stream(Handle stream) {
    check(unlocked([&](const Driver& d) { return d.stream_synchronize(stream); }), "waiting for a stream");
}
void wait_event(Handle event) {
    check(unlocked([&](const Driver& d) { return d.event_synchronize(event); }), "waiting for an event");
}

void raise_reports() {
    for (int i = 0; i < counted; i++)
        if (states[i]) raise_report(i);
}

Handle pooled_stream(int index, int priority) {
    constexpr int count = 32;
    static Handle made[max_devices][2][count];
    static int next[max_devices][2];
    index = check_device(index);
    const int high = priority < 0;
    Handle& stream = made[index][high][next[index][high]++ % count];
    if (!stream) check(driver().stream_create(&stream, 1, priority < 0 ? -1 : 0), "making a stream");
    return stream;
}

int sync_debug_mode = 0;

void tell_of_waiting() {
    if (sync_debug_mode == 2) throw RuntimeError("called a synchronizing CUDA operation (set_sync_debug_mode(\"error\") is on)");
    warn("called a synchronizing CUDA operation");
}

void to_device(void* device, const void* host, size_t bytes, bool wait) {
    if (!bytes) return;
    if (wait && sync_debug_mode) [[unlikely]]
        tell_of_waiting();
    before_work();
    const Handle stream = current_stream();
    check(driver().copy_to_device(Pointer(device), host, bytes, stream), "copying to the device");
    if (wait) wait_stream(stream);
}

void upload(void* device, const void* host, size_t bytes) { to_device(device, host, bytes, false); }

void to_host(void* host, const void* device, size_t bytes, bool wait) {
    if (!bytes) return;
    if (wait && sync_debug_mode) [[unlikely]]
        tell_of_waiting();
    before_work();
    const Handle stream = current_stream();
    if (!wait) return check(driver().copy_to_host(host, Pointer(device), bytes, stream), "copying to the host");
    // A few bytes go through pinned memory, for which the driver needs no stage of its own.
    constexpr size_t cell_bytes = 256;
    static std::vector<void*> cells;
    void* cell = nullptr;
    if (bytes <= cell_bytes) {
        if (cells.empty()) {
            void* fresh = nullptr;
            check(driver().host_allocate(&fresh, cell_bytes, 1), "allocating pinned memory");
            cells.push_back(fresh);
        }
        cell = cells.back();
        cells.pop_back();
    }
    // A copy to pageable memory waits for the work before it, as the synchronisation does.
    const Result copied = unlocked([&](const Driver& d) {
        const Result result = d.copy_to_host(cell ? cell : host, Pointer(device), bytes, stream);
        return result ? result : d.stream_synchronize(stream);
    });
    if (cell) {
        std::memcpy(host, cell, bytes);
        cells.push_back(cell);
    }
    check(copied, "copying to the host");
    raise_report(working());
}

void within(void* to, const void* from, size_t bytes) {
    struct Copy {
        Pointer to, from;
        size_t bytes;
    } const copy = {Pointer(to), Pointer(from), bytes};
    if (!bytes) return;
    call_or_keep(copy, [](const void* data, Handle stream) {
        const Copy& c = *static_cast<const Copy*>(data);
        check(driver().copy_within(c.to, c.from, c.bytes, stream), "copying on the device");
    });
}

void between(void* to, int to_index, const void* from, int from_index, size_t bytes) {
    if (!bytes) return;
    before_work();
    // The copy runs on the source's stream. It waits for what the target's stream did with that memory before, and the target's
    // stream waits for it. An event belongs to the device of the stream that it is recorded on.
    const Driver& d = driver();
    Handle source, target;
    auto let_wait = [&](Handle waits, Handle other) {
        Handle event;
        check(d.event_create(&event, 2), "making an event");
        check(d.event_record(event, other), "recording an event");
        check(d.stream_wait(waits, event, 0), "waiting for an event");
        d.event_destroy(event);
    };
    {
        OnDevice on({DeviceType::cuda, int8_t(from_index)});
        source = current_stream();
    }
    {
        OnDevice on({DeviceType::cuda, int8_t(to_index)});
        target = current_stream();
        let_wait(source, target);
    }
    OnDevice on({DeviceType::cuda, int8_t(from_index)});
    ensure_context(from_index);
    check(d.copy_between(Pointer(to), states[to_index]->context, Pointer(from), states[from_index]->context, bytes, source),
          "copying between devices");
    let_wait(target, source);
}

void fill_zero(void* data, size_t bytes) {
    struct Fill {
        Pointer to;
        size_t bytes;
    } const fill = {Pointer(data), bytes};
    if (!bytes) return;
    call_or_keep(fill, [](const void* data, Handle stream) {
        const Fill& f = *static_cast<const Fill*>(data);
        check(driver().fill_bytes(f.to, 0, f.bytes, stream), "filling memory");
    });
}

}  // namespace wisp::cuda
