// What the expression tables call and CUDA's own functions lack, and conversions between registers.

#ifndef POLYHAL_FUNCTIONS
#define POLYHAL_FUNCTIONS

#include "lib/dtypes.cuh"

// Towards zero. C leaves NaN and values out of range open: here NaN gives 0, and unsigned types wrap negative values.
template <typename I, typename F> inline I truncated(F value) {
    if (!(value == value)) return 0;
    return (I)-1 < 0 || value >= 0 ? (I)value : (I)(int64)value;
}

// Words of the expression tables that are operators here.
template <typename F> inline F quotient(F x, F y) { return x / y; }
template <typename I> inline I shift_left(I x, I n) { return x << n; }
template <typename I> inline I shift_right(I x, I n) { return x >> n; }

inline float32 gelu_slope(float32 x) { return normcdf(x) + x * 0.39894228f * exp(-0.5f * x * x); }
inline float64 gelu_slope(float64 x) { return normcdf(x) + x * 0.39894228040143268 * exp(-0.5 * x * x); }

template <typename F> inline F gelu_tanh_slope(F x) {
    const F u = (x + (F)0.044715 * x * x * x) * (F)1.5957691216057308;
    const F s = 1 / (1 + exp(-u));
    return s + x * s * (1 - s) * ((F)0.21406444881780073 * (x * x) + (F)1.5957691216057308);
}

template <typename F> inline F silu_slope(F x) {
    const F s = 1 / (1 + exp(-x));
    return s * (x * (1 - s) + 1);
}

// Division that rounds down, and its remainder, which has the sign of the divisor. x / 0 is 0, and the smallest
// integer / -1 wraps.
template <typename I> inline I floor_divide(I x, I y) {
    if (y == 0) return 0;
    if (y == (I)-1 && (I)-1 < 0) return -x;
    const I quotient = x / y, inexact = x - quotient * y;
    return inexact != 0 && (inexact < 0) != (y < 0) ? quotient - 1 : quotient;
}

template <typename I> inline I floor_remainder(I x, I y) {
    if (y == 0 || (y == (I)-1 && (I)-1 < 0)) return 0;
    const I r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

template <typename F> inline F float_remainder(F x, F y) {
    const F r = fmod(x, y);
    if (r == 0) return copysign(r, y);
    return (r < 0 && y > 0) || (r > 0 && y < 0) ? r + y : r;
}
inline float32 floor_remainder(float32 x, float32 y) { return float_remainder(x, y); }
inline float64 floor_remainder(float64 x, float64 y) { return float_remainder(x, y); }

// Square and multiply. Negative exponents give 0, as the truncated reciprocal would.
template <typename I> inline I integer_pow(I x, I y) {
    if (y < 0) return 0;
    I result = 1;
    for (; y != 0; y >>= 1, x *= x)
        if (y & 1) result *= x;
    return result;
}

#endif
