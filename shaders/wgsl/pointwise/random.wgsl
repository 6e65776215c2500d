{#- Random tensors from Philox: an invocation writes the four elements of one block. DISTRIBUTION is bits (the words themselves), uniform
    (in [0, 1)) or normal. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% set DTYPE = DTYPE | default("float32") %}
{% set DISTRIBUTION = DISTRIBUTION | default("normal") %}
{% set GROUP = GROUP | default(64) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% include "lib/philox.wgsl" %}
{{ storage.output(0, "out", DTYPE, 4) }}
{{ storage.parameters("o_out: u32, size: u32, seed_low: u32, seed_high: u32, offset_low: u32, offset_high: u32") }}
{% if DISTRIBUTION == "normal" %}
{% include "lib/logarithm.wgsl" %}
{% include "lib/sincos.wgsl" %}
// Two numbers from two words (Box and Muller). The first word is mapped to (0, 1], so that its logarithm is finite; the second to an
// angle, split into exact quarter turns and a remainder.
fn box_muller(a: u32, b: u32) -> vec2<f32> {
    let radius = sqrt_f32(-2.0f * log_f32(f32((a >> 8u) + 1u) * 5.9604645e-8f));
    let quarters = (b + 0x20000000u) >> 30u;
    let angle = f32(bitcast<i32>(b - (quarters << 30u)) >> 8u) * (6.28318531f / 16777216.0f);
    let n = i32(quarters);
    return radius * vec2<f32>(quarter_sine(ReducedAngle(angle, n + 1)), quarter_sine(ReducedAngle(angle, n)));
}
{% endif %}
{{ storage.main(GROUP) }}
    let block = group_id * {{ GROUP }}u + local_id;
    let i = block * 4u;
    if (i >= p.size) { return; }
    let words = philox(counter_at(vec2<u32>(p.offset_low, p.offset_high), block), vec2<u32>(p.seed_low, p.seed_high));
{% if DISTRIBUTION == "bits" %}
    let values = words;
{% elif DISTRIBUTION == "uniform" %}
    let values = vec4<f32>(words >> vec4<u32>(8u)) * 5.9604645e-8f;
{% else %}
    let values = vec4<f32>(box_muller(words.x, words.y), box_muller(words.z, words.w));
{% endif %}
    if (i + 4u <= p.size) {
        out_set4(p.o_out + i, values);
    } else {
{% for k in range(3) %}
        if (i + {{ k }}u < p.size) { out_set(p.o_out + i + {{ k }}u, values[{{ k }}]); }
{% endfor %}
    }
}
