{#- Sums of rows of `source` by index, in the order of the index, so that results do not vary. A group owns one row of the result and
    LANES * COLUMNS of its columns. It finds the indices that name its row, a block at a time, as bits in words, and hands every
    SLOTS-th of them to the same COLUMNS invocations.

  BY_ROWS: the group's number is its row, and the sum replaces the row. Otherwise it is the place of the row's first index, which leaves
  groups with nothing to do but serves results of many rows. ACCUMULATE adds to the row. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% set INDEX = INDEX | default("int64") %}
{% set DTYPE = DTYPE | default("float32") %}
{% set LANES = LANES | default(4) %}
{% set GROUP = GROUP | default(256) %}
{% set COLUMNS = COLUMNS | default(32) %}
{% set BY_ROWS = BY_ROWS | default(true) %}
{% set ACCUMULATE = ACCUMULATE | default(false) %}
{% set WRAP = WRAP | default(false) %}
{% set EACH = 8 %}
{% set WORDS = GROUP * EACH // 32 %}
{% set SLOTS = GROUP // COLUMNS %}
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
var<workgroup> parts: array<{{ V }}, {{ GROUP }}>;
{% if not BY_ROWS %}
var<workgroup> earlier: atomic<u32>;
{% endif %}
{{ storage.main(GROUP) }}
    let owner = group / p.tiles;
    if (owner >= p.owners) { return; }
    let slot = lane / {{ COLUMNS }}u;
    let column = ((group % p.tiles) * {{ COLUMNS }}u + lane % {{ COLUMNS }}u) * {{ LANES }}u;
    let inside = column < p.width;
{% if BY_ROWS %}
    let row = owner;
    let begin = 0u;
{% else %}
    let row = row_at(p.o_index + owner * p.index_step, p.rows);
    let begin = owner;
    if (lane == 0u) { atomicStore(&earlier, 0u); }
    workgroupBarrier();
    for (var i = lane; i < owner; i += {{ GROUP }}u) {
        if (row_at(p.o_index + i * p.index_step, p.rows) == row) { atomicStore(&earlier, 1u); }
    }
    workgroupBarrier();
    if (row == NOWHERE || atomicLoad(&earlier) != 0u) { return; }
{% endif %}
    let from_column = p.o_source + column{{ " * p.source_column" if LANES == 1 }};
    var sum = {{ V }}();
    var turn = 0u;
    for (var start = begin; start < p.count; start += {{ GROUP * EACH }}u) {
        if (lane < {{ WORDS }}u) { atomicStore(&matches[lane], 0u); }
        workgroupBarrier();
        for (var k = 0u; k < {{ GROUP * EACH }}u; k += {{ GROUP }}u) {
            let i = start + k + lane;
            if (i < p.count && row_at(p.o_index + i * p.index_step, p.rows) == row) {
                atomicOr(&matches[(k + lane) / 32u], 1u << (lane % 32u));
            }
        }
        workgroupBarrier();
        for (var w = 0u; w < {{ WORDS }}u; w++) {
            var bits = atomicLoad(&matches[w]);
            while (bits != 0u) {
                if (turn % {{ SLOTS }}u == slot && inside) {
                    let i = start + w * 32u + firstTrailingBit(bits);
                    sum += source_at{{ suffix }}(from_column + i * p.source_row);
                }
                turn++;
                bits &= bits - 1u;
            }
        }
        workgroupBarrier();
    }
{% if SLOTS > 1 %}
    parts[lane] = sum;
    workgroupBarrier();
    if (slot != 0u) { return; }
    for (var s = lane + {{ COLUMNS }}u; s < {{ GROUP }}u; s += {{ COLUMNS }}u) { sum += parts[s]; }
{% endif %}
    if (inside) {
        let place = p.o_out + row * p.width + column;
        out_set{{ suffix }}(place, {{ "out_at" ~ suffix ~ "(place) + " if ACCUMULATE }}sum);
    }
}
