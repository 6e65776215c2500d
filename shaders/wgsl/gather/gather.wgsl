{#- out[i, :] = x[index[i], :], one invocation per BYTES bytes. x holds `rows` rows, from row `first` on, of a table of `length` rows. The launch
    for the first part of a table (`writes_zeros`) also writes zeros for indices outside the table or outside this part. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% import "lib/raw_elements.wgsl" as raw with context %}
{% set INDEX = INDEX | default("int64") %}
{% set ITEM = ITEM | default(4) %}
{% set BYTES = BYTES | default(16) %}
{% set GROUP = GROUP | default(64) %}
{{ indices.declare(0, INDEX, storage) }}
{{ raw.source(1, "x", BYTES, storage) }}
{{ raw.target(2, "out", BYTES, storage) }}
{{ storage.parameters("o_index: u32, o_x: u32, o_out: u32, items: u32, width: u32, length: u32, first: u32, rows: u32, writes_zeros: u32,
    index_step: u32, x_row: u32, x_column: u32") }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.items) { return; }
    let i = item / p.width;
    let row = row_at(p.o_index + i * p.index_step, p.length) - p.first;
    let out_element = p.o_out / {{ BYTES // ITEM }}u + item;
    if (row < p.rows) {
        out_store(out_element, x_load(p.o_x / {{ BYTES // ITEM }}u + row * p.x_row + (item - i * p.width) * p.x_column));
    } else if (p.writes_zeros != 0u) {
        out_store(out_element, {{ raw.type(BYTES) }}());
    }
}
