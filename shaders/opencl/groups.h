// Reductions over the GROUP work-items of a group, in a fixed order. With a GROUP of 1, as on CPUs, they cost nothing.
// Declare GROUP_SCRATCH(T) in the kernel; GROUP_SUM and GROUP_MAX must be reached by all work-items. The result is known to all.

#ifndef POLYHAL_GROUPS
#define POLYHAL_GROUPS

#ifndef GROUP
#define GROUP 1
#endif

#if GROUP == 1
#define GROUP_ME 0
#define GROUP_SCRATCH(T)
#define GROUP_REDUCE(value, COMBINE)
#else
#define GROUP_ME ((uint)get_local_id(0))
#define GROUP_SCRATCH(T) __local T group_scratch[GROUP];
// The first barrier keeps a work-item from overwriting what another still reads of the reduction before.
#define GROUP_REDUCE(value, COMBINE) \
    { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        group_scratch[GROUP_ME] = value; \
        for (uint reach = GROUP / 2; reach > 0; reach /= 2) { \
            barrier(CLK_LOCAL_MEM_FENCE); \
            if (GROUP_ME < reach) group_scratch[GROUP_ME] = COMBINE(group_scratch[GROUP_ME], group_scratch[GROUP_ME + reach]); \
        } \
        barrier(CLK_LOCAL_MEM_FENCE); \
        value = group_scratch[0]; \
    }
#endif
#define COMBINE_SUM(a, b) ((a) + (b))
#define COMBINE_MAX(a, b) fmax(a, b)
#define GROUP_SUM(value) GROUP_REDUCE(value, COMBINE_SUM)
#define GROUP_MAX(value) GROUP_REDUCE(value, COMBINE_MAX)

#endif
