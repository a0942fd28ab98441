// A stand-in for NCCL between processes of one machine: memory is the processor's, and every operation is done when it is enqueued.
// A message outside of a group waits until it has been received, as NCCL's does: both sides sending first is a deadlock here too.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int most = 4;
constexpr size_t room = 1 << 16;

struct Shared {
    std::atomic<int> arrived, turn;
    char data[most][room];
    std::atomic<long> full[most][most];  // bytes of a message plus one; 0: none
    char mail[most][most][room];
};

struct Comm {
    Shared* shared;
    int rank, size;
    void meet() const {
        const int turn = shared->turn;
        if (++shared->arrived == size) {
            shared->arrived = 0;
            shared->turn++;
        } else {
            while (shared->turn == turn) sched_yield();
        }
    }
};

struct Message {
    Comm* comm;
    void* memory;
    size_t bytes;
    int peer;
    bool sends;
};

int depth = 0;
std::vector<Message> waiting;

struct Id {
    char internal[128];
};

size_t width(int type) { return type <= 1 ? 1 : type == 2 || type == 3 || type == 7 ? 4 : type == 6 || type == 9 ? 2 : 8; }

template <class T> T join(T a, T b, int op) { return op == 1 ? a * b : op == 2 ? std::max(a, b) : op == 3 ? std::min(a, b) : a + b; }

template <class T> void fold(Comm& c, void* out, size_t from, size_t n, int op) {
    for (size_t i = 0; i < n; i++) {
        T sum = reinterpret_cast<T*>(c.shared->data[0])[from + i];
        for (int r = 1; r < c.size; r++) sum = join(sum, reinterpret_cast<T*>(c.shared->data[r])[from + i], op);
        static_cast<T*>(out)[i] = op == 4 ? T(sum / T(c.size)) : sum;
    }
}

int reduce(const void* in, void* out, size_t total, size_t from, size_t n, int type, int op, Comm* c) {
    if (total * width(type) > room || op < 0 || op > 4) return 4;
    std::memcpy(c->shared->data[c->rank], in, total * width(type));
    c->meet();
    if (out) switch (type) {
        case 0: fold<int8_t>(*c, out, from, n, op); break;
        case 1: fold<uint8_t>(*c, out, from, n, op); break;
        case 2: fold<int32_t>(*c, out, from, n, op); break;
        case 4: fold<int64_t>(*c, out, from, n, op); break;
        case 7: fold<float>(*c, out, from, n, op); break;
        case 8: fold<double>(*c, out, from, n, op); break;
        default: return 4;
        }
    c->meet();
    return 0;
}

void send(const Message& m, bool wait) {
    auto& full = m.comm->shared->full[m.comm->rank][m.peer];
    while (full) sched_yield();
    std::memcpy(m.comm->shared->mail[m.comm->rank][m.peer], m.memory, m.bytes);
    full = long(m.bytes) + 1;
    while (wait && full) sched_yield();
}

int receive(const Message& m) {
    auto& full = m.comm->shared->full[m.peer][m.comm->rank];
    while (!full) sched_yield();
    const bool fits = full == long(m.bytes) + 1;
    if (fits) std::memcpy(m.memory, m.comm->shared->mail[m.peer][m.comm->rank], m.bytes);
    full = 0;
    return fits ? 0 : 5;
}

int message(const Message& m) {
    if (m.bytes > room || m.peer < 0 || m.peer >= m.comm->size) return 4;
    if (depth) return waiting.push_back(m), 0;
    return m.sends ? send(m, true), 0 : receive(m);
}

}  // namespace

extern "C" {
int ncclGetVersion(int* v) { return *v = 22803, 0; }
const char* ncclGetErrorString(int e) { return e == 4 ? "invalid argument" : e == 5 ? "invalid usage" : "no error"; }
const char* ncclGetLastError(void*) { return "the stand-in refused"; }
int ncclGetUniqueId(Id* id) {
    static int count = 0;
    return std::snprintf(id->internal, sizeof id->internal, "/fake-nccl-%d-%d", int(getpid()), count++), 0;
}
int ncclCommInitRank(Comm** out, int size, Id id, int rank) {
    if (size > most || rank < 0 || rank >= size) return 4;
    const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(Shared))) return 2;
    auto* shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
    *out = new Comm{shared, rank, size};
    (*out)->meet();
    if (rank == 0) shm_unlink(id.internal);
    return 0;
}
int ncclCommDestroy(Comm* c) { return munmap(c->shared, sizeof(Shared)), delete c, 0; }
int ncclCommAbort(Comm* c) { return ncclCommDestroy(c); }
int ncclGroupStart() { return depth++, 0; }
int ncclGroupEnd() {
    if (--depth) return 0;
    int result = 0;
    for (const Message& m : waiting)
        if (m.sends) send(m, false);
    for (const Message& m : waiting)
        if (!m.sends) result = std::max(result, receive(m));
    return waiting.clear(), result;
}
int ncclAllReduce(const void* in, void* out, size_t n, int type, int op, Comm* c, void*) { return reduce(in, out, n, 0, n, type, op, c); }
int ncclReduce(const void* in, void* out, size_t n, int type, int op, int root, Comm* c, void*) {
    return reduce(in, c->rank == root ? out : nullptr, n, 0, n, type, op, c);
}
int ncclReduceScatter(const void* in, void* out, size_t n, int type, int op, Comm* c, void*) {
    return reduce(in, out, n * c->size, n * c->rank, n, type, op, c);
}
int ncclBroadcast(const void* in, void* out, size_t n, int type, int root, Comm* c, void*) {
    if (n * width(type) > room) return 4;
    if (c->rank == root) std::memcpy(c->shared->data[0], in, n * width(type));
    c->meet();
    std::memcpy(out, c->shared->data[0], n * width(type));
    return c->meet(), 0;
}
int ncclAllGather(const void* in, void* out, size_t n, int type, Comm* c, void*) {
    const size_t bytes = n * width(type);
    if (bytes > room) return 4;
    std::memcpy(c->shared->data[c->rank], in, bytes);
    c->meet();
    for (int r = 0; r < c->size; r++) std::memcpy(static_cast<char*>(out) + r * bytes, c->shared->data[r], bytes);
    return c->meet(), 0;
}
int ncclSend(void* memory, size_t n, int type, int peer, Comm* c, void*) { return message({c, memory, n * width(type), peer, true}); }
int ncclRecv(void* memory, size_t n, int type, int peer, Comm* c, void*) { return message({c, memory, n * width(type), peer, false}); }
}
