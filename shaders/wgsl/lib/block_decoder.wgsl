{#- Weights of quantised blocks in tiles of 16 rows, 32 of one row at a time, from the texts of backends/common/codegen/block_decoder.py. Import
    it `with context`:

  - `declare(binding, storage, count)` declares the buffer `blocks` as words, further ones `blocks1`, ..., and functions. The offset of
    `blocks` is `p.o_blocks`, in bytes. Where other macros have `buffer`, it is the number in a buffer's name.
  - `block(tile, block, blocks, buffer)` is the first word of a block: of `blocks` in a row of tiles.
  - `declare_words(name)` declares variables for the words of a span, and `load_words(name, at, row, span, buffer)` loads those of row
    `row` of a tile, from the block that begins at word `at`. `unpack(name, row, of)` declares what the macros below read with the prefix
    `name`, from the words of `of`. `load(name, at, row, span, buffer)` is all three.
  - `codes(name, quad)` are four of its codes, `values(name, quad)` four of its weights without scale and least value (codes minus ZERO), `weights(name, quad)` with both, and `scale(name, part)`
    is the scale of one of its PARTS. -#}
{% set DECODER = DECODER | default({
  "spans": 1, "block_bytes": 34, "words": [[2, "0u"], [2, "1u"], [2, "2u"], [2, "3u"], [2, "4u"], [2, "5u"], [2, "6u"], [2, "7u"]],
  "halfs": [0], "bytes": [], "zero": 128, "scales": ["@h0"], "leasts": [], "table": [],
  "codes": ["@w0", "@w1", "@w2", "@w3", "@w4", "@w5", "@w6", "@w7"]}) %}
{% set SPAN = 32 %}
{% set TILE = 16 %}
{% set SPANS = DECODER.spans %}
{% set PARTS = DECODER.scales | length %}
{% set LEASTS = DECODER.leasts | length > 0 %}
{% set ZERO = DECODER.zero %}
{#- Words that a block of all rows of a tile fills. -#}
{% set BLOCK_WORDS = 4 * DECODER.block_bytes %}

{% macro declare(binding, storage, count=1) %}
{% for i in range(count) %}
{{ storage.scratch(binding + i, "blocks" ~ (i or ""), "u32", "read") }}
{% endfor %}
fn float_of(x: u32) -> f32 { return f32(x); }
fn signed_of(byte: u32) -> f32 { return f32(bitcast<i32>(byte << 24u) >> 24u); }
fn power_of(byte: u32) -> f32 { return bitcast<f32>(select(0x00200000u << (byte & 1u), (byte - 1u) << 23u, byte > 1u)); }
fn floats_of(bytes: u32) -> vec4<f32> {
    return vec4<f32>(f32(bytes & 255u), f32((bytes >> 8u) & 255u), f32((bytes >> 16u) & 255u), f32(bytes >> 24u));
}
{% if DECODER.table %}
fn picked(mask: u32, one: u32, zero: u32) -> u32 { return zero ^ (mask & (zero ^ one)); }
fn looked_up(indices: u32) -> u32 {
{% set table = DECODER.table %}
{% for value in table %}
    let v0_{{ loop.index0 }} = {{ value * 0x01010101 }}u;
{% endfor %}
{% for level in range(8) if 2 ** level < table | length %}
    let mask{{ level }} = ((indices >> {{ level }}u) & 0x01010101u) * 255u;
{% for i in range(table | length // 2 ** (level + 1)) %}
    let v{{ level + 1 }}_{{ i }} = picked(mask{{ level }}, v{{ level }}_{{ 2 * i + 1 }}, v{{ level }}_{{ 2 * i }});
{% endfor %}
{% if 2 ** (level + 1) == table | length %}
    return v{{ level + 1 }}_0;
{% endif %}
{% endfor %}
}
{% endif %}
{% endmacro %}

{% macro block(tile, block, blocks, buffer="") %}p.o_blocks{{ buffer }} / 4u + (({{ tile }}) * ({{ blocks }}) + ({{ block }})) * {{ BLOCK_WORDS }}u{% endmacro %}

{% macro named(text, name) %}{{ text | replace("@", name ~ "_") }}{% endmacro %}

{% macro declare_words(name) %}
    var {{ name }}_span = 0u;
{% for field, index in DECODER.words %}
    var {{ name }}_v{{ loop.index0 }} = 0u;
{% endfor %}
{% for field in DECODER.halfs %}
    var {{ name }}_v_h{{ field }} = 0u;
{% endfor %}
{% for field in DECODER.bytes %}
    var {{ name }}_v_b{{ field }} = 0u;
{% endfor %}
{% endmacro %}

{% macro load_words(name, at, row, span, buffer="") %}
    {{ name }}_span = {{ span }};
{% for field, index in DECODER.words %}
    {{ name }}_v{{ loop.index0 }} = blocks{{ buffer }}[{{ at }} + {{ 4 * field }}u + {{ TILE }}u * {{ named(index, name) }} + {{ row }}];
{% endfor %}
{% for field in DECODER.halfs %}
    {{ name }}_v_h{{ field }} = blocks{{ buffer }}[{{ at }} + {{ 4 * field }}u + ({{ row }} >> 1u)];
{% endfor %}
{% for field in DECODER.bytes %}
    {{ name }}_v_b{{ field }} = blocks{{ buffer }}[{{ at }} + {{ 4 * field }}u + ({{ row }} >> 2u)];
{% endfor %}
{% endmacro %}

{% macro unpack(name, row, of) %}
    let {{ name }}_span = {{ of }}_span;
{% for field, index in DECODER.words %}
    let {{ name }}_w{{ loop.index0 }} = {{ of }}_v{{ loop.index0 }};
{% endfor %}
{% for field in DECODER.halfs %}
    let {{ name }}_h{{ field }} = unpack2x16float({{ of }}_v_h{{ field }} >> (16u * ({{ row }} & 1u))).x;
{% endfor %}
{% for field in DECODER.bytes %}
    let {{ name }}_b{{ field }} = ({{ of }}_v_b{{ field }} >> (8u * ({{ row }} & 3u))) & 255u;
{% endfor %}
{% for scale in DECODER.scales %}
    let {{ name }}_scale{{ loop.index0 }} = {{ named(scale, name) }};
{% endfor %}
{% for least in DECODER.leasts %}
    let {{ name }}_least{{ loop.index0 }} = {{ named(least, name) }};
{% endfor %}
{% endmacro %}

{% macro load(name, at, row, span, buffer="") %}
{{ declare_words("loaded_" ~ name) }}
{{ load_words("loaded_" ~ name, at, row, span, buffer) }}
{{ unpack(name, row, "loaded_" ~ name) }}
{% endmacro %}

{% macro codes(name, quad) %}floats_of({{ named(DECODER.codes[quad], name) }}){% endmacro %}

{% macro values(name, quad) %}
{{ codes(name, quad) }}{% if ZERO %} - {{ ZERO }}.0f{% endif %}
{% endmacro %}

{% macro scale(name, part) %}{{ name }}_scale{{ part }}{% endmacro %}

{% macro weights(name, quad) %}
{% set part = quad * PARTS // 8 %}
({{ values(name, quad) }}) * {{ scale(name, part) }}{% if LEASTS %} + {{ name }}_least{{ part }}{% endif %}
{% endmacro %}
