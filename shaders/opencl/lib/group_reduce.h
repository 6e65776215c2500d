// Reductions over LANES consecutive work-items of a group of GROUP, in a fixed order. Every one of the LANES work-items
// receives the result. With a GROUP of 1, as on CPUs, they are no-ops. Declare GROUP_SCRATCH(T) in the kernel; all
// work-items must reach GROUP_SUM and GROUP_MAX. EXCHANGE selects how work-items exchange values; shuffles are for
// 32-bit types: 0 through local memory, 1 by subgroup shuffles, and through local memory between subgroups (LANES must
// be GROUP), 2 by NVIDIA's warp shuffles, and through local memory between warps.

#ifndef POLYHAL_GROUP_REDUCE
#define POLYHAL_GROUP_REDUCE

#ifndef GROUP
#define GROUP 1
#endif
#ifndef LANES
#define LANES GROUP
#endif
#ifndef EXCHANGE
#define EXCHANGE 0
#endif

#if LANES == 1
#define LANE_ID 0
#define GROUP_SCRATCH(T)
#define GROUP_REDUCE(value, COMBINE)
#else
#define LOCAL_ID ((uint)get_local_id(0))
#define LANE_ID (LOCAL_ID % LANES)

#if EXCHANGE == 1
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#define GROUP_SCRATCH(T) \
    typedef T Value; \
    __local T group_scratch[GROUP];
#define GROUP_REDUCE(value, COMBINE) \
    { \
        for (uint distance = get_sub_group_size() / 2; distance > 0; distance /= 2) { \
            const Value other = sub_group_shuffle_xor(value, distance); \
            value = COMBINE(value, other); \
        } \
        const uint subgroups = get_num_sub_groups(); \
        if (subgroups > 1) { \
            barrier(CLK_LOCAL_MEM_FENCE); \
            if (get_sub_group_local_id() == 0) group_scratch[get_sub_group_id()] = value; \
            barrier(CLK_LOCAL_MEM_FENCE); \
            value = group_scratch[0]; \
            for (uint subgroup = 1; subgroup < subgroups; subgroup++) value = COMBINE(value, group_scratch[subgroup]); \
        } \
    }
#elif EXCHANGE == 2
#define WARP 32
#define WARPS_PER_TASK ((LANES + WARP - 1) / WARP)
static inline uint shuffled(uint bits, uint distance) {
    uint other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=r"(other) : "r"(bits), "r"(distance));
    return other;
}
static inline float __attribute__((overloadable)) shuffle_xor_lane(float value, uint distance) {
    return as_float(shuffled(as_uint(value), distance));
}
static inline int __attribute__((overloadable)) shuffle_xor_lane(int value, uint distance) {
    return as_int(shuffled(as_uint(value), distance));
}
static inline uint __attribute__((overloadable)) shuffle_xor_lane(uint value, uint distance) {
    return shuffled(value, distance);
}
// COMBINE may evaluate its operands several times, and in divergent branches, where a shuffle would deadlock. So the
// shuffle precedes it.
#define GROUP_BUTTERFLY(value, COMBINE, lanes) \
    _Pragma("unroll") for (uint distance = (lanes) / 2; distance > 0; distance /= 2) { \
        const Value other = shuffle_xor_lane(value, distance); \
        value = COMBINE(value, other); \
    }
#if WARPS_PER_TASK == 1
#define GROUP_SCRATCH(T) typedef T Value;
#define GROUP_REDUCE(value, COMBINE) { GROUP_BUTTERFLY(value, COMBINE, LANES) }
#else
#define GROUP_SCRATCH(T) \
    typedef T Value; \
    __local T group_scratch[GROUP / WARP];
// The first barrier keeps a work-item from overwriting scratch that another one still reads for the previous reduction.
#define GROUP_REDUCE(value, COMBINE) \
    { \
        GROUP_BUTTERFLY(value, COMBINE, WARP) \
        barrier(CLK_LOCAL_MEM_FENCE); \
        if (LOCAL_ID % WARP == 0) group_scratch[LOCAL_ID / WARP] = value; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        value = group_scratch[LOCAL_ID / LANES * WARPS_PER_TASK + LOCAL_ID % WARPS_PER_TASK]; \
        GROUP_BUTTERFLY(value, COMBINE, WARPS_PER_TASK) \
    }
#endif

#else
#define GROUP_SCRATCH(T) __local T group_scratch[GROUP];
#define GROUP_REDUCE(value, COMBINE) \
    { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        group_scratch[LOCAL_ID] = value; \
        for (uint distance = LANES / 2; distance > 0; distance /= 2) { \
            barrier(CLK_LOCAL_MEM_FENCE); \
            if (LANE_ID < distance) group_scratch[LOCAL_ID] = COMBINE(group_scratch[LOCAL_ID], group_scratch[LOCAL_ID + distance]); \
        } \
        barrier(CLK_LOCAL_MEM_FENCE); \
        value = group_scratch[LOCAL_ID - LANE_ID]; \
    }
#endif
#endif
#define COMBINE_SUM(a, b) ((a) + (b))
#define COMBINE_MAX(a, b) fmax(a, b)
#define GROUP_SUM(value) GROUP_REDUCE(value, COMBINE_SUM)
#define GROUP_MAX(value) GROUP_REDUCE(value, COMBINE_MAX)

#endif
