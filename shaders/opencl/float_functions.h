// Functions that OpenCL C lacks or that drivers run slowly, over vectors of WIDTH floats. Branch-free, so that compilers
// keep them in vector registers; constants carry the suffix f because many devices have no double.

#ifndef POLYHAL_FLOAT_FUNCTIONS
#define POLYHAL_FLOAT_FUNCTIONS

typedef VEC(float) F;

inline F sine_float(F x) { PERIODIC(float, int, sin, x, 3.0e4f) }
inline F cosine_float(F x) { PERIODIC(float, int, cos, x, 3.0e4f) }
// The sign apart from the size: a driver's vector pow may be wrong for negative x.
inline F signed_power_float(F x, F y) {
    const F size = pow(fabs(x), y);
    const F half_y = 0.5f * y;
    const F signed_size = SELECT(size, copysign(size, x), (floor(y) == y) & (floor(half_y) != half_y));
    return SELECT(signed_size, (F)(NAN), (x < 0.0f) & (x > (F)(-INFINITY)) & (floor(y) != y));
}

inline F tangent_float(F x) { PERIODIC(float, int, tan, x, 3.0e4f) }

// log(erfc(a)) for 1 <= a <= 4 and erf(a)/a in terms of a*a for a <= 1: minimax polynomials fitted in float64 with weights
// that balance the error of the result. erf is within 2.3 units in the last place of the exact value in both.
inline F log_erfc(F a) {
    F p = (F)(0.00013354658f);
    p = p * a + -0.0023899076f;
    p = p * a + 0.019448387f;
    p = p * a + -0.09778741f;
    p = p * a + -0.64463556f;
    p = p * a + -1.1229699f;
    return p * a + -0.0014048255f;
}

inline F erf_over_x(F z) {
    F p = (F)(-0.00056314224f);
    p = p * z + 0.0049175513f;
    p = p * z + -0.026711311f;
    p = p * z + 0.1128018f;
    p = p * z + -0.37612325f;
    return p * z + 1.1283791f;
}

// Beyond 4 the result is 1 in float; the comparison, unlike fmin, keeps a NaN.
inline F error_function_float(F x) {
    const F size = fabs(x);
    const F a = SELECT(size, (F)(4.0f), size > 4.0f);
    const F far = copysign(1.0f - exp(log_erfc(a)), x);
    return SELECT(far, x * erf_over_x(a * a), a < 1.0f);
}

// (1 + erf(x / sqrt 2)) / 2. For x < 0 it is formed from erfc, so that nothing cancels.
inline F normal_distribution_float(F x) {
    const F t = x * 0.70710678f;
    const F size = fabs(t);
    const F a = SELECT(size, (F)(4.0f), size > 4.0f);
    const F tail = 0.5f * exp(log_erfc(a));
    const F far = SELECT(1.0f - tail, tail, x < 0.0f);
    const F near = (0.5f * t * (erf_over_x(a * a)) + 0.5f);
    // Where even the tail is below half a unit of 1, it still decays; past 4 sqrt 2 it is taken as 0.
    const F settled = SELECT(far, (F)(0.0f), x < -5.65f);
    return SELECT(settled, near, a < 1.0f);
}

inline F gelu_slope_float(F x) {
    return normal_distribution_float(x) + x * 0.39894228f * exp(-0.5f * x * x);
}

inline F gelu_tanh_slope_float(F x) {
    const F u = (x + 0.044715f * x * x * x) * 1.5957691f;
    const F s = 1.0f / (1.0f + exp(-u));
    return s + x * s * (1.0f - s) * (0.21406445f * (x * x) + 1.5957691f);
}

inline F silu_slope_float(F x) {
    const F s = 1.0f / (1.0f + exp(-x));
    return s * (x * (1.0f - s) + 1.0f);
}

inline F floor_remainder_float(F x, F y) {
    const F r = fmod(x, y);
    const F moved = SELECT(r, r + y, ((r < 0.0f) & (y > 0.0f)) | ((r > 0.0f) & (y < 0.0f)));
    return SELECT(moved, copysign(r, y), r == 0.0f);
}

#endif
