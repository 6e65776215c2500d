{#- softmax(q k^T * scale + mask) v without ever holding the scores: a group takes ROWS queries of a head and passes over the keys COLUMNS at
    a time, with a running maximum, sum and result per query that are rescaled when the maximum grows. Source: Dao et al.,
    arXiv:2205.14135.

  An invocation makes R rows by C columns of a tile of scores. QUADS and VALUE_QUADS are the vectors of four features that a key and a
  value take. The weights take the place of the keys in workgroup memory. WIDTH is 4 where features are read in whole vectors;
  TAIL says that the last one is not whole. -#}
{% set ROWS = ROWS | default(64) %}
{% set COLUMNS = COLUMNS | default(32) %}
{% set R = R | default(4) %}
{% set C = C | default(4) %}
{% set LANES = COLUMNS // C %}
{% set GROUP = ROWS // R * LANES %}
{% set QUADS = QUADS | default(8) %}
{% set VALUE_QUADS = VALUE_QUADS | default(8) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "attention/local_tile.wgsl" as tiles with context %}
{% set DTYPE = DTYPE | default("float32") %}
{% set WIDTH = WIDTH | default(4) %}
{% set CAUSAL = CAUSAL | default(true) %}
{% set MASK_DTYPE = MASK_DTYPE | default("") %}
{% set PITCH = tiles.pitch(QUADS) | int %}
{% set WEIGHTS_PITCH = tiles.pitch(COLUMNS // 4) | int %}
{% set VECTORS = (VALUE_QUADS + LANES - 1) // LANES %}
{% set VALUE_PITCH = tiles.pitch(VECTORS * LANES) | int %}
{% set KEY_REGION = ROWS * PITCH %}
{% set VALUE_REGION = KEY_REGION + [COLUMNS * PITCH, ROWS * WEIGHTS_PITCH] | max %}
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
var<workgroup> tile: array<vec4<f32>, {{ VALUE_REGION + COLUMNS * VALUE_PITCH }}>;
{{ groups.declarations() }}
{{ groups.reduction("row_top", "f32", "max(a, b)") }}
{{ groups.reduction("row_sum", "f32", "a + b") }}
{% for name in ("q", "k", "v") %}{{ tiles.reader(name) }}{% endfor %}
{{ tiles.score_function() }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let bands = (p.t + {{ ROWS - 1 }}u) / {{ ROWS }}u;
    let head = group / bands;
    if (head >= p.heads) { return; }
    // The last bands have the most keys under a causal mask, so they start first.
    let first = (bands - 1u - group % bands) * {{ ROWS }}u;
{{ tiles.head_numbers() }}
    let q_base = {{ tiles.start("q") }};
    let k_base = {{ tiles.start("k") }};
    let v_base = {{ tiles.start("v") }};
{% if MASK_DTYPE %}
    let mask_base = {{ tiles.start("mask") }};
{% endif %}
{% if CAUSAL %}
    let stop = u32(clamp(i32(min(first + {{ ROWS }}u, p.t)) + i32(p.s) - i32(p.t), 0, i32(p.s)));
{% else %}
    let stop = p.s;
{% endif %}
    {
{{ tiles.fetch("let", "q", "q", "q_base", "first", "p.t", ROWS, QUADS, "p.d") }}
{{ tiles.keep("q", 0, ROWS, QUADS, PITCH) }}
    }
{{ tiles.fetch("var", "k", "k", "k_base", "0u", "p.s", COLUMNS, QUADS, "p.d") }}
{% for i in range(R) %}
    var top_{{ i }} = -infinity();
    var total_{{ i }} = 0.0f;
{% for j in range(VECTORS) %}
    var result_{{ i }}_{{ j }} = vec4<f32>();
{% endfor %}
{% endfor %}
    for (var key = 0u; key < stop; key += {{ COLUMNS }}u) {
        workgroupBarrier();
{{ tiles.keep("k", KEY_REGION, COLUMNS, QUADS, PITCH) }}
        workgroupBarrier();
{{ tiles.fetch("let", "v", "v", "v_base", "key", "p.s", COLUMNS, VALUE_QUADS, "p.e", true) }}
{% for i in range(R) %}{% for j in range(C) %}
        var score_{{ i }}_{{ j }} = 0.0f;
{% endfor %}{% endfor %}
{{ tiles.multiply("score", 0, KEY_REGION, R, C, QUADS, PITCH) }}
{% for i in range(R) %}
        let query_{{ i }} = first + team + {{ i * GROUP // LANES }}u;
{% for j in range(C) %}
        score_{{ i }}_{{ j }} = score(score_{{ i }}_{{ j }}, query_{{ i }}, key + me + {{ j * LANES }}u{{ ", mask_base" if MASK_DTYPE }});
{% endfor %}
        let higher_{{ i }} = max(top_{{ i }}, row_top({% for j in range(C - 1) %}max(score_{{ i }}_{{ j }}, {% endfor %}score_{{ i }}_{{ C - 1 }}{{ ")" * (C - 1) }}));
        let shrink_{{ i }} = exp_nonpositive_f32(top_{{ i }} - shift_of(higher_{{ i }}));
        top_{{ i }} = higher_{{ i }};
        total_{{ i }} *= shrink_{{ i }};
{% for j in range(VECTORS) %}
        result_{{ i }}_{{ j }} *= shrink_{{ i }};
{% endfor %}
{% for j in range(C) %}
        score_{{ i }}_{{ j }} = exp_nonpositive_f32(score_{{ i }}_{{ j }} - shift_of(higher_{{ i }}));
        total_{{ i }} += score_{{ i }}_{{ j }};
{% endfor %}
{% endfor %}
        workgroupBarrier();
{{ tiles.spread("score", KEY_REGION, R, C, WEIGHTS_PITCH) }}
{{ tiles.keep("v", VALUE_REGION, COLUMNS, VALUE_QUADS, VALUE_PITCH) }}
        workgroupBarrier();
{{ tiles.fetch("", "k", "k", "k_base", "key + " ~ COLUMNS ~ "u", "p.s", COLUMNS, QUADS, "p.d") }}
{{ tiles.gather("result", KEY_REGION, VALUE_REGION, R, VECTORS, COLUMNS, WEIGHTS_PITCH, VALUE_PITCH) }}
    }
{% for i in range(R) %}
    let all_{{ i }} = row_sum(total_{{ i }});
    let inverse_{{ i }} = select(1.0f / all_{{ i }}, 0.0f, all_{{ i }} == 0.0f);
    if (me == 0u && first + team + {{ i * GROUP // LANES }}u < p.t) {
        lse_set(p.o_lse + head * p.t + first + team + {{ i * GROUP // LANES }}u, log_f32(all_{{ i }}) + shift_of(top_{{ i }}));
    }
{% endfor %}
{{ tiles.write("out", "result", "inverse", "first", "p.t", "p.e", R, VECTORS) }}
}
