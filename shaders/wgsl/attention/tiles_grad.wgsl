{#- Gradients of attention from the saved logsumexp: the probabilities are recomputed tile by tile. A workgroup takes ROWS rows of a head and
    iterates over the columns COLUMNS at a time, adding to the gradients of the rows.

  KEYS false: rows are queries, columns keys; dq = sum over keys of ds * k. This pass also stores delta = sum(g * out) for the other one.
  KEYS true: rows are keys, columns queries; dk = sum over queries of ds * q, dv = sum over queries of p * g. Here
  p = exp(scale * q k^T + mask - lse) and ds = scale * p * (g v^T - delta). For the other parameters see attention/tiles.wgsl. -#}
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
{% import "attention/score_grad.wgsl" as grads with context %}
{% set VECTORS = (QUADS + LANES - 1) // LANES %}
{% set VALUE_VECTORS = (VALUE_QUADS + LANES - 1) // LANES %}
{% set PITCH = tiles.pitch(VECTORS * LANES) | int %}
{% set VALUE_PITCH = tiles.pitch(VALUE_VECTORS * LANES) | int %}
{% set WEIGHTS_PITCH = tiles.pitch(COLUMNS // 4) | int %}
{% set ROW_GV = ROWS * PITCH %}
{% set COLUMN_QK = ROW_GV + ROWS * VALUE_PITCH %}
{% set COLUMN_GV = COLUMN_QK + COLUMNS * PITCH %}
{% set WEIGHTS = COLUMN_GV + COLUMNS * VALUE_PITCH %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% include "lib/exponential.wgsl" %}
{{ grads.declare(storage, tiles) }}
var<workgroup> tile: array<vec4<f32>, {{ WEIGHTS + ROWS * WEIGHTS_PITCH }}>;
{{ groups.declarations() }}
{% if not KEYS %}
{{ groups.reduction("row_sum", "f32", "a + b") }}
{% endif %}
{{ grads.functions(tiles) }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let row_blocks = ({{ grads.rows }} + {{ ROWS - 1 }}u) / {{ ROWS }}u;
    let head = group_id / row_blocks;
    if (head >= p.heads) { return; }
    let first_row = {{ "group_id % row_blocks" if KEYS else "(row_blocks - 1u - group_id % row_blocks)" }} * {{ ROWS }}u;
{{ tiles.head_index() }}
{{ grads.head_offsets(tiles) }}
{{ grads.column_range(ROWS) }}
    {
{{ tiles.load_tile("let", "x", grads.row_qk, grads.row_qk ~ "_base", "first_row", grads.rows, ROWS, QUADS, "p.d") }}
{{ tiles.store_tile("x", 0, ROWS, QUADS, PITCH) }}
    }
    {
{{ tiles.load_tile("let", "x", grads.row_gv, grads.row_gv ~ "_base", "first_row", grads.rows, ROWS, VALUE_QUADS, "p.e") }}
{{ tiles.store_tile("x", ROW_GV, ROWS, VALUE_QUADS, VALUE_PITCH) }}
    }
{% for i in range(R) %}
    let row_{{ i }} = first_row + lane_group + {{ i * DOWN }}u;
{% for j in range(VECTORS) %}
    var grad_{{ i }}_{{ j }} = vec4<f32>();
{% endfor %}
{% for j in range(VALUE_VECTORS if KEYS else 0) %}
    var value_grad_{{ i }}_{{ j }} = vec4<f32>();
{% endfor %}
{% if not KEYS %}
    let query_{{ i }} = min(row_{{ i }}, p.t - 1u);
{{ grads.load_logsumexp("row_lse_" ~ i, "query_" ~ i) }}
    var delta_partial_{{ i }} = 0.0f;
    for (var c = lane_id; c < {{ VALUE_QUADS }}u; c += {{ LANES }}u) {
        delta_partial_{{ i }} += {{ grads.delta_term("g_vector(g_base + query_" ~ i ~ " * p.g_row, c * 4u, p.e)", "query_" ~ i, "c") }};
    }
    let delta_{{ i }} = row_sum(delta_partial_{{ i }});
    if (lane_id == 0u && row_{{ i }} < p.t) { delta[head * p.t + row_{{ i }}] = delta_{{ i }}; }
{% endif %}
{% endfor %}
    for (var column = begin; column < end; column += {{ COLUMNS }}u) {
        workgroupBarrier();
        {
{{ tiles.load_tile("let", "x", grads.column_qk, grads.column_qk ~ "_base", "column", grads.columns, COLUMNS, QUADS, "p.d", true) }}
{{ tiles.load_tile("let", "y", grads.column_gv, grads.column_gv ~ "_base", "column", grads.columns, COLUMNS, VALUE_QUADS, "p.e", true) }}
{{ tiles.store_tile("x", COLUMN_QK, COLUMNS, QUADS, PITCH) }}
{{ tiles.store_tile("y", COLUMN_GV, COLUMNS, VALUE_QUADS, VALUE_PITCH) }}
        }
        workgroupBarrier();
{% for i in range(R) %}{% for j in range(C) %}
        var p_{{ i }}_{{ j }} = 0.0f;
        var ds_{{ i }}_{{ j }} = 0.0f;
{% endfor %}{% endfor %}
{{ tiles.multiply("p", 0, COLUMN_QK, R, C, QUADS, PITCH) }}
{{ tiles.multiply("ds", ROW_GV, COLUMN_GV, R, C, VALUE_QUADS, VALUE_PITCH) }}
{% for j in range(C) %}
        {
            let at = column + lane_id + {{ j * LANES }}u;
{% if KEYS %}
            let query = min(at, p.t - 1u);
{{ grads.load_logsumexp("column_lse", "query") }}
            let column_delta = delta[head * p.t + query];
{% endif %}
{% for i in range(R) %}
{{ grads.differentiate(i, j, "row_" ~ i, "at") }}
{% endfor %}
        }
{% endfor %}
{{ tiles.store_weights("ds", WEIGHTS, R, C, WEIGHTS_PITCH) }}
        workgroupBarrier();
{{ tiles.weighted_sum("grad", WEIGHTS, COLUMN_QK, R, VECTORS, COLUMNS, WEIGHTS_PITCH, PITCH) }}
{% if KEYS %}
        workgroupBarrier();
{{ tiles.store_weights("p", WEIGHTS, R, C, WEIGHTS_PITCH) }}
        workgroupBarrier();
{{ tiles.weighted_sum("value_grad", WEIGHTS, COLUMN_GV, R, VALUE_VECTORS, COLUMNS, WEIGHTS_PITCH, VALUE_PITCH) }}
{% endif %}
    }
{{ tiles.store_rows("dk" if KEYS else "dq", "grad", "", "first_row", grads.rows, "p.d", R, VECTORS) }}
{% if KEYS %}
{{ tiles.store_rows("dv", "value_grad", "", "first_row", grads.rows, "p.e", R, VALUE_VECTORS) }}
{% endif %}
}
