{#- Rows of a tensor (outer, capacity, width) replaced from row `position` on by those of `value`, of `rows` rows and any layout, an
    invocation per element of UNIT bytes. Rows that have no place are left out. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/copy_units.wgsl" as units with context %}
{% set UNIT = UNIT | default(4) %}
{% set GROUP = GROUP | default(64) %}
{{ units.source(0, "value", UNIT, storage) }}
{{ units.target(1, "out", UNIT, storage) }}
{{ storage.parameters("o_value: u32, o_out: u32, position: i32, items: u32, rows: u32, width: u32, capacity: u32, inner: u32,
    outer_step: u32, inner_step: u32, row_step: u32, step: u32") }}
{{ storage.main(GROUP) }}
    let item = group * {{ GROUP }}u + lane;
    if (item >= p.items) { return; }
    let column = item % p.width;
    let row = item / p.width % p.rows;
    let batch = item / p.width / p.rows;
    let at = p.position + i32(row);
    if (at < 0 || at >= i32(p.capacity)) { return; }
    let source = batch / p.inner * p.outer_step + batch % p.inner * p.inner_step + row * p.row_step + column * p.step;
    out_put(p.o_out + (batch * p.capacity + u32(at)) * p.width + column, value_unit(p.o_value + source));
}
