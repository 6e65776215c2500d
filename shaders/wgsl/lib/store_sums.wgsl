{#- Stores the sums of a matrix product. Import it `with context`:

  - `declare(binding, storage)` declares the bias, if BIAS, and the output as buffers that begin at `binding`. With SPLIT it declares `partial`
    (split, batch, m, n) instead, which gemm/split_k_reduce.wgsl adds up.
  - `members()` are parameters for a matrix as output, `offsets()` those of the buffers.
  - `store(row, column, sum)` stores one sum, and `store4(row, column, sums)` four neighbours in a row, as far as they are in range; both
    use the variables `batch` and `split`. `store_partial4` stores four partial sums, and `for_each_column` runs code for each of four
    columns, with number `c`. -#}
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
// Dynamic indexing would move the vector out of registers.
fn component(v: vec4<{{ REAL }}>, c: u32) -> {{ REAL }} { return select(select(v.x, v.y, c == 1u), select(v.z, v.w, c == 3u), c >= 2u); }
{% endmacro %}

{% macro offsets() %}{{ "o_bias: u32, " if BIAS }}{{ "o_out: u32, " if not SPLIT }}{% endmacro %}
{% macro members() %}{% if not SPLIT %}out_row: u32, out_column: u32, {{ "bias_row: u32, bias_column: u32, " if BIAS }}{% endif %}{% endmacro %}

{% macro store(row, column, sum) %}
out_set(p.o_out + batch * p.m * p.n + ({{ row }}) * p.out_row + ({{ column }}) * p.out_column,
    {{ sum }}{{ " + bias_at(p.o_bias + (" ~ row ~ ") * p.bias_row + (" ~ column ~ ") * p.bias_column)" if BIAS }});
{% endmacro %}

{#- A loop keeps kernels small: they contain this code once per four sums. -#}
{% macro for_each_column(column, code) %}
for (var c = 0u; c < 4u && {{ column }} + c < p.n; c++) { {{ code }} }
{% endmacro %}

{% macro store_partial4(row, column, sums) %}
{{ for_each_column(column, "partial[((split * p.count + batch) * p.m + " ~ row ~ ") * p.n + " ~ column ~ " + c] = component(" ~ sums ~ ", c);") }}
{% endmacro %}

{% macro store4(row, column, sums) %}
{% if SPLIT %}
{{ store_partial4(row, column, sums) }}
{% elif OUT_LANES == 4 %}
if ({{ column }} < p.n) {
{% if BIAS %}
    let bias_offset = p.o_bias + {{ row }} * p.bias_row + {{ column }} * p.bias_column;
    let addend = vec4<{{ REAL }}>(bias_at(bias_offset), bias_at(bias_offset + p.bias_column), bias_at(bias_offset + 2u * p.bias_column), bias_at(bias_offset + 3u * p.bias_column));
{% endif %}
    out_set4(p.o_out + (batch * p.m + {{ row }}) * p.n + {{ column }}, {{ sums }}{{ " + addend" if BIAS }});
}
{% else %}
{{ for_each_column(column, store(row, column ~ " + c", "component(" ~ sums ~ ", c)")) }}
{% endif %}
{% endmacro %}
