// The operators of reductions, for vectors (see lib/vectors.h) and for scalars. If TERM, the type of a result, is defined,
// REDUCE_LANES reduces the lanes of a vector pairwise.
//
// `largest` and `smallest` propagate NaN from either side; they are not called max and min because some drivers define
// those as macros. They use the operator ?: because some drivers split the function select into single lanes.

#ifndef POLYHAL_COMBINE
#define POLYHAL_COMBINE

#define VECTOR_sum(a, b) ((a) + (b))
#define SCALAR_sum(a, b) ((a) + (b))
#define VECTOR_prod(a, b) ((a) * (b))
#define SCALAR_prod(a, b) ((a) * (b))
#define VECTOR_either(a, b) ((a) | (b))
#define SCALAR_either(a, b) ((a) | (b))
#define VECTOR_both(a, b) ((a) & (b))
#define SCALAR_both(a, b) ((a) & (b))
// A NaN differs from itself; for integers the comparison folds away.
#define VECTOR_largest(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define SCALAR_largest(a, b) (((a) > (b) || (a) != (a)) ? (a) : (b))
#define VECTOR_smallest(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))
#define SCALAR_smallest(a, b) (((a) < (b) || (a) != (a)) ? (a) : (b))

#define COMBINE_VECTORS(a, b) CONCAT(VECTOR_, OPERATION)(a, b)
#define COMBINE_SCALARS(a, b) CONCAT(SCALAR_, OPERATION)(a, b)

#ifdef TERM
#define REDUCE_LANES1(v) (v)
#define REDUCE_LANES2(v) COMBINE_SCALARS((v).s0, (v).s1)
#if WIDTH >= 4
static inline TERM REDUCE_LANES4(CONCAT(TERM, 4) v) {
    const CONCAT(TERM, 2) pair = COMBINE_VECTORS(v.lo, v.hi);
    return REDUCE_LANES2(pair);
}
#endif
#if WIDTH >= 8
static inline TERM REDUCE_LANES8(CONCAT(TERM, 8) v) { return REDUCE_LANES4(COMBINE_VECTORS(v.lo, v.hi)); }
#endif
#if WIDTH >= 16
static inline TERM REDUCE_LANES16(CONCAT(TERM, 16) v) { return REDUCE_LANES8(COMBINE_VECTORS(v.lo, v.hi)); }
#endif
#define REDUCE_LANES(v) CONCAT(REDUCE_LANES, WIDTH)(v)
#endif

#endif
