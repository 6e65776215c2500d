{#- Functions of f32. WGSL allows errors of hundreds of ulp in exp, log, sin and pow, and compilers may ignore NaN, so these are built from
    +, -, *, /, sqrt, floor and bit operations. The polynomials of the trigonometric functions are the minimax ones of Cephes (Moshier);
    those of erf were fitted in float64. -#}
{% include "lib/logarithm.wgsl" %}
{% include "lib/range_reduction.wgsl" %}
fn sine_f32(x: f32) -> f32 {
    if (!isfinite_f32(x)) { return not_a_number(); }
    return select(quarter_sine(reduced(x)), x, fabs_f32(x) < 1.0e-4f);
}
fn cosine_f32(x: f32) -> f32 {
    if (!isfinite_f32(x)) { return not_a_number(); }
    let r = reduced(x);
    return quarter_sine(ReducedAngle(r.angle, r.quarters + 1));
}
fn tangent_f32(x: f32) -> f32 {
    if (!isfinite_f32(x)) { return not_a_number(); }
    let r = reduced(x);
    let s = sine_near(r.angle);
    let c = cosine_near(r.angle);
    let value = select(quotient_f32(s, c), -quotient_f32(c, s), (r.quarters & 1) == 1);
    return select(value, x, fabs_f32(x) < 1.0e-4f);
}
fn atan_f32(x: f32) -> f32 {
    let a = fabs_f32(x);
    let far = a > 2.41421356f;
    let middle = a > 0.41421356f;
    let t = select(select(a, (a - 1.0f) / (a + 1.0f), middle), -1.0f / a, far);
    let z = t * t;
    let p = (((8.05374449538e-2f * z - 1.38776856032e-1f) * z + 1.99777106478e-1f) * z - 3.33329491539e-1f) * z * t + t;
    let value = p + select(select(0.0f, 0.785398163f, middle), 1.57079633f, far);
    return select(copysign_f32(value, x), x, isnan_f32(x));
}
fn atan2_f32(y: f32, x: f32) -> f32 {
    if (isnan_f32(x) || isnan_f32(y)) { return not_a_number(); }
    let pi = 3.14159274f;
    if (y == 0.0f) { return copysign_f32(select(0.0f, pi, bitcast<u32>(x) >= 0x80000000u), y); }
    if (isinf_f32(x) && isinf_f32(y)) { return copysign_f32(select(0.785398163f, 2.35619449f, x < 0.0f), y); }
    if (isinf_f32(y) || x == 0.0f) { return copysign_f32(1.57079633f, y); }
    if (isinf_f32(x)) { return copysign_f32(select(0.0f, pi, x < 0.0f), y); }
    // Scaled, so that the quotient of huge or tiny operands neither overflows nor underflows.
    let big = max(fabs_f32(x), fabs_f32(y));
    let scale = select(select(1.0f, 1.0e20f, big < 1.0e-18f), 1.0e-20f, big > 1.0e18f);
    let a = atan_f32(fabs_f32((y * scale) / (x * scale)));
    let angle = select(a, pi - a, x < 0.0f);
    return copysign_f32(angle, y);
}
fn asin_series(t: f32, z: f32) -> f32 {
    return ((((4.2163199048e-2f * z + 2.4181311049e-2f) * z + 4.5470025998e-2f) * z + 7.4953002686e-2f) * z + 1.6666752422e-1f) * z * t + t;
}
fn asin_f32(x: f32) -> f32 {
    let a = fabs_f32(x);
    let far = a > 0.5f;
    let z = select(a * a, 0.5f * (1.0f - a), far);
    let p = asin_series(select(a, sqrt_f32(z), far), z);
    let value = copysign_f32(select(p, 1.57079633f - 2.0f * p, far), x);
    return select(value, not_a_number(), !(a <= 1.0f));
}
fn acos_f32(x: f32) -> f32 {
    let a = fabs_f32(x);
    let far = a > 0.5f;
    let z = select(a * a, 0.5f * (1.0f - a), far);
    let p = asin_series(select(a, sqrt_f32(z), far), z);
    let near = 1.57079633f - copysign_f32(p, x);
    let ends = select(2.0f * p, 3.14159274f - 2.0f * p, x < 0.0f);
    return select(select(near, ends, far), not_a_number(), !(a <= 1.0f));
}
fn sinh_f32(x: f32) -> f32 {
    let a = fabs_f32(x);
    let t = expm1_f32(a);
    let half = exp_f32(0.5f * a);
    let value = select(0.5f * (t + t / (t + 1.0f)), (0.5f * half) * half, a > 20.0f);
    return select(copysign_f32(value, x), x, isnan_f32(x));
}
fn cosh_f32(x: f32) -> f32 {
    let a = fabs_f32(x);
    let half = exp_f32(0.5f * a);
    let e = exp_f32(min(a, 40.0f));
    return select(select(0.5f * (e + 1.0f / e), (0.5f * half) * half, a > 20.0f), x, isnan_f32(x));
}
fn tanh_f32(x: f32) -> f32 {
    let a = fabs_f32(x);
    let t = expm1_f32(2.0f * min(a, 20.0f));
    let value = select(t / (t + 2.0f), 1.0f - 2.0f / (t + 2.0f), a > 0.5f);
    return select(copysign_f32(value, x), x, isnan_f32(x) || a < 1.0e-5f);
}
fn asinh_f32(x: f32) -> f32 {
    let a = fabs_f32(x);
    let b = min(a, 1.0e9f);
    let z = b * b;
    let value = select(log1p_f32(b + z / (sqrt_f32(z + 1.0f) + 1.0f)), log_f32(a) + 0.693147181f, a > 1.0e9f);
    return select(copysign_f32(value, x), x, isnan_f32(x));
}
fn acosh_f32(x: f32) -> f32 {
    let t = min(x, 1.0e9f) - 1.0f;
    let value = select(log1p_f32(t + sqrt_f32(t) * sqrt_f32(t + 2.0f)), log_f32(x) + 0.693147181f, x > 1.0e9f);
    return select(value, not_a_number(), !(x >= 1.0f) || isnan_f32(x));
}
fn atanh_f32(x: f32) -> f32 {
    let a = fabs_f32(x);
    let value = select(0.5f * log1p_f32(2.0f * a / (1.0f - a)), infinity(), a == 1.0f);
    return select(copysign_f32(value, x), not_a_number(), a > 1.0f || isnan_f32(x));
}
fn signbit_f32(x: f32) -> bool { return bitcast<u32>(x) >= 0x80000000u; }
// Scaled, so that squares neither overflow nor underflow.
fn hypot_f32(x: f32, y: f32) -> f32 {
    let big = max(fabs_f32(x), fabs_f32(y));
    let scale = select(select(1.0f, 1.0e20f, big < 1.0e-15f), 1.0e-20f, big > 1.0e15f);
    let a = x * scale;
    let b = y * scale;
    let value = sqrt_f32(a * a + b * b) / scale;
    let special = select(value, not_a_number(), isnan_f32(x) || isnan_f32(y));
    return select(special, infinity(), isinf_f32(x) || isinf_f32(y));
}

// The leading 12 bits of the mantissa: products of two such numbers are exact.
fn leading(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
// a b as a rounded product and its error (Dekker, Numerische Mathematik 18, 1971).
fn exact_product(a: f32, b: f32) -> vec2<f32> {
    let ah = leading(a);
    let bh = leading(b);
    let al = a - ah;
    let bl = b - bh;
    let high = a * b;
    return vec2<f32>(high, ((ah * bh - high) + ah * bl + al * bh) + al * bl);
}
// x^y for finite x > 0. log2(x) and y log2(x) are double-float numbers, because the exponential magnifies their error. Leading
// parts are rounded to a grid on which their sums are exact: a compiler may simplify x - ((x + y) - y) to 0.
fn power_positive(x: f32, y: f32) -> f32 {
    let parts = split(x);
    let f = parts.fraction;
    let f_high = round(f * 4194304.0f) * 2.38418579e-7f;
    let d = 2.0f + f_high;
    let d_low = f - f_high;
    let s = f / d;
    let s_high = leading(s);
    let sd = exact_product(s_high, d);
    let s_low = (((f - sd.x) - sd.y) - s * d_low) / d;
    // log(1 + f) = 2 s + s (2/3 s^2 + ...)
    let tail = 2.0f * s_low + s * log_series(s);
    let e = exact_product(2.0f * s_high, 1.44269502f);
    // Near 1, where y may be large, the exponent is 0, and e.x is the whole sum.
    let e_high = select(round(e.x * 4096.0f) * 2.44140625e-4f, e.x, parts.exponent == 0.0f);
    let high = parts.exponent + e_high;
    let low = (e.x - e_high) + (e.y + (2.0f * s * 1.925963033e-8f + tail * 1.44269502f));
    let t = exact_product(y, high);
    let whole = t.x;
    let rest = t.y + y * low;
    let n = round(clamped(whole, -300.0f, 300.0f));
    let c = clamped((whole - n) + rest, -2.0f, 2.0f);
    let m = round(c);
    let value = scaled(1.0f + expm1_near((c - m) * 0.693147181f), i32(clamped(n + m, -152.0f, 129.0f)));
    return select(select(value, 0.0f, whole < -152.0f), infinity(), whole >= 129.0f);
}
fn signed_power_f32(x: f32, y: f32) -> f32 {
    let size = fabs_f32(x);
    let whole = floor_f32(y) == y;
    let odd = whole && floor_f32(0.5f * y) != 0.5f * y;
    if (y == 0.0f || x == 1.0f) { return 1.0f; }
    if (isnan_f32(x) || isnan_f32(y)) { return not_a_number(); }
    var value = 0.0f;
    if (isinf_f32(y)) {
        value = select(select(0.0f, infinity(), (size > 1.0f) == (y > 0.0f)), 1.0f, size == 1.0f);
    } else if (size == 0.0f || isinf_f32(size)) {
        value = select(0.0f, infinity(), (size == 0.0f) == (y < 0.0f));
    } else {
        value = power_positive(size, y);
    }
    if (x < 0.0f && isfinite_f32(x) && !whole) { return not_a_number(); }
    return select(value, copysign_f32(value, x), odd);
}

// log(erfc(a)) for 1 <= a <= 4, and erf(a) / a as a polynomial in a^2 for a <= 1.
fn log_erfc(a: f32) -> f32 {
    var p = 0.00013354658f;
    p = p * a - 0.0023899076f;
    p = p * a + 0.019448387f;
    p = p * a - 0.09778741f;
    p = p * a - 0.64463556f;
    p = p * a - 1.1229699f;
    return p * a - 0.0014048255f;
}
fn erf_over_x(z: f32) -> f32 {
    var p = -0.00056314224f;
    p = p * z + 0.0049175513f;
    p = p * z - 0.026711311f;
    p = p * z + 0.1128018f;
    p = p * z - 0.37612325f;
    return p * z + 1.1283791f;
}
fn error_function_f32(x: f32) -> f32 {
    let size = fabs_f32(x);
    let a = select(size, 4.0f, size > 4.0f);
    let far = copysign_f32(1.0f - exp_f32(log_erfc(a)), x);
    return select(select(far, x * erf_over_x(a * a), a < 1.0f), x, isnan_f32(x));
}
// (1 + erf(x / sqrt 2)) / 2; computed from erfc for x < 0 to avoid cancellation.
fn normal_distribution_f32(x: f32) -> f32 {
    let t = x * 0.70710678f;
    let size = fabs_f32(t);
    let a = select(size, 4.0f, size > 4.0f);
    let tail = 0.5f * exp_f32(log_erfc(a));
    let far = select(1.0f - tail, tail, x < 0.0f);
    let near = 0.5f * t * erf_over_x(a * a) + 0.5f;
    return select(select(far, 0.0f, x < -5.65f), near, a < 1.0f);
}
fn gelu_derivative_f32(x: f32) -> f32 { return normal_distribution_f32(x) + x * 0.39894228f * exp_f32(-0.5f * x * x); }
fn gelu_tanh_f32(x: f32) -> f32 { return x / (1.0f + exp_f32(-((x + 0.044715f * x * x * x) * 1.5957691f))); }
fn gelu_tanh_derivative_f32(x: f32) -> f32 {
    // Beyond 16 the derivative is 0 or 1, and the square need not overflow.
    let square = select(x * x, 256.0f, x * x > 256.0f);
    let s = 1.0f / (1.0f + exp_f32(-((x + 0.044715f * square * x) * 1.5957691f)));
    return s + x * s * (1.0f - s) * (0.21406445f * square + 1.5957691f);
}
fn sigmoid_f32(x: f32) -> f32 { return 1.0f / (1.0f + exp_f32(-x)); }
fn silu_f32(x: f32) -> f32 { return x / (1.0f + exp_f32(-x)); }
fn silu_derivative_f32(x: f32) -> f32 {
    let s = 1.0f / (1.0f + exp_f32(-x));
    return s * (x * (1.0f - s) + 1.0f);
}

// Exact: long division of the mantissas, eight bits at a time.
fn fmod_f32(x: f32, y: f32) -> f32 {
    let a = bitcast<u32>(x) & 0x7fffffffu;
    let b = bitcast<u32>(y) & 0x7fffffffu;
    if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) { return not_a_number(); }
    if (a < b) { return x; }
    let ea = max(i32(a >> 23u), 1);
    let eb = max(i32(b >> 23u), 1);
    var m = (a & 0x7fffffu) | select(0u, 0x800000u, a >= 0x800000u);
    let d = (b & 0x7fffffu) | select(0u, 0x800000u, b >= 0x800000u);
    m = m % d;
    var left = ea - eb;
    while (left > 0) {
        let bits = u32(min(left, 8));
        m = (m << bits) % d;
        left -= i32(bits);
    }
    // m 2^(eb - 150) with m < 2^24: normalise.
    var e = eb;
    if (m == 0u) { return copysign_f32(0.0f, x); }
    let up = min(i32(countLeadingZeros(m)) - 8, e - 1);
    m = m << u32(up);
    e -= up;
    let value = select(m, (m & 0x7fffffu) | (u32(e) << 23u), m >= 0x800000u);
    return copysign_f32(bitcast<f32>(value), x);
}
// By the remainder, as in Python, so that both agree where the quotient of x and y is rounded up.
fn floor_divide_f32(x: f32, y: f32) -> f32 {
    let r = fmod_f32(x, y);
    let exact = quotient_f32(x - r, y);
    let q = select(exact, exact - 1.0f, (r < 0.0f && y > 0.0f) || (r > 0.0f && y < 0.0f));
    let whole = floor_f32(q);
    return select(select(whole, whole + 1.0f, q - whole > 0.5f), x / y, y == 0.0f);
}
fn floor_remainder_f32(x: f32, y: f32) -> f32 {
    let r = fmod_f32(x, y);
    let moved = select(r, r + y, (r < 0.0f && y > 0.0f) || (r > 0.0f && y < 0.0f));
    return select(moved, copysign_f32(r, y), r == 0.0f);
}
