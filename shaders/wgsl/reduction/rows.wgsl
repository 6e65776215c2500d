{#- Row reduction: one lane group per split of the terms of one result.

  Results are numbered over two kept axes (the inner of length k1 and stride k1s; with OUTER also an outer one of stride k0s), terms over
  two reduced axes (see lib/term_iterator.wgsl). With SPLIT, split n of `splits` begins at term n * split_length. Its partial result goes
  to out[result_outer * q0 + result_inner * q1 + split]. WIDTH terms are read at once; MAP converts an element `v` to a partial result of
  type T, RESULT a partial result `total` to an element of `out`. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default("float32") %}
{% set T = T | default("f32") %}
{% set MAP = MAP | default("v") %}
{% set RESULT = RESULT | default("total") %}
{% set OPERATION = OPERATION | default("sum") %}
{% set WIDTH = WIDTH | default(4) %}
{% set OUTER = OUTER | default(true) %}
{% set TWO_AXES = TWO_AXES | default(true) %}
{% set SPLIT = SPLIT | default(true) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/term_iterator.wgsl" as terms with context %}
{% import "lib/combine.wgsl" as operations with context %}
{% set STEP = LANES * WIDTH %}
{% set UNROLL = 4 %}
{% set BLOCK = 16 %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{% include "lib/conversions.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE, WIDTH) }}
{{ storage.output(1, "out", OUT_DTYPE) }}
{{ storage.parameters("o_x: u32, o_out: u32, tasks: u32, k1: u32, k0s: u32, k1s: u32, " ~ terms.members(["x"])
   ~ "length: u32, splits: u32, split_length: u32, q0: u32, q1: u32, divisor: f32") }}
{{ groups.declarations() }}
{{ terms.declarations(["x"]) }}
{{ operations.declarations(OPERATION, T, storage.register(DTYPE), MAP, WIDTH) }}
{{ groups.reduction("group_total", T, "combine(a, b)") }}
fn load_terms(iterator: TermIterator) -> V { return map_terms({{ "x_at4" if WIDTH == 4 else "x_at" }}(iterator.at)); }
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let index = group_id * {{ GROUP // LANES }}u + lane_group;
    // Surplus lane groups stay active, because the whole workgroup must reach the barriers.
    let task = min(index, p.tasks - 1u);
    let row = task{{ " / p.splits" if SPLIT }};
    let split = {{ "task % p.splits" if SPLIT else "0u" }};
    let row_0 = {{ "row / p.k1" if OUTER else "0u" }};
    let row_1 = {{ "row % p.k1" if OUTER else "row" }};
    var t = split * p.split_length;
    let end = min(t + p.split_length, p.length);
    t += lane_id * {{ WIDTH }}u;
    let base = p.o_x + row_0 * p.k0s + row_1 * p.k1s;
    var iterator = begin_x(base, t);
    let identity = {{ operations.identity(OPERATION, T) }};
    var totals = V(identity);
    while (t + {{ (UNROLL - 1) * STEP + WIDTH - 1 }}u < end) {
        // Short chains keep the rounding error of sums low.
        var block = V(identity);
        for (var count = 0; count < {{ BLOCK }} && t + {{ (UNROLL - 1) * STEP + WIDTH - 1 }}u < end; count++) {
            let iterator1 = next_x(iterator);
            let iterator2 = next_x(iterator1);
            let iterator3 = next_x(iterator2);
            block = combine_v(block, combine_v(combine_v(load_terms(iterator), load_terms(iterator1)), combine_v(load_terms(iterator2), load_terms(iterator3))));
            iterator = next_x(iterator3);
            t += {{ UNROLL * STEP }}u;
        }
        totals = combine_v(totals, block);
    }
    for (; t < end; t += {{ STEP }}u) {
        let last = load_terms(iterator);
{% if WIDTH == 4 %}
        let in_range = vec4<u32>(t) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end);
        totals = combine_v(totals, select(V(identity), last, in_range));
{% else %}
        totals = combine_v(totals, last);
{% endif %}
        iterator = next_x(iterator);
    }
{% if WIDTH == 4 %}
    let total = group_total(combine(combine(totals.x, totals.y), combine(totals.z, totals.w)));
{% else %}
    let total = group_total(totals);
{% endif %}
    if (lane_id == 0u && index < p.tasks) { out_set(p.o_out + row_0 * p.q0 + row_1 * p.q1 + split, {{ RESULT }}); }
}
