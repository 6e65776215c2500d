{#- Logarithms and exponentials of f32. The polynomial is the minimax one of FreeBSD's msun. -#}
{% include "lib/exponential.wgsl" %}
struct Split { fraction: f32, exponent: f32 }
// x = (1 + fraction) 2^exponent with sqrt(1/2) <= 1 + fraction < sqrt(2), for finite x > 0.
fn split(x: f32) -> Split {
    let tiny = bitcast<u32>(x) < 0x00800000u;
    let bits = bitcast<u32>(select(x, x * 8388608.0f, tiny)) - 0x3f3504f3u;
    let exponent = f32(bitcast<i32>(bits) >> 23u) - select(0.0f, 23.0f, tiny);
    return Split(bitcast<f32>((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f, exponent);
}
fn log_series(s: f32) -> f32 {
    let z = s * s;
    let w = z * z;
    return w * (0.40000972152f + w * 0.24279078841f) + z * (0.66666662693f + w * 0.28498786688f);
}
fn log_special(x: f32, value: f32) -> f32 {
    let infinite = select(value, x, isnan_f32(x) || isinf_f32(x));
    return select(select(infinite, not_a_number(), x < 0.0f), -infinity(), x == 0.0f);
}
fn log_finite(x: f32) -> f32 {
    let parts = split(x);
    let f = parts.fraction;
    let s = f / (2.0f + f);
    let square = 0.5f * f * f;
    let low = s * (square + log_series(s)) + parts.exponent * 9.0580006145e-06f;
    return low - square + f + parts.exponent * 6.9313812256e-01f;
}
fn log_f32(x: f32) -> f32 { return log_special(x, log_finite(x)); }
fn log2_f32(x: f32) -> f32 {
    let parts = split(x);
    let value = log_finite(1.0f + parts.fraction) * 1.44269504f + parts.exponent;
    return log_special(x, value);
}
fn log10_f32(x: f32) -> f32 { return log_special(x, log_finite(x) * 0.434294482f); }
// Near 0 the fraction of 1 + x is x itself; elsewhere the rounding error of 1 + x is small relative to the logarithm. The usual
// correction x - (u - 1) does not work, because compilers may simplify it to 0.
fn log1p_f32(x: f32) -> f32 {
    let s = x / (2.0f + x);
    let square = 0.5f * x * x;
    let near = s * (square + log_series(s)) - square + x;
    return select(log_f32(1.0f + x), near, x > -0.29f && x < 0.41f);
}
