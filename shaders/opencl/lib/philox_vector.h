// WIDTH blocks of Philox4x32-10 at once, for CPUs; see lib/philox.h. Lanes of 64 bits hold words of 32 bits, since
// processors multiply such lanes without moving them.

#ifndef POLYHAL_PHILOX_VECTOR
#define POLYHAL_PHILOX_VECTOR

#include "lib/vectors.h"

#if WIDTH == 16
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#elif WIDTH == 8
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#else
#define LANE_NUMBERS 0, 1, 2, 3
#endif

// Interleaves the lanes of x and y: the lower halves into `low`, the upper ones into `high`.
#define INTERLEAVE(low, high, x, y) \
    low.even = (x).lo;              \
    low.odd = (y).lo;               \
    high.even = (x).hi;             \
    high.odd = (y).hi;

// Writes the words of WIDTH blocks in order, beginning with block `counter`.
static inline void philox_lanes(const ulong counter, const ulong seed, __private VEC(uint) *words) {
    const VEC(ulong) low = (VEC(ulong))(0xffffffffUL), counters = (VEC(ulong))(counter) + (VEC(ulong))(LANE_NUMBERS);
    VEC(ulong) c0 = counters & low, c1 = counters >> 32, c2 = (VEC(ulong))(0), c3 = (VEC(ulong))(0);
    uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
#pragma unroll
    for (uint round = 0; round < 10; round++) {
        const VEC(ulong) p0 = c0 * (VEC(ulong))(0xD2511F53UL), p1 = c2 * (VEC(ulong))(0xCD9E8D57UL);
        c0 = (p1 >> 32) ^ c1 ^ (VEC(ulong))((ulong)k0);
        c1 = p1 & low;
        c2 = (p0 >> 32) ^ c3 ^ (VEC(ulong))((ulong)k1);
        c3 = p0 & low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    VEC(uint) even0, even1, odd0, odd1;
    INTERLEAVE(even0, even1, CONVERT(uint, c0), CONVERT(uint, c2))
    INTERLEAVE(odd0, odd1, CONVERT(uint, c1), CONVERT(uint, c3))
    INTERLEAVE(words[0], words[1], even0, odd0)
    INTERLEAVE(words[2], words[3], even1, odd1)
}

#endif
