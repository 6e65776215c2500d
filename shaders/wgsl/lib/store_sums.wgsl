{#- Stores the sums of a matrix product. Import it `with context`:

  - `declare(binding, storage)` declares the bias, if BIAS, the tensors of EPILOGUE, if there is one, and the output as buffers that begin
    at `binding`. EPILOGUE computes its `result` from a sum r_e0 and an element r_NAME of each tensor, which lies like the output if it
    is `placed`, and otherwise has strides for rows and columns; `numbers` are parameters, and `pair` is the name of a second sum. With SPLIT it declares `partial`
    (split, batch, m, n) instead, which gemm/split_k_reduce.wgsl adds up.
  - `members()` are parameters for a matrix as output, `offsets()` those of the buffers.
  - `store(row, column, sum, paired)` stores one sum, and `store4(row, column, sums)` four neighbours in a row, as far as they are in range; both
    use the variables `batch` and `split`. `store_partial4` stores four partial sums, and `for_each_column` runs code for each of four
    columns, with number `c`. -#}
{% set REAL = REAL | default("f32") %}
{% set SPLIT = SPLIT | default(false) %}
{% set BIAS = BIAS | default(false) and not SPLIT %}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default(DTYPE) %}
{% set OUT_LANES = OUT_LANES | default(1) %}
{% set EPILOGUE = EPILOGUE | default({}) %}
{% set TENSORS = EPILOGUE.tensors | default([]) %}

{% macro declare(binding, storage) %}
{% if SPLIT %}
{{ storage.scratch(binding, "partial", REAL) }}
{% else %}
{{ storage.input(binding, "bias", DTYPE) if BIAS }}
{% for t in TENSORS %}
{{ storage.input(binding + loop.index0, t.name, t.dtype, t.lanes) }}
{% endfor %}
{{ storage.output(binding + TENSORS | length + (1 if BIAS else 0), "out", OUT_DTYPE, OUT_LANES) }}
{% endif %}
{% if EPILOGUE %}
{% if EPILOGUE.functions %}{% include "lib/float_functions.wgsl" %}{% endif %}
fn epilogue(r_e0: {{ REAL }}, {{ EPILOGUE.pair ~ ": " ~ REAL ~ ", " if EPILOGUE.pair }}{% for t in TENSORS %}r_{{ t.name }}: {{ REAL }}, {% endfor %}) -> {{ REAL }} {
{% for line in EPILOGUE.compute %}    {{ line }}
{% endfor %}
    return {{ EPILOGUE.result }};
}
{% endif %}
// Dynamic indexing would move the vector out of registers.
fn component(v: vec4<{{ REAL }}>, c: u32) -> {{ REAL }} { return select(select(v.x, v.y, c == 1u), select(v.z, v.w, c == 3u), c >= 2u); }
{% endmacro %}

{% macro offsets() %}{{ "o_bias: u32, " if BIAS }}{{ "o_out: u32, " if not SPLIT }}{% for t in TENSORS %}o_{{ t.name }}: u32, {% endfor %}{% endmacro %}
{% macro members() %}
{%- if not SPLIT %}out_row: u32, out_column: u32, {{ "bias_row: u32, bias_column: u32, " if BIAS }}{% endif %}
{%- for t in TENSORS if not t.placed %}{{ t.name }}_row: u32, {{ t.name }}_column: u32, {% endfor %}
{%- for number in EPILOGUE.numbers | default([]) %}{{ number }}, {% endfor %}
{% endmacro %}

{#- The index of an element of a tensor of the epilogue. -#}
{% macro place(t, row, column) %}
{%- if t.placed -%}
p.o_{{ t.name }} + batch * p.m * p.n + ({{ row }}) * p.out_row + ({{ column }}) * p.out_column
{%- else -%}
p.o_{{ t.name }} + ({{ row }}) * p.{{ t.name }}_row + ({{ column }}) * p.{{ t.name }}_column
{%- endif -%}
{% endmacro %}

{% macro store(row, column, sum, paired="") %}
out_set(p.o_out + batch * p.m * p.n + ({{ row }}) * p.out_row + ({{ column }}) * p.out_column,
{% if EPILOGUE %}
    epilogue({{ sum }}, {{ paired ~ ", " if EPILOGUE.pair }}{% for t in TENSORS %}{{ t.name }}_at({{ place(t, row, column) }}), {% endfor %}));
{% else %}
    {{ sum }}{{ " + bias_at(p.o_bias + (" ~ row ~ ") * p.bias_row + (" ~ column ~ ") * p.bias_column)" if BIAS }});
{% endif %}
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
{% for t in TENSORS %}
{% if t.lanes == 4 %}
    let {{ t.name }}_v = {{ t.name }}_at4({{ place(t, row, column) }});
{% else %}
    let {{ t.name }}_v = vec4<{{ REAL }}>({% for k in range(4) %}{{ ", " if k }}{{ t.name }}_at({{ place(t, row, column ~ " + " ~ k ~ "u") }}){% endfor %});
{% endif %}
{% endfor %}
{% if EPILOGUE %}
    let result = vec4<{{ REAL }}>({% for k in "xyzw" %}epilogue({{ sums }}.{{ k }}, {% for t in TENSORS %}{{ t.name }}_v.{{ k }}, {% endfor %}), {% endfor %});
{% endif %}
    out_set4(p.o_out + (batch * p.m + {{ row }}) * p.n + {{ column }}, {{ "result" if EPILOGUE else sums }}{{ " + addend" if BIAS }});
}
{% else %}
{{ for_each_column(column, store(row, column ~ " + c", "component(" ~ sums ~ ", c)")) }}
{% endif %}
{% endmacro %}
