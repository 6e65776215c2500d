{#- The quantile of the standard normal distribution that belongs to a 32-bit word, in integer arithmetic, so that every device computes
    the same bits. See hal/ops/random/normal.py for the method and its source. `functions()` need lib/mul64.wgsl and a
    binding `table`. -#}
{% macro functions() %}
fn normal_quantile(word: u32) -> f32 {
    let tail = (word << 1u) | 1u;
    let octave = countLeadingZeros(tail);
    let position = (tail << octave) << 1u;
    let c = vec4<u32>(table[(octave << 3u) | (position >> 29u)]);
    let t = position << 3u;
    var value = c.z - ((c.w * (t >> 16u)) >> 15u);
    value = c.y - product(value, t).x;
    value = c.x - product(value, t).x;
    // At most 24 bits, so that the conversion is exact.
    value = select((value + 64u) & 0xffffff80u, value, value < 0x1000000u);
    let magnitude = f32(value) * 3.7252903e-9f;
    return select(magnitude, -magnitude, word >= 0x80000000u);
}
{% endmacro %}
