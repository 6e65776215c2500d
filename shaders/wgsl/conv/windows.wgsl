{#- Convolutions and their gradients as products of a matrix `a` and windows of images `x`: the operands of an implicit GEMM. Import it
    `with context`:

  Terms (axis k) and columns (axis n) are multi-indices of three digits: (channel, tap row, tap column) and (image, row, column), in one
  order or the other. Both shift a window linearly: element (term, column) of the right operand is the pixel at the sum of their
  offsets, or 0 outside the image. Term t of row r of the left operand lies at a linear offset too. So one kernel serves all three
  ops; see `Correlation` in backends/common/problems/conv.py.

  `declare(storage, sums)` declares the buffers, the parameters and the functions below; `columns(first, name, sums)` declares where
  columns lie in the output, and `store4(row, column, name, sums)` stores four neighbours in a row. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set REAL = REAL | default("f32") %}

{% macro declare(storage, sums) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "a", DTYPE) }}
{{ storage.input(1, "x", DTYPE) }}
{{ sums.declare(2, storage) }}
{% set members %}
o_a: u32, o_x: u32, {{ sums.offsets() }}
m: u32, n: u32, k: u32, split_length: u32, count: u32, a_group: u32, a_row: u32, a_term0: u32, a_term1: u32, a_term2: u32,
x_group: u32, x_term: u32, x_column: u32, x_down: u32, x_across: u32,
term_lengths: u32, column_lengths: u32, term_step: u32, column_step: u32, origin: u32, size: u32,
{% if not sums.SPLIT %}
out_group: u32, out_row: u32, out_column0: u32, out_column1: u32, out_column2: u32,
{% endif %}
{% endset %}
{{ storage.parameters(members) }}
// A pair of 16-bit numbers per parameter: (down, across).
fn down_of(pair: u32) -> u32 { return pair & 0xffffu; }
fn across_of(pair: u32) -> u32 { return pair >> 16u; }
fn signed(pair: u32) -> vec2<i32> { return vec2<i32>(bitcast<i32>(pair << 16u) >> 16u, bitcast<i32>(pair) >> 16u); }

fn multi_index(number: u32, lengths: u32) -> vec3<u32> {
    let rest = number / across_of(lengths);
    return vec3<u32>(rest / down_of(lengths), rest % down_of(lengths), number % across_of(lengths));
}
// Adds two multi-indices, with carries.
fn advance(term: vec3<u32>, step: vec3<u32>) -> vec3<u32> {
    let low = term.z + step.z;
    let low_carry = low >= across_of(p.term_lengths);
    let middle = term.y + step.y + select(0u, 1u, low_carry);
    let middle_carry = middle >= down_of(p.term_lengths);
    return vec3<u32>(
        term.x + step.x + select(0u, 1u, middle_carry),
        middle - select(0u, down_of(p.term_lengths), middle_carry),
        low - select(0u, across_of(p.term_lengths), low_carry));
}
struct Window { at: u32, y: i32, x: i32 }
fn window_at(at: u32, position: vec2<i32>) -> Window {
    return Window(at + bitcast<u32>(position.x) * p.x_down + bitcast<u32>(position.y) * p.x_across, position.x, position.y);
}
fn window_of_column(batch: u32, column: u32) -> Window {
    let d = multi_index(min(column, p.n - 1u), p.column_lengths);
    return window_at(p.o_x + batch * p.x_group + d.x * p.x_column, signed(p.column_step) * vec2<i32>(d.yz) + signed(p.origin));
}
fn window_of_term(d: vec3<u32>) -> Window { return window_at(d.x * p.x_term, signed(p.term_step) * vec2<i32>(d.yz)); }
fn load_pixel(column: Window, term: Window, valid: bool) -> {{ REAL }} {
    let inside = bitcast<u32>(column.y + term.y) < down_of(p.size) && bitcast<u32>(column.x + term.x) < across_of(p.size);
    var value = {{ REAL }}();
    if (valid && inside) { value = x_at(column.at + term.at); }
    return value;
}
fn left_row_offset(batch: u32, row: u32) -> u32 { return p.o_a + batch * p.a_group + min(row, p.m - 1u) * p.a_row; }
fn left_term_offset(d: vec3<u32>) -> u32 { return d.x * p.a_term0 + d.y * p.a_term1 + d.z * p.a_term2; }
{% if not sums.SPLIT %}
fn offset_component(v: vec4<u32>, c: u32) -> u32 { return select(select(v.x, v.y, c == 1u), select(v.z, v.w, c == 3u), c >= 2u); }
fn out_column_offset(batch: u32, column: u32) -> u32 {
    let d = multi_index(column, p.column_lengths);
    return p.o_out + batch * p.out_group + d.x * p.out_column0 + d.y * p.out_column1 + d.z * p.out_column2;
}
{% endif %}
{% endmacro %}

{% macro columns(first, name, sums) %}
{% if sums.OUT_LANES == 4 and not sums.SPLIT %}
    let {{ name }} = out_column_offset(batch, {{ first }});
{% elif not sums.SPLIT %}
    let {{ name }} = vec4<u32>({% for c in range(4) %}out_column_offset(batch, {{ first }} + {{ c }}u){{ ", " if c < 3 }}{% endfor %});
{% endif %}
{% endmacro %}

{% macro store4(row, column, name, sums) %}
{% if sums.SPLIT %}
{{ sums.store_partial4(row, column, "sum") }}
{% else %}
let value = sum{{ " + vec4<" ~ REAL ~ ">(bias_at(p.o_bias + batch * p.m + " ~ row ~ "))" if sums.BIAS }};
{% if sums.OUT_LANES == 4 %}
if ({{ column }} < p.n) { out_set4({{ name }} + {{ row }} * p.out_row, value); }
{% else %}
{{ sums.for_each_column(column, "out_set(offset_component(" ~ name ~ ", c) + " ~ row ~ " * p.out_row, component(value, c));") }}
{% endif %}
{% endif %}
{% endmacro %}
