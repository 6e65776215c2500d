{#- softmax(q k^T * scale + mask) v without materialising the scores (FlashAttention): a workgroup takes ROWS queries of a head and iterates over
    the keys COLUMNS at a time, with a running maximum, sum and result per query that are rescaled when the maximum grows. Source: Dao
    et al., arXiv:2205.14135.

  An invocation computes R rows by C columns of a tile of scores. QUADS and VALUE_QUADS are the vectors of four features of a key and a
  value. The weights replace the keys in workgroup memory. WIDTH is 4 if features are loaded as vectors; TAIL says that the last one is
  partial. -#}
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
{{ groups.reduction("row_max", "f32", "max(a, b)") }}
{{ groups.reduction("row_sum", "f32", "a + b") }}
{% for name in ("q", "k", "v") %}{{ tiles.reader(name) }}{% endfor %}
{{ tiles.score_function() }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let row_blocks = (p.t + {{ ROWS - 1 }}u) / {{ ROWS }}u;
    let head = group_id / row_blocks;
    if (head >= p.heads) { return; }
    // With a causal mask the last blocks of rows see the most keys, so they start first.
    let first_row = (row_blocks - 1u - group_id % row_blocks) * {{ ROWS }}u;
{{ tiles.head_index() }}
    let q_base = {{ tiles.head_offset("q") }};
    let k_base = {{ tiles.head_offset("k") }};
    let v_base = {{ tiles.head_offset("v") }};
{% if MASK_DTYPE %}
    let mask_base = {{ tiles.head_offset("mask") }};
{% endif %}
{% if CAUSAL %}
    let stop = u32(clamp(i32(min(first_row + {{ ROWS }}u, p.t)) + i32(p.s) - i32(p.t), 0, i32(p.s)));
{% else %}
    let stop = p.s;
{% endif %}
    {
{{ tiles.load_tile("let", "q", "q", "q_base", "first_row", "p.t", ROWS, QUADS, "p.d") }}
{{ tiles.store_tile("q", 0, ROWS, QUADS, PITCH) }}
    }
{{ tiles.load_tile("var", "k", "k", "k_base", "0u", "p.s", COLUMNS, QUADS, "p.d") }}
{% for i in range(R) %}
    var maximum_{{ i }} = -infinity();
    var total_{{ i }} = 0.0f;
{% for j in range(VECTORS) %}
    var result_{{ i }}_{{ j }} = vec4<f32>();
{% endfor %}
{% endfor %}
    for (var key = 0u; key < stop; key += {{ COLUMNS }}u) {
        workgroupBarrier();
{{ tiles.store_tile("k", KEY_REGION, COLUMNS, QUADS, PITCH) }}
        workgroupBarrier();
{{ tiles.load_tile("let", "v", "v", "v_base", "key", "p.s", COLUMNS, VALUE_QUADS, "p.e", true) }}
{% for i in range(R) %}{% for j in range(C) %}
        var score_{{ i }}_{{ j }} = 0.0f;
{% endfor %}{% endfor %}
{{ tiles.multiply("score", 0, KEY_REGION, R, C, QUADS, PITCH) }}
{% for i in range(R) %}
        let query_{{ i }} = first_row + lane_group + {{ i * GROUP // LANES }}u;
{% for j in range(C) %}
        score_{{ i }}_{{ j }} = score(score_{{ i }}_{{ j }}, query_{{ i }}, key + lane_id + {{ j * LANES }}u{{ ", mask_base" if MASK_DTYPE }});
{% endfor %}
        let new_maximum_{{ i }} = max(maximum_{{ i }}, row_max({% for j in range(C - 1) %}max(score_{{ i }}_{{ j }}, {% endfor %}score_{{ i }}_{{ C - 1 }}{{ ")" * (C - 1) }}));
        let rescale_{{ i }} = exp_nonpositive_f32(maximum_{{ i }} - shift_of(new_maximum_{{ i }}));
        maximum_{{ i }} = new_maximum_{{ i }};
        total_{{ i }} *= rescale_{{ i }};
{% for j in range(VECTORS) %}
        result_{{ i }}_{{ j }} *= rescale_{{ i }};
{% endfor %}
{% for j in range(C) %}
        score_{{ i }}_{{ j }} = exp_nonpositive_f32(score_{{ i }}_{{ j }} - shift_of(new_maximum_{{ i }}));
        total_{{ i }} += score_{{ i }}_{{ j }};
{% endfor %}
{% endfor %}
        workgroupBarrier();
{{ tiles.store_weights("score", KEY_REGION, R, C, WEIGHTS_PITCH) }}
{{ tiles.store_tile("v", VALUE_REGION, COLUMNS, VALUE_QUADS, VALUE_PITCH) }}
        workgroupBarrier();
{{ tiles.load_tile("", "k", "k", "k_base", "key + " ~ COLUMNS ~ "u", "p.s", COLUMNS, QUADS, "p.d") }}
{{ tiles.weighted_sum("result", KEY_REGION, VALUE_REGION, R, VECTORS, COLUMNS, WEIGHTS_PITCH, VALUE_PITCH) }}
    }
{% for i in range(R) %}
    let row_total_{{ i }} = row_sum(total_{{ i }});
    let inverse_{{ i }} = select(1.0f / row_total_{{ i }}, 0.0f, row_total_{{ i }} == 0.0f);
    if (lane_id == 0u && first_row + lane_group + {{ i * GROUP // LANES }}u < p.t) {
        {{ tiles.store_logsumexp("head * p.t + first_row + lane_group + " ~ i * GROUP // LANES ~ "u", "maximum_" ~ i, "row_total_" ~ i) }}
    }
{% endfor %}
{{ tiles.store_rows("out", "result", "inverse", "first_row", "p.t", "p.e", R, VECTORS) }}
}
