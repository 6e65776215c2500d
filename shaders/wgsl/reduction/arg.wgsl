{#- argmax (BETTER ">") or argmin ("<"): the index of the first extreme element, one lane group per split of the terms of a result. The
    extreme value is found first, then the smallest index that holds it. A NaN counts as the extreme. UNROLL terms of an invocation are
    in flight. Axes and parameters as in reduction/rows.wgsl; the reduced axes are in the order in which indices count.

    With CANDIDATES, the terms of a result are the `length` elements at the indices that the splits have found. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default("int64" if INT64 | default(false) else "int32") %}
{% set BETTER = BETTER | default(">") %}
{% set OUTER = OUTER | default(true) %}
{% set TWO_AXES = TWO_AXES | default(true) %}
{% set UNROLL = UNROLL | default(1) %}
{% set SPLIT = SPLIT | default(false) %}
{% set CANDIDATES = CANDIDATES | default(false) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/term_iterator.wgsl" as terms with context %}
{% import "lib/combine.wgsl" as operations with context %}
{% set T = storage.register(DTYPE) %}
{% set NONE = "0xffffffffu" %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE) }}
{{ storage.output(1, "out", OUT_DTYPE) }}
{% if CANDIDATES %}
{{ storage.input(2, "found", "uint32") }}
{% endif %}
{{ storage.parameters("o_x: u32, o_out: u32, " ~ ("o_found: u32, " if CANDIDATES else "") ~ "tasks: u32, k1: u32, k0s: u32, k1s: u32, "
   ~ terms.members(["x"]) ~ "length: u32, splits: u32, split_length: u32") }}
{{ groups.declarations() }}
{{ terms.declarations(["x"]) }}
{{ groups.reduction("group_best", T, operations.combine("largest" if BETTER == ">" else "smallest", T)) }}
{{ groups.reduction("group_first", "u32", "min(a, b)") }}
fn is_nan(v: {{ T }}) -> bool { return {{ "isnan_f32(v)" if T == "f32" else "false" }}; }
{#- A later index wins only with a better value, or with the first NaN. -#}
{% macro keep_better(value, at) %}
        if ({{ value }} {{ BETTER }} best || (is_nan({{ value }}) && !is_nan(best))) {
            best = {{ value }};
            index = {{ at }};
        }
{% endmacro %}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let number = group_id * {{ GROUP // LANES }}u + lane_group;
    // Surplus lane groups stay active, because the whole workgroup must reach the barriers.
    let task = min(number, p.tasks - 1u);
    let row = task{{ " / p.splits" if SPLIT }};
    let base = p.o_x + {{ "row / p.k1 * p.k0s + row % p.k1" if OUTER else "row" }} * p.k1s;
    let begin = {{ "task % p.splits * p.split_length" if SPLIT else "0u" }};
    let end = {{ "min(begin + p.split_length, p.length)" if SPLIT else "p.length" }};
    // Surplus invocations repeat the first term, which changes nothing.
    var t = select(begin, begin + lane_id, begin + lane_id < end);
{% if CANDIDATES %}
    var index = found_at(p.o_found + row * p.length + t);
    var best = x_at(begin_x(base, index).at);
    for (t += {{ LANES }}u; t < end; t += {{ LANES }}u) {
        let at = found_at(p.o_found + row * p.length + t);
        let value = x_at(begin_x(base, at).at);
{{ keep_better("value", "at") }}
    }
{% else %}
    var index = t;
    var iterator = begin_x(base, index);
    var best = x_at(iterator.at);
    t = begin + lane_id + {{ LANES }}u;
{% if UNROLL > 1 %}
    for (; t + {{ (UNROLL - 1) * LANES }}u < end; t += {{ UNROLL * LANES }}u) {
{% for u in range(UNROLL) %}
        iterator = next_x(iterator);
        let value{{ u }} = x_at(iterator.at);
{% endfor %}
{% for u in range(UNROLL) %}
{{ keep_better("value" ~ u, "t + " ~ u * LANES ~ "u") }}
{% endfor %}
    }
{% endif %}
    for (; t < end; t += {{ LANES }}u) {
        iterator = next_x(iterator);
        let value = x_at(iterator.at);
{{ keep_better("value", "t") }}
    }
{% endif %}
    let extreme = group_best(best);
    let first = group_first(select({{ NONE }}, index, best == extreme || (is_nan(best) && is_nan(extreme))));
    if (lane_id == 0u && number < p.tasks) { out_set(p.o_out + task, {{ storage.register(OUT_DTYPE) }}(first)); }
}
