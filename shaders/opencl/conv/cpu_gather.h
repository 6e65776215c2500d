// Loads of WIDTH neighbouring elements, some masked to zero, for conv/cpu_im2col.cl and conv/cpu_col2im.cl. ELEMENT is
// an unsigned integer with the size of an element.

#ifndef POLYHAL_CONV_CPU_GATHER
#define POLYHAL_CONV_CPU_GATHER

#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef ELEMENT
#define ELEMENT uint
#endif
// Element i is loaded from index i; with SKIP from 2 i; with SPREAD from i / 2.
#ifndef SKIP
#define SKIP 0
#endif
#ifndef SPREAD
#define SPREAD 0
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"

typedef VEC(ELEMENT) Elements;
#if WIDTH == 16
#define LANES (Elements)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define HALF 8
#elif WIDTH == 8
#define LANES (Elements)(0, 1, 2, 3, 4, 5, 6, 7)
#define HALF 4
#elif WIDTH == 4
#define LANES (Elements)(0, 1, 2, 3)
#define HALF 2
#else
#define LANES 0
#endif
#if SKIP
#define PLACE(i) (2 * (i))
#define REACH (2 * WIDTH)
#elif SPREAD
#define PLACE(i) ((i) / 2)
#define REACH HALF
#else
#define PLACE(i) (i)
#define REACH WIDTH
#endif
typedef struct __attribute__((packed)) {
    Elements lanes;
} UnalignedElements;
#if SPREAD
typedef struct __attribute__((packed)) {
    CONCAT(ELEMENT, HALF) lanes;
} UnalignedHalf;
#endif

// The elements beginning at `at` whose bits are set in `inside`. Nothing before the first element or after `last` is
// read.
FORCE_INLINE Elements gather(__global const ELEMENT *memory, const long at, const long last, const uint inside) {
    if (at >= 0 && at + REACH - 1 <= last) {
        const Elements mask = (Elements)(0) - (((Elements)(inside) >> LANES) & (Elements)(1));
#if SKIP
        const Elements low = ((__global const UnalignedElements *)(memory + at))->lanes;
        const Elements high = ((__global const UnalignedElements *)(memory + at + WIDTH))->lanes;
        return (Elements)(low.even, high.even) & mask;
#elif SPREAD
        const CONCAT(ELEMENT, HALF) found = ((__global const UnalignedHalf *)(memory + at))->lanes;
        Elements spread;
        spread.even = found;
        spread.odd = found;
        return spread & mask;
#else
        return ((__global const UnalignedElements *)(memory + at))->lanes & mask;
#endif
    }
    Elements found = (Elements)(0);
    for (uint i = 0; i < WIDTH; i++)
        if (inside >> i & 1) ((__private ELEMENT *)&found)[i] = memory[at + PLACE(i)];
    return found;
}

#endif
