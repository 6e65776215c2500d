{#- Infinities, NaN, rounding to integers, quotients and square roots of f32. Compilers may assume that there is no NaN, so it is tested by its bits. -#}
// Variables, because compilers reject constant expressions that are infinite or NaN.
var<private> infinity_bits: u32 = 0x7f800000u;
var<private> nan_bits: u32 = 0x7fc00000u;

fn infinity() -> f32 { return bitcast<f32>(infinity_bits); }
fn not_a_number() -> f32 { return bitcast<f32>(nan_bits); }
fn isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn isinf_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn isfinite_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u; }
fn fabs_f32(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu); }
fn opaque_f32(x: f32, zero: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ bitcast<u32>(zero)); }
fn copysign_f32(size: f32, sign: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(size) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}
fn floor_f32(x: f32) -> f32 { return select(copysign_f32(floor(x), x), x, !(fabs_f32(x) < 8388608.0f)); }
fn ceil_f32(x: f32) -> f32 { return select(copysign_f32(ceil(x), x), x, !(fabs_f32(x) < 8388608.0f)); }
fn trunc_f32(x: f32) -> f32 { return select(copysign_f32(trunc(x), x), x, !(fabs_f32(x) < 8388608.0f)); }
fn rint_f32(x: f32) -> f32 { return select(copysign_f32(round(x), x), x, !(fabs_f32(x) < 8388608.0f)); }

// One Newton step improves the driver's quotient from 2.5 ulp to about one, and makes representable quotients exact.
fn quotient_f32(x: f32, y: f32) -> f32 {
    let q = x / y;
    let size = fabs_f32(y);
    let rough = fabs_f32(q);
    let refined = q + fma(-q, y, x) / y;
    let safe = size > 1.0e-30f && size < 1.0e30f && rough > 1.0e-30f && rough < 1.0e30f;
    let special = select(select(q, x * (1.0f / y), isnan_f32(x) || isnan_f32(y)), copysign_f32(0.0f, bitcast<f32>(bitcast<u32>(x) ^ bitcast<u32>(y))), isinf_f32(y) && isfinite_f32(x));
    return select(special, refined, safe);
}
fn sqrt_f32(x: f32) -> f32 {
    let s = sqrt(x);
    let refined = s + 0.5f * fma(-s, s, x) / s;
    let special = select(select(x, not_a_number(), x < 0.0f), s, x > 0.0f && isfinite_f32(x));
    return select(special, refined, x > 1.0e-30f && x < 1.0e30f);
}
