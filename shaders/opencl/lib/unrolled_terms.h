// UNROLLED_TERMS in front of the loop over the terms of a slice in local memory unrolls it whole, or TERM_UNROLL times.
//
// Compilers hoist the loads of an unrolled loop into registers. That hides latency if a work-item has many registers;
// with few registers, it lowers occupancy or spills.

#ifndef POLYHAL_LIB_UNROLLED_TERMS
#define POLYHAL_LIB_UNROLLED_TERMS

// 0: unroll completely.
#ifndef TERM_UNROLL
#define TERM_UNROLL 0
#endif
#define PRAGMA_OF(text) _Pragma(#text)
#define UNROLL_PRAGMA(steps) PRAGMA_OF(unroll steps)
#if TERM_UNROLL
#define UNROLLED_TERMS UNROLL_PRAGMA(TERM_UNROLL)
#else
#define UNROLLED_TERMS _Pragma("unroll")
#endif

#endif
