{#- Position of the first extreme element: a team of LANES invocations takes one result. The extreme is found first, then the smallest
    position where it stands. A NaN counts as the extreme. Axes and parameters as in reduction/rows.wgsl, but the reduced ones in the
    order in which positions count. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default("int64" if INT64 | default(false) else "int32") %}
{% set BETTER = BETTER | default(">") %}
{% set OUTER = OUTER | default(true) %}
{% set RUNS = RUNS | default(true) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/runs.wgsl" as runs with context %}
{% import "lib/combine.wgsl" as operations with context %}
{% set T = storage.register(DTYPE) %}
{% set NONE = "0xffffffffu" %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE) }}
{{ storage.output(1, "out", OUT_DTYPE) }}
{{ storage.parameters("o_x: u32, o_out: u32, rows: u32, k1: u32, k0s: u32, k1s: u32, " ~ runs.members(["x"]) ~ "length: u32") }}
{{ groups.declarations() }}
{{ runs.declarations(["x"]) }}
{{ groups.reduction("team_best", T, operations.joined("largest" if BETTER == ">" else "smallest", T)) }}
{{ groups.reduction("team_first", "u32", "min(a, b)") }}
fn is_nan(v: {{ T }}) -> bool { return {{ "isnan_f32(v)" if T == "f32" else "false" }}; }
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let wanted = group * {{ GROUP // LANES }}u + team;
    // Superfluous teams go along, because the others count on their presence.
    let row = min(wanted, p.rows - 1u);
    let base = p.o_x + {{ "row / p.k1 * p.k0s + row % p.k1" if OUTER else "row" }} * p.k1s;
    // Invocations without a term begin with the first one, which changes nothing.
    var place = select(0u, me, me < p.length);
    var walk = walk_x(base, place);
    var best = x_at(walk.at);
    for (var t = me + {{ LANES }}u; t < p.length; t += {{ LANES }}u) {
        walk = next_x(walk);
        let value = x_at(walk.at);
        // Later positions win only by a better value, or by being the first NaN.
        if (value {{ BETTER }} best || (is_nan(value) && !is_nan(best))) {
            best = value;
            place = t;
        }
    }
    let extreme = team_best(best);
    let first = team_first(select({{ NONE }}, place, best == extreme || (is_nan(best) && is_nan(extreme))));
    if (me == 0u && wanted < p.rows) { out_set(p.o_out + row, {{ storage.register(OUT_DTYPE) }}(first)); }
}
