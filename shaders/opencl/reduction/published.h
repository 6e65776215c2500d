// Totals that groups publish for others, and prefixes of the lanes of a warp, for scans in one pass.
//
// A published value is one or two words of 64 bits. Each holds 32 bits of the value, and its state: 0 if nothing is published. So
// readers need no fence.

#ifndef POLYHAL_REDUCTION_PUBLISHED
#define POLYHAL_REDUCTION_PUBLISHED

// Words of a published value.
#ifndef WORDS
#define WORDS 1
#endif
typedef __global volatile ulong *Published;

static inline void publish(Published place, uint state, A value) {
#if WORDS == 1
    place[0] = (ulong)state << 32 | as_uint(value);
#else
    const uint2 bits = as_uint2(value);
    place[0] = (ulong)state << 32 | bits.x;
    place[1] = (ulong)state << 32 | bits.y;
#endif
}

// Reads a value and returns its state; 0 if it is being replaced.
static inline uint receive(Published place, A *value) {
#if WORDS == 1
    const ulong word = place[0];
    *value = CONCAT(as_, ACCUMULATOR)((uint)word);
    return (uint)(word >> 32);
#else
    const ulong low = place[0], high = place[1];
    *value = CONCAT(as_, ACCUMULATOR)((uint2)((uint)low, (uint)high));
    return low >> 32 == high >> 32 ? (uint)(low >> 32) : 0;
#endif
}

// Replaces `value` by its inclusive prefix over the lanes of the warp, and sets `before` to the exclusive one.
#if EXCHANGE == 2
#define SCRATCH
#define WARP_SCAN(value, before)                                          \
    {                                                                     \
        _Pragma("unroll") for (uint reach = 1; reach < WARP; reach *= 2) { \
            const A left = from_before(value, reach);                     \
            const A both = COMBINE_SCALARS(left, value);                  \
            value = lane >= reach ? both : value;                         \
        }                                                                 \
        before = from_before(value, 1);                                   \
        if (lane == 0) before = IDENTITY;                                 \
    }
#else
#define SCRATCH __local A scratch[GROUP];
#define WARP_SCAN(value, before)                                                       \
    {                                                                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                  \
        scratch[me] = value;                                                           \
        for (uint reach = 1; reach < WARP; reach *= 2) {                               \
            barrier(CLK_LOCAL_MEM_FENCE);                                              \
            const A left = lane >= reach ? scratch[me - reach] : (A)IDENTITY;          \
            barrier(CLK_LOCAL_MEM_FENCE);                                              \
            value = COMBINE_SCALARS(left, value);                                      \
            scratch[me] = value;                                                       \
        }                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                  \
        before = lane > 0 ? scratch[me - 1] : (A)IDENTITY;                             \
    }
#endif

#endif
