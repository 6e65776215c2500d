{#- Sums of rows of `source` by index, in index order, so that results are reproducible. A workgroup owns one row of the result and
    LANES * COLUMNS of its columns. It finds the indices equal to its row, one block at a time, as a bit mask, and assigns every
    SUMS-th of them to the same COLUMNS invocations.

  OWN_ROW: the workgroup's number is its row, and the sum replaces the row. Otherwise the workgroup belongs to an index, and works if that
  is the first index of its row; this suits results of many more rows than indices. ACCUMULATE adds to the row, and writes no row
    that no index names. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% set INDEX = INDEX | default("int64") %}
{% set DTYPE = DTYPE | default("float32") %}
{% set LANES = LANES | default(4) %}
{% set GROUP = GROUP | default(256) %}
{% set COLUMNS = COLUMNS | default(32) %}
{% set OWN_ROW = OWN_ROW | default(true) %}
{% set ACCUMULATE = ACCUMULATE | default(false) %}
{% set WRAP = WRAP | default(false) %}
{% set UNROLL = 8 %}
{% set WORDS = GROUP * UNROLL // 32 %}
{% set SUMS = GROUP // COLUMNS %}
{% set T = storage.register(DTYPE) %}
{% set V = "vec4<" ~ T ~ ">" if LANES == 4 else T %}
{% set suffix = "4" if LANES == 4 else "" %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ indices.declare(0, INDEX, storage, WRAP) }}
{{ storage.input(1, "source", DTYPE, LANES) }}
{{ storage.inout(2, "out", DTYPE, LANES) if ACCUMULATE else storage.output(2, "out", DTYPE, LANES) }}
{{ storage.parameters("o_index: u32, o_source: u32, o_out: u32, count: u32, width: u32, rows: u32, owners: u32, tiles: u32,
    index_step: u32, source_row: u32, source_column: u32") }}
var<workgroup> matches: array<atomic<u32>, {{ WORDS }}>;
var<workgroup> partial_sums: array<{{ V }}, {{ GROUP }}>;
{% if not OWN_ROW %}
var<workgroup> earlier: atomic<u32>;
var<workgroup> works: u32;
{% endif %}
{{ storage.main(GROUP) }}
    let owner = group_id / p.tiles;
    if (owner >= p.owners) { return; }
    let sum_id = local_id / {{ COLUMNS }}u;
    let column = ((group_id % p.tiles) * {{ COLUMNS }}u + local_id % {{ COLUMNS }}u) * {{ LANES }}u;
    let in_range = column < p.width;
{% if OWN_ROW %}
    let row = owner;
    let begin = 0u;
{% else %}
    let row = row_at(p.o_index + owner * p.index_step, p.rows);
    let begin = owner;
    if (local_id == 0u) { atomicStore(&earlier, 0u); }
    workgroupBarrier();
    for (var i = local_id; i < owner; i += {{ GROUP }}u) {
        if (row_at(p.o_index + i * p.index_step, p.rows) == row) { atomicStore(&earlier, 1u); }
    }
    workgroupBarrier();
    // Barriers follow, so the exit condition must be provably uniform.
    if (local_id == 0u) { works = u32(row != OUT_OF_RANGE && atomicLoad(&earlier) == 0u); }
    if (workgroupUniformLoad(&works) == 0u) { return; }
{% endif %}
    let source_begin = p.o_source + column{{ " * p.source_column" if LANES == 1 }};
    var sum = {{ V }}();
    var match_count = 0u;
    for (var start = begin; start < p.count; start += {{ GROUP * UNROLL }}u) {
        if (local_id < {{ WORDS }}u) { atomicStore(&matches[local_id], 0u); }
        workgroupBarrier();
        for (var k = 0u; k < {{ GROUP * UNROLL }}u; k += {{ GROUP }}u) {
            let i = start + k + local_id;
            if (i < p.count && row_at(p.o_index + i * p.index_step, p.rows) == row) {
                atomicOr(&matches[(k + local_id) / 32u], 1u << (local_id % 32u));
            }
        }
        workgroupBarrier();
        for (var w = 0u; w < {{ WORDS }}u; w++) {
            var bits = atomicLoad(&matches[w]);
            while (bits != 0u) {
                if (match_count % {{ SUMS }}u == sum_id && in_range) {
                    let i = start + w * 32u + firstTrailingBit(bits);
                    sum += source_at{{ suffix }}(source_begin + i * p.source_row);
                }
                match_count++;
                bits &= bits - 1u;
            }
        }
        workgroupBarrier();
    }
{% if SUMS > 1 %}
    partial_sums[local_id] = sum;
    workgroupBarrier();
    if (sum_id != 0u) { return; }
    for (var s = local_id + {{ COLUMNS }}u; s < {{ GROUP }}u; s += {{ COLUMNS }}u) { sum += partial_sums[s]; }
{% endif %}
    if (in_range{{ " && match_count != 0u" if ACCUMULATE }}) {
        let at = p.o_out + row * p.width + column;
        out_set{{ suffix }}(at, {{ "out_at" ~ suffix ~ "(at) + " if ACCUMULATE }}sum);
    }
}
