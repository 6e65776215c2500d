{#- out[o, a, i] = x[o, index[o, a, i], i], one invocation per element of BYTES bytes; an index out of range gives 0. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% import "lib/raw_elements.wgsl" as raw with context %}
{% set INDEX = INDEX | default("int64") %}
{% set BYTES = BYTES | default(4) %}
{% set GROUP = GROUP | default(64) %}
{{ raw.source(0, "x", BYTES, storage) }}
{{ indices.declare(1, INDEX, storage, true) }}
{{ raw.target(2, "out", BYTES, storage) }}
{{ storage.parameters("o_x: u32, o_index: u32, o_out: u32, items: u32, index_length: u32, inner: u32, length: u32, x_outer: u32, x_axis: u32,
    x_inner: u32, index_outer: u32, index_axis: u32, index_inner: u32") }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.items) { return; }
    let i = item % p.inner;
    let a = item / p.inner % p.index_length;
    let o = item / p.inner / p.index_length;
    let row = row_at(p.o_index + o * p.index_outer + a * p.index_axis + i * p.index_inner, p.length);
    var value = {{ raw.type(BYTES) }}();
    if (row != OUT_OF_RANGE) { value = x_load(p.o_x + o * p.x_outer + row * p.x_axis + i * p.x_inner); }
    out_store(p.o_out + item, value);
}
