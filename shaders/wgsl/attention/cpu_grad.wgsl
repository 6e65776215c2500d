{#- Gradients of attention for CPUs, where an invocation is a lane of a vector unit: each holds R rows and their gradients in registers and
    iterates over the columns four at a time. The algorithm is that of attention/tiles_grad.wgsl. -#}
{% set GROUP = GROUP | default(8) %}
{% set R = R | default(2) %}
{% set QUADS = QUADS | default(8) %}
{% set VALUE_QUADS = VALUE_QUADS | default(8) %}
{% set KEYS = KEYS | default(true) %}
{% set CAUSAL = CAUSAL | default(true) %}
{% set MASK_DTYPE = MASK_DTYPE | default("") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "attention/local_tile.wgsl" as tiles with context %}
{% import "attention/score_grad.wgsl" as grads with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% include "lib/exponential.wgsl" %}
{{ grads.declare(storage, tiles) }}
{{ grads.functions(tiles) }}
{{ storage.main(GROUP, tiles.four_builtins()) }}
    let row_blocks = ({{ grads.rows }} + {{ GROUP * R - 1 }}u) / {{ GROUP * R }}u;
    let head = group_id / row_blocks;
    if (head >= p.heads) { return; }
    let first_row = {{ "group_id % row_blocks" if KEYS else "(row_blocks - 1u - group_id % row_blocks)" }} * {{ GROUP * R }}u;
{{ tiles.head_index() }}
{{ grads.head_offsets(tiles) }}
{{ grads.column_range(GROUP * R) }}
{% for r in range(R) %}
    let row_{{ r }} = first_row + local_id + {{ r * GROUP }}u;
    let clamped_row_{{ r }} = min(row_{{ r }}, {{ grads.rows }} - 1u);
{% for c in range(QUADS) %}
    let x_{{ r }}_{{ c }} = {{ grads.row_qk }}_vector({{ grads.row_qk }}_base + clamped_row_{{ r }} * p.{{ grads.row_qk }}_row, {{ 4 * c }}u, p.d);
    var grad_{{ r }}_{{ c }} = vec4<f32>();
{% endfor %}
{% for c in range(VALUE_QUADS) %}
    let y_{{ r }}_{{ c }} = {{ grads.row_gv }}_vector({{ grads.row_gv }}_base + clamped_row_{{ r }} * p.{{ grads.row_gv }}_row, {{ 4 * c }}u, p.e);
{% if KEYS %}
    var value_grad_{{ r }}_{{ c }} = vec4<f32>();
{% endif %}
{% endfor %}
{% if not KEYS %}
{{ grads.load_logsumexp("row_lse_" ~ r, "clamped_row_" ~ r) }}
    let delta_{{ r }} = {% for c in range(VALUE_QUADS) %}{{ grads.delta_term("y_" ~ r ~ "_" ~ c, "clamped_row_" ~ r, c ~ "u") }}{{ " + " if c + 1 < VALUE_QUADS }}{% endfor %};
    if (row_{{ r }} < p.t) { delta[head * p.t + row_{{ r }}] = delta_{{ r }}; }
{% endif %}
{% endfor %}
    for (var column = begin; column < end; column += 4u) {
{{ tiles.four_row_offsets(grads.column_qk, "column", grads.columns) }}
{{ tiles.four_row_offsets(grads.column_gv, "column", grads.columns) }}
{% for r in range(R) %}{% for u in range(4) %}
        var p_{{ r }}_{{ u }} = 0.0f;
        var ds_{{ r }}_{{ u }} = 0.0f;
{% endfor %}{% endfor %}
{% for sum, own, name, loaded, count, length in [("p", "x", grads.column_qk, "a", QUADS, "p.d"), ("ds", "y", grads.column_gv, "b", VALUE_QUADS, "p.e")] %}
{% for c in range(count) %}
{{ tiles.load_four(loaded, name, c, length) }}
        {
{% for u in range(4) %}
            let z{{ u }} = {{ tiles.row_of_four(loaded, c, u) }};
{% for r in range(R) %}
            {{ sum }}_{{ r }}_{{ u }} = {{ sum }}_{{ r }}_{{ u }} + {{ own }}_{{ r }}_{{ c }}.x * z{{ u }}.x + {{ own }}_{{ r }}_{{ c }}.y * z{{ u }}.y + {{ own }}_{{ r }}_{{ c }}.z * z{{ u }}.z + {{ own }}_{{ r }}_{{ c }}.w * z{{ u }}.w;
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% endfor %}
{% for u in range(4) %}
        {
            let at = column + {{ u }}u;
{% if KEYS %}
            let query = min(at, p.t - 1u);
{{ grads.load_logsumexp("column_lse", "query") }}
            let column_delta = delta[head * p.t + query];
{% endif %}
{% for r in range(R) %}
{{ grads.differentiate(r, u, "row_" ~ r, "at") }}
{% endfor %}
        }
{% endfor %}
{% for sum, weight, loaded, count in [("grad", "ds", "a", QUADS), ("value_grad", "p", "b", VALUE_QUADS if KEYS else 0)] %}
{% for c in range(count) %}
        {
{% for u in range(4) %}
            let z{{ u }} = {{ tiles.row_of_four(loaded, c, u) }};
{% endfor %}
{% for r in range(R) %}
            {{ sum }}_{{ r }}_{{ c }} = {{ sum }}_{{ r }}_{{ c }} + {{ weight }}_{{ r }}_0 * z0 + {{ weight }}_{{ r }}_1 * z1 + {{ weight }}_{{ r }}_2 * z2 + {{ weight }}_{{ r }}_3 * z3;
{% endfor %}
        }
{% endfor %}
{% endfor %}
    }
{% for r in range(R) %}
    if (row_{{ r }} < {{ grads.rows }}) {
{% for name, sum, count, length in [("dk" if KEYS else "dq", "grad", QUADS, "p.d"), ("dv", "value_grad", VALUE_QUADS if KEYS else 0, "p.e")] %}
{% for c in range(count) %}
{{ tiles.store4(name, "p.o_" ~ name ~ " + (head * " ~ grads.rows ~ " + row_" ~ r ~ ") * " ~ length, sum ~ "_" ~ r ~ "_" ~ c, 4 * c ~ "u", length, c + 1 < count) }}
{% endfor %}
{% endfor %}
    }
{% endfor %}
}
