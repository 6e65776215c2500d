{#- Combines partial results of attention/cached.wgsl: `splits` of each row, each with its features, then the maximum and the sum of
    exponentials. An invocation takes four features of a row. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set VALUE_QUADS = VALUE_QUADS | default(16) %}
{% set GROUP = GROUP | default(64) %}
{% import "lib/storage.wgsl" as storage with context %}
{{ storage.enable() }}
{% include "lib/exponential.wgsl" %}
{{ storage.half_functions() }}
{{ storage.scratch(0, "partial", "vec4<f32>", "read") }}
{{ storage.output(1, "out", DTYPE) }}
{{ storage.parameters("o_out: u32, items: u32, splits: u32") }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.items) { return; }
    let row = item / {{ VALUE_QUADS }}u;
    let quad = item % {{ VALUE_QUADS }}u;
    let begin = row * p.splits * {{ VALUE_QUADS + 1 }}u;
    var largest = -infinity();
    for (var s = 0u; s < p.splits; s++) { largest = max(largest, partial[begin + s * {{ VALUE_QUADS + 1 }}u + {{ VALUE_QUADS }}u].x); }
    let shift = select(largest, 0.0f, bitcast<u32>(largest) == 0xff800000u);
    var total = 0.0f;
    var sum = vec4<f32>();
    for (var s = 0u; s < p.splits; s++) {
        let at = begin + s * {{ VALUE_QUADS + 1 }}u;
        let statistics = partial[at + {{ VALUE_QUADS }}u];
        let rescale = exp_nonpositive_f32(statistics.x - shift);
        total += statistics.y * rescale;
        sum += partial[at + quad] * rescale;
    }
    out_set4(p.o_out + item * 4u, sum * select(1.0f / total, 0.0f, total == 0.0f));
}
