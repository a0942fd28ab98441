// The thread pool behind parallel_for: workers that spin briefly and then sleep on a futex.
//
// A job's chunks are dealt into one range per thread, each a 64-bit ticket (epoch << 32 | begin << 16 | end). Whoever
// shortens a range owns a chunk; a worker that comes late finds another epoch or nothing left, and touches nothing of the
// job. The caller claims chunks like a worker and waits only for those that a worker has begun.
//
// A thread takes its own range first and helps with the others' afterwards, from their far end: the same part of a tensor
// is worked on by the same processor in one kernel after the other, whose cache still holds it. Jobs go through their
// ranges forwards and backwards in turn, as what the last kernel touched last is what that cache still has.
#include "core/threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

namespace wisp {
namespace {

constexpr int chunks_per_thread = 4;  // spare chunks let a busy machine even out what each thread gets done
constexpr int worker_spins = 8000;    // about 200 us: longer than a small model works in one thread between two kernels
constexpr int max_ranges = 64;        // further threads share them
constexpr int caller_spins = 2000;
constexpr int caller_yields = 50;

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");  // waits about as long as pause does; `yield` does nothing
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int count) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0); }

// Processors that the scheduler lets this process use.
int affinity_count() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? int(online) : 1;
}

std::string read_line(const std::string& path) {
    char buffer[128] = "";
    if (FILE* file = std::fopen(path.c_str(), "re")) {
        if (!std::fgets(buffer, sizeof buffer, file)) buffer[0] = 0;
        std::fclose(file);
    }
    return buffer;
}

// Processors that the quota of one control group allows; INT_MAX where it sets none.
int group_quota(const std::string& folder) {
    double quota = -1, period = 0;
    const std::string both = read_line(folder + "/cpu.max");  // version 2: "max 100000" or "150000 100000"
    if (!both.empty()) {
        if (std::sscanf(both.c_str(), "%lf %lf", &quota, &period) != 2) return INT_MAX;
    } else {
        quota = std::atof(read_line(folder + "/cpu.cfs_quota_us").c_str());
        period = std::atof(read_line(folder + "/cpu.cfs_period_us").c_str());
    }
    if (quota <= 0 || period <= 0 || quota / period > 4096) return INT_MAX;
    const int whole = int(quota / period);
    return whole < quota / period ? whole + 1 : whole;
}

// The smallest quota on the way from this process's control group up to the root, in either version.
int quota_count() {
    int least = INT_MAX;
    auto climb = [&](const std::string& root, std::string path) {
        for (;;) {
            least = std::min(least, group_quota(root + path));
            const size_t slash = path.rfind('/');
            if (path.empty() || slash == std::string::npos) return;
            path.resize(slash);
        }
    };
    climb("/sys/fs/cgroup", "");
    climb("/sys/fs/cgroup/cpu", "");
    if (FILE* file = std::fopen("/proc/self/cgroup", "re")) {
        char line[4096];
        while (std::fgets(line, sizeof line, file)) {  // "0::/path" in version 2, "4:cpu,cpuacct:/path" in version 1
            line[std::strcspn(line, "\n")] = 0;
            char* controllers = std::strchr(line, ':');
            char* path = controllers ? std::strchr(controllers + 1, ':') : nullptr;
            if (!path) continue;
            *path++ = 0;
            const std::string names = "," + std::string(controllers + 1) + ",";
            if (std::strcmp(path, "/") == 0) continue;
            if (names == ",,") climb("/sys/fs/cgroup", path);
            else if (names.find(",cpu,") != std::string::npos) climb("/sys/fs/cgroup/cpu", path);
        }
        std::fclose(file);
    }
    return least;
}

int default_thread_count() {
    for (const char* name : {"WISP_NUM_THREADS", "OMP_NUM_THREADS"}) {
        const char* text = std::getenv(name);
        const long value = text ? std::strtol(text, nullptr, 10) : 0;
        if (value >= 1 && value <= 4096) return int(value);
    }
    return std::max(1, std::min(affinity_count(), quota_count()));
}

std::atomic<int>& thread_count() {
    static std::atomic<int> count{default_thread_count()};
    return count;
}

