{#- The 64-bit product of two words, as (high, low). -#}
fn product(a: u32, b: u32) -> vec2<u32> {
{% if INT64 | default(false) %}
    let p = u64(a) * u64(b);
    return vec2<u32>(u32(p >> 32u), u32(p));
{% else %}
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2<u32>((a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u), a * b);
{% endif %}
}
