{#- The copy of pointwise/transpose_local.wgsl for CPUs: each invocation transposes a block of SIZE x SIZE in registers, because caches make
  workgroup memory unnecessary. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% set ELEMENT = ELEMENT | default("u32") %}
{% set SIZE = SIZE | default(4) %}
{{ storage.enable() }}
{{ storage.scratch(0, "src", ELEMENT, "read") }}
{{ storage.scratch(1, "dest", ELEMENT) }}
{{ storage.parameters("o_src: u32, o_dest: u32, rows: u32, columns: u32, source_step: u32, target_step: u32,
  batch1: u32, source0: u32, source1: u32, target0: u32, target1: u32, tiles: u32") }}
{{ storage.main(64) }}
    let block = group_id * 64u + local_id;
    if (block >= p.tiles) { return; }
    let down = (p.rows + {{ SIZE - 1 }}u) / {{ SIZE }}u;
    let across = (p.columns + {{ SIZE - 1 }}u) / {{ SIZE }}u;
    let row = (block % down) * {{ SIZE }}u;
    let column = (block / down % across) * {{ SIZE }}u;
    let batch = block / down / across;
    let source_begin = p.o_src + batch / p.batch1 * p.source0 + batch % p.batch1 * p.source1 + row + column * p.source_step;
    let dest_begin = p.o_dest + batch / p.batch1 * p.target0 + batch % p.batch1 * p.target1 + row * p.target_step + column;
    if (row + {{ SIZE }}u <= p.rows && column + {{ SIZE }}u <= p.columns) {
{% for c in range(SIZE) %}{% for r in range(SIZE) %}
        let v{{ r }}_{{ c }} = src[source_begin + {{ r }}u + {{ c }}u * p.source_step];
{% endfor %}{% endfor %}
{% for r in range(SIZE) %}{% for c in range(SIZE) %}
        dest[dest_begin + {{ r }}u * p.target_step + {{ c }}u] = v{{ r }}_{{ c }};
{% endfor %}{% endfor %}
    } else {
        for (var r = 0u; r < min({{ SIZE }}u, p.rows - row); r++) {
            for (var c = 0u; c < min({{ SIZE }}u, p.columns - column); c++) {
                dest[dest_begin + r * p.target_step + c] = src[source_begin + r + c * p.source_step];
            }
        }
    }
}
