{#- softmax(q k^T * scale + mask) v for CPUs, where an invocation is a lane of a vector unit: each holds R queries and their results in
    registers and iterates over the keys four at a time. The algorithm is that of attention/tiles.wgsl. -#}
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
    let row_blocks = (p.t + {{ GROUP * R - 1 }}u) / {{ GROUP * R }}u;
    let head = group_id / row_blocks;
    if (head >= p.heads) { return; }
    let first_row = (row_blocks - 1u - group_id % row_blocks) * {{ GROUP * R }}u;
{{ tiles.head_index() }}
    let k_base = {{ tiles.head_offset("k") }};
    let v_base = {{ tiles.head_offset("v") }};
{% if MASK_DTYPE %}
    let mask_base = {{ tiles.head_offset("mask") }};
{% endif %}
{% if CAUSAL %}
    let stop = u32(clamp(i32(min(first_row + {{ GROUP * R }}u, p.t)) + i32(p.s) - i32(p.t), 0, i32(p.s)));
{% else %}
    let stop = p.s;
{% endif %}
{% for r in range(R) %}
    let query_{{ r }} = first_row + local_id + {{ r * GROUP }}u;
    let q_offset_{{ r }} = {{ tiles.head_offset("q") }} + min(query_{{ r }}, p.t - 1u) * p.q_row;
{% for c in range(QUADS) %}
    let q_{{ r }}_{{ c }} = q_vector(q_offset_{{ r }}, {{ 4 * c }}u, p.d);
{% endfor %}
    var maximum_{{ r }} = -infinity();
    var total_{{ r }} = 0.0f;
{% for c in range(VALUE_QUADS) %}
    var result_{{ r }}_{{ c }} = vec4<f32>();
{% endfor %}
{% endfor %}
    for (var key = 0u; key < stop; key += 4u) {
{{ tiles.four_row_offsets("k", "key", "p.s") }}
{{ tiles.four_row_offsets("v", "key", "p.s") }}
{% for r in range(R) %}{% for u in range(4) %}
        var score_{{ r }}_{{ u }} = 0.0f;
{% endfor %}{% endfor %}
{% for c in range(QUADS) %}
        {
{{ tiles.load_four("k", "k", c, "p.d") }}
{% for u in range(4) %}
            let k{{ u }} = {{ tiles.row_of_four("k", c, u) }};
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
        let new_maximum_{{ r }} = max(maximum_{{ r }}, max(max(score_{{ r }}_0, score_{{ r }}_1), max(score_{{ r }}_2, score_{{ r }}_3)));
        if (new_maximum_{{ r }} != maximum_{{ r }}) {
            let rescale = exp_nonpositive_f32(maximum_{{ r }} - shift_of(new_maximum_{{ r }}));
            maximum_{{ r }} = new_maximum_{{ r }};
            total_{{ r }} *= rescale;
{% for c in range(VALUE_QUADS) %}
            result_{{ r }}_{{ c }} *= rescale;
{% endfor %}
        }
{% for u in range(4) %}
        score_{{ r }}_{{ u }} = exp_nonpositive_f32(score_{{ r }}_{{ u }} - shift_of(maximum_{{ r }}));
        total_{{ r }} += score_{{ r }}_{{ u }};
{% endfor %}
{% endfor %}
{% for c in range(VALUE_QUADS) %}
        {
{{ tiles.load_four("v", "v", c, "p.e") }}
{% for u in range(4) %}
            let v{{ u }} = {{ tiles.row_of_four("v", c, u) }};
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
        let out_row = p.o_out + (head * p.t + query_{{ r }}) * p.e;
{% for c in range(VALUE_QUADS) %}
{{ tiles.store4("out", "out_row", "result_" ~ r ~ "_" ~ c ~ " * inverse", 4 * c ~ "u", "p.e", c + 1 < VALUE_QUADS) }}
{% endfor %}
        {{ tiles.store_logsumexp("head * p.t + query_" ~ r, "maximum_" ~ r, "total_" ~ r) }}
    }
{% endfor %}
}
