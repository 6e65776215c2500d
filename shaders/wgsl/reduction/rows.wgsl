{#- Reduction of runs of neighbouring elements: a team of LANES invocations takes one part of the terms of one result.

  Results are numbered over two kept axes (the inner of length k1 and stride k1s, the outer, with OUTER, of stride k0s), terms over two
  reduced axes, as lib/runs.wgsl walks them. With SPLIT, part n of `parts` takes the terms from n * part_length on. It goes to
  out[result_outer * q0 + result_inner * q1 + part]. WIDTH terms are read at once; MAP turns an element `v` into a partial result of
  the type T, RESULT a partial result `total` into an element of `out`. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default("float32") %}
{% set T = T | default("f32") %}
{% set MAP = MAP | default("v") %}
{% set RESULT = RESULT | default("total") %}
{% set OPERATION = OPERATION | default("sum") %}
{% set WIDTH = WIDTH | default(4) %}
{% set OUTER = OUTER | default(true) %}
{% set RUNS = RUNS | default(true) %}
{% set SPLIT = SPLIT | default(true) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/runs.wgsl" as runs with context %}
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
{{ storage.parameters("o_x: u32, o_out: u32, tasks: u32, k1: u32, k0s: u32, k1s: u32, " ~ runs.members(["x"])
   ~ "length: u32, parts: u32, part_length: u32, q0: u32, q1: u32, divisor: f32") }}
{{ groups.declarations() }}
{{ runs.declarations(["x"]) }}
{{ operations.declarations(OPERATION, T, storage.register(DTYPE), MAP, WIDTH) }}
{{ groups.reduction("team_total", T, "joined(a, b)") }}
fn fetch(walk: Walk) -> V { return terms({{ "x_at4" if WIDTH == 4 else "x_at" }}(walk.at)); }
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let wanted = group * {{ GROUP // LANES }}u + team;
    // Superfluous teams go along, because the others count on their presence.
    let task = min(wanted, p.tasks - 1u);
    let row = task{{ " / p.parts" if SPLIT }};
    let part = {{ "task % p.parts" if SPLIT else "0u" }};
    let row_0 = {{ "row / p.k1" if OUTER else "0u" }};
    let row_1 = {{ "row % p.k1" if OUTER else "row" }};
    var t = part * p.part_length;
    let end = min(t + p.part_length, p.length);
    t += me * {{ WIDTH }}u;
    let base = p.o_x + row_0 * p.k0s + row_1 * p.k1s;
    var walk = walk_x(base, t);
    let identity = {{ operations.identity(OPERATION, T) }};
    var totals = V(identity);
    while (t + {{ (UNROLL - 1) * STEP + WIDTH - 1 }}u < end) {
        // Short chains keep the rounding error of sums low.
        var block = V(identity);
        for (var count = 0; count < {{ BLOCK }} && t + {{ (UNROLL - 1) * STEP + WIDTH - 1 }}u < end; count++) {
            let walk1 = next_x(walk);
            let walk2 = next_x(walk1);
            let walk3 = next_x(walk2);
            block = joined_v(block, joined_v(joined_v(fetch(walk), fetch(walk1)), joined_v(fetch(walk2), fetch(walk3))));
            walk = next_x(walk3);
            t += {{ UNROLL * STEP }}u;
        }
        totals = joined_v(totals, block);
    }
    for (; t < end; t += {{ STEP }}u) {
        let last = fetch(walk);
{% if WIDTH == 4 %}
        let inside = vec4<u32>(t) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end);
        totals = joined_v(totals, select(V(identity), last, inside));
{% else %}
        totals = joined_v(totals, last);
{% endif %}
        walk = next_x(walk);
    }
{% if WIDTH == 4 %}
    let total = team_total(joined(joined(totals.x, totals.y), joined(totals.z, totals.w)));
{% else %}
    let total = team_total(totals);
{% endif %}
    if (me == 0u && wanted < p.tasks) { out_set(p.o_out + row_0 * p.q0 + row_1 * p.q1 + part, {{ RESULT }}); }
}
