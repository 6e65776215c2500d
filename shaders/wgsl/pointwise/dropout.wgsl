{#- x with elements zeroed at random and the others scaled. An invocation processes the four elements of one Philox block, so that the same
    seed and offset drop the same elements in the gradient. STRIDED: x has up to three axes, the last two of length1 and length2. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% set DTYPE = DTYPE | default("float32") %}
{% set STRIDED = STRIDED | default(false) %}
{% set GROUP = GROUP | default(64) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% include "lib/philox.wgsl" %}
{{ storage.input(0, "x", DTYPE, 1 if STRIDED else 4) }}
{{ storage.output(1, "out", DTYPE, 4) }}
{{ storage.parameters("o_x: u32, o_out: u32, size: u32, seed_low: u32, seed_high: u32, offset_low: u32, offset_high: u32,
    threshold: u32, scale: f32, length1: u32, length2: u32, step0: u32, step1: u32, step2: u32") }}
{% if STRIDED %}
fn source_index(i: u32) -> u32 {
    let row = i / p.length2;
    return p.o_x + row / p.length1 * p.step0 + row % p.length1 * p.step1 + i % p.length2 * p.step2;
}
{% endif %}
{{ storage.main(GROUP) }}
    let block = group_id * {{ GROUP }}u + local_id;
    let i = block * 4u;
    if (i >= p.size) { return; }
    let words = philox(counter_at(vec2<u32>(p.offset_low, p.offset_high), block), vec2<u32>(p.seed_low, p.seed_high));
{% if STRIDED %}
    let last = p.size - 1u;
    let x4 = vec4<f32>(x_at(source_index(i)), x_at(source_index(min(i + 1u, last))), x_at(source_index(min(i + 2u, last))), x_at(source_index(min(i + 3u, last))));
{% else %}
    let x4 = x_at4(p.o_x + i);
{% endif %}
    let values = select(vec4<f32>(), x4 * p.scale, words >= vec4<u32>(p.threshold));
    if (i + 4u <= p.size) {
        out_set4(p.o_out + i, values);
    } else {
{% for k in range(3) %}
        if (i + {{ k }}u < p.size) { out_set(p.o_out + i + {{ k }}u, values[{{ k }}]); }
{% endfor %}
    }
}
