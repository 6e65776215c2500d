{#- Pairs of features rotated by angles that depend on the position: one pair per invocation, `size` of them. `x` (b0, b1, rows, 2 half) and
    the tables of cosines and sines (broadcast, half) may have any strides; `out` is contiguous. With INTERLEAVED, neighbouring features
    are pairs. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set TABLE_DTYPE = TABLE_DTYPE | default("float32") %}
{% set INTERLEAVED = INTERLEAVED | default(false) %}
{% set GROUP = GROUP | default(64) %}
{% import "lib/storage.wgsl" as storage with context %}
{% set TENSORS = ("x", "cosines", "sines") %}
{% macro strides(name) %}{{ name }}_b0: u32, {{ name }}_b1: u32, {{ name }}_row: u32, {{ name }}_column: u32, {% endmacro %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE) }}
{{ storage.input(1, "cosines", TABLE_DTYPE) }}
{{ storage.input(2, "sines", TABLE_DTYPE) }}
{{ storage.output(3, "out", DTYPE) }}
{{ storage.parameters("o_x: u32, o_cosines: u32, o_sines: u32, o_out: u32, size: u32, half_: u32, rows: u32, b1: u32, "
   ~ strides("x") ~ strides("cosines") ~ strides("sines")) }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.size) { return; }
    let pair = item % p.half_;
    let line = item / p.half_;
    let row = line % p.rows;
    let i1 = line / p.rows % p.b1;
    let i0 = line / p.rows / p.b1;
{% for name in TENSORS %}
    let {{ name }}_line = p.o_{{ name }} + i0 * p.{{ name }}_b0 + i1 * p.{{ name }}_b1 + row * p.{{ name }}_row;
{% endfor %}
    let c = cosines_at(cosines_line + pair * p.cosines_column);
    let s = sines_at(sines_line + pair * p.sines_column);
    let first = {{ "2u * pair" if INTERLEAVED else "pair" }};
    let second = first + {{ "1u" if INTERLEAVED else "p.half_" }};
    let a = x_at(x_line + first * p.x_column);
    let b = x_at(x_line + second * p.x_column);
    let to = p.o_out + line * 2u * p.half_;
    out_set(to + first, a * c - b * s);
    out_set(to + second, b * c + a * s);
}
