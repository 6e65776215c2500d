{#- Replaces rows of tensors (outer, inner, capacity, width), from row `positions[i]` on in sequence i of `outer`, by the `rows` rows of `value`, which may
    have any strides: one invocation per element of BYTES bytes. Rows out of range are skipped. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/raw_elements.wgsl" as raw with context %}
{% set BYTES = BYTES | default(4) %}
{% set GROUP = GROUP | default(64) %}
{{ raw.source(0, "value", BYTES, storage) }}
{{ storage.scratch(1, "positions", "i32", "read") }}
{{ raw.target(2, "out", BYTES, storage) }}
{{ storage.parameters("o_value: u32, o_positions: u32, o_out: u32, position_step: u32, items: u32, rows: u32, width: u32, capacity: u32, inner: u32,
    outer_stride: u32, inner_stride: u32, row_stride: u32, column_stride: u32") }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.items) { return; }
    let column = item % p.width;
    let row = item / p.width % p.rows;
    let batch = item / p.width / p.rows;
    let at = positions[p.o_positions + batch / p.inner * p.position_step] + i32(row);
    if (at < 0 || at >= i32(p.capacity)) { return; }
    let source = batch / p.inner * p.outer_stride + batch % p.inner * p.inner_stride + row * p.row_stride + column * p.column_stride;
    out_store(p.o_out + (batch * p.capacity + u32(at)) * p.width + column, value_load(p.o_value + source));
}
