{#- Gradients of attention from the saved logsumexp: the probabilities are computed again, tile by tile. A group takes ROWS rows of a head
    and passes over the columns COLUMNS at a time, adding to the rows' gradients.

  KEYS false: rows are queries, columns keys; a row gathers dq = sum over keys of ds * k, and delta = sum(g * out) is kept for the other
  pass. KEYS true: rows are keys, columns queries; a row gathers dk = sum over queries of ds * q and dv = sum over queries of p * g. Here
  p = exp(scale * q k^T + mask - lse) and ds = scale * p * (g v^T - delta). For the rest see attention/tiles.wgsl. -#}
{% set ROWS = ROWS | default(32) %}
{% set COLUMNS = COLUMNS | default(32) %}
{% set R = R | default(4) %}
{% set C = C | default(4) %}
{% set LANES = COLUMNS // C %}
{% set GROUP = ROWS // R * LANES %}
{% set DOWN = GROUP // LANES %}
{% set QUADS = QUADS | default(8) %}
{% set VALUE_QUADS = VALUE_QUADS | default(8) %}
{% set KEYS = KEYS | default(true) %}
{% set CAUSAL = CAUSAL | default(true) %}
{% set MASK_DTYPE = MASK_DTYPE | default("") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "attention/local_tile.wgsl" as tiles with context %}
{% import "attention/score_grad.wgsl" as slopes with context %}
{% set VECTORS = (QUADS + LANES - 1) // LANES %}
{% set VALUE_VECTORS = (VALUE_QUADS + LANES - 1) // LANES %}
{% set PITCH = tiles.pitch(VECTORS * LANES) | int %}
{% set VALUE_PITCH = tiles.pitch(VALUE_VECTORS * LANES) | int %}
{% set WEIGHTS_PITCH = tiles.pitch(COLUMNS // 4) | int %}
{% set SECOND = ROWS * PITCH %}
{% set OTHER_FIRST = SECOND + ROWS * VALUE_PITCH %}
{% set OTHER_SECOND = OTHER_FIRST + COLUMNS * PITCH %}
{% set WEIGHTS = OTHER_SECOND + COLUMNS * VALUE_PITCH %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% include "lib/exponential.wgsl" %}
{{ slopes.declare(storage, tiles) }}
var<workgroup> tile: array<vec4<f32>, {{ WEIGHTS + ROWS * WEIGHTS_PITCH }}>;
{{ groups.declarations() }}
{% if not KEYS %}
{{ groups.reduction("row_sum", "f32", "a + b") }}
{% endif %}
{{ slopes.functions(tiles) }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let bands = ({{ slopes.rows }} + {{ ROWS - 1 }}u) / {{ ROWS }}u;
    let head = group / bands;
    if (head >= p.heads) { return; }
    let first = {{ "group % bands" if KEYS else "(bands - 1u - group % bands)" }} * {{ ROWS }}u;
{{ tiles.head_numbers() }}
{{ slopes.starts(tiles) }}
{{ slopes.reach(ROWS) }}
    {
{{ tiles.fetch("let", "x", slopes.first, slopes.first ~ "_base", "first", slopes.rows, ROWS, QUADS, "p.d") }}
{{ tiles.keep("x", 0, ROWS, QUADS, PITCH) }}
    }
    {
{{ tiles.fetch("let", "x", slopes.second, slopes.second ~ "_base", "first", slopes.rows, ROWS, VALUE_QUADS, "p.e") }}
{{ tiles.keep("x", SECOND, ROWS, VALUE_QUADS, VALUE_PITCH) }}
    }
{% for i in range(R) %}
    let row_{{ i }} = first + team + {{ i * DOWN }}u;
{% for j in range(VECTORS) %}
    var first_{{ i }}_{{ j }} = vec4<f32>();
{% endfor %}
{% for j in range(VALUE_VECTORS if KEYS else 0) %}
    var second_{{ i }}_{{ j }} = vec4<f32>();
{% endfor %}
{% if not KEYS %}
    let query_{{ i }} = min(row_{{ i }}, p.t - 1u);
    let taken_{{ i }} = shift_of(lse_at(p.o_lse + head * p.t + query_{{ i }}));
    var part_{{ i }} = 0.0f;
    for (var c = me; c < {{ VALUE_QUADS }}u; c += {{ LANES }}u) {
        part_{{ i }} += {{ slopes.delta_part("g_vector(g_base + query_" ~ i ~ " * p.g_row, c * 4u, p.e)", "query_" ~ i, "c") }};
    }
    let delta_{{ i }} = row_sum(part_{{ i }});
    if (me == 0u && row_{{ i }} < p.t) { delta[head * p.t + row_{{ i }}] = delta_{{ i }}; }
{% endif %}
{% endfor %}
    for (var column = begin; column < end; column += {{ COLUMNS }}u) {
        workgroupBarrier();
        {
{{ tiles.fetch("let", "x", slopes.other_first, slopes.other_first ~ "_base", "column", slopes.columns, COLUMNS, QUADS, "p.d", true) }}
{{ tiles.fetch("let", "y", slopes.other_second, slopes.other_second ~ "_base", "column", slopes.columns, COLUMNS, VALUE_QUADS, "p.e", true) }}
{{ tiles.keep("x", OTHER_FIRST, COLUMNS, QUADS, PITCH) }}
{{ tiles.keep("y", OTHER_SECOND, COLUMNS, VALUE_QUADS, VALUE_PITCH) }}
        }
        workgroupBarrier();
{% for i in range(R) %}{% for j in range(C) %}
        var p_{{ i }}_{{ j }} = 0.0f;
        var ds_{{ i }}_{{ j }} = 0.0f;
{% endfor %}{% endfor %}
{{ tiles.multiply("p", 0, OTHER_FIRST, R, C, QUADS, PITCH) }}
{{ tiles.multiply("ds", SECOND, OTHER_SECOND, R, C, VALUE_QUADS, VALUE_PITCH) }}
{% for j in range(C) %}
        {
            let at = column + me + {{ j * LANES }}u;
{% if KEYS %}
            let query = min(at, p.t - 1u);
            let taken = shift_of(lse_at(p.o_lse + head * p.t + query));
            let centre = delta[head * p.t + query];
{% endif %}
{% for i in range(R) %}
{{ slopes.differentiate(i, j, "row_" ~ i, "at") }}
{% endfor %}
        }
{% endfor %}
{{ tiles.spread("ds", WEIGHTS, R, C, WEIGHTS_PITCH) }}
        workgroupBarrier();
{{ tiles.gather("first", WEIGHTS, OTHER_FIRST, R, VECTORS, COLUMNS, WEIGHTS_PITCH, PITCH) }}
{% if KEYS %}
        workgroupBarrier();
{{ tiles.spread("p", WEIGHTS, R, C, WEIGHTS_PITCH) }}
        workgroupBarrier();
{{ tiles.gather("second", WEIGHTS, OTHER_SECOND, R, VALUE_VECTORS, COLUMNS, WEIGHTS_PITCH, VALUE_PITCH) }}
{% endif %}
    }
{{ tiles.write("dk" if KEYS else "dq", "first", "", "first", slopes.rows, "p.d", R, VECTORS) }}
{% if KEYS %}
{{ tiles.write("dv", "second", "", "first", slopes.rows, "p.e", R, VALUE_VECTORS) }}
{% endif %}
}
