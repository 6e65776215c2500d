// Sums and maxima over the lanes of a vector of WIDTH reals, pair by pair, and steps shared by kernels that keep tiles in registers.
// LANES_MAX may pass over a NaN.

#ifndef POLYHAL_LANES
#define POLYHAL_LANES

// The operator, not the function select, which some drivers split into single lanes.
#define LARGER(a, b) ((a) < (b) ? (b) : (a))
#define LANES1_SUM(v) (v)
#define LANES2_SUM(v) ((v).s0 + (v).s1)
#define LANES1_MAX(v) (v)
#define LANES2_MAX(v) LARGER((v).s0, (v).s1)

#if WIDTH >= 4
inline REAL LANES4_SUM(CONCAT(REAL, 4) v) { return LANES2_SUM(v.lo + v.hi); }
inline REAL LANES4_MAX(CONCAT(REAL, 4) v) { return LANES2_MAX(LARGER(v.lo, v.hi)); }
#endif
#if WIDTH >= 8
inline REAL LANES8_SUM(CONCAT(REAL, 8) v) { return LANES4_SUM(v.lo + v.hi); }
inline REAL LANES8_MAX(CONCAT(REAL, 8) v) { return LANES4_MAX(LARGER(v.lo, v.hi)); }
#endif
#if WIDTH >= 16
inline REAL LANES16_SUM(CONCAT(REAL, 16) v) { return LANES8_SUM(v.lo + v.hi); }
inline REAL LANES16_MAX(CONCAT(REAL, 16) v) { return LANES8_MAX(LARGER(v.lo, v.hi)); }
#endif
#define LANES_SUM(v) CONCAT(CONCAT(LANES, WIDTH), _SUM)(v)
#define LANES_MAX(v) CONCAT(CONCAT(LANES, WIDTH), _MAX)(v)

#endif
