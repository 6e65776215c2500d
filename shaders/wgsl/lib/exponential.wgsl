{#- Exponentials of f32; the error of WGSL's own exp may be tens of ulp. The polynomial is from Cephes (Moshier). -#}
{% include "lib/special_values.wgsl" %}
// 2^n for -126 <= n <= 127.
fn power_of_two(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }
fn scaled(x: f32, n: i32) -> f32 {
    let half = n >> 1u;
    return x * power_of_two(half) * power_of_two(n - half);
}
// exp(r) - 1 for |r| <= ln(2) / 2.
fn expm1_near(r: f32) -> f32 {
    var q = 1.9875691500e-4f;
    q = q * r + 1.3981999507e-3f;
    q = q * r + 8.3334519073e-3f;
    q = q * r + 4.1665795894e-2f;
    q = q * r + 1.6666665459e-1f;
    q = q * r + 5.0000001201e-1f;
    return q * r * r + r;
}
// x - n ln(2), with ln(2) split in two (Cody and Waite).
fn without_ln2(x: f32, n: f32) -> f32 { return (x - n * 0.693359375f) + n * 2.12194440e-4f; }
fn clamped(x: f32, low: f32, high: f32) -> f32 { return select(select(x, low, x < low), high, x > high); }
fn exp_f32(x: f32) -> f32 {
    let c = clamped(x, -104.0f, 89.0f);
    let n = round(c * 1.44269504f);
    let value = scaled(1.0f + expm1_near(without_ln2(c, n)), i32(n));
    return select(value, x, isnan_f32(x));
}
// exp(x) for x <= 0, flushing subnormal results to 0. The comparison is on bits, so that NaN fails it.
fn exp_nonpositive_f32(x: f32) -> f32 {
    let vanishes = bitcast<u32>(x) - 0xc2ae0001u < 0x3cd20000u;
    let c = select(x, -87.0f, vanishes);
    let n = round(c * 1.44269504f);
    let value = (1.0f + expm1_near(without_ln2(c, n))) * power_of_two(i32(n));
    return select(value, 0.0f, vanishes);
}
fn expm1_f32(x: f32) -> f32 {
    let c = clamped(x, -18.0f, 89.0f);
    let n = round(c * 1.44269504f);
    // 2^128 is not representable, so exp handles results near overflow.
    let m = min(i32(n), 127);
    let value = scaled(expm1_near(without_ln2(c, n)), m) + (power_of_two(m) - 1.0f);
    return select(select(value, exp_f32(x), x > 80.0f), x, isnan_f32(x) || fabs_f32(x) < 1.0e-8f);
}
fn exp2_f32(x: f32) -> f32 {
    let c = clamped(x, -151.0f, 129.0f);
    let n = round(c);
    let value = scaled(1.0f + expm1_near((c - n) * 0.693147181f), i32(n));
    return select(value, x, isnan_f32(x));
}
