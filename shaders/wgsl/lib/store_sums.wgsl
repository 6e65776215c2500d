{#- Where the sums of a product go. Import it `with context`:

  `declare(binding, storage)` declares the bias, where BIAS says that there is one, and the output, as buffers from `binding` on. With
  SPLIT it declares `partial` (split, batch, m, n) instead, and gemm/split_k_reduce.wgsl adds up what the splits leave there.
  `members()` are the parameters of a matrix as output, `offsets()` those of the buffers. `put(row, column, sum)` stores one sum of a
  matrix and `put4(row, column, sums)` four neighbours in a row, as far as they exist; both use the variables `batch` and `split`.
  `keep4` is the part of it for `partial`, and `each` does something for each of the four, number `c`. -#}
{% set REAL = REAL | default("f32") %}
{% set SPLIT = SPLIT | default(false) %}
{% set BIAS = BIAS | default(false) and not SPLIT %}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default(DTYPE) %}
{% set OUT_LANES = OUT_LANES | default(1) %}

{% macro declare(binding, storage) %}
{% if SPLIT %}
{{ storage.scratch(binding, "partial", REAL) }}
{% else %}
{{ storage.input(binding, "bias", DTYPE) if BIAS }}
{{ storage.output(binding + (1 if BIAS else 0), "out", OUT_DTYPE, OUT_LANES) }}
{% endif %}
// Not an index, which would move the vector out of registers.
fn picked(v: vec4<{{ REAL }}>, c: u32) -> {{ REAL }} { return select(select(v.x, v.y, c == 1u), select(v.z, v.w, c == 3u), c >= 2u); }
{% endmacro %}

{% macro offsets() %}{{ "o_bias: u32, " if BIAS }}{{ "o_out: u32, " if not SPLIT }}{% endmacro %}
{% macro members() %}{% if not SPLIT %}out_row: u32, out_column: u32, {{ "bias_row: u32, bias_column: u32, " if BIAS }}{% endif %}{% endmacro %}

{% macro put(row, column, sum) %}
out_set(p.o_out + batch * p.m * p.n + ({{ row }}) * p.out_row + ({{ column }}) * p.out_column,
    {{ sum }}{{ " + bias_at(p.o_bias + (" ~ row ~ ") * p.bias_row + (" ~ column ~ ") * p.bias_column)" if BIAS }});
{% endmacro %}

{#- A loop, since this code stands in a kernel once for every four of its sums. -#}
{% macro each(column, code) %}
for (var c = 0u; c < 4u && {{ column }} + c < p.n; c++) { {{ code }} }
{% endmacro %}

{% macro keep4(row, column, sums) %}
{{ each(column, "partial[((split * p.count + batch) * p.m + " ~ row ~ ") * p.n + " ~ column ~ " + c] = picked(" ~ sums ~ ", c);") }}
{% endmacro %}

{% macro put4(row, column, sums) %}
{% if SPLIT %}
{{ keep4(row, column, sums) }}
{% elif OUT_LANES == 4 %}
if ({{ column }} < p.n) {
{% if BIAS %}
    let bias_from = p.o_bias + {{ row }} * p.bias_row + {{ column }} * p.bias_column;
    let addend = vec4<{{ REAL }}>(bias_at(bias_from), bias_at(bias_from + p.bias_column), bias_at(bias_from + 2u * p.bias_column), bias_at(bias_from + 3u * p.bias_column));
{% endif %}
    out_set4(p.o_out + (batch * p.m + {{ row }}) * p.n + {{ column }}, {{ sums }}{{ " + addend" if BIAS }});
}
{% else %}
{{ each(column, put(row, column ~ " + c", "picked(" ~ sums ~ ", c)")) }}
{% endif %}
{% endmacro %}
