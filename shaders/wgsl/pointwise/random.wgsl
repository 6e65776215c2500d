{#- Random tensors from Philox: an invocation writes the four elements of one block. DISTRIBUTION is bits (the words themselves), uniform
    (in [0, 1)) or normal. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/normal.wgsl" as normal %}
{% set DTYPE = DTYPE | default("float32") %}
{% set DISTRIBUTION = DISTRIBUTION | default("normal") %}
{% set GROUP = GROUP | default(64) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% include "lib/philox.wgsl" %}
{{ storage.output(0, "out", DTYPE, 4) }}
{{ storage.parameters("o_out: u32, size: u32, seed_low: u32, seed_high: u32, offset_low: u32, offset_high: u32") }}
{% if DISTRIBUTION == "normal" %}
{{ storage.scratch(1, "table", "vec4<i32>", "read") }}
{{ normal.functions() }}
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
    let values = vec4<f32>(
        normal_quantile(words.x), normal_quantile(words.y), normal_quantile(words.z), normal_quantile(words.w));
{% endif %}
    if (i + 4u <= p.size) {
        out_set4(p.o_out + i, values);
    } else {
{% for k in range(3) %}
        if (i + {{ k }}u < p.size) { out_set(p.o_out + i + {{ k }}u, values[{{ k }}]); }
{% endfor %}
    }
}
