{#- out = a x b (+ bias) in tiles; see lib/gemm_tiles.wgsl. An operand's places are the rows of a and the columns of b, which it shares with the
    result, and its terms what is summed over. A_ALONG says which of the two ("terms" or "places") lies side by side in memory, so that
    neighbours read neighbouring memory; with A_LANES = 4 they read whole vectors. B_ALONG and B_LANES say the same of b. -#}
{% set A_ALONG = A_ALONG | default("terms") %}
{% set B_ALONG = B_ALONG | default("places") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "gemm/operands.wgsl" as operands with context %}
{% import "lib/gemm_tiles.wgsl" as tiles with context %}
{% set OPERANDS = [
  {"name": "a", "side": "left", "along": A_ALONG, "lanes": operands.A_LANES, "extent": tiles.ROWS, "first": "first_row", "size": "p.m"},
  {"name": "b", "side": "right", "along": B_ALONG, "lanes": operands.B_LANES, "extent": tiles.COLUMNS, "first": "first_column", "size": "p.n"}] %}
{{ operands.declare(storage, sums) }}
{{ tiles.memory() }}
{{ storage.main(256) }}
{{ tiles.place() }}
{{ operands.begin() }}
{#- How an invocation's share of a strip is numbered: pieces of `lanes` elements, `across` of which lie side by side. -#}
{% for o in OPERANDS %}
{% set length = tiles.DEPTH if o.along == "terms" else o.extent %}
{% set across = length // o.lanes %}
    let {{ o.name }}_fast = lane % {{ across }}u * {{ o.lanes }}u;
    let {{ o.name }}_slow = lane / {{ across }}u;
{% for e in range(tiles.DEPTH * o.extent // o.lanes // 256) %}
    var {{ o.name }}{{ e }}: {{ "vec4<" ~ tiles.REAL ~ ">" if o.lanes == 4 else tiles.REAL }};
{% if o.along == "terms" %}
    let {{ o.name }}_from{{ e }} = {{ o.name }}_begin + min({{ o.first }} + {{ o.name }}_slow + {{ e * 256 // across }}u, {{ o.size }} - 1u) * p.{{ o.name }}_place;
{% endif %}
{% endfor %}
{% if o.along == "places" %}
    // The last vector may reach past the edge of the matrix, though not out of its memory; nobody uses what lies there.
    let {{ o.name }}_from = {{ o.name }}_begin + min({{ o.first }} + {{ o.name }}_fast, ({{ o.size }} - 1u) / {{ o.lanes }}u * {{ o.lanes }}u) * p.{{ o.name }}_place;
{% endif %}
{% endfor %}
{% call(what) tiles.product() %}
{% for o in OPERANDS %}
{% set across = (tiles.DEPTH if o.along == "terms" else o.extent) // o.lanes %}
{% set read = o.name ~ ("_at4" if o.lanes == 4 else "_at") %}
{% for e in range(tiles.DEPTH * o.extent // o.lanes // 256) %}
{% set slow = o.name ~ "_slow + " ~ e * 256 // across ~ "u" %}
{% set term = o.name ~ "_fast" if o.along == "terms" else slow %}
{% set value = o.name ~ e %}
{% if what == "fetch" and o.along == "terms" %}
    {{ value }} = {{ read }}({{ o.name }}_from{{ e }} + min(term + {{ term }}, (p.k - 1u) / {{ o.lanes }}u * {{ o.lanes }}u) * p.{{ o.name }}_term);
{% elif what == "fetch" %}
    {{ value }} = {{ read }}({{ o.name }}_from + min(term + {{ term }}, p.k - 1u) * p.{{ o.name }}_term);
{% elif what == "mask" and o.along == "terms" and o.lanes == 4 %}
    {{ value }} = select(vec4<{{ tiles.REAL }}>(), {{ value }}, vec4<u32>(term + {{ term }}) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end));
{% elif what == "mask" %}
    if (term + {{ term }} >= end) { {{ value }} = {{ "vec4<" ~ tiles.REAL ~ ">" if o.lanes == 4 else tiles.REAL }}(); }
{% elif o.along == "terms" and o.lanes == 4 %}
{% for c in range(4) %}
    {{ tiles.put(o.side, term ~ " + " ~ c ~ "u", slow, value ~ "." ~ "xyzw"[c]) }}
{% endfor %}
{% elif o.along == "terms" %}
    {{ tiles.put(o.side, term, slow, value) }}
{% elif o.lanes == 4 %}
    {{ tiles.put4(o.side, term, o.name ~ "_fast / 4u", value) }}
{% else %}
    {{ tiles.put(o.side, term, o.name ~ "_fast", value) }}
{% endif %}
{% endfor %}
{% endfor %}
{% endcall %}
{% call(j) tiles.results() %}
{{ sums.put4("row", "column", "sum") }}
{% endcall %}
}
