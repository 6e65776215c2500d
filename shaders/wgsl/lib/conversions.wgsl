{#- Float to integer conversion by C's rules, and where C leaves the result undefined: saturates, maps NaN to 0, and wraps negatives to unsigned. -#}
fn i32_of_float(x: f32) -> i32 {
    let inside = x > -2147483648.0f && x < 2147483648.0f;
    let outside = select(select(0, 2147483647, x >= 2147483648.0f), -2147483647 - 1, x <= -2147483648.0f);
    return select(outside, i32(select(0.0f, x, inside)), inside);
}
{% if INT64 | default(false) %}
fn i64_of_float(x: f32) -> i64 {
    let inside = x > -9223372036854775808.0f && x < 9223372036854775808.0f;
    let outside = select(select(0li, 9223372036854775807li, x >= 9223372036854775808.0f), -9223372036854775807li - 1li,
                         x <= -9223372036854775808.0f);
    return select(outside, i64(select(0.0f, x, inside)), inside);
}
fn u64_of_float(x: f32) -> u64 {
    let inside = x >= 9223372036854775808.0f && x < 18446744073709551616.0f;
    let large = select(0lu, u64(select(0.0f, x, inside)), inside);
    let outside = select(large, 18446744073709551615lu, x >= 18446744073709551616.0f);
    return select(u64(i64_of_float(x)), outside, x >= 9223372036854775808.0f);
}
fn u32_of_float(x: f32) -> u32 { return u32(i64_of_float(x) & 0xffffffffli); }
{% else %}
fn u32_of_float(x: f32) -> u32 {
    let inside = x >= 2147483648.0f && x < 4294967296.0f;
    let large = select(0u, u32(select(0.0f, x, inside)), inside);
    let outside = select(large, 4294967295u, x >= 4294967296.0f);
    return select(bitcast<u32>(i32_of_float(x)), outside, x >= 2147483648.0f);
}
{% endif %}
