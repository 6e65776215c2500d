{#- A copy whose source is contiguous along rows and whose target is contiguous along columns, in tiles of 32 x 32 in workgroup memory, so
  that both sides are accessed contiguously. ELEMENT is any type of the elements' size, GROUP a multiple of 32. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% set ELEMENT = ELEMENT | default("u32") %}
{% set GROUP = GROUP | default(256) %}
{% set DOWN = GROUP // 32 %}
{{ storage.enable() }}
{{ storage.scratch(0, "src", ELEMENT, "read") }}
{{ storage.scratch(1, "dest", ELEMENT) }}
{{ storage.parameters("o_src: u32, o_dest: u32, rows: u32, columns: u32, source_step: u32, target_step: u32,
  batch1: u32, source0: u32, source1: u32, target0: u32, target1: u32, tiles: u32") }}
// Rows are padded by one element to avoid bank conflicts along columns.
var<workgroup> tile: array<{{ ELEMENT }}, {{ 32 * 33 }}>;
{{ storage.main(GROUP) }}
    if (group_id >= p.tiles) { return; }
    let down = (p.rows + 31u) / 32u;
    let across = (p.columns + 31u) / 32u;
    let row = (group_id % down) * 32u;
    let column = (group_id / down % across) * 32u;
    let batch = group_id / down / across;
    let source_begin = p.o_src + batch / p.batch1 * p.source0 + batch % p.batch1 * p.source1;
    let dest_begin = p.o_dest + batch / p.batch1 * p.target0 + batch % p.batch1 * p.target1;
    let x = local_id % 32u;
    let y = local_id / 32u;
{% for k in range(32 // DOWN) %}
    if (row + x < p.rows && column + y + {{ DOWN * k }}u < p.columns) {
        tile[(y + {{ DOWN * k }}u) * 33u + x] = src[source_begin + row + x + (column + y + {{ DOWN * k }}u) * p.source_step];
    }
{% endfor %}
    workgroupBarrier();
{% for k in range(32 // DOWN) %}
    if (row + y + {{ DOWN * k }}u < p.rows && column + x < p.columns) {
        dest[dest_begin + (row + y + {{ DOWN * k }}u) * p.target_step + column + x] = tile[x * 33u + y + {{ DOWN * k }}u];
    }
{% endfor %}
}
