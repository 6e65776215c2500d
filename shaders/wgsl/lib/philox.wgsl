{#- Philox4x32-10: four random words from a counter and a key, both low word first. Source: Salmon et al., Parallel random numbers: as
    easy as 1, 2, 3 (SC 2011). -#}
{% include "lib/mul64.wgsl" %}
fn philox(counter: vec2<u32>, seed: vec2<u32>) -> vec4<u32> {
    var c = vec4<u32>(counter, 0u, 0u);
    var k = seed;
{% for round in range(10) %}
    let a{{ round }} = product(c.x, 0xd2511f53u);
    let b{{ round }} = product(c.z, 0xcd9e8d57u);
    c = vec4<u32>(b{{ round }}.x ^ c.y ^ k.x, b{{ round }}.y, a{{ round }}.x ^ c.w ^ k.y, a{{ round }}.y);
    k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
{% endfor %}
    return c;
}
// The counter `first` + `block`.
fn counter_at(first: vec2<u32>, block: u32) -> vec2<u32> {
    let low = first.x + block;
    return vec2<u32>(low, first.y + select(0u, 1u, low < block));
}
