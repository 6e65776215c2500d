{#- out[index[i], :] += source[i, :], in the order of the index, for devices on which starting a group costs more than walking all
    indices: an invocation owns one column. This launch takes those from number `first` to `last`. An index outside is skipped. -#}
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
    let column = group * {{ GROUP }}u + lane;
    if (column >= p.width) { return; }
    let from_column = p.o_source + column * p.source_column;
    for (var i = p.first; i < p.last; i++) {
        let row = row_at(p.o_index + i * p.index_step, p.rows);
        if (row != NOWHERE) {
            let place = p.o_out + row * p.width + column;
            out_set(place, out_at(place) + source_at(from_column + i * p.source_row));
        }
    }
}
