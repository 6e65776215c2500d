// Clusters: neighbouring groups of a launch that run at the same time and reach each other's local memory.

#ifndef POLYHAL_CLUSTERS
#define POLYHAL_CLUSTERS

// Groups per cluster along the first axis of the launch; 1 without clusters.
#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif

#if TENSOR_CORES && CLUSTER > 1

// Number of this group in its cluster.
static inline uint cluster_rank(void) {
    uint rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Waits until all work-items of the cluster are here. The second form also makes their stores to local memory visible to
// the cluster.
#define CLUSTER_BARRIER()                                         \
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); \
    asm volatile("barrier.cluster.wait;" ::: "memory")
#define CLUSTER_EXCHANGE()                                        \
    asm volatile("barrier.cluster.arrive.release;" ::: "memory"); \
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory")

// The value at this place in the local memory of the group `rank`.
static inline float value_of_group(__local const float *place, uint rank) {
    float value;
    asm volatile(
        "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %1, %2; ld.shared::cluster.f32 %0, [remote]; }"
        : "=f"(value)
        : "r"((uint)(size_t)place), "r"(rank)
        : "memory");
    return value;
}

#else

static inline uint cluster_rank(void) { return CLUSTER > 1 ? get_group_id(0) % CLUSTER : 0; }
#define CLUSTER_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define CLUSTER_EXCHANGE() barrier(CLK_LOCAL_MEM_FENCE)
#define value_of_group(place, rank) (*(place))

#endif

#endif
