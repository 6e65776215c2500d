// The functions of lib/float_functions.h over vectors of WIDTH doubles; included only if the device has doubles. They use
// the driver's erf and erfc: in double precision accuracy matters more than speed.

#ifndef POLYHAL_DOUBLE_FUNCTIONS
#define POLYHAL_DOUBLE_FUNCTIONS

typedef VEC(double) D;

// r = f(x, y), one element at a time.
#define BY_ELEMENT(r, f, x, y)      \
    for (uint j = 0; j < WIDTH; j++) \
        ((__private double *)&r)[j] = f(((__private double *)&x)[j], ((__private double *)&y)[j]);

static inline D sine_double(D x) { PERIODIC(double, long, sin, x, 1.0e9) }
static inline D cosine_double(D x) { PERIODIC(double, long, cos, x, 1.0e9) }
// The sign is handled separately: a driver's vector pow may be wrong for negative x.
static inline D signed_power_double(D x, D y) {
    D magnitude = fabs(x);
#if QUIRK_SCALAR_POW
    D size;
    BY_ELEMENT(size, pow, magnitude, y)
#else
    const D size = pow(magnitude, y);
#endif
    const D half_y = 0.5 * y;
    const D signed_size = SELECT(size, copysign(size, x), (floor(y) == y) & (floor(half_y) != half_y));
    return SELECT(signed_size, (D)(NAN), (x < 0.0) & (x > (D)(-INFINITY)) & (floor(y) != y));
}

static inline D tangent_double(D x) { PERIODIC(double, long, tan, x, 1.0e9) }

static inline D tanh_double(D x) { return tanh(x); }

static inline D error_function_double(D x) { return erf(x); }

static inline D normal_distribution_double(D x) { return 0.5 * erfc(x * -0.70710678118654752); }

static inline D gelu_derivative_double(D x) {
    return normal_distribution_double(x) + x * 0.39894228040143268 * exp(-0.5 * x * x);
}

static inline D gelu_tanh_double(D x) { return x / (1.0 + exp(-((x + 0.044715 * x * x * x) * 1.5957691216057308))); }

static inline D gelu_tanh_derivative_double(D x) {
    const D square = SELECT(x * x, (D)(1024.0), x * x > 1024.0);
    const D s = 1.0 / (1.0 + exp(-((x + 0.044715 * square * x) * 1.5957691216057308)));
    return s + x * s * (1.0 - s) * (0.21406444881780073 * square + 1.5957691216057308);
}

static inline D sigmoid_double(D x) { return 1.0 / (1.0 + exp(-x)); }
static inline D silu_double(D x) { return x / (1.0 + exp(-x)); }

static inline D silu_derivative_double(D x) {
    const D s = 1.0 / (1.0 + exp(-x));
    return s * (x * (1.0 - s) + 1.0);
}

static inline D fmod_double(D x, D y) {
#if QUIRK_SCALAR_FMOD
    D r;
    BY_ELEMENT(r, fmod, x, y)
    return r;
#else
    return fmod(x, y);
#endif
}

// By the remainder, as in Python, so that both agree where the quotient of x and y is rounded up.
static inline D floor_divide_double(D x, D y) {
    const D r = fmod_double(x, y);
    const D exact = (x - r) / y;
    const D q = SELECT(exact, exact - 1.0, ((r < 0.0) & (y > 0.0)) | ((r > 0.0) & (y < 0.0)));
    const D whole = floor(q);
    return SELECT(SELECT(whole, whole + 1.0, q - whole > 0.5), x / y, y == 0.0);
}

static inline D floor_remainder_double(D x, D y) {
    const D r = fmod_double(x, y);
    const D moved = SELECT(r, r + y, ((r < 0.0) & (y > 0.0)) | ((r > 0.0) & (y < 0.0)));
    return SELECT(moved, copysign(r, y), r == 0.0);
}

#endif
