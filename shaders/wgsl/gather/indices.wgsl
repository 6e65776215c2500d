{#- Index tensors. Import it `with context`:

      import "gather/indices.wgsl" as indices with context

  `declare(binding, dtype, storage, wrap)` declares the buffer `index` and `row_at(i, length)`, which returns element i as a row below
  `length` <= 2^31, or OUT_OF_RANGE. With `wrap`, negative indices count from the end. 64-bit indices are read as pairs of words, so that
  no 64-bit arithmetic is needed. -#}
{% macro declare(binding, dtype, storage, wrap=false) %}
const OUT_OF_RANGE = 0xffffffffu;
{% if dtype in ("int64", "uint64") %}
{{ storage.scratch(binding, "index", "vec2<u32>", "read") }}
fn row_at(i: u32, length: u32) -> u32 {
    let words = index[i];
{% if wrap and dtype == "int64" %}
    let row = select(words.x, words.x + length, words.y == 0xffffffffu);
    return select(OUT_OF_RANGE, row, row < length && (words.y == 0u || words.y == 0xffffffffu));
{% else %}
    return select(OUT_OF_RANGE, words.x, words.x < length && words.y == 0u);
{% endif %}
}
{% else %}
{{ storage.input(binding, "index", dtype) }}
fn row_at(i: u32, length: u32) -> u32 {
    let number = bitcast<u32>(index_at(i));
{% if wrap and not dtype.startswith("u") %}
    let row = select(number, number + length, number >= 0x80000000u);
{% else %}
    let row = number;
{% endif %}
    return select(OUT_OF_RANGE, row, row < length);
}
{% endif %}
{% endmacro %}
