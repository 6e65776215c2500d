// Element types: the storage type and the compute type of each dtype.
//
// For a dtype name D, STORAGE(D) is its type in memory and COMPUTE(D) its type in registers; LOAD(D, p, i) and STORE(D, v,
// p, i) move one element. float16 and bfloat16 need no extension: they are computed in float and rounded to nearest even
// when they are stored. Without HAVE_FP64 the type double must not appear.

#ifndef POLYHAL_DTYPES
#define POLYHAL_DTYPES

#ifndef HAVE_FP64
#define HAVE_FP64 0
#endif
#if HAVE_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

// For kernels with explicit vectors and for portable fallbacks: keeps CPU compilers from vectorizing over work-items, which
// gains nothing for these and takes some compilers up to a minute.
#define NO_AUTOVEC __attribute__((vec_type_hint(float4)))
// Some drivers compile functions that are not inlined for narrower vectors.
#define FORCE_INLINE static inline __attribute__((always_inline))

#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)

#define STORAGE_bool_ uchar
#define STORAGE_uint8 uchar
#define STORAGE_uint16 ushort
#define STORAGE_uint32 uint
#define STORAGE_uint64 ulong
#define STORAGE_int8 char
#define STORAGE_int16 short
#define STORAGE_int32 int
#define STORAGE_int64 long
#define STORAGE_float16 half
#define STORAGE_bfloat16 ushort
#define STORAGE_float32 float
#define STORAGE(D) CONCAT(STORAGE_, D)

#define COMPUTE_bool_ int
#define COMPUTE_uint8 uint
#define COMPUTE_uint16 uint
#define COMPUTE_uint32 uint
#define COMPUTE_uint64 ulong
#define COMPUTE_int8 int
#define COMPUTE_int16 int
#define COMPUTE_int32 int
#define COMPUTE_int64 long
#define COMPUTE_float16 float
#define COMPUTE_bfloat16 float
#define COMPUTE_float32 float
#define COMPUTE(D) CONCAT(COMPUTE_, D)

#if HAVE_FP64
#define STORAGE_float64 double
#define COMPUTE_float64 double
#endif

static inline float float_of_bfloat16(ushort bits) { return as_float((uint)bits << 16); }

// Tests of the bits of a number of type T, float or double: compilers that may assume finite numbers fold isinf, comparisons
// with INFINITY and x * 0. They are macros because such compilers assume finite arguments of functions as well.
#define BITS_float uint
#define BITS_double ulong
#define BITS(T) CONCAT(BITS_, T)
#define EXPONENT_float 0x7f800000u
#define EXPONENT_double 0x7ff0000000000000ul
#define EXPONENT(T) CONCAT(EXPONENT_, T)
#define BITS_OF(T, value) CONCAT(as_, BITS(T))(value)
#define IS_FINITE(T, value) ((BITS_OF(T, value) & EXPONENT(T)) != EXPONENT(T))
#define IS_INFINITE(T, value) (BITS_OF(T, value) << 1 == EXPONENT(T) << 1)

// Rounds to nearest even. A NaN keeps its sign and becomes quiet; rounding could make it infinite.
static inline ushort bfloat16_of_float(float value) {
    const uint bits = as_uint(value);
    const uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (ushort)(isnan(value) ? ((bits >> 16) | 0x40u) : rounded);
}

#define LOAD_bool_(p, i) ((int)(p)[i])
#define LOAD_uint8(p, i) ((uint)(p)[i])
#define LOAD_uint16(p, i) ((uint)(p)[i])
#define LOAD_uint32(p, i) ((p)[i])
#define LOAD_uint64(p, i) ((p)[i])
#define LOAD_int8(p, i) ((int)(p)[i])
#define LOAD_int16(p, i) ((int)(p)[i])
#define LOAD_int32(p, i) ((p)[i])
#define LOAD_int64(p, i) ((p)[i])
#define LOAD_float16(p, i) vload_half((size_t)(i), (p))
#define LOAD_bfloat16(p, i) float_of_bfloat16((p)[i])
#define LOAD_float32(p, i) ((p)[i])
#define LOAD_float64(p, i) ((p)[i])
#define LOAD(D, p, i) CONCAT(LOAD_, D)(p, i)

#define STORE_bool_(v, p, i) ((p)[i] = (uchar)(v))
#define STORE_uint8(v, p, i) ((p)[i] = (uchar)(v))
#define STORE_uint16(v, p, i) ((p)[i] = (ushort)(v))
#define STORE_uint32(v, p, i) ((p)[i] = (v))
#define STORE_uint64(v, p, i) ((p)[i] = (v))
#define STORE_int8(v, p, i) ((p)[i] = (char)(v))
#define STORE_int16(v, p, i) ((p)[i] = (short)(v))
#define STORE_int32(v, p, i) ((p)[i] = (v))
#define STORE_int64(v, p, i) ((p)[i] = (v))
#define STORE_float16(v, p, i) vstore_half_rte((float)(v), (size_t)(i), (p))
#define STORE_bfloat16(v, p, i) ((p)[i] = bfloat16_of_float(v))
#define STORE_float32(v, p, i) ((p)[i] = (v))
#define STORE_float64(v, p, i) ((p)[i] = (v))
#define STORE(D, v, p, i) CONCAT(STORE_, D)(v, p, i)

#endif
