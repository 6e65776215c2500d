// Common parts of the reductions: terms and their combination.
//
// Results are numbered over two kept axes (lengths k0, k1, strides k0s, k1s), terms over two reduced axes (the inner of length
// r1 and stride r1s, the outer of stride r0s). Split p of `splits` begins at term p * split_length. `divisor` applies with DIVIDE.

#ifndef POLYHAL_REDUCE
#define POLYHAL_REDUCE

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE float32
#define ACCUMULATOR float32
// Maps the register of an element to a term.
#define MAP(v) (v)
#define OPERATION Sum
#define IDENTITY 0
#define DIVIDE 0
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/functions.cuh"
#include "lib/combine.cuh"

// Terms combined before the result so far: short chains keep the rounding error of sums low.
#define CHAIN 64
#define GEOMETRY \
    const uint64 k0, const int64 k0s, const uint64 k1, const int64 k1s, const int64 r0s, const uint64 r1, \
        const int64 r1s, const uint64 length, const uint64 splits, const uint64 split_length, const ACCUMULATOR divisor

inline ACCUMULATOR combine(ACCUMULATOR a, ACCUMULATOR b) { return OPERATION::combine(a, b); }
inline ACCUMULATOR term(DTYPE element) {
    const Register<DTYPE> v = widen(element);
    return MAP(v);
}
inline uint64 smaller(uint64 a, uint64 b) { return a < b ? a : b; }
inline OUT_DTYPE finish(ACCUMULATOR total, ACCUMULATOR divisor) {
    return narrow<OUT_DTYPE>((Register<OUT_DTYPE>)(DIVIDE ? total / divisor : total));
}

#endif
