// The GPU as the rest of Wisp sees it: devices, streams, memory, copies and launches.
//
// Work goes to the current stream of the current device. Memory is handed out in the order of a stream: a block that is
// freed may be used again at once by later work on the same stream. Called with the interpreter lock held.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "driver.h"

namespace wisp { struct Storage; }

namespace wisp::cuda {

// Throws a RuntimeError (DeviceOutOfMemory for error 2) that names the call, for any result but success.
void check(Result result, const char* what);

extern bool in_use;           // a GPU was asked for something
int device_count();           // 0 where there is no driver or GPU; never throws
int check_device(int index);  // the index of a device that is there (-1: the current one), made ready for use
int current_index();          // the current device of this thread
void set_device(int index);
void ensure_context(int index);  // makes its context current in this thread

struct DeviceInfo {
    std::string name;
    int major, minor, multiprocessors, shared_per_block, l2_bytes, clock_khz;
    size_t memory;
};
const DeviceInfo& device_info(int index);

// Streams. The default one of a device is created by us, so that capture works on it as on any other.
Handle current_stream();  // of the current device
Handle default_stream(int index);
void set_stream(int index, Handle stream);
void synchronize(int index);      // waits for all work; raises what kernels reported (see report below)
void wait_stream(Handle stream);  // these wait with the interpreter lock released
void wait_event(Handle event);
void raise_reports();                           // what kernels of any device reported so far
Handle pooled_stream(int index, int priority);  // one of 32, in turn: there is no end to what programs ask for

// Memory of a storage on its device, in the order of the current stream.
struct MemoryBlock;
void provide(Storage* storage);  // sets storage->address, and storage->owner to its block
void release(Storage* storage);
// Memory for the length of one front door; null for no bytes.
class Scratch {
public:
    explicit Scratch(size_t bytes);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    void* data() const { return data_; }
    template <class T> T* as() const { return static_cast<T*>(data_); }

private:
    MemoryBlock* block_;
    void* data_;
};
void empty_cache(int index);
// From here on the same requests get the same memory, if the same memory is in use: what is captured holds for longer then.
void tidy_memory();
void record_use(Storage* storage, Handle stream);  // another stream uses it too: it is not reused before that work is done
struct Counter {
    int64_t now, peak, taken, freed;
    void add(int64_t n) {
        now += n;
        taken += n;
        peak = now > peak ? now : peak;
    }
    void sub(int64_t n) {
        now -= n;
        freed += n;
    }
    void reset(bool peaks) {
        if (peaks) peak = now;
        else taken = freed = 0;
    }
};
struct MemoryStats {
    Counter allocated, reserved;  // bytes
    Counter blocks, segments;
    int64_t retries, failures;
};
MemoryStats memory_stats(int index);
void reset_stats(int index, bool peaks);      // the peaks, or what was counted up
void limit_memory(int index, int64_t bytes);  // that may be taken from the driver
bool use_caching(bool keep);                  // whether freed memory is kept for later (as it is); returns what was so before

struct PieceOfMemory {
    void* data;
    int64_t bytes;
    Handle stream;
    int64_t pool;
    bool first;  // of its segment
    char state;  // 'u'sed by a tensor, 'w'aiting for another stream, 'f'ree
};
std::vector<PieceOfMemory> memory_pieces(int index);

struct PinnedStats {
    Counter owned, owned_bytes;  // blocks taken from the driver
    Counter used, used_bytes;    // those that tensors hold, or copies need
};
PinnedStats pinned_stats();
void reset_pinned_stats(bool peaks);

std::pair<Handle, Handle> library_handles();  // cuBLAS's and cuSOLVER's, on the current device and stream

// What an operator does that makes the host wait for the device: nothing (0), warn (1), raise (2).
extern int sync_debug_mode;

// Private pools of memory, which captured graphs use. The memory of one is lent to nobody else and stays while it is held.
int64_t new_pool();
void use_pool(int64_t pool, bool captured);  // for this thread's allocations, maybe only on streams under capture; 0: no more
int64_t pool_in_use();
void hold_pool(int64_t pool);
void let_go_of_pool(int64_t pool);
bool is_captured();  // whether this thread captures a graph
void capture_begins();
void capture_ends();

// Copies in stream order. From ordinary host memory the bytes have been read when `to_device` returns; from pinned memory
// only where it is told to wait. `to_host` waits unless told not to.
void to_device(void* device, const void* host, size_t bytes, bool wait);
void to_host(void* host, const void* device, size_t bytes, bool wait);
void within(void* to, const void* from, size_t bytes);
void between(void* to, int to_device, const void* from, int from_device, size_t bytes);
void fill_zero(void* data, size_t bytes);

// A small array for a kernel to read, such as pointers of many tensors; it is copied before this returns.
void upload(void* device, const void* host, size_t bytes);

// Pinned memory of the host (pinned.cpp): copies to and from it run while the host goes on.
Storage* pinned_storage(size_t bytes);
bool is_pinned(const Storage* storage);
void note_copy(const Storage* storage, Handle stream);  // a pinned one takes part in a copy that is not waited for

// A compiled kernel of the current device. `file`: one of csrc/cuda/kernels; `instance`: an expression that names a
// __global__ function in namespace wisp, such as "softmax_rows<float, true, true>". Compiled by NVRTC the first time ever,
// loaded from the cache on disk the first time in a process.
struct Kernel;
Kernel* find_kernel(const char* file, const std::string& instance);

// The instances of one kernel, found once each: kernels(number of the instance, [] { return its name; }).
template <int N> class Instances {
public:
    explicit Instances(const char* file) : file_(file) {}
    template <class Name> Kernel* operator()(int i, Name name) {
        Kernel*& k = at_[i];
        if (!k) [[unlikely]]
            k = find_kernel(file_, name());
        return k;
    }

private:
    const char* file_;
    Kernel* at_[N] = {};
};

// Between begin_list and end_list, pointwise launches of one kernel on contiguous tensors that do not touch each other's results
// wait and become one; any other work on the device is preceded by what waits. They may nest.
void begin_list();
void end_list();
extern constinit thread_local bool launches_wait __attribute__((tls_model("initial-exec")));
void launch_waiting();

// In a thread that keeps its work (replay.cpp) launches and products are written down, and sent together before anything else is
// asked of the device.
extern bool work_kept;  // some is: by any thread
extern constinit thread_local bool keeps_work __attribute__((tls_model("initial-exec")));
void send_kept();
bool may_keep();  // nothing speaks against it
inline bool keeps_now() { return keeps_work && may_keep(); }
struct Grid {
    unsigned x = 1, y = 1, z = 1;
};
void keep_launch(const char* title, Handle function, Grid grid, Grid block, unsigned shared, bool early, Handle stream, void** arguments,
                 const uint32_t* sizes, int count);
// Sends a launch. early: the kernel may begin before those in front of it have ended, and waits for them itself (begin_early in
// kernels/base.cuh).
Result send_launch(Handle function, Grid grid, Grid block, unsigned shared, bool early, Handle stream, void** arguments);
// The launch that was kept last, if it is one of this kernel on the current stream, for work that can be added to it: its arguments may be
// changed where they lie, its grid by widen_kept.
struct KeptLaunch {
    void* arguments = nullptr;
    Grid grid;
};
KeptLaunch last_kept(const Kernel* kernel);
KeptLaunch last_kept(Handle function, Handle stream);
void widen_kept(Grid grid);
// call(a copy of the data, stream), later. The data is compared as bytes: no padding.
void keep_call(void (*call)(const void* data, Handle stream), const void* data, size_t bytes, Handle stream);
struct ReplayCounts {
    int64_t kept = 0, replayed = 0, graphs = 0, adapted = 0;
};
extern ReplayCounts replay_counts;

// Called before anything but a launch or a call that is kept.
inline void before_work() {
    if (launches_wait) [[unlikely]]
        launch_waiting();
    if (work_kept) [[unlikely]]
        send_kept();
}

// A call of a library, now or with what is kept.
template <class Data> void call_or_keep(const Data& data, void (*call)(const void* data, Handle stream)) {
    if (keeps_now()) [[unlikely]]
        return keep_call(call, &data, sizeof data, current_stream());
    before_work();
    call(&data, current_stream());
}

// `sizes`: of the arguments, in bytes.
void launch(Kernel* kernel, Grid grid, Grid block, unsigned shared, void** arguments, const uint32_t* sizes, int count);

// launch(kernel, grid, block, 0, a, b, c): the arguments have exactly the kernel's types.
template <class... A> void launch_with(Kernel* kernel, Grid grid, Grid block, unsigned shared, const A&... arguments) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    static constexpr uint32_t sizes[] = {uint32_t(sizeof(A))...};
    launch(kernel, grid, block, shared, pointers, sizes, int(sizeof...(A)));
}

// --- times of kernels, for the profiler (timing.cpp)

extern bool timing;
// A kernel or a library call that is timed from here to the end of the scope while a profiler runs.
class Timed {
public:
    explicit Timed(const char* name) {
        if (timing) [[unlikely]]
            begin(name);
    }
    ~Timed() {
        if (at_ >= 0) [[unlikely]]
            end();
    }
    Timed(const Timed&) = delete;

private:
    void begin(const char* name);
    void end();
    int64_t at_ = -1;
};
struct TimedKernel {
    std::string name;
    int64_t start, length;  // nanoseconds of the host's monotonic clock
    int64_t owner;          // what `owner` said at the launch
    int device;
};
void start_timing(int64_t (*owner)());
std::vector<TimedKernel> stop_timing();

// Kernels say what was wrong with their input (an index out of range) in a word of device memory; it is looked at, and
// raised, at the next synchronisation.
struct Report {
    unsigned long long flag;  // 0: nothing, 1: an index, 2: another error, whose text `name` is
    long long value, size;
    unsigned long long name;  // address of the operator's name or of a message, as the launch gave it: of static text
};
void* report_cell();  // of the current device

}  // namespace wisp::cuda
