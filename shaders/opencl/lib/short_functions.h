// Powers of two and reciprocals of vectors, accurate enough for results that are rounded to 16 bits: the relative error is at
// most 2^-20, and magnitudes below 2^-126 become 0. With PTX each is one instruction: native_exp2 and native_recip also scale
// subnormal numbers, which takes up to four more.

#ifndef POLYHAL_SHORT_FUNCTIONS
#define POLYHAL_SHORT_FUNCTIONS

#ifndef HAVE_PTX
#define HAVE_PTX 0
#endif

#if HAVE_PTX
#define BY_HALVES(f, T) \
    static inline T __attribute__((overloadable)) f(T x) { return (T)(f(x.lo), f(x.hi)); }
#define ONE_INSTRUCTION(f, instruction)                            \
    static inline float __attribute__((overloadable)) f(float x) { \
        float y;                                                   \
        asm(instruction " %0, %1;" : "=f"(y) : "f"(x));            \
        return y;                                                  \
    }                                                              \
    BY_HALVES(f, float2) BY_HALVES(f, float4) BY_HALVES(f, float8) BY_HALVES(f, float16)
ONE_INSTRUCTION(short_exp2, "ex2.approx.ftz.f32")
ONE_INSTRUCTION(short_reciprocal, "rcp.approx.ftz.f32")
#else
#define short_exp2(x) native_exp2(x)
#define short_reciprocal(x) native_recip(x)
#endif

#endif
