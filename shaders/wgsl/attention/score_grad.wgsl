{#- What both passes of attention's gradient share (see attention/tiles_grad.wgsl). Import it `with context`:

  Each pass iterates over the columns of its rows of the score matrix. `row_qk` and `row_gv` are the operands of the rows, `column_qk`
  and `column_gv` those of the columns: the scores are products of the qk operands, their gradients of the gv operands. `rows` and
  `columns` are their numbers. -#}
{% set KEYS = KEYS | default(true) %}
{% set CAUSAL = CAUSAL | default(true) %}
{% set MASK_DTYPE = MASK_DTYPE | default("") %}
{% set DTYPE = DTYPE | default("float32") %}
{% set WIDTH = WIDTH | default(4) %}
{% set row_qk, row_gv, column_qk, column_gv = ("k", "v", "q", "g") if KEYS else ("q", "g", "k", "v") %}
{% set rows, columns = ("p.s", "p.t") if KEYS else ("p.t", "p.s") %}

{#- The buffers and parameters: g, q, k, v, the mask, the logsumexp, the result of attention (for queries), delta, and the gradients. -#}
{% macro declare(storage, tiles) %}
{% for name in ("g", "q", "k", "v") %}
{{ storage.input(loop.index0, name, DTYPE, WIDTH) }}
{% endfor %}
{% if MASK_DTYPE %}
{{ storage.input(4, "mask", MASK_DTYPE) }}
{% endif %}
{% set next = 5 if MASK_DTYPE else 4 %}
{{ storage.input(next, "lse", "float32") }}
{% if KEYS %}
{{ storage.scratch(next + 1, "delta", "f32", "read") }}
{{ storage.output(next + 2, "dk", DTYPE, WIDTH) }}
{{ storage.output(next + 3, "dv", DTYPE, WIDTH) }}
{% else %}
{{ storage.input(next + 1, "out", DTYPE, WIDTH) }}
{{ storage.scratch(next + 2, "delta", "f32") }}
{{ storage.output(next + 3, "dq", DTYPE, WIDTH) }}
{% endif %}
{{ storage.parameters("o_g: u32, o_q: u32, o_k: u32, o_v: u32, " ~ ("o_mask: u32, " if MASK_DTYPE else "") ~ "o_lse: u32, "
   ~ ("o_dk: u32, o_dv: u32, " if KEYS else "o_out: u32, o_dq: u32, ") ~ tiles.lengths() ~ tiles.strides("g") ~ tiles.strides("q")
   ~ tiles.strides("k") ~ tiles.strides("v") ~ tiles.mask_members()) }}
{% endmacro %}

{% macro head_offsets(tiles) %}
{% for name in ("g", "q", "k", "v") %}
    let {{ name }}_base = {{ tiles.head_offset(name) }};
{% endfor %}
{% if MASK_DTYPE %}
    let mask_base = {{ tiles.head_offset("mask") }};
{% endif %}
{% endmacro %}

{#- The columns from `begin` to `end` that are visible from any of the `count` rows from `first_row` on. -#}
{% macro column_range(count) %}
{% if CAUSAL and KEYS %}
    let begin = u32(clamp(i32(first_row) + i32(p.t) - i32(p.s), 0, i32(p.t)));
    let end = p.t;
{% elif CAUSAL %}
    let begin = 0u;
    let end = u32(clamp(i32(min(first_row + {{ count }}u, p.t)) + i32(p.s) - i32(p.t), 0, i32(p.s)));
{% else %}
    let begin = 0u;
    let end = {{ columns }};
{% endif %}
{% endmacro %}

{#- The contribution of vector `c` of g to delta, the sum of g * out of a query. -#}
{% macro delta_term(g, query, c) %}
sum_components({{ g }} * out_vector(p.o_out + (head * p.t + {{ query }}) * p.e, {{ c }} * 4u, p.e))
{%- endmacro %}

{% macro functions(tiles) %}
{% for name in ["g", "q", "k", "v"] + ([] if KEYS else ["out"]) %}{{ tiles.reader(name) }}{% endfor %}
fn sum_components(x: vec4<f32>) -> f32 { return (x.x + x.y) + (x.z + x.w); }
{{ tiles.score_function() }}
{% endmacro %}

{#- Loads the logsumexp of a query: its two parts if a mask is added, which may make the first large, else their sum. -#}
{% set ADDED = MASK_DTYPE and MASK_DTYPE != "bool_" %}
{% macro load_logsumexp(name, query) %}
    let {{ name }}_index = p.o_lse + 2u * (head * p.t + {{ query }});
{% if ADDED %}
    let {{ name }} = lse_at({{ name }}_index);
    let {{ name }}_logarithm = lse_at({{ name }}_index + 1u);
{% else %}
    let {{ name }} = lse_at({{ name }}_index) + lse_at({{ name }}_index + 1u);
{% endif %}
{% endmacro %}

{#- Turns the dot products p_i_j and ds_i_j into the probability and the gradient of the score at a row and a column. The logsumexp and delta
    of the query are column_lse and column_delta for keys, row_lse_i and delta_i for queries. -#}
{% macro differentiate(i, j, row, column) %}
{% set query, key = (column, row) if KEYS else (row, column) %}
{% set lse = "column_lse" if KEYS else "row_lse_" ~ i %}
            p_{{ i }}_{{ j }} = exp_nonpositive_f32(score(p_{{ i }}_{{ j }}, {{ query }}, {{ key }}{{ ", mask_base" if MASK_DTYPE }}) - {{ lse }}{{ " - " ~ lse ~ "_logarithm" if ADDED }});
            ds_{{ i }}_{{ j }} = p_{{ i }}_{{ j }} * (ds_{{ i }}_{{ j }} - {{ "column_delta" if KEYS else "delta_" ~ i }}) * p.scale;
{% endmacro %}
