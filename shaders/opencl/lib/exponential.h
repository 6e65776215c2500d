// EXP over vectors of WIDTH reals, EXP_SCALAR over one. With POLYNOMIAL_EXP they are computed here, for drivers whose exp
// is not vectorized: 2^n times a polynomial in the remainder, fitted at Chebyshev points, within one unit in the last
// place. n is applied in two halves, so that results may be subnormal.
//
// EXP_FAST and EXP_FAST_SCALAR are for softmax and similar sums whose largest term is 1: arguments up to 88, and results
// below 1e-37 may be 0. With POLYNOMIAL_EXP_FAST they are computed here, on CPUs faster than any call. With PTX_EXP_FAST
// they use NVIDIA's power of two, whose relative error is up to 2^-22 + |x| * 2^-24: enough for results stored in 16 bits,
// with a third of the instructions.

#ifndef POLYHAL_EXPONENTIAL
#define POLYHAL_EXPONENTIAL

#ifndef POLYNOMIAL_EXP
#define POLYNOMIAL_EXP 0
#endif

#ifndef POLYNOMIAL_EXP_FAST
#define POLYNOMIAL_EXP_FAST POLYNOMIAL_EXP
#endif

#if POLYNOMIAL_EXP || POLYNOMIAL_EXP_FAST
// e^r for r in [-log(2) / 2, log(2) / 2].
static inline VEC(float) polynomial_of_rest(VEC(float) r) {
    VEC(float) p = r * 0.0013933758f + 0.00836325251f;
    p = p * r + 0.041666463f;
    p = p * r + 0.166665763f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    return p * r + 1.0f;
}
#endif

#if POLYNOMIAL_EXP
static inline VEC(float) polynomial_exp(VEC(float) value) {
    // Outside these bounds the result is 0 or infinite. The comparisons propagate NaN.
    VEC(float) x = value < (VEC(float))(-104.0f) ? (VEC(float))(-104.0f) : value;
    x = x > (VEC(float))(89.0f) ? (VEC(float))(89.0f) : x;
    // Operators, because fma and rint may be calls (QUIRK_OPERATORS_FOR_BUILTINS). Adding and subtracting 1.5 * 2^23 rounds
    // to an integer.
    const VEC(float) n = (x * 1.442695041f + 12582912.0f) - 12582912.0f;
    VEC(float) r = x - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    VEC(float) p = polynomial_of_rest(r);
    const VEC(int) whole = CONVERT(int, n);
    const VEC(int) half_power = whole >> 1;
    p *= AS(float, (half_power + 127) << 23);
    return p * AS(float, (whole - half_power + 127) << 23);
}
#define EXP(x) polynomial_exp(x)
#if WIDTH == 1
#define EXP_SCALAR(x) polynomial_exp(x)
#else
#define EXP_SCALAR(x) (polynomial_exp((VEC(float))(x)).s0)
#endif
#else
#define EXP(x) exp(x)
#define EXP_SCALAR(x) exp(x)
#endif

#ifndef PTX_EXP_FAST
#define PTX_EXP_FAST 0
#endif

#if PTX_EXP_FAST
#include "lib/short_functions.h"
#define EXP_FAST(x) short_exp2((x) * 1.442695041f)
#define EXP_FAST_SCALAR(x) EXP_FAST(x)
#elif POLYNOMIAL_EXP_FAST
static inline VEC(float) polynomial_exp_fast(VEC(float) x) {
    // The lowest bits of t hold the exponent; its own exponent, and a NaN's, are shifted out.
    const VEC(float) t = x * 1.442695041f + 12582912.0f;
    const VEC(float) n = t - 12582912.0f;
    VEC(float) r = x - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    const VEC(float) power = AS(float, AS(int, polynomial_of_rest(r)) + (AS(int, t) << 23));
    return x < (VEC(float))(-86.0f) ? (VEC(float))(0.0f) : power;
}
#define EXP_FAST(x) polynomial_exp_fast(x)
#if WIDTH == 1
#define EXP_FAST_SCALAR(x) polynomial_exp_fast(x)
#else
#define EXP_FAST_SCALAR(x) (polynomial_exp_fast((VEC(float))(x)).s0)
#endif
#else
#define EXP_FAST(x) EXP(x)
#define EXP_FAST_SCALAR(x) EXP_SCALAR(x)
#endif

#endif
