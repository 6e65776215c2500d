{#- Column reduction. An invocation owns STRIPS times WIDTH adjacent results and adds every GROUP_ROWS-th term of one split; a workgroup is
  GROUP_ROWS x GROUP / GROUP_ROWS such invocations. Parameters are those of reduction/rows.wgsl, where the inner kept axis has length k1
  and stride 1. `column_blocks` workgroups cover that axis; `slices` counts (outer result, split) pairs. STRIPS > 1 suits CPUs, whose
  caches need more than one line from each row. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default("float32") %}
{% set T = T | default("f32") %}
{% set MAP = MAP | default("v") %}
{% set RESULT = RESULT | default("total") %}
{% set OPERATION = OPERATION | default("sum") %}
{% set WIDTH = WIDTH | default(4) %}
{% set OUT_WIDTH = OUT_WIDTH | default(1) %}
{% set STRIPS = STRIPS | default(2) %}
{% set TWO_AXES = TWO_AXES | default(true) %}
{% set GROUP = GROUP | default(64) %}
{% set GROUP_ROWS = GROUP_ROWS | default(4) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/term_iterator.wgsl" as terms with context %}
{% import "lib/combine.wgsl" as operations with context %}
{% set GROUP_COLUMNS = GROUP // GROUP_ROWS %}
{% set UNROLL = 4 %}
{% set BLOCK = 16 %}
{% set out_register = storage.register(OUT_DTYPE) %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{% include "lib/conversions.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE, WIDTH) }}
{{ storage.output(1, "out", OUT_DTYPE, OUT_WIDTH) }}
{{ storage.parameters("o_x: u32, o_out: u32, column_blocks: u32, slices: u32, k1: u32, k0s: u32, " ~ terms.members(["x"])
   ~ "length: u32, splits: u32, split_length: u32, q0: u32, q1: u32, divisor: f32") }}
{{ terms.declarations(["x"]) }}
{{ operations.declarations(OPERATION, T, storage.register(DTYPE), MAP, WIDTH) }}
{{ groups.column_reduction("column_total", "V", "combine_v(a, b)", GROUP_COLUMNS, GROUP_ROWS) }}
fn load_terms(at: u32) -> V { return map_terms({{ "x_at4" if WIDTH == 4 else "x_at" }}(at)); }
fn result(total: {{ T }}) -> {{ out_register }} { return {{ RESULT }}; }
{{ storage.main(GROUP) }}
    let across = local_id % {{ GROUP_COLUMNS }}u;
    let down = local_id / {{ GROUP_COLUMNS }}u;
    let slice = group_id / p.column_blocks;
    if (slice >= p.slices) { return; }
    let split = slice % p.splits;
    let base = p.o_x + slice / p.splits * p.k0s;
    var t = split * p.split_length;
    let end = min(t + p.split_length, p.length);
    t += down;
    var iterator = begin_x(0u, t);
    let identity = {{ operations.identity(OPERATION, T) }};
{% for s in range(STRIPS) %}
    let column{{ s }} = (group_id % p.column_blocks * {{ STRIPS * GROUP_COLUMNS }}u + {{ s * GROUP_COLUMNS }}u + across) * {{ WIDTH }}u;
    let base{{ s }} = base + min(column{{ s }}, p.k1 - {{ WIDTH }}u);
    var totals{{ s }} = V(identity);
{% endfor %}
    while (t < end) {
        // Short chains keep the rounding error of sums low.
{% for s in range(STRIPS) %}
        var block{{ s }} = V(identity);
{% endfor %}
        let stop = min(end, t + {{ UNROLL * BLOCK * GROUP_ROWS }}u);
        for (; t + {{ (UNROLL - 1) * GROUP_ROWS }}u < stop; t += {{ UNROLL * GROUP_ROWS }}u) {
{% for u in range(UNROLL) %}
            let at{{ u }} = iterator.at;
            iterator = next_x(iterator);
{% endfor %}
{% for s in range(STRIPS) %}
            let low{{ s }} = combine_v(load_terms(base{{ s }} + at0), load_terms(base{{ s }} + at1));
            let high{{ s }} = combine_v(load_terms(base{{ s }} + at2), load_terms(base{{ s }} + at3));
            block{{ s }} = combine_v(block{{ s }}, combine_v(low{{ s }}, high{{ s }}));
{% endfor %}
        }
        for (; t < stop; t += {{ GROUP_ROWS }}u) {
{% for s in range(STRIPS) %}
            block{{ s }} = combine_v(block{{ s }}, load_terms(base{{ s }} + iterator.at));
{% endfor %}
            iterator = next_x(iterator);
        }
{% for s in range(STRIPS) %}
        totals{{ s }} = combine_v(totals{{ s }}, block{{ s }});
{% endfor %}
    }
{% for s in range(STRIPS) %}
    totals{{ s }} = column_total(totals{{ s }}, across, down);
    if (down == 0u && column{{ s }} < p.k1) {
        let at = p.o_out + slice / p.splits * p.q0 + column{{ s }} * p.q1 + split;
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
