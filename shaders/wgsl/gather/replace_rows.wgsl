{#- Row update: out[index[i], :] = source[i, :], in the memory of `out`, elements of BYTES bytes. Where several indices name a row, the
    last one wins, unless DISTINCT promises that none do: each invocation then reads all later indices. `source` may have any strides.
    Indices out of range are skipped; with WRAP, negative ones count from the end. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% import "lib/raw_elements.wgsl" as raw with context %}
{% set INDEX = INDEX | default("int64") %}
{% set BYTES = BYTES | default(4) %}
{% set GROUP = GROUP | default(64) %}
{% set WRAP = WRAP | default(false) %}
{% set DISTINCT = DISTINCT | default(false) %}
{{ indices.declare(0, INDEX, storage, WRAP) }}
{{ raw.source(1, "source", BYTES, storage) }}
{{ raw.target(2, "out", BYTES, storage) }}
{{ storage.parameters("o_index: u32, o_source: u32, o_out: u32, items: u32, count: u32, width: u32, rows: u32, index_step: u32,
    source_row: u32, source_column: u32") }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.items) { return; }
    let i = item / p.width;
    let column = item % p.width;
    let row = row_at(p.o_index + i * p.index_step, p.rows);
    if (row == OUT_OF_RANGE) { return; }
{% if not DISTINCT %}
    for (var j = i + 1u; j < p.count; j++) {
        if (row_at(p.o_index + j * p.index_step, p.rows) == row) { return; }
    }
{% endif %}
    out_store(p.o_out + row * p.width + column, source_load(p.o_source + i * p.source_row + column * p.source_column));
}
