// Vector registers of WIDTH elements. VEC(T) is T if WIDTH is 1. LOADV(D, p) and STOREV(D, v, p) move WIDTH consecutive
// elements. ALIGNED promises that `p` is aligned to WIDTH elements, which some GPUs need to move them in one transaction.
//
// Some drivers do not inline their built-in functions (QUIRK_OPERATORS_FOR_BUILTINS, see backends/opencl_c/quirks.py).
// Memory-bound code therefore uses operators, packed structures and the macros defined here: SELECT, CONVERT, MAGNITUDE.

#ifndef POLYHAL_VECTORS
#define POLYHAL_VECTORS

#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif

#if WIDTH == 1
#define VEC(T) T
#define AS(T, v) CONCAT(as_, T)(v)
#define CONVERT(T, v) CONCAT(convert_, T)(v)
#define CONVERT_SAT(T, v) CONCAT(CONCAT(convert_, T), _sat)(v)
#define SELECT(no, yes, condition) ((condition) ? (yes) : (no))
#define MAGNITUDE(x) fabs(x)
#define VECTOR_LOAD(T, p) (*(p))
#define VECTOR_STORE(T, v, p) (*(p) = (v))
#define HALF_LOAD(p) vload_half(0, p)
#define HALF_STORE(v, p) vstore_half_rte(v, 0, p)
#else
#define VEC(T) CONCAT(T, WIDTH)
#define AS(T, v) CONCAT(as_, VEC(T))(v)
#define CONVERT_SAT(T, v) CONCAT(CONCAT(convert_, VEC(T)), _sat)(v)
#if QUIRK_OPERATORS_FOR_BUILTINS
#define CONVERT(T, v) __builtin_convertvector(v, VEC(T))
#define SELECT(no, yes, condition) ((condition) ? (yes) : (no))
#define MAGNITUDE(x) AS(float, AS(int, x) & 0x7fffffff)
#else
#define CONVERT(T, v) CONCAT(convert_, VEC(T))(v)
// Not by the operator ?:, which some compilers miscompile for vectors of integers.
#define SELECT(no, yes, condition) select(no, yes, condition)
#define MAGNITUDE(x) fabs(x)
#endif
#if ALIGNED
#define VECTOR_LOAD(T, p) (*(__global const VEC(T) *)(p))
#define VECTOR_STORE(T, v, p) (*(__global VEC(T) *)(p) = (v))
#if QUIRK_PTX_HALF_CONVERSION && WIDTH <= 8
static inline float float_of_half(ushort bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
static inline float2 __attribute__((overloadable)) floats_of_halves(ushort2 v) {
    return (float2)(float_of_half(v.s0), float_of_half(v.s1));
}
static inline float4 __attribute__((overloadable)) floats_of_halves(ushort4 v) {
    return (float4)(floats_of_halves(v.lo), floats_of_halves(v.hi));
}
static inline float8 __attribute__((overloadable)) floats_of_halves(ushort8 v) {
    return (float8)(floats_of_halves(v.lo), floats_of_halves(v.hi));
}
static inline ushort half_of_float(float value) {
    ushort bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
static inline ushort2 __attribute__((overloadable)) halves_of_floats(float2 v) {
    return (ushort2)(half_of_float(v.s0), half_of_float(v.s1));
}
static inline ushort4 __attribute__((overloadable)) halves_of_floats(float4 v) {
    return (ushort4)(halves_of_floats(v.lo), halves_of_floats(v.hi));
}
static inline ushort8 __attribute__((overloadable)) halves_of_floats(float8 v) {
    return (ushort8)(halves_of_floats(v.lo), halves_of_floats(v.hi));
}
#define HALF_LOAD(p) floats_of_halves(VECTOR_LOAD(ushort, p))
#define HALF_STORE(v, p) VECTOR_STORE(ushort, halves_of_floats(v), p)
#else
#define HALF_LOAD(p) CONCAT(vloada_half, WIDTH)(0, p)
#define HALF_STORE(v, p) CONCAT(CONCAT(vstorea_half, WIDTH), _rte)(v, 0, p)
#endif
#else
#define PACKED(T)                            \
    typedef struct __attribute__((packed)) { \
        VEC(T) lanes;                        \
    } CONCAT(packed_, T);
PACKED(char)
PACKED(uchar)
PACKED(short)
PACKED(ushort)
PACKED(int)
PACKED(uint)
PACKED(long)
PACKED(ulong)
PACKED(float)
#if HAVE_FP64
PACKED(double)
#endif
#define VECTOR_LOAD(T, p) (((__global const CONCAT(packed_, T) *)(p))->lanes)
#define VECTOR_STORE(T, v, p) (((__global CONCAT(packed_, T) *)(p))->lanes = (v))
#if QUIRK_ALIGNED_HALF_CONVERSION
#if defined(__F16C__) && (WIDTH == 8 || WIDTH == 16)
// The processor's instruction, because vload_half may be a call.
typedef short eight_shorts __attribute__((vector_size(16)));
typedef float eight_floats __attribute__((vector_size(32)));
static inline float8 eight_floats_of_halves(const ushort8 v) {
    const eight_floats converted = __builtin_ia32_vcvtph2ps256(*(const eight_shorts *)&v);
    return *(const float8 *)&converted;
}
#if WIDTH == 8
#define floats_of_halves(v) eight_floats_of_halves(v)
#else
static inline float16 floats_of_halves(const ushort16 v) {
    return (float16)(eight_floats_of_halves(v.lo), eight_floats_of_halves(v.hi));
}
#endif
#else
static inline VEC(float) floats_of_halves(VEC(ushort) v) { return CONCAT(vload_half, WIDTH)(0, (const half *)&v); }
#endif
static inline VEC(ushort) halves_of_floats(VEC(float) v) {
    VEC(ushort) bits;
    CONCAT(CONCAT(vstore_half, WIDTH), _rte)(v, 0, (half *)&bits);
    return bits;
}
#define HALF_LOAD(p) floats_of_halves(VECTOR_LOAD(ushort, p))
#define HALF_STORE(v, p) VECTOR_STORE(ushort, halves_of_floats(v), p)
#else
#define HALF_LOAD(p) CONCAT(vload_half, WIDTH)(0, p)
#define HALF_STORE(v, p) CONCAT(CONCAT(vstore_half, WIDTH), _rte)(v, 0, p)
#endif
#endif
#endif

// On CPUs PREFETCH_DISTANCE is the number of bytes that memory is prefetched ahead of reads and writes. Hardware
// prefetchers stop at the end of a page and are often too late for writes.
#ifndef PREFETCH_DISTANCE
#define PREFETCH_DISTANCE 0
#endif
#if PREFETCH_DISTANCE && QUIRK_BUILTIN_PREFETCH
#define PREFETCH_READ(p) __builtin_prefetch((__global const char *)(p), 0);
#define PREFETCH_WRITE(p) __builtin_prefetch((__global const char *)(p), 1);
#endif
#ifndef PREFETCH_READ
#define PREFETCH_READ(p)
#define PREFETCH_WRITE(p)
#endif

// Functions of the shared expressions (backends/common/codegen/expressions.py) that are operators here.
#define quotient(x, y) ((x) / (y))
#define shift_left(x, n) ((x) << (n))
#define shift_right(x, n) ((x) >> (n))

// 1: NVIDIA's instruction that rounds two floats to bfloat16 is available (compute capability 8.0 or higher).
#ifndef PTX_BFLOAT16
#define PTX_BFLOAT16 0
#endif
#if PTX_BFLOAT16 && (WIDTH == 2 || WIDTH == 4 || WIDTH == 8)
static inline uint __attribute__((overloadable)) bfloat16_words(float2 v) {
    uint word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(v.s1), "f"(v.s0));
    return word;
}
static inline uint2 __attribute__((overloadable)) bfloat16_words(float4 v) {
    return (uint2)(bfloat16_words(v.lo), bfloat16_words(v.hi));
}
static inline uint4 __attribute__((overloadable)) bfloat16_words(float8 v) {
    return (uint4)(bfloat16_words(v.lo), bfloat16_words(v.hi));
}
static inline VEC(ushort) bfloat16s_of_floats(VEC(float) value) { return AS(ushort, bfloat16_words(value)); }
#else
static inline VEC(ushort) bfloat16s_of_floats(VEC(float) value) {
    const VEC(uint) bits = AS(uint, value);
    const VEC(uint) rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return CONVERT(ushort, SELECT(rounded, (bits >> 16) | 0x40u, value != value));
}
#endif

// A value of a chain that is cast to 16 bits and read again.
#define rounded_to_bfloat16(v) AS(float, CONVERT(uint, bfloat16s_of_floats(v)) << 16)
static inline VEC(float) rounded_to_float16(VEC(float) value) {
#if QUIRK_PTX_HALF_CONVERSION && ALIGNED && WIDTH > 1 && WIDTH <= 8
    return floats_of_halves(halves_of_floats(value));
#elif WIDTH == 1
    ushort bits;
    vstore_half_rte(value, 0, (half *)&bits);
    return vload_half(0, (const half *)&bits);
#else
    VEC(ushort) bits;
    CONCAT(CONCAT(vstore_half, WIDTH), _rte)(value, 0, (half *)&bits);
    return CONCAT(vload_half, WIDTH)(0, (const half *)&bits);
#endif
}

// Some CPU drivers reduce the arguments of a whole vector by the method that the largest lane needs, which loses accuracy
// in the others: a huge or infinite lane makes sin of its neighbours wrong. Lanes beyond `limit` are therefore computed
// separately.
#if WIDTH == 1
#define PERIODIC(T, MASK, f, x, limit) return f(x);
#else
#define PERIODIC(T, MASK, f, x, limit)                   \
    const VEC(MASK) far = !(fabs(x) <= (VEC(T))(limit)); \
    VEC(T) y = f(SELECT(x, (VEC(T))(0), far));           \
    if (any(far)) y = SELECT(y, f(x), far);              \
    return y;
#endif

#define LOADV_bool_(p) CONVERT(int, VECTOR_LOAD(uchar, p))
#define LOADV_uint8(p) CONVERT(uint, VECTOR_LOAD(uchar, p))
#define LOADV_uint16(p) CONVERT(uint, VECTOR_LOAD(ushort, p))
#define LOADV_uint32(p) VECTOR_LOAD(uint, p)
#define LOADV_uint64(p) VECTOR_LOAD(ulong, p)
#define LOADV_int8(p) CONVERT(int, VECTOR_LOAD(char, p))
#define LOADV_int16(p) CONVERT(int, VECTOR_LOAD(short, p))
#define LOADV_int32(p) VECTOR_LOAD(int, p)
#define LOADV_int64(p) VECTOR_LOAD(long, p)
#define LOADV_float16(p) HALF_LOAD(p)
#if PTX_BFLOAT16 && ALIGNED && WIDTH == 8
// Eight 16-bit elements are loaded as four words.
static inline float8 floats_of_words(uint4 w) {
    return as_float8((uint8)(w.s0 << 16, w.s0 & 0xffff0000u, w.s1 << 16, w.s1 & 0xffff0000u, w.s2 << 16,
                             w.s2 & 0xffff0000u, w.s3 << 16, w.s3 & 0xffff0000u));
}
#define LOADV_bfloat16(p) floats_of_words(*(__global const uint4 *)(p))
#else
#define LOADV_bfloat16(p) AS(float, CONVERT(uint, VECTOR_LOAD(ushort, p)) << 16)
#endif
#define LOADV_float32(p) VECTOR_LOAD(float, p)
#define LOADV_float64(p) VECTOR_LOAD(double, p)
#define LOADV(D, p) CONCAT(LOADV_, D)(p)

#define STOREV_bool_(v, p) VECTOR_STORE(uchar, CONVERT(uchar, v), p)
#define STOREV_uint8(v, p) VECTOR_STORE(uchar, CONVERT(uchar, v), p)
#define STOREV_uint16(v, p) VECTOR_STORE(ushort, CONVERT(ushort, v), p)
#define STOREV_uint32(v, p) VECTOR_STORE(uint, v, p)
#define STOREV_uint64(v, p) VECTOR_STORE(ulong, v, p)
#define STOREV_int8(v, p) VECTOR_STORE(char, CONVERT(char, v), p)
#define STOREV_int16(v, p) VECTOR_STORE(short, CONVERT(short, v), p)
#define STOREV_int32(v, p) VECTOR_STORE(int, v, p)
#define STOREV_int64(v, p) VECTOR_STORE(long, v, p)
#define STOREV_float16(v, p) HALF_STORE(v, p)
#define STOREV_bfloat16(v, p) VECTOR_STORE(ushort, bfloat16s_of_floats(v), p)
#define STOREV_float32(v, p) VECTOR_STORE(float, v, p)
#define STOREV_float64(v, p) VECTOR_STORE(double, v, p)
#define STOREV(D, v, p) CONCAT(STOREV_, D)(v, p)

#endif