class Pool {
public:
    // False where another thread (or an enclosing call) has the pool: the caller then runs the work itself.
    bool try_run(int64_t chunks, detail::ChunkBody body, void* context) {
        if (busy_.exchange(true, std::memory_order_acquire)) return false;
        const int wanted = thread_count().load(std::memory_order_relaxed) - 1;
        if (started_ < wanted) start_workers(wanted);
        body_ = body;
        context_ = context;
        failed_.store(false, std::memory_order_relaxed);
        unfinished_.store(uint32_t(chunks), std::memory_order_relaxed);
        const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
        const int64_t ranges = std::min<int64_t>({wanted + 1, chunks, max_ranges});
        ranges_.store(int(ranges), std::memory_order_relaxed);
        for (int64_t i = 0; i < ranges; i++)
            tickets_[i].ticket.store(uint64_t(epoch) << 32 | uint64_t(chunks * i / ranges) << 16 | uint64_t(chunks * (i + 1) / ranges),
                                     std::memory_order_release);
        epoch_.store(epoch, std::memory_order_seq_cst);
        if (sleeping_.load(std::memory_order_seq_cst) > 0) {
            // Surplus workers, left over from a larger set_num_threads, could swallow a counted wake-up.
            const bool surplus = started_ > wanted;
            futex_wake(epoch_, surplus ? INT_MAX : int(std::min<int64_t>(chunks - 1, wanted)));
        }
        work(epoch, 0);
        wait_for_workers();
        std::exception_ptr error;
        if (failed_.load(std::memory_order_relaxed)) error = std::exchange(error_, nullptr);
        busy_.store(false, std::memory_order_release);
        if (error) std::rethrow_exception(error);
        return true;
    }

private:
    struct Start {
        Pool* pool;
        int index;
    };

    void start_workers(int wanted) {
        // Signals belong to the program's own threads; a worker that cannot be started is simply missing.
        sigset_t all, old;
        sigfillset(&all);
        sigdelset(&all, SIGBUS);  // of a mapped file that was cut short, for which there is a handler; blocked, it would end the process
        pthread_sigmask(SIG_SETMASK, &all, &old);
        for (; started_ < wanted; ++started_) {
            auto* start = new Start{this, started_};
            pthread_t thread;
            if (pthread_create(&thread, nullptr, &Pool::entry, start) != 0) {
                delete start;
                break;
            }
            pthread_detach(thread);
        }
        pthread_sigmask(SIG_SETMASK, &old, nullptr);
    }

    static void* entry(void* pointer) {
        const Start start = *static_cast<Start*>(pointer);
        delete static_cast<Start*>(pointer);
        pthread_setname_np(pthread_self(), "wisp-worker");
        start.pool->serve(start.index);
        return nullptr;
    }

    [[noreturn]] void serve(int index) {
        uint32_t seen = 0;
        for (;;) {
            uint32_t epoch;
            for (int spins = 0; (epoch = epoch_.load(std::memory_order_acquire)) == seen; ++spins) {
                if (spins < worker_spins) {
                    pause_cpu();
                    continue;
                }
                sleeping_.fetch_add(1, std::memory_order_seq_cst);
                if (epoch_.load(std::memory_order_seq_cst) == seen) futex_wait(epoch_, seen);
                sleeping_.fetch_sub(1, std::memory_order_relaxed);
            }
            seen = epoch;
            if (index < thread_count().load(std::memory_order_relaxed) - 1) work(epoch, index + 1);
        }
    }

    // Claims chunks of this epoch until none is left. Once a chunk is claimed its job cannot end, so body_ and context_
    // are read only then.
    void work(uint32_t epoch, int self) {
        const int ranges = ranges_.load(std::memory_order_relaxed);
        for (int i = 0; i < ranges; i++) {
            std::atomic<uint64_t>& ticket = tickets_[(self + i) % ranges].ticket;
            const bool forwards = (epoch & 1) == (i == 0);
            uint64_t seen = ticket.load(std::memory_order_acquire);
            for (;;) {
                const uint32_t begin = uint32_t(seen >> 16) & 0xffff, end = uint32_t(seen) & 0xffff;
                if (uint32_t(seen >> 32) != epoch || begin == end) break;
                if (!ticket.compare_exchange_weak(seen, forwards ? seen + 0x10000 : seen - 1, std::memory_order_acq_rel,
                                                  std::memory_order_acquire))
                    continue;
                if (!failed_.load(std::memory_order_relaxed)) run_one(forwards ? begin : end - 1);
                if (unfinished_.fetch_sub(1, std::memory_order_seq_cst) == 1 && caller_sleeps_.load(std::memory_order_seq_cst))
                    futex_wake(unfinished_, INT_MAX);
                seen = ticket.load(std::memory_order_acquire);
            }
        }
    }

