{#- out[o, index[o, a, i], i] += source[o, a, i]. One invocation adds one line (o, i) in order, so that equal indices neither race nor change
    the order of additions. This launch processes positions `first` to `last` of the axis. Indices out of range are skipped. -#}
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
{{ storage.parameters("o_source: u32, o_index: u32, o_out: u32, items: u32, index_length: u32, inner: u32, length: u32, source_outer: u32,
    source_axis: u32, source_inner: u32, index_outer: u32, index_axis: u32, index_inner: u32, first: u32, last: u32") }}
{{ storage.main(GROUP) }}
    let line = group_id * {{ GROUP }}u + local_id;
    if (line >= p.items) { return; }
    let i = line % p.inner;
    let o = line / p.inner;
    let source_line = p.o_source + o * p.source_outer + i * p.source_inner;
    let index_line = p.o_index + o * p.index_outer + i * p.index_inner;
    let out_line = p.o_out + o * p.length * p.inner + i;
    for (var a = p.first; a < p.last; a++) {
        let row = row_at(index_line + a * p.index_axis, p.length);
        if (row != OUT_OF_RANGE) {
            let at = out_line + row * p.inner;
            out_set(at, out_at(at) + source_at(source_line + a * p.source_axis));
        }
    }
}
