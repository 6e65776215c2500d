{#- A copy whose source runs along rows and whose target runs along columns, in tiles of 32 x 32 through workgroup memory, so that both
  sides move runs of neighbours. UNIT is a type of the elements' size. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% set UNIT = UNIT | default("u32") %}
{{ storage.enable() }}
{{ storage.scratch(0, "src", UNIT, "read") }}
{{ storage.scratch(1, "dest", UNIT) }}
{{ storage.parameters("source_offset: u32, target_offset: u32, rows: u32, columns: u32, source_step: u32, target_step: u32,
  batch1: u32, source0: u32, source1: u32, target0: u32, target1: u32, tiles: u32") }}
// One more element per row than needed, so that a column is spread over all banks.
var<workgroup> tile: array<{{ UNIT }}, {{ 32 * 33 }}>;
{{ storage.main(256) }}
    if (group >= p.tiles) { return; }
    let down = (p.rows + 31u) / 32u;
    let across = (p.columns + 31u) / 32u;
    let row = (group % down) * 32u;
    let column = (group / down % across) * 32u;
    let batch = group / down / across;
    let from_ = p.source_offset + batch / p.batch1 * p.source0 + batch % p.batch1 * p.source1;
    let to = p.target_offset + batch / p.batch1 * p.target0 + batch % p.batch1 * p.target1;
    let x = lane % 32u;
    let y = lane / 32u;
{% for k in range(4) %}
    if (row + x < p.rows && column + y + {{ 8 * k }}u < p.columns) {
        tile[(y + {{ 8 * k }}u) * 33u + x] = src[from_ + row + x + (column + y + {{ 8 * k }}u) * p.source_step];
    }
{% endfor %}
    workgroupBarrier();
{% for k in range(4) %}
    if (row + y + {{ 8 * k }}u < p.rows && column + x < p.columns) {
        dest[to + (row + y + {{ 8 * k }}u) * p.target_step + column + x] = tile[x * 33u + y + {{ 8 * k }}u];
    }
{% endfor %}
}
