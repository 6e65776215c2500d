{#- Few rows of x times quantised weights in tiles of 16 rows: out[m, n] = sum over k of x[m, k] w[n, k]. A workgroup computes a tile of 16
    columns for ROWS rows of x: 16 neighbours read neighbouring words, and SLICES of them divide the terms, UNROLL spans in flight each.
    CHUNK terms of x at a time are in workgroup memory, where the sums of the slices are added at the end. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set ROWS = ROWS | default(1) %}
{% set SLICES = SLICES | default(16) %}
{% set UNROLL = UNROLL | default(1) %}
{% set CHUNK = CHUNK | default(2048) %}
{% set X_LANES = X_LANES | default(1) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/block_decoder.wgsl" as decoder with context %}
{% set TILE = decoder.TILE %}
{% set GROUP = TILE * SLICES %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE, X_LANES) }}
{{ decoder.declare(1, storage) }}
{{ storage.output(2, "out", DTYPE) }}
{{ storage.parameters("o_x: u32, o_blocks: u32, o_out: u32, x_row: u32, rows: u32, n: u32, k: u32") }}
var<workgroup> staged: array<vec4<f32>, {{ ROWS * CHUNK // 4 }}>;
{{ storage.main(GROUP) }}
    let tiles = p.n / {{ TILE }}u;
    let tile = group_id % tiles;
    let first_row = group_id / tiles * {{ ROWS }}u;
    if (first_row >= p.rows) { return; }
    let row = local_id % {{ TILE }}u;
    let slice = local_id / {{ TILE }}u;
{% for m in range(ROWS) %}
    var sum{{ m }} = 0.0f;
{% endfor %}
    for (var first = 0u; first < p.k; first += {{ CHUNK }}u) {
        workgroupBarrier();
        for (var i = local_id; i < {{ ROWS * CHUNK // 4 }}u; i += {{ GROUP }}u) {
            let m = first_row + i / {{ CHUNK // 4 }}u;
            let term = first + i % {{ CHUNK // 4 }}u * 4u;
            var four = vec4<f32>();
            if (m < p.rows && term < p.k) { four = x_at4(p.o_x + m * p.x_row + term); }
            staged[i] = four;
        }
        workgroupBarrier();
        let first_span = first / {{ decoder.SPAN }}u;
        let spans = min({{ CHUNK }}u, p.k - first) / {{ decoder.SPAN }}u;
        for (var span = slice; span < spans; span += {{ SLICES * UNROLL }}u) {
{% for u in range(UNROLL) %}
            let at{{ u }} = min(span + {{ u * SLICES }}u, spans - 1u);
            let number{{ u }} = first_span + at{{ u }};
            let block{{ u }} = {{ decoder.block("tile", "number" ~ u ~ " / " ~ decoder.SPANS ~ "u", "p.k / " ~ decoder.SPAN * decoder.SPANS ~ "u") }};
{{ decoder.load("a" ~ u, "block" ~ u, "row", "number" ~ u ~ " % " ~ decoder.SPANS ~ "u") }}
{% endfor %}
{% for u in range(UNROLL) %}
{% set quads = 8 // decoder.PARTS %}
{% for part in range(decoder.PARTS) %}
            {
{% for m in range(ROWS) %}
                var products{{ m }} = vec4<f32>();
{% endfor %}
{% for q in range(part * quads, (part + 1) * quads) %}
                let w{{ q }} = {{ decoder.weights("a" ~ u, q) if decoder.LEASTS else decoder.values("a" ~ u, q) }};
{% for m in range(ROWS) %}
                products{{ m }} = fma(w{{ q }}, staged[at{{ u }} * 8u + {{ m * CHUNK // 4 + q }}u], products{{ m }});
{% endfor %}
{% endfor %}
{% for m in range(ROWS) %}
                let product{{ m }} = ((products{{ m }}.x + products{{ m }}.y) + (products{{ m }}.z + products{{ m }}.w)){% if not decoder.LEASTS %} * {{ decoder.scale("a" ~ u, part) }}{% endif %};
                sum{{ m }} += {{ "select(0.0f, product" ~ m ~ ", span + " ~ u * SLICES ~ "u < spans)" if u else "product" ~ m }};
{% endfor %}
            }
{% endfor %}
{% endfor %}
        }
    }
    workgroupBarrier();
{% for m in range(ROWS) %}
    staged[{{ m * GROUP // 4 }}u + (local_id >> 2u)][local_id & 3u] = sum{{ m }};
{% endfor %}
    workgroupBarrier();
{#- Four sums to one at a time, or two to one at the end, until one per column is left. -#}
{% set ns = namespace(size=GROUP) %}
{% for stage in range(8) if ns.size > TILE %}
{% set parts = 4 if ns.size >= 4 * TILE else 2 %}
{% set ns.size = ns.size // parts %}
    if (local_id < {{ ns.size }}u) {
        let quad = local_id >> 2u;
{% for m in range(ROWS) %}
        staged[{{ m * GROUP // 4 }}u + quad][local_id & 3u] = {% for i in range(parts) %}{{ " + " if i }}staged[{{ (m * GROUP + i * ns.size) // 4 }}u + quad][local_id & 3u]{% endfor %};
{% endfor %}
    }
    workgroupBarrier();
{% endfor %}
    for (var i = local_id; i < {{ TILE * ROWS }}u; i += {{ GROUP }}u) {
        let m = i / {{ TILE }}u;
        let at = m * {{ GROUP }}u + i % {{ TILE }}u;
        if (first_row + m < p.rows) { out_set(p.o_out + (first_row + m) * p.n + tile * {{ TILE }}u + i % {{ TILE }}u, staged[at >> 2u][at & 3u]); }
    }
}