    void run_one(int64_t chunk) {
        try {
            body_(context_, chunk);
        } catch (...) {
            std::lock_guard lock(error_mutex_);
            if (!failed_.load(std::memory_order_relaxed)) error_ = std::current_exception();
            failed_.store(true, std::memory_order_release);
        }
    }

    void wait_for_workers() {
        uint32_t left;
        for (int i = 0; (left = unfinished_.load(std::memory_order_acquire)) > 0; ++i) {
            if (i < caller_spins) pause_cpu();
            else if (i < caller_spins + caller_yields) sched_yield();
            else {
                caller_sleeps_.store(true, std::memory_order_seq_cst);
                while ((left = unfinished_.load(std::memory_order_seq_cst)) > 0) futex_wait(unfinished_, left);
                caller_sleeps_.store(false, std::memory_order_relaxed);
                return;
            }
        }
    }

    struct alignas(64) Range {
        std::atomic<uint64_t> ticket{0};
    };
    Range tickets_[max_ranges];
    std::atomic<int> ranges_{1};
    alignas(64) std::atomic<uint32_t> epoch_{0};       // workers sleep on it
    alignas(64) std::atomic<uint32_t> unfinished_{0};  // the caller sleeps on it
    alignas(64) std::atomic<int> sleeping_{0};
    std::atomic<bool> caller_sleeps_{false};
    std::atomic<bool> busy_{false};
    alignas(64) std::atomic<bool> failed_{false};
    detail::ChunkBody body_ = nullptr;
    void* context_ = nullptr;
    int started_ = 0;
    std::mutex error_mutex_;
    std::exception_ptr error_;
};

std::atomic<Pool*> current_pool{nullptr};

// The pool is never destroyed: workers may outlive static destructors. A forked child has none of the parent's
// workers, so it drops the parent's pool as well and starts its own when it first needs one.
Pool& pool() {
    Pool* p = current_pool.load(std::memory_order_acquire);
    if (p) return *p;
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { current_pool.store(nullptr, std::memory_order_relaxed); }); });
    Pool* fresh = new Pool;
    if (current_pool.compare_exchange_strong(p, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
    return *p;
}

}  // namespace

int num_threads() { return thread_count().load(std::memory_order_relaxed); }

void set_num_threads(int n) { thread_count().store(std::max(1, n), std::memory_order_relaxed); }

namespace detail {

void run_chunks(int64_t chunks, ChunkBody body, void* context) {
    if (chunks > 0xffff) {  // more than a ticket can count: several at a time
        struct Context {
            ChunkBody body;
            void* context;
            int64_t chunks;
        } all{body, context, chunks};
        return run_chunks(
            0xffff,
            [](void* p, int64_t i) {
                const auto& a = *static_cast<Context*>(p);
                for (int64_t c = a.chunks * i / 0xffff; c < a.chunks * (i + 1) / 0xffff; ++c) a.body(a.context, c);
            },
            &all);
    }
    if (chunks > 1 && num_threads() > 1 && pool().try_run(chunks, body, context)) return;
    for (int64_t i = 0; i < chunks; ++i) body(context, i);
}

int64_t chunk_count(int64_t n, int64_t grain) {
    const int64_t threads = num_threads();
    if (threads <= 1) return 1;
    const int64_t chunks = std::max<int64_t>(1, std::min(n / std::max<int64_t>(grain, 1), threads * chunks_per_thread));
    return chunks > threads ? chunks - chunks % threads : chunks;  // ranges end at the same places, whatever the grain
}

}  // namespace detail
}  // namespace wisp
