// Functions of the expression templates that CUDA lacks, and conversions between registers.

#ifndef POLYHAL_FUNCTIONS
#define POLYHAL_FUNCTIONS

#include "lib/dtypes.cuh"

// Truncates towards zero. If the result is undefined in C, NaN becomes 0, and unsigned types wrap negative values.
template <typename I, typename F> inline I truncated(F value) {
    if (!(value == value)) return 0;
    return (I)-1 < 0 || value >= 0 ? (I)value : (I)(int64)value;
}

// Functions of the expression templates that are operators in CUDA.
template <typename F> inline F quotient(F x, F y) { return x / y; }
template <typename I> inline I shift_left(I x, I n) { return x << n; }
template <typename I> inline I shift_right(I x, I n) { return x >> n; }

inline float32 gelu_derivative(float32 x) { return normcdf(x) + x * 0.39894228f * exp(-0.5f * x * x); }
inline float64 gelu_derivative(float64 x) { return normcdf(x) + x * 0.39894228040143268 * exp(-0.5 * x * x); }

template <typename F> inline F gelu_tanh_derivative(F x) {
    // Beyond 32 the derivative is 0 or 1, and the square need not overflow.
    const F square = x * x > 1024 ? 1024 : x * x;
    const F s = 1 / (1 + exp(-((x + (F)0.044715 * square * x) * (F)1.5957691216057308)));
    return s + x * s * (1 - s) * ((F)0.21406444881780073 * square + (F)1.5957691216057308);
}

template <typename F> inline F silu_derivative(F x) {
    const F s = 1 / (1 + exp(-x));
    return s * (x * (1 - s) + 1);
}

// Floor division, and its remainder, which has the sign of the divisor. x / 0 is 0, and INT_MIN / -1 wraps.
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
// As in Python, from the remainder, so that both agree if the quotient of x and y is rounded up.
template <typename F> inline F float_floor_divide(F x, F y) {
    if (y == 0) return x / y;
    const F r = fmod(x, y), exact = (x - r) / y;
    const F q = (r < 0 && y > 0) || (r > 0 && y < 0) ? exact - 1 : exact, whole = floor(q);
    return q - whole > (F)0.5 ? whole + 1 : whole;
}
inline float32 floor_divide(float32 x, float32 y) { return float_floor_divide(x, y); }
inline float64 floor_divide(float64 x, float64 y) { return float_floor_divide(x, y); }
inline float32 floor_remainder(float32 x, float32 y) { return float_remainder(x, y); }
inline float64 floor_remainder(float64 x, float64 y) { return float_remainder(x, y); }

// Exponentiation by squaring. Negative exponents result in 0, the truncated reciprocal.
template <typename I> inline I integer_pow(I x, I y) {
    if (y < 0) return x == 1 || x == (I)-1 ? (y & 1 ? x : x * x) : 0;  // the truncated reciprocal
    I result = 1;
    for (; y != 0; y >>= 1, x *= x)
        if (y & 1) result *= x;
    return result;
}

#endif
