// Blocks of a cluster, which run at the same time and reach each other's shared memory; from sm_90 on.
#pragma once
#include "cuda/kernels/base.cuh"

#if __CUDA_ARCH__ >= 900
#define WISP_CLUSTER(x, y, z) __cluster_dims__(x, y, z)
#else
#define WISP_CLUSTER(x, y, z)
#endif

namespace wisp {

// All threads of the cluster are here, and see what the others wrote.
WISP_INLINE void cluster_meets() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// Before a block ends whose memory others read: its memory goes with it.
WISP_INLINE void cluster_ends() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
// Where the cluster's block `rank` has what this one has at p.
WISP_INLINE uint32_t place_in(const void* p, int rank) {
    uint32_t there = 0;
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(uint32_t(__cvta_generic_to_shared(p))), "r"(rank));
#endif
    return there;
}
WISP_INLINE float load_from(uint32_t place) {
    float x = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(place) : "memory");
#endif
    return x;
}
WISP_INLINE void store_to(uint32_t place, float x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(place), "f"(x) : "memory");
#endif
}

}  // namespace wisp
