{#- softmax(q k^T * scale + mask) v for devices on which an invocation is a lane of a processor's vector unit: each takes R queries, which it
    holds with their results in registers, and passes over the keys four at a time, as attention/tiles.wgsl does over more of them. -#}
{% set GROUP = GROUP | default(8) %}
{% set R = R | default(4) %}
{% set QUADS = QUADS | default(8) %}
{% set VALUE_QUADS = VALUE_QUADS | default(8) %}
{% set CAUSAL = CAUSAL | default(true) %}
{% set MASK_DTYPE = MASK_DTYPE | default("") %}
{% set DTYPE = DTYPE | default("float32") %}
{% set WIDTH = WIDTH | default(4) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "attention/local_tile.wgsl" as tiles with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% include "lib/logarithm.wgsl" %}
{{ storage.input(0, "q", DTYPE, WIDTH) }}
{{ storage.input(1, "k", DTYPE, WIDTH) }}
{{ storage.input(2, "v", DTYPE, WIDTH) }}
{% if MASK_DTYPE %}
{{ storage.input(3, "mask", MASK_DTYPE) }}
{% endif %}
{% set outputs = 4 if MASK_DTYPE else 3 %}
{{ storage.output(outputs, "out", DTYPE, WIDTH) }}
{{ storage.output(outputs + 1, "lse", "float32") }}
{{ storage.parameters("o_q: u32, o_k: u32, o_v: u32, " ~ ("o_mask: u32, " if MASK_DTYPE else "") ~ "o_out: u32, o_lse: u32, "
   ~ tiles.lengths() ~ tiles.strides("q") ~ tiles.strides("k") ~ tiles.strides("v") ~ tiles.mask_members()) }}
{% for name in ("q", "k", "v") %}{{ tiles.reader(name) }}{% endfor %}
{{ tiles.score_function() }}
{{ storage.main(GROUP, tiles.four_builtins()) }}
    let bands = (p.t + {{ GROUP * R - 1 }}u) / {{ GROUP * R }}u;
    let head = group / bands;
    if (head >= p.heads) { return; }
    let first = (bands - 1u - group % bands) * {{ GROUP * R }}u;
{{ tiles.head_numbers() }}
    let k_base = {{ tiles.start("k") }};
    let v_base = {{ tiles.start("v") }};
{% if MASK_DTYPE %}
    let mask_base = {{ tiles.start("mask") }};
{% endif %}
{% if CAUSAL %}
    let stop = u32(clamp(i32(min(first + {{ GROUP * R }}u, p.t)) + i32(p.s) - i32(p.t), 0, i32(p.s)));
{% else %}
    let stop = p.s;
{% endif %}
{% for r in range(R) %}
    let query_{{ r }} = first + lane + {{ r * GROUP }}u;
    let q_from_{{ r }} = {{ tiles.start("q") }} + min(query_{{ r }}, p.t - 1u) * p.q_row;
{% for c in range(QUADS) %}
    let q_{{ r }}_{{ c }} = q_vector(q_from_{{ r }}, {{ 4 * c }}u, p.d);
{% endfor %}
    var top_{{ r }} = -infinity();
    var total_{{ r }} = 0.0f;
{% for c in range(VALUE_QUADS) %}
    var result_{{ r }}_{{ c }} = vec4<f32>();
{% endfor %}
{% endfor %}
    for (var key = 0u; key < stop; key += 4u) {
{{ tiles.four_rows("k", "key", "p.s") }}
{{ tiles.four_rows("v", "key", "p.s") }}
{% for r in range(R) %}{% for u in range(4) %}
        var score_{{ r }}_{{ u }} = 0.0f;
{% endfor %}{% endfor %}
{% for c in range(QUADS) %}
        {
{{ tiles.four("k", "k", c, "p.d") }}
{% for u in range(4) %}
            let k{{ u }} = {{ tiles.of_four("k", c, u) }};
{% for r in range(R) %}
            score_{{ r }}_{{ u }} = score_{{ r }}_{{ u }} + q_{{ r }}_{{ c }}.x * k{{ u }}.x + q_{{ r }}_{{ c }}.y * k{{ u }}.y + q_{{ r }}_{{ c }}.z * k{{ u }}.z + q_{{ r }}_{{ c }}.w * k{{ u }}.w;
{% endfor %}
{% endfor %}
        }
{% endfor %}
{% for r in range(R) %}
{% for u in range(4) %}
        score_{{ r }}_{{ u }} = score(score_{{ r }}_{{ u }}, query_{{ r }}, key + {{ u }}u{{ ", mask_base" if MASK_DTYPE }});
{% endfor %}
        let higher_{{ r }} = max(top_{{ r }}, max(max(score_{{ r }}_0, score_{{ r }}_1), max(score_{{ r }}_2, score_{{ r }}_3)));
        if (higher_{{ r }} != top_{{ r }}) {
            let shrink = exp_nonpositive_f32(top_{{ r }} - shift_of(higher_{{ r }}));
            top_{{ r }} = higher_{{ r }};
            total_{{ r }} *= shrink;
{% for c in range(VALUE_QUADS) %}
            result_{{ r }}_{{ c }} *= shrink;
{% endfor %}
        }
{% for u in range(4) %}
        score_{{ r }}_{{ u }} = exp_nonpositive_f32(score_{{ r }}_{{ u }} - shift_of(top_{{ r }}));
        total_{{ r }} += score_{{ r }}_{{ u }};
{% endfor %}
{% endfor %}
{% for c in range(VALUE_QUADS) %}
        {
{{ tiles.four("v", "v", c, "p.e") }}
{% for u in range(4) %}
            let v{{ u }} = {{ tiles.of_four("v", c, u) }};
{% endfor %}
{% for r in range(R) %}
            result_{{ r }}_{{ c }} = result_{{ r }}_{{ c }} + score_{{ r }}_0 * v0 + score_{{ r }}_1 * v1 + score_{{ r }}_2 * v2 + score_{{ r }}_3 * v3;
{% endfor %}
        }
{% endfor %}
    }
{% for r in range(R) %}
    if (query_{{ r }} < p.t) {
        let inverse = select(1.0f / total_{{ r }}, 0.0f, total_{{ r }} == 0.0f);
        let place = p.o_out + (head * p.t + query_{{ r }}) * p.e;
{% for c in range(VALUE_QUADS) %}
{{ tiles.put("out", "place", "result_" ~ r ~ "_" ~ c ~ " * inverse", 4 * c ~ "u", "p.e", c + 1 < VALUE_QUADS) }}
{% endfor %}
        lse_set(p.o_lse + head * p.t + query_{{ r }}, log_f32(total_{{ r }}) + shift_of(top_{{ r }}));
    }
{% endfor %}
}
