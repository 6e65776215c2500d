{#- out[o, a, i] = x[o, index[o, a, i], i], an invocation per element of UNIT bytes; an index outside gives 0. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% import "lib/copy_units.wgsl" as units with context %}
{% set INDEX = INDEX | default("int64") %}
{% set UNIT = UNIT | default(4) %}
{% set GROUP = GROUP | default(64) %}
{{ units.source(0, "x", UNIT, storage) }}
{{ indices.declare(1, INDEX, storage, true) }}
{{ units.target(2, "out", UNIT, storage) }}
{{ storage.parameters("o_x: u32, o_index: u32, o_out: u32, items: u32, picked: u32, inner: u32, length: u32, x_outer: u32, x_axis: u32,
    x_inner: u32, index_outer: u32, index_axis: u32, index_inner: u32") }}
{{ storage.main(GROUP) }}
    let item = group * {{ GROUP }}u + lane;
    if (item >= p.items) { return; }
    let i = item % p.inner;
    let a = item / p.inner % p.picked;
    let o = item / p.inner / p.picked;
    let row = row_at(p.o_index + o * p.index_outer + a * p.index_axis + i * p.index_inner, p.length);
    var value = {{ units.type(UNIT) }}();
    if (row != NOWHERE) { value = x_unit(p.o_x + o * p.x_outer + row * p.x_axis + i * p.x_inner); }
    out_put(p.o_out + item, value);
}
