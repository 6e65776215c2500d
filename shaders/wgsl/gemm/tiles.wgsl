{#- out = a b (+ bias) in tiles of workgroup memory (see lib/gemm_tiles.wgsl). A_MAJOR says along which axis a is contiguous, "k" or "mn" (its
    rows), so that neighbouring invocations load neighbouring elements; with A_LANES = 4 they load vectors. B_MAJOR and B_LANES say the
    same of b, whose "mn" axis is its columns. -#}
{% set A_MAJOR = A_MAJOR | default("k") %}
{% set B_MAJOR = B_MAJOR | default("mn") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "gemm/operands.wgsl" as operands with context %}
{% import "lib/gemm_tiles.wgsl" as tiles with context %}
{% set OPERANDS = [
  {"name": "a", "side": "left", "axis": "m", "major": A_MAJOR, "lanes": operands.A_LANES, "extent": tiles.ROWS, "first": "first_row", "size": "p.m"},
  {"name": "b", "side": "right", "axis": "n", "major": B_MAJOR, "lanes": operands.B_LANES, "extent": tiles.COLUMNS, "first": "first_column", "size": "p.n"}] %}
{{ operands.declare(storage, sums) }}
{{ tiles.memory() }}
{{ storage.main(256) }}
{{ tiles.locate() }}
{{ operands.begin() }}
{#- What an invocation loads of a k-tile: vectors of `lanes` elements, `across` of them along the contiguous axis. -#}
{% for o in OPERANDS %}
{% set length = tiles.DEPTH if o.major == "k" else o.extent %}
{% set across = length // o.lanes %}
    let {{ o.name }}_fast = local_id % {{ across }}u * {{ o.lanes }}u;
    let {{ o.name }}_slow = local_id / {{ across }}u;
{% for e in range(tiles.DEPTH * o.extent // o.lanes // 256) %}
    var {{ o.name }}{{ e }}: {{ "vec4<" ~ tiles.REAL ~ ">" if o.lanes == 4 else tiles.REAL }};
{% if o.major == "k" %}
    let {{ o.name }}_offset{{ e }} = {{ o.name }}_batch + min({{ o.first }} + {{ o.name }}_slow + {{ e * 256 // across }}u, {{ o.size }} - 1u) * p.stride_{{ o.name ~ o.axis }};
{% endif %}
{% endfor %}
{% if o.major == "mn" %}
    // The last vector may cross the edge of the matrix, but not of its memory; those elements are not used.
    let {{ o.name }}_offset = {{ o.name }}_batch + min({{ o.first }} + {{ o.name }}_fast, ({{ o.size }} - 1u) / {{ o.lanes }}u * {{ o.lanes }}u) * p.stride_{{ o.name ~ o.axis }};
{% endif %}
{% endfor %}
{% call(what) tiles.product() %}
{% for o in OPERANDS %}
{% set across = (tiles.DEPTH if o.major == "k" else o.extent) // o.lanes %}
{% set read = o.name ~ ("_at4" if o.lanes == 4 else "_at") %}
{% for e in range(tiles.DEPTH * o.extent // o.lanes // 256) %}
{% set slow = o.name ~ "_slow + " ~ e * 256 // across ~ "u" %}
{% set term = o.name ~ "_fast" if o.major == "k" else slow %}
{% set value = o.name ~ e %}
{% if what == "load" and o.major == "k" %}
    {{ value }} = {{ read }}({{ o.name }}_offset{{ e }} + min(term + {{ term }}, (p.k - 1u) / {{ o.lanes }}u * {{ o.lanes }}u) * p.stride_{{ o.name }}k);
{% elif what == "load" %}
    {{ value }} = {{ read }}({{ o.name }}_offset + min(term + {{ term }}, p.k - 1u) * p.stride_{{ o.name }}k);
{% elif what == "mask" and o.major == "k" and o.lanes == 4 %}
    {{ value }} = select(vec4<{{ tiles.REAL }}>(), {{ value }}, vec4<u32>(term + {{ term }}) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end));
{% elif what == "mask" %}
    if (term + {{ term }} >= end) { {{ value }} = {{ "vec4<" ~ tiles.REAL ~ ">" if o.lanes == 4 else tiles.REAL }}(); }
{% elif o.major == "k" and o.lanes == 4 %}
{% for c in range(4) %}
    {{ tiles.stage(o.side, term ~ " + " ~ c ~ "u", slow, value ~ "." ~ "xyzw"[c]) }}
{% endfor %}
{% elif o.major == "k" %}
    {{ tiles.stage(o.side, term, slow, value) }}
{% elif o.lanes == 4 %}
    {{ tiles.stage4(o.side, term, o.name ~ "_fast / 4u", value) }}
{% else %}
    {{ tiles.stage(o.side, term, o.name ~ "_fast", value) }}
{% endif %}
{% endfor %}
{% endfor %}
{% endcall %}
{% call(j) tiles.results() %}
{{ sums.store4("row", "column", "sum") }}
{% endcall %}
}
