{#- out[index[i], :] += source[i, :] in index order, one invocation per column: for devices on which starting a workgroup costs more than
    scanning all indices. This launch processes the indices from number `first` to `last`. Indices out of range are skipped. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% set INDEX = INDEX | default("int64") %}
{% set DTYPE = DTYPE | default("float32") %}
{% set GROUP = GROUP | default(64) %}
{% set WRAP = WRAP | default(false) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ indices.declare(0, INDEX, storage, WRAP) }}
{{ storage.input(1, "source", DTYPE) }}
{{ storage.inout(2, "out", DTYPE) }}
{{ storage.parameters("o_index: u32, o_source: u32, o_out: u32, width: u32, rows: u32, index_step: u32, source_row: u32,
    source_column: u32, first: u32, last: u32") }}
{{ storage.main(GROUP) }}
    let column = group_id * {{ GROUP }}u + local_id;
    if (column >= p.width) { return; }
    let source_begin = p.o_source + column * p.source_column;
    for (var i = p.first; i < p.last; i++) {
        let row = row_at(p.o_index + i * p.index_step, p.rows);
        if (row != OUT_OF_RANGE) {
            let at = p.o_out + row * p.width + column;
            out_set(at, out_at(at) + source_at(source_begin + i * p.source_row));
        }
    }
}
