// Sums and maxima over the lanes of a vector of WIDTH reals, pairwise. LANES_MAX may drop a NaN. With WHOLE_NUMBERS, REAL
// is an integer type.

#ifndef POLYHAL_LANE_REDUCE
#define POLYHAL_LANE_REDUCE

#ifndef WHOLE_NUMBERS
#define WHOLE_NUMBERS 0
#endif

// The operator ?:, because some drivers split the function select into single lanes.
#if HAVE_PTX && !WHOLE_NUMBERS
#define LARGER(a, b) fmax(a, b)
#else
#define LARGER(a, b) ((a) < (b) ? (b) : (a))
#endif
#define SUM_OF_LANES1(v) (v)
#define SUM_OF_LANES2(v) ((v).s0 + (v).s1)
#define MAX_OF_LANES1(v) (v)
#define MAX_OF_LANES2(v) LARGER((v).s0, (v).s1)

#if WIDTH >= 4
static inline REAL SUM_OF_LANES4(CONCAT(REAL, 4) v) { return SUM_OF_LANES2(v.lo + v.hi); }
static inline REAL MAX_OF_LANES4(CONCAT(REAL, 4) v) { return MAX_OF_LANES2(LARGER(v.lo, v.hi)); }
#endif
#if WIDTH >= 8
static inline REAL SUM_OF_LANES8(CONCAT(REAL, 8) v) { return SUM_OF_LANES4(v.lo + v.hi); }
static inline REAL MAX_OF_LANES8(CONCAT(REAL, 8) v) { return MAX_OF_LANES4(LARGER(v.lo, v.hi)); }
#endif
#if WIDTH >= 16
static inline REAL SUM_OF_LANES16(CONCAT(REAL, 16) v) { return SUM_OF_LANES8(v.lo + v.hi); }
static inline REAL MAX_OF_LANES16(CONCAT(REAL, 16) v) { return MAX_OF_LANES8(LARGER(v.lo, v.hi)); }
#endif
#define LANES_SUM(v) CONCAT(SUM_OF_LANES, WIDTH)(v)
#define LANES_MAX(v) CONCAT(MAX_OF_LANES, WIDTH)(v)

#endif
