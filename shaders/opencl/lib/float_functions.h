// Functions that OpenCL C lacks or that drivers run slowly, over vectors of WIDTH floats. They are branch-free, so that
// compilers keep them in vector registers. Constants carry the suffix f because many devices have no doubles.

#ifndef POLYHAL_FLOAT_FUNCTIONS
#define POLYHAL_FLOAT_FUNCTIONS

typedef VEC(float) F;

// 1: results are rounded to 16 bits.
#ifndef SHORT_RESULTS
#define SHORT_RESULTS 0
#endif
#if SHORT_RESULTS
#include "lib/short_functions.h"
// x times the sigmoid of y; SCALED is -y / log(2).
#define GATED(x, y, scaled) ((x) * short_reciprocal(1.0f + short_exp2(scaled)))
// The sigmoid s of y, and 1 - s, which a large factor may follow: not from s, whose rounding error may be all of it. An infinite
// power times 0 is NaN, for which fmin returns 1.
#define SIGMOID_AND_REST(s, rest, y, scaled)  \
    const F power = short_exp2(scaled);       \
    const F s = short_reciprocal(1.0f + power), rest = BOUNDED(power * s, 1.0f);
#define BOUNDED(x, bound) fmin(x, (F)(bound))
#else
#define GATED(x, y, scaled) ((x) / (1.0f + exp(-(y))))
#define SIGMOID_AND_REST(s, rest, y, scaled) const F s = GATED(1.0f, y, scaled), rest = 1.0f - s;
#define BOUNDED(x, bound) SELECT(x, (F)(bound), (x) > bound)
#endif
#define PER_LOG_2 1.442695041f

static inline F sine_float(F x) { PERIODIC(float, int, sin, x, 3.0e4f) }
static inline F cosine_float(F x) { PERIODIC(float, int, cos, x, 3.0e4f) }
// The sign is handled separately: a driver's vector pow may be wrong for negative x.
static inline F signed_power_float(F x, F y) {
    const F size = pow(MAGNITUDE(x), y);
    const F half_y = 0.5f * y;
    const F signed_size = SELECT(size, copysign(size, x), (floor(y) == y) & (floor(half_y) != half_y));
    return SELECT(signed_size, (F)(NAN), (x < 0.0f) & (x > (F)(-INFINITY)) & (floor(y) != y));
}

static inline F tangent_float(F x) { PERIODIC(float, int, tan, x, 3.0e4f) }

// Beyond 13 log(2) the nearest float is 1. Some drivers return the float below it, up to 10 or for all x, and the derivative
// 1 - tanh(x)^2 is then 1e-7 instead of 0. The comparison keeps a NaN.
static inline F tanh_float(F x) { return SELECT(tanh(x), copysign((F)(1.0f), x), MAGNITUDE(x) > 9.0109134f); }

static inline F fmod_float(F x, F y) { return fmod(x, y); }

// log(erfc(a)) for 1 <= a <= 4, and erf(a) / a as a function of a * a for a <= 1: minimax polynomials, fitted in float64
// with weights that balance the error of the result. Either way erf is within 2.3 units in the last place.
static inline F log_erfc(F a) {
    F p = (F)(0.00013354658f);
    p = p * a + -0.0023899076f;
    p = p * a + 0.019448387f;
    p = p * a + -0.09778741f;
    p = p * a + -0.64463556f;
    p = p * a + -1.1229699f;
    return p * a + -0.0014048255f;
}

static inline F erf_over_x(F z) {
    F p = (F)(-0.00056314224f);
    p = p * z + 0.0049175513f;
    p = p * z + -0.026711311f;
    p = p * z + 0.1128018f;
    p = p * z + -0.37612325f;
    return p * z + 1.1283791f;
}

// Beyond 4 the result is 1 in float; the comparison, unlike fmin, keeps a NaN.
static inline F error_function_float(F x) {
    const F size = MAGNITUDE(x);
    const F a = SELECT(size, (F)(4.0f), size > 4.0f);
    const F far = copysign(1.0f - exp(log_erfc(a)), x);
    return SELECT(far, x * erf_over_x(a * a), a < 1.0f);
}

// 2^q for q <= 1, at least 2^-126: a polynomial on [-1/2, 1/2]. Adding and subtracting 1.5 * 2^23 rounds to an integer,
// whose bits are then the lowest ones of the sum.
static inline F small_power_of_two(F q) {
    const F bounded = SELECT(q, (F)(-126.0f), q < -126.0f);
    const F shifted = bounded + 12582912.0f;
    const F r = bounded - (shifted - 12582912.0f);
    F p = (F)(0.00015345828f);
    p = p * r + 0.0013399939f;
    p = p * r + 0.009618489f;
    p = p * r + 0.055503286f;
    p = p * r + 0.24022646f;
    p = p * r + 0.6931472f;
    p = p * r + 1.0f;
    return AS(float, AS(int, p) + (AS(int, shifted) << 23));
}

