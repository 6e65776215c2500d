{#- Gradients of attention for devices on which an invocation is a lane of a processor's vector unit: as attention/tiles_grad.wgsl, but each
    invocation holds R rows and their gradients in registers and passes over the columns four at a time. -#}
{% set GROUP = GROUP | default(8) %}
{% set R = R | default(2) %}
{% set QUADS = QUADS | default(8) %}
{% set VALUE_QUADS = VALUE_QUADS | default(8) %}
{% set KEYS = KEYS | default(true) %}
{% set CAUSAL = CAUSAL | default(true) %}
{% set MASK_DTYPE = MASK_DTYPE | default("") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "attention/local_tile.wgsl" as tiles with context %}
{% import "attention/score_grad.wgsl" as slopes with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% include "lib/exponential.wgsl" %}
{{ slopes.declare(storage, tiles) }}
{{ slopes.functions(tiles) }}
{{ storage.main(GROUP, tiles.four_builtins()) }}
    let bands = ({{ slopes.rows }} + {{ GROUP * R - 1 }}u) / {{ GROUP * R }}u;
    let head = group / bands;
    if (head >= p.heads) { return; }
    let first = {{ "group % bands" if KEYS else "(bands - 1u - group % bands)" }} * {{ GROUP * R }}u;
{{ tiles.head_numbers() }}
{{ slopes.starts(tiles) }}
{{ slopes.reach(GROUP * R) }}
{% for r in range(R) %}
    let row_{{ r }} = first + lane + {{ r * GROUP }}u;
    let held_{{ r }} = min(row_{{ r }}, {{ slopes.rows }} - 1u);
{% for c in range(QUADS) %}
    let x_{{ r }}_{{ c }} = {{ slopes.first }}_vector({{ slopes.first }}_base + held_{{ r }} * p.{{ slopes.first }}_row, {{ 4 * c }}u, p.d);
    var first_{{ r }}_{{ c }} = vec4<f32>();
{% endfor %}
{% for c in range(VALUE_QUADS) %}
    let y_{{ r }}_{{ c }} = {{ slopes.second }}_vector({{ slopes.second }}_base + held_{{ r }} * p.{{ slopes.second }}_row, {{ 4 * c }}u, p.e);
{% if KEYS %}
    var second_{{ r }}_{{ c }} = vec4<f32>();
{% endif %}
{% endfor %}
{% if not KEYS %}
    let taken_{{ r }} = shift_of(lse_at(p.o_lse + head * p.t + held_{{ r }}));
    let delta_{{ r }} = {% for c in range(VALUE_QUADS) %}{{ slopes.delta_part("y_" ~ r ~ "_" ~ c, "held_" ~ r, c ~ "u") }}{{ " + " if c + 1 < VALUE_QUADS }}{% endfor %};
    if (row_{{ r }} < p.t) { delta[head * p.t + row_{{ r }}] = delta_{{ r }}; }
{% endif %}
{% endfor %}
    for (var column = begin; column < end; column += 4u) {
{{ tiles.four_rows(slopes.other_first, "column", slopes.columns) }}
{{ tiles.four_rows(slopes.other_second, "column", slopes.columns) }}
{% for r in range(R) %}{% for u in range(4) %}
        var p_{{ r }}_{{ u }} = 0.0f;
        var ds_{{ r }}_{{ u }} = 0.0f;
{% endfor %}{% endfor %}
{% for sum, own, name, loaded, count, length in [("p", "x", slopes.other_first, "a", QUADS, "p.d"), ("ds", "y", slopes.other_second, "b", VALUE_QUADS, "p.e")] %}
{% for c in range(count) %}
{{ tiles.four(loaded, name, c, length) }}
        {
{% for u in range(4) %}
            let z{{ u }} = {{ tiles.of_four(loaded, c, u) }};
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
            let taken = shift_of(lse_at(p.o_lse + head * p.t + query));
            let centre = delta[head * p.t + query];
{% endif %}
{% for r in range(R) %}
{{ slopes.differentiate(r, u, "row_" ~ r, "at") }}
{% endfor %}
        }
{% endfor %}
{% for sum, weight, loaded, count in [("first", "ds", "a", QUADS), ("second", "p", "b", VALUE_QUADS if KEYS else 0)] %}
{% for c in range(count) %}
        {
{% for u in range(4) %}
            let z{{ u }} = {{ tiles.of_four(loaded, c, u) }};
{% endfor %}
{% for r in range(R) %}
            {{ sum }}_{{ r }}_{{ c }} = {{ sum }}_{{ r }}_{{ c }} + {{ weight }}_{{ r }}_0 * z0 + {{ weight }}_{{ r }}_1 * z1 + {{ weight }}_{{ r }}_2 * z2 + {{ weight }}_{{ r }}_3 * z3;
{% endfor %}
        }
{% endfor %}
{% endfor %}
    }
{% for r in range(R) %}
    if (row_{{ r }} < {{ slopes.rows }}) {
{% for name, sum, count, length in [("dk" if KEYS else "dq", "first", QUADS, "p.d"), ("dv", "second", VALUE_QUADS if KEYS else 0, "p.e")] %}
{% for c in range(count) %}
{{ tiles.put(name, "p.o_" ~ name ~ " + (head * " ~ slopes.rows ~ " + row_" ~ r ~ ") * " ~ length, sum ~ "_" ~ r ~ "_" ~ c, 4 * c ~ "u", length, c + 1 < count) }}
{% endfor %}
{% endfor %}
    }
{% endfor %}
}
