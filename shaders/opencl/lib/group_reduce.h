// Reductions over the LANES work-items that share a task, in a fixed order; a group of GROUP work-items has GROUP / LANES such teams.
// With a GROUP of 1, as on CPUs, they cost nothing. Declare GROUP_SCRATCH(T) in the kernel; GROUP_SUM and GROUP_MAX must be reached
// by all work-items. The result is known to all of the team. EXCHANGE says how work-items pass values to one another:
//   0 through local memory,
//   1 by shuffles inside subgroups, through local memory between them (LANES must be GROUP),
//   2 by NVIDIA's shuffles inside warps, through local memory between them.
// Shuffles are for types of 32 bits.

#ifndef POLYHAL_GROUPS
#define POLYHAL_GROUPS

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
    typedef T Passed; \
    __local T group_scratch[GROUP];
#define GROUP_REDUCE(value, COMBINE) \
    { \
        for (uint reach = get_sub_group_size() / 2; reach > 0; reach /= 2) { \
            const Passed other = sub_group_shuffle_xor(value, reach); \
            value = COMBINE(value, other); \
        } \
        const uint runs = get_num_sub_groups(); \
        if (runs > 1) { \
            barrier(CLK_LOCAL_MEM_FENCE); \
            if (get_sub_group_local_id() == 0) group_scratch[get_sub_group_id()] = value; \
            barrier(CLK_LOCAL_MEM_FENCE); \
            value = group_scratch[0]; \
            for (uint run = 1; run < runs; run++) value = COMBINE(value, group_scratch[run]); \
        } \
    }
#elif EXCHANGE == 2
#define WARP 32
#define RUNS ((LANES + WARP - 1) / WARP)
inline uint shuffled(uint bits, uint reach) {
    uint other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=r"(other) : "r"(bits), "r"(reach));
    return other;
}
inline float __attribute__((overloadable)) passed(float value, uint reach) { return as_float(shuffled(as_uint(value), reach)); }
inline int __attribute__((overloadable)) passed(int value, uint reach) { return as_int(shuffled(as_uint(value), reach)); }
inline uint __attribute__((overloadable)) passed(uint value, uint reach) { return shuffled(value, reach); }
// COMBINE may name its operands several times, and in branches: there a shuffle would wait for ever for the others of the warp.
#define GROUP_BUTTERFLY(value, COMBINE, most) \
    _Pragma("unroll") for (uint reach = (most) / 2; reach > 0; reach /= 2) { \
        const Passed other = passed(value, reach); \
        value = COMBINE(value, other); \
    }
#if RUNS == 1
#define GROUP_SCRATCH(T) typedef T Passed;
#define GROUP_REDUCE(value, COMBINE) { GROUP_BUTTERFLY(value, COMBINE, LANES) }
#else
#define GROUP_SCRATCH(T) \
    typedef T Passed; \
    __local T group_scratch[GROUP / WARP];
// The first barrier keeps a work-item from overwriting what another still reads of the reduction before.
#define GROUP_REDUCE(value, COMBINE) \
    { \
        GROUP_BUTTERFLY(value, COMBINE, WARP) \
        barrier(CLK_LOCAL_MEM_FENCE); \
        if (LOCAL_ID % WARP == 0) group_scratch[LOCAL_ID / WARP] = value; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        value = group_scratch[LOCAL_ID / LANES * RUNS + LOCAL_ID % RUNS]; \
        GROUP_BUTTERFLY(value, COMBINE, RUNS) \
    }
#endif

#else
#define GROUP_SCRATCH(T) __local T group_scratch[GROUP];
#define GROUP_REDUCE(value, COMBINE) \
    { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        group_scratch[LOCAL_ID] = value; \
        for (uint reach = LANES / 2; reach > 0; reach /= 2) { \
            barrier(CLK_LOCAL_MEM_FENCE); \
            if (LANE_ID < reach) group_scratch[LOCAL_ID] = COMBINE(group_scratch[LOCAL_ID], group_scratch[LOCAL_ID + reach]); \
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