// (1 + erf(x / sqrt 2)) / 2, computed from its tail to avoid cancellation. The base-2 logarithm of the tail is a polynomial
// in |x|, fitted in float64 such that x times the result is right to 0.1 units in the last place of at least 0.02 for x >
// -5.7. For smaller x the polynomial falls without bound, and the tail vanishes.
#define VANISHING_TAIL 13.2f
#if SHORT_RESULTS
// e^(-x^2 / 2), a factor of the tail and of the density.
static inline F normal_decay(F x) { return short_exp2(x * x * -0.72134752f); }
// The tail over e^(-x^2 / 2) is a polynomial in 1 / (1 + 0.37 |x|), right to 1.8e-5 of it: a third of the instructions.
static inline F normal_distribution_float(F x) {
    const F t = short_reciprocal(MAGNITUDE(x) * 0.37f + 1.0f);
    F p = (F)(-0.092590652f);
    p = p * t + 0.21490768f;
    p = p * t + 0.072339319f;
    p = p * t + 0.15852567f;
    p = p * t + 0.14680907f;
    const F tail = p * t * normal_decay(x);
    return SELECT(1.0f - tail, tail, x < 0.0f);
}
#else
static inline F normal_decay(F x) {
    return SELECT(small_power_of_two(x * x * -0.72134752f), (F)(0), MAGNITUDE(x) > VANISHING_TAIL);
}
static inline F normal_distribution_float(F x) {
    const F a = MAGNITUDE(x);
    F q = (F)(-4.8200768e-08f);
    q = q * a + 1.2376967e-06f;
    q = q * a + -1.4006309e-05f;
    q = q * a + 8.932612e-05f;
    q = q * a + -0.00031050996f;
    q = q * a + 4.1613002e-05f;
    q = q * a + 0.0069175945f;
    q = q * a + -0.05243278f;
    q = q * a + -0.45922077f;
    q = q * a + -1.1511045f;
    const F tail = SELECT(small_power_of_two(q * a + -1.0f), (F)(0), a > VANISHING_TAIL);
    return SELECT(1.0f - tail, tail, x < 0.0f);
}
#endif

// The density is e^(-x^2 / 2) / sqrt(2 pi).
static inline F gelu_derivative_float(F x) { return normal_distribution_float(x) + x * 0.39894228f * normal_decay(x); }

// With tanh(u) = 2 sigmoid(2u) - 1, gelu(x) = x sigmoid(y) where y = 2 sqrt(2/pi) (x + 0.044715 x^3).
#define CUBIC(x, square) (((x) + 0.044715f * (square) * (x)) * 1.5957691f)
#define SCALED_CUBIC(x, square) ((x) * ((square) * -0.10294324f + -2.3022082f))
static inline F gelu_tanh_float(F x) { return GATED(x, CUBIC(x, x * x), SCALED_CUBIC(x, x * x)); }

static inline F gelu_tanh_derivative_float(F x) {
    // Beyond 16 the derivative is 0 or 1, and the square need not overflow.
    const F square = BOUNDED(x * x, 256.0f);
    SIGMOID_AND_REST(s, rest, CUBIC(x, square), SCALED_CUBIC(x, square))
    return s + x * s * (rest * (0.21406445f * square + 1.5957691f));
}

static inline F sigmoid_float(F x) { return GATED(1.0f, x, x * -PER_LOG_2); }
static inline F silu_float(F x) { return GATED(x, x, x * -PER_LOG_2); }
static inline F silu_derivative_float(F x) {
    SIGMOID_AND_REST(s, rest, x, x * -PER_LOG_2)
    return s * (x * rest + 1.0f);
}

// By the remainder, as in Python, so that both agree where the quotient of x and y is rounded up.
static inline F floor_divide_float(F x, F y) {
    const F r = fmod(x, y);
    const F exact = (x - r) / y;
    const F q = SELECT(exact, exact - 1.0f, ((r < 0.0f) & (y > 0.0f)) | ((r > 0.0f) & (y < 0.0f)));
    const F whole = floor(q);
    return SELECT(SELECT(whole, whole + 1.0f, q - whole > 0.5f), x / y, y == 0.0f);
}

static inline F floor_remainder_float(F x, F y) {
    const F r = fmod(x, y);
    const F moved = SELECT(r, r + y, ((r < 0.0f) & (y > 0.0f)) | ((r > 0.0f) & (y < 0.0f)));
    return SELECT(moved, copysign(r, y), r == 0.0f);
}

#endif
