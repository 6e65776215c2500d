{#- Quantised weights in tiles of 16 rows as floats: out[i, :] = w[i, :], or w[index[i], :] with an INDEX dtype, zeros where an index is out of
    range. An invocation decodes a span of a row, so that neighbours read neighbouring words of a tile. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set INDEX = INDEX | default("") %}
{% set LANES = LANES | default(1) %}
{% set GROUP = GROUP | default(64) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "gather/indices.wgsl" as indices with context %}
{% import "lib/block_decoder.wgsl" as decoder with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ decoder.declare(0, storage) }}
{{ indices.declare(1, INDEX, storage) if INDEX }}
{{ storage.output(2 if INDEX else 1, "out", DTYPE, LANES) }}
{{ storage.parameters("o_blocks: u32, " ~ ("o_index: u32, index_step: u32, " if INDEX else "") ~ "o_out: u32, count: u32, k: u32, rows: u32") }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    let spans = p.k / {{ decoder.SPAN }}u;
    let i = item / {{ decoder.TILE }}u / spans * {{ decoder.TILE }}u + item % {{ decoder.TILE }}u;
    if (i >= p.count) { return; }
    let span = item / {{ decoder.TILE }}u % spans;
    let to = p.o_out + i * p.k + span * {{ decoder.SPAN }}u;
{% if INDEX %}
    let number = row_at(p.o_index + i * p.index_step, p.rows);
    if (number == OUT_OF_RANGE) {
        for (var q = 0u; q < {{ decoder.SPAN }}u; q += 4u) { out_set4(to + q, vec4<f32>()); }
        return;
    }
{% else %}
    let number = i;
{% endif %}
    let row = number % {{ decoder.TILE }}u;
    let at = {{ decoder.block("number / " ~ decoder.TILE ~ "u", "span / " ~ decoder.SPANS ~ "u", "spans / " ~ decoder.SPANS ~ "u") }};
{{ decoder.load("a", "at", "row", "span % " ~ decoder.SPANS ~ "u") }}
{% for q in range(8) %}
    out_set4(to + {{ 4 * q }}u, {{ decoder.weights("a", q) }});
{% endfor %}
}
