// The thread pool that every kernel shares.
//
// The calling thread works too and claims the chunks that no worker has started, so a descheduled worker costs
// little. Small work, and work asked for from inside a worker or while another caller holds the pool, runs inline.
#pragma once
#include <cstdint>
#include <type_traits>

namespace wisp {

int num_threads();            // threads a parallel_for may use, the caller included
void set_num_threads(int n);  // n >= 1

namespace detail {
using ChunkBody = void (*)(void* context, int64_t chunk);
void run_chunks(int64_t chunks, ChunkBody body, void* context);
int64_t chunk_count(int64_t n, int64_t grain);  // 1: run inline
}  // namespace detail

// Calls body(begin, end) over [0, n) in disjoint pieces of at least `grain` elements, possibly at the same time.
// How [0, n) is cut depends on n, grain and num_threads() alone, so results can be made independent of timing.
template <class Body> inline void parallel_for(int64_t n, int64_t grain, Body&& body) {
    const int64_t chunks = n > grain ? detail::chunk_count(n, grain) : 1;
    if (chunks <= 1) {
        if (n > 0) body(int64_t(0), n);
        return;
    }
    struct Context {
        std::remove_reference_t<Body>* body;
        int64_t n, chunks;
    } context{&body, n, chunks};
    detail::run_chunks(
        chunks,
        [](void* p, int64_t i) {
            auto& c = *static_cast<Context*>(p);
            (*c.body)(c.n* i / c.chunks, c.n * (i + 1) / c.chunks);
        },
        &context);
}

}  // namespace wisp
