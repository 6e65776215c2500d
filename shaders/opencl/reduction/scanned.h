// Vectors of a scan: conversion of loaded elements, and the prefix over the lanes of a vector.

#ifndef POLYHAL_REDUCTION_SCANNED
#define POLYHAL_REDUCTION_SCANNED

typedef ACCUMULATOR A;
typedef VEC(ACCUMULATOR) VA;
#define OUTPUT(name) __global STORAGE(OUT_DTYPE) *name, const ulong name##_offset

// Inclusive prefix over the lanes of a vector, in log2(WIDTH) steps.
#if WIDTH == 1
#define LAST(v) (v)
static inline VA scanned(VA v) { return v; }
#elif WIDTH == 2
#define LAST(v) (v).s1
static inline VA scanned(VA v) { return COMBINE_VECTORS((VA)((A)IDENTITY, v.s0), v); }
#elif WIDTH == 4
#define LAST(v) (v).s3
static inline VA scanned(VA v) {
    const A i = IDENTITY;
    v = COMBINE_VECTORS((VA)(i, v.s012), v);
    return COMBINE_VECTORS((VA)(i, i, v.s01), v);
}
#elif WIDTH == 8
#define LAST(v) (v).s7
static inline VA scanned(VA v) {
    const A i = IDENTITY;
    v = COMBINE_VECTORS((VA)(i, v.s0123, v.s45, v.s6), v);
    v = COMBINE_VECTORS((VA)(i, i, v.s0123, v.s45), v);
    return COMBINE_VECTORS((VA)(i, i, i, i, v.s0123), v);
}
#else
#define LAST(v) (v).sf
static inline VA scanned(VA v) {
    const A i = IDENTITY;
    v = COMBINE_VECTORS((VA)(i, v.s01234567, v.s89ab, v.scd, v.se), v);
    v = COMBINE_VECTORS((VA)(i, i, v.s01234567, v.s89ab, v.scd), v);
    v = COMBINE_VECTORS((VA)(i, i, i, i, v.s01234567, v.s89ab), v);
    return COMBINE_VECTORS((VA)(i, i, i, i, i, i, i, i, v.s01234567), v);
}
#endif

static inline VA mapped(VEC(COMPUTE(DTYPE)) v) { return MAP(v); }

// One element, with the same conversions as a vector.
static inline A mapped1(COMPUTE(DTYPE) value) {
    VA v = mapped((VEC(COMPUTE(DTYPE)))(value));
    return ((__private A *)&v)[0];
}

#if WIDTH == 1
#define WRITE_OUT(value, at, i) STORE(OUT_DTYPE, value, out, (at) + (long)(i) * out_step)
#else
#define WRITE_OUT(value, at, i) STOREV(OUT_DTYPE, value, out + (at) + (i) * WIDTH)
#endif

#endif
