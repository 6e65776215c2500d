// The quantiles of lib/normal.h, WIDTH at a time, for CPUs.

#ifndef POLYHAL_NORMAL_VECTOR
#define POLYHAL_NORMAL_VECTOR

#include "lib/vectors.h"
#include "lib/normal.h"

#if WIDTH == 16
#define PAIRS ulong8
#define AS_PAIRS(v) as_ulong8(v)
#elif WIDTH == 8
#define PAIRS ulong4
#define AS_PAIRS(v) as_ulong4(v)
#else
#define PAIRS ulong2
#define AS_PAIRS(v) as_ulong2(v)
#endif

// The upper halves of products, from lanes of 64 bits, since processors multiply such lanes without moving them.
static inline VEC(uint) upper_products(const VEC(uint) a, const VEC(uint) b) {
    const PAIRS low = (PAIRS)(0xffffffffUL), even = (AS_PAIRS(a) & low) * (AS_PAIRS(b) & low);
    const PAIRS odd = (AS_PAIRS(a) >> 32) * (AS_PAIRS(b) >> 32);
    return AS(uint, (even >> 32) | (odd & ~low));
}

// Four coefficients of each of four segments, by coefficient.
static inline void coefficients_of_four(__private const uint *segments, __global const int4 *table, __private int4 *c) {
    const int4 p = table[segments[0]], q = table[segments[1]], r = table[segments[2]], s = table[segments[3]];
    const int4 pr_low = (int4)(p.s0, r.s0, p.s1, r.s1), pr_high = (int4)(p.s2, r.s2, p.s3, r.s3);
    const int4 qs_low = (int4)(q.s0, s.s0, q.s1, s.s1), qs_high = (int4)(q.s2, s.s2, q.s3, s.s3);
    c[0] = (int4)(pr_low.s0, qs_low.s0, pr_low.s1, qs_low.s1);
    c[1] = (int4)(pr_low.s2, qs_low.s2, pr_low.s3, qs_low.s3);
    c[2] = (int4)(pr_high.s0, qs_high.s0, pr_high.s1, qs_high.s1);
    c[3] = (int4)(pr_high.s2, qs_high.s2, pr_high.s3, qs_high.s3);
}

#if WIDTH == 16
#define JOINED(k) as_uint16((int16)(c[k], c[4 + k], c[8 + k], c[12 + k]))
#elif WIDTH == 8
#define JOINED(k) as_uint8((int8)(c[k], c[4 + k]))
#else
#define JOINED(k) as_uint4(c[k])
#endif

static inline VEC(float) normal_quantiles(const VEC(uint) words, __global const int4 *table) {
    const VEC(uint) rank = words & 0x7fffffffu, tail = words << 1 | 1;
    // Leading zeros, from the exponent of a float. The low bits are cleared first, so that rounding cannot carry into
    // the next power of two.
    const VEC(uint) exponent = AS(uint, CONVERT(float, AS(int, rank & ~(rank >> 1)))) >> 23;
    const VEC(uint) octave = SELECT(157 - exponent, (VEC(uint))(31), exponent == 0);
    const VEC(uint) position = tail << octave << 1, segments = octave << 3 | position >> 29, t = position << 3;
    // Through memory: extracting lanes takes longer.
    union {
        VEC(uint) lanes;
        uint each[WIDTH];
    } places;
    places.lanes = segments;
    int4 c[WIDTH];
#pragma unroll
    for (uint i = 0; i < WIDTH; i += 4) coefficients_of_four(places.each + i, table, c + i);
    VEC(uint) value = JOINED(2) - (JOINED(3) * (t >> 16) >> 15);
    value = JOINED(1) - upper_products(value, t);
    value = JOINED(0) - upper_products(value, t);
    const VEC(uint) rounded = (value + 64) & 0xffffff80u;
    value = SELECT(rounded, value, value < (1u << 24));
    const VEC(float) magnitude = CONVERT(float, AS(int, value)) * 0x1p-28f;
    return AS(float, AS(uint, magnitude) | (words & 0x80000000u));
}

#endif
