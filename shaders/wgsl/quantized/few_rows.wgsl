{#- Few rows of x times quantised weights in tiles of 16 rows: out[m, n] = sum over k of x[m, k] w[n, k]. A workgroup computes a tile of 16
    columns for ROWS rows of x: 16 neighbours read neighbouring words, and SLICES of them divide the terms, UNROLL spans in flight each.
    CHUNK terms of x at a time are in workgroup memory, where the sums of the slices are added at the end. The words of the next spans are
    loaded before x is staged and before the current ones are multiplied.

    There are up to three MATRICES of weights: each has columns of the result of its own, or with PAIRS every result has a sum for each of
    two, the second an operand of the epilogue. With NORM, x is multiplied by `scale`, and the sums by the reciprocal root of the
    mean of its squares. -#}
{% set ROWS = ROWS | default(1) %}
{% set SLICES = SLICES | default(16) %}
{% set UNROLL = UNROLL | default(1) %}
{% set CHUNK = CHUNK | default(2048) %}
{% set X_LANES = X_LANES | default(1) %}
{% set MATRICES = MATRICES | default(1) %}
{% set PAIRS = PAIRS | default(false) %}
{% set NORM = NORM | default(false) %}
{% set SCALE_LANES = SCALE_LANES | default(1) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/block_decoder.wgsl" as decoder with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% set TILE = decoder.TILE %}
{% set GROUP = TILE * SLICES %}
{% set SIDES = 2 if PAIRS else 1 %}
{% set SUMS = ROWS * SIDES %}
{% set TOTALS = SUMS + (ROWS if NORM else 0) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "x", sums.DTYPE, X_LANES) }}
{{ decoder.declare(1, storage, MATRICES) }}
{{ storage.input(1 + MATRICES, "scale", sums.DTYPE, SCALE_LANES) if NORM }}
{{ sums.declare(1 + MATRICES + (1 if NORM else 0), storage) }}
{% set members %}
o_x: u32, {% for i in range(MATRICES) %}o_blocks{{ i or "" }}: u32, {% endfor %}{{ "o_scale: u32, " if NORM }}{{ sums.offsets() }}
{% for i in range(1, MATRICES) if not PAIRS %}first{{ i }}: u32, {% endfor %}{{ "eps: f32, " if NORM }}x_row: u32, m: u32, n: u32, k: u32, {{ sums.members() }}
{% endset %}
{{ storage.parameters(members) }}
var<workgroup> staged: array<vec4<f32>, {{ [ROWS * CHUNK, TOTALS * GROUP] | max // 4 }}>;
{#- Codes are multiplied as they are; `zero` of a format then subtracts a multiple of the sum of x. -#}
{% set SHIFTED = decoder.ZERO and not decoder.LEASTS %}
{% if SHIFTED %}
var<workgroup> sums_of_four: array<vec4<f32>, {{ ROWS * CHUNK // 16 }}>;
{% endif %}
{#- Loads the words of the UNROLL spans from `span` on, of a tile of each of `matrices`. -#}
{% macro load_spans(matrices, tile, span) %}
{% for u in range(UNROLL) %}
            let number{{ u }} = first_span + min({{ span }} + {{ u * SLICES }}u, spans - 1u);
{% for i in matrices %}
            let block{{ u }}_{{ i }} = {{ decoder.block(tile, "number" ~ u ~ " / " ~ decoder.SPANS ~ "u", "p.k / " ~ decoder.SPAN * decoder.SPANS ~ "u", i or "") }};
{{ decoder.load_words("next" ~ u ~ "_" ~ loop.index0, "block" ~ u ~ "_" ~ i, "row", "number" ~ u ~ " % " ~ decoder.SPANS ~ "u", i or "") }}
{% endfor %}
{% endfor %}
{% endmacro %}
{#- The same for the matrices of this workgroup's columns. -#}
{% macro load_next(span) %}
{% if MATRICES == 1 or PAIRS %}
{{ load_spans(range(MATRICES), "tile", span) }}
{% else %}
{% for i in range(MATRICES - 1, 0, -1) %}
        {{ "} else " if not loop.first }}if (tile * {{ TILE }}u >= p.first{{ i }}) {
{{ load_spans([i], "(tile - p.first" ~ i ~ " / " ~ TILE ~ "u)", span) }}
{% endfor %}
        } else {
{{ load_spans([0], "tile", span) }}
        }
{% endif %}
{% endmacro %}
{{ storage.main(GROUP) }}
    let tiles = p.n / {{ TILE }}u;
    let tile = group_id % tiles;
    let first_row = group_id / tiles * {{ ROWS }}u;
    if (first_row >= p.m) { return; }
    let row = local_id % {{ TILE }}u;
    let slice = local_id / {{ TILE }}u;
{% for s in range(TOTALS) %}
    var sum{{ s }} = 0.0f;
{% endfor %}
{% for u in range(UNROLL) %}
{% for i in range(SIDES) %}
{{ decoder.declare_words("next" ~ u ~ "_" ~ i) }}
{% endfor %}
{% endfor %}
    for (var first = 0u; first < p.k; first += {{ CHUNK }}u) {
        let first_span = first / {{ decoder.SPAN }}u;
        let spans = min({{ CHUNK }}u, p.k - first) / {{ decoder.SPAN }}u;
{{ load_next("slice") }}
        workgroupBarrier();
        for (var i = local_id; i < {{ ROWS * CHUNK // 4 }}u; i += {{ GROUP }}u) {
            let number = i / {{ CHUNK // 4 }}u;
            let m = first_row + number;
            let term = first + i % {{ CHUNK // 4 }}u * 4u;
            var four = vec4<f32>();
            if (m < p.m && term < p.k) { four = x_at4(p.o_x + m * p.x_row + term); }
{% if NORM %}
            let square = dot(four, four);
{% for m in range(ROWS) %}
            sum{{ SUMS + m }} += {{ "select(0.0f, square, number == " ~ m ~ "u)" if ROWS > 1 else "square" }};
{% endfor %}
            if (term < p.k) { four *= scale_at4(p.o_scale + term); }
{% endif %}
            staged[i] = four;
{% if SHIFTED %}
            sums_of_four[i >> 2u][i & 3u] = (four.x + four.y) + (four.z + four.w);
{% endif %}
        }
        workgroupBarrier();
        for (var span = slice; span < spans; span += {{ SLICES * UNROLL }}u) {
{% for u in range(UNROLL) %}
            let at{{ u }} = min(span + {{ u * SLICES }}u, spans - 1u);
{% for i in range(SIDES) %}
{{ decoder.unpack("a" ~ u ~ "_" ~ i, "row", "next" ~ u ~ "_" ~ i) }}
{% endfor %}
{% endfor %}
            if (span + {{ SLICES * UNROLL }}u < spans) {
{{ load_next("span + " ~ SLICES * UNROLL ~ "u") }}
            }
{% for u in range(UNROLL) %}
{% for i in range(SIDES) %}
{% set a = "a" ~ u ~ "_" ~ i %}
{% set first_sum = i * ROWS %}
{% set quads = 8 // decoder.PARTS %}
{% for part in range(decoder.PARTS) %}
            {
{% for m in range(ROWS) %}
                var products{{ m }} = vec4<f32>();
{% endfor %}
{% for q in range(part * quads, (part + 1) * quads) %}
                let w{{ q }} = {{ decoder.weights(a, q) if decoder.LEASTS else decoder.codes(a, q) }};
{% for m in range(ROWS) %}
                products{{ m }} = fma(w{{ q }}, staged[at{{ u }} * 8u + {{ m * CHUNK // 4 + q }}u], products{{ m }});
{% endfor %}
{% endfor %}
{% for m in range(ROWS) %}
                var product{{ m }} = (products{{ m }}.x + products{{ m }}.y) + (products{{ m }}.z + products{{ m }}.w);
{% if SHIFTED %}
{% for half in range(2 // decoder.PARTS) %}
                product{{ m }} -= dot(vec4<f32>({{ decoder.ZERO }}.0f), sums_of_four[at{{ u }} * 2u + {{ m * CHUNK // 16 + part + half }}u]);
{% endfor %}
{% endif %}
{% if not decoder.LEASTS %}
                product{{ m }} *= {{ decoder.scale(a, part) }};
{% endif %}
                sum{{ first_sum + m }} += {{ "select(0.0f, product" ~ m ~ ", span + " ~ u * SLICES ~ "u < spans)" if u else "product" ~ m }};
{% endfor %}
            }
{% endfor %}
{% endfor %}
{% endfor %}
        }
    }
    workgroupBarrier();
{% for s in range(TOTALS) %}
    staged[{{ s * GROUP // 4 }}u + (local_id >> 2u)][local_id & 3u] = sum{{ s }};
{% endfor %}
    workgroupBarrier();
{#- Four sums to one at a time, or two to one at the end, until one per column is left. -#}
{% set ns = namespace(size=GROUP) %}
{% for stage in range(8) if ns.size > TILE %}
{% set parts = 4 if ns.size >= 4 * TILE else 2 %}
{% set ns.size = ns.size // parts %}
    if (local_id < {{ ns.size }}u) {
        let quad = local_id >> 2u;
{% for s in range(TOTALS) %}
        staged[{{ s * GROUP // 4 }}u + quad][local_id & 3u] = {% for i in range(parts) %}{{ " + " if i }}staged[{{ (s * GROUP + i * ns.size) // 4 }}u + quad][local_id & 3u]{% endfor %};
{% endfor %}
    }
    workgroupBarrier();
{% endfor %}
{% set factor = " * factor" if NORM else "" %}
    let batch = 0u;
    for (var i = local_id; i < {{ TILE * ROWS }}u; i += {{ GROUP }}u) {
        let m = i / {{ TILE }}u;
        let at = m * {{ GROUP }}u + i % {{ TILE }}u;
{% if NORM %}
        let of_row = {{ SUMS * GROUP // 4 }}u + m * {{ GROUP // 4 }}u;
        let squares = {% for quad in range(TILE // 4) %}{{ " + " if quad }}staged[of_row + {{ quad }}u]{% endfor %};
        let factor = 1.0f / sqrt(((squares.x + squares.y) + (squares.z + squares.w)) / f32(p.k) + p.eps);
{% endif %}
        let sum = staged[at >> 2u][at & 3u]{{ factor }};
{% if PAIRS %}
        let paired = staged[(at >> 2u) + {{ ROWS * GROUP // 4 }}u][at & 3u]{{ factor }};
{% endif %}
        if (first_row + m < p.m) { {{ sums.store("first_row + m", "tile * " ~ TILE ~ "u + i % " ~ TILE ~ "u", "sum", "paired") }} }
    }
}
