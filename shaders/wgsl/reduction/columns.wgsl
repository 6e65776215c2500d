{#- Reduction across rows: an invocation owns STRIPS times WIDTH neighbouring results and takes every TALL-th of one part of their terms;
  GROUP / TALL such owners stand side by side in a group, so that a strip is that wide. Parameters as in reduction/rows.wgsl, where the
  inner kept axis has length k1 and stride 1; `blocks` groups lie side by side on it, `slabs` are the parts of all outer results.
  Several strips suit CPUs, whose caches want more than one line from each row. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default("float32") %}
{% set T = T | default("f32") %}
{% set MAP = MAP | default("v") %}
{% set RESULT = RESULT | default("total") %}
{% set OPERATION = OPERATION | default("sum") %}
{% set WIDTH = WIDTH | default(4) %}
{% set OUT_WIDTH = OUT_WIDTH | default(1) %}
{% set STRIPS = STRIPS | default(2) %}
{% set RUNS = RUNS | default(true) %}
{% set GROUP = GROUP | default(64) %}
{% set TALL = TALL | default(4) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/runs.wgsl" as runs with context %}
{% import "lib/combine.wgsl" as operations with context %}
{% set WIDE = GROUP // TALL %}
{% set UNROLL = 4 %}
{% set BLOCK = 16 %}
{% set out_register = storage.register(OUT_DTYPE) %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{% include "lib/conversions.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE, WIDTH) }}
{{ storage.output(1, "out", OUT_DTYPE, OUT_WIDTH) }}
{{ storage.parameters("o_x: u32, o_out: u32, blocks: u32, slabs: u32, k1: u32, k0s: u32, " ~ runs.members(["x"])
   ~ "length: u32, parts: u32, part_length: u32, q0: u32, q1: u32, divisor: f32") }}
{{ runs.declarations(["x"]) }}
{{ operations.declarations(OPERATION, T, storage.register(DTYPE), MAP, WIDTH) }}
{{ groups.stack("stack_total", "V", "joined_v(a, b)", WIDE, TALL) }}
fn fetch(at: u32) -> V { return terms({{ "x_at4" if WIDTH == 4 else "x_at" }}(at)); }
fn result(total: {{ T }}) -> {{ out_register }} { return {{ RESULT }}; }
{{ storage.main(GROUP) }}
    let across = lane % {{ WIDE }}u;
    let down = lane / {{ WIDE }}u;
    let slab = group / p.blocks;
    if (slab >= p.slabs) { return; }
    let part = slab % p.parts;
    let base = p.o_x + slab / p.parts * p.k0s;
    var t = part * p.part_length;
    let end = min(t + p.part_length, p.length);
    t += down;
    var walk = walk_x(0u, t);
    let identity = {{ operations.identity(OPERATION, T) }};
{% for s in range(STRIPS) %}
    let column{{ s }} = (group % p.blocks * {{ STRIPS * WIDE }}u + {{ s * WIDE }}u + across) * {{ WIDTH }}u;
    let base{{ s }} = base + min(column{{ s }}, p.k1 - {{ WIDTH }}u);
    var totals{{ s }} = V(identity);
{% endfor %}
    while (t < end) {
        // Short chains keep the rounding error of sums low.
{% for s in range(STRIPS) %}
        var block{{ s }} = V(identity);
{% endfor %}
        let stop = min(end, t + {{ UNROLL * BLOCK * TALL }}u);
        for (; t + {{ (UNROLL - 1) * TALL }}u < stop; t += {{ UNROLL * TALL }}u) {
{% for u in range(UNROLL) %}
            let at{{ u }} = walk.at;
            walk = next_x(walk);
{% endfor %}
{% for s in range(STRIPS) %}
            let low{{ s }} = joined_v(fetch(base{{ s }} + at0), fetch(base{{ s }} + at1));
            let high{{ s }} = joined_v(fetch(base{{ s }} + at2), fetch(base{{ s }} + at3));
            block{{ s }} = joined_v(block{{ s }}, joined_v(low{{ s }}, high{{ s }}));
{% endfor %}
        }
        for (; t < stop; t += {{ TALL }}u) {
{% for s in range(STRIPS) %}
            block{{ s }} = joined_v(block{{ s }}, fetch(base{{ s }} + walk.at));
{% endfor %}
            walk = next_x(walk);
        }
{% for s in range(STRIPS) %}
        totals{{ s }} = joined_v(totals{{ s }}, block{{ s }});
{% endfor %}
    }
{% for s in range(STRIPS) %}
    totals{{ s }} = stack_total(totals{{ s }}, across, down);
    if (down == 0u && column{{ s }} < p.k1) {
        let at = p.o_out + slab / p.parts * p.q0 + column{{ s }} * p.q1 + part;
{% if WIDTH == 1 %}
        out_set(at, result(totals{{ s }}));
{% elif OUT_WIDTH == 4 %}
        let v = totals{{ s }};
        out_set4(at, vec4<{{ out_register }}>(result(v.x), result(v.y), result(v.z), result(v.w)));
{% else %}
{% for k in range(4) %}
        out_set(at + {{ k }}u * p.q1, result(totals{{ s }}.{{ "xyzw"[k] }}));
{% endfor %}
{% endif %}
    }
{% endfor %}
}
