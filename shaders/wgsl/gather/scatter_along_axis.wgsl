{#- out[o, index[o, a, i], i] += source[o, a, i]. An invocation adds up one line, in order, so that equal numbers neither race nor change
    the order of additions. This launch takes the numbers from place `first` to `last`. An index outside is skipped. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% set INDEX = INDEX | default("int64") %}
{% set DTYPE = DTYPE | default("float32") %}
{% set GROUP = GROUP | default(64) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "source", DTYPE) }}
{{ indices.declare(1, INDEX, storage, true) }}
{{ storage.inout(2, "out", DTYPE) }}
{{ storage.parameters("o_source: u32, o_index: u32, o_out: u32, items: u32, picked: u32, inner: u32, length: u32, source_outer: u32,
    source_axis: u32, source_inner: u32, index_outer: u32, index_axis: u32, index_inner: u32, first: u32, last: u32") }}
{{ storage.main(GROUP) }}
    let line = group * {{ GROUP }}u + lane;
    if (line >= p.items) { return; }
    let i = line % p.inner;
    let o = line / p.inner;
    let from_line = p.o_source + o * p.source_outer + i * p.source_inner;
    let index_line = p.o_index + o * p.index_outer + i * p.index_inner;
    let out_line = p.o_out + o * p.length * p.inner + i;
    for (var a = p.first; a < p.last; a++) {
        let row = row_at(index_line + a * p.index_axis, p.length);
        if (row != NOWHERE) {
            let place = out_line + row * p.inner;
            out_set(place, out_at(place) + source_at(from_line + a * p.source_axis));
        }
    }
}
