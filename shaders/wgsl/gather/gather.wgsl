{#- out[i, :] = x[index[i], :], an invocation per unit of UNIT bytes. x is the part of a table of `length` rows that begins at row
    `first`; the launch of the first part (`fresh`) gives a row of zeros where an index is outside of the table or of the part. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% import "lib/copy_units.wgsl" as units with context %}
{% set INDEX = INDEX | default("int64") %}
{% set ITEM = ITEM | default(4) %}
{% set UNIT = UNIT | default(16) %}
{% set GROUP = GROUP | default(64) %}
{{ indices.declare(0, INDEX, storage) }}
{{ units.source(1, "x", UNIT, storage) }}
{{ units.target(2, "out", UNIT, storage) }}
{{ storage.parameters("o_index: u32, o_x: u32, o_out: u32, items: u32, width: u32, length: u32, first: u32, rows: u32, fresh: u32,
    index_step: u32, x_row: u32, x_column: u32") }}
{{ storage.main(GROUP) }}
    let item = group * {{ GROUP }}u + lane;
    if (item >= p.items) { return; }
    let i = item / p.width;
    let row = row_at(p.o_index + i * p.index_step, p.length) - p.first;
    let target_unit = p.o_out / {{ UNIT // ITEM }}u + item;
    if (row < p.rows) {
        out_put(target_unit, x_unit(p.o_x / {{ UNIT // ITEM }}u + row * p.x_row + (item - i * p.width) * p.x_column));
    } else if (p.fresh != 0u) {
        out_put(target_unit, {{ units.type(UNIT) }}());
    }
}
