{#- out = a x b (+ bias) straight from memory; see lib/gemm_blocks.wgsl. Operands may have any strides. With A_LANES = 4, vectors of a are read
    along its terms or its places (its rows), as A_ALONG says; B_LANES and B_ALONG say the same of b, whose places are its columns. -#}
{% set B_ALONG = B_ALONG | default("places") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "gemm/operands.wgsl" as operands with context %}
{% import "lib/gemm_blocks.wgsl" as blocks with context %}
{% set T = "vec4<" ~ sums.REAL ~ ">" %}
{% set A_ROWS = blocks.A_ALONG == "places" %}
{% set B_COLUMNS = B_ALONG == "places" and operands.B_LANES == 4 %}
{{ operands.declare(storage, sums) }}
{{ blocks.main(storage) }}
{{ operands.begin() }}
{% for r in range(blocks.ROWS // 4 if A_ROWS else blocks.LOADED) %}
    let a_from{{ r }} = a_begin + {{ "min(row + " ~ 4 * r ~ "u, (p.m - 1u) & ~3u)" if A_ROWS else "min(loaded_row + " ~ r * blocks.STEP ~ "u, p.m - 1u)" }} * p.a_place;
{% endfor %}
{% for q in range(blocks.QUADS) %}
{% for c in range(1 if B_COLUMNS else 4) %}
    let b_from{{ q }}_{{ c }} = b_begin + min(column + {{ 4 * blocks.ACROSS * q + c }}u, {{ "(p.n - 1u) & ~3u" if B_COLUMNS else "p.n - 1u" }}) * p.b_place;
{% endfor %}
{% endfor %}
{% call blocks.product() %}
{% for u in range(4) %}
        let term{{ u }} = min(term + {{ u }}u, end - 1u);
{% endfor %}
{% for r in range(blocks.LOADED) %}
{% if A_ROWS and blocks.BROADCAST %}
        var x{{ r }} = a_at4(a_from{{ r }} + min(term + quarter, end - 1u) * p.a_term);
{% elif A_ROWS %}
        var x{{ r }} = a_at4(a_from{{ r // 4 }} + term{{ r % 4 }} * p.a_term);
{% elif operands.A_LANES == 4 %}
        var x{{ r }} = a_at4(a_from{{ r }} + term);
{% else %}
        var x{{ r }} = {{ T }}({% for u in range(4) %}a_at(a_from{{ r }} + term{{ u }} * p.a_term){{ ", " if u < 3 }}{% endfor %});
{% endif %}
{% endfor %}
{% for q in range(blocks.QUADS) %}
{% if B_COLUMNS %}
{% for u in range(4) %}
        var y{{ u }}_{{ q }} = b_at4(b_from{{ q }}_0 + term{{ u }} * p.b_term);
{% endfor %}
{% else %}
{% for c in range(4) if operands.B_LANES == 4 %}
        let w{{ c }}_{{ q }} = b_at4(b_from{{ q }}_{{ c }} + term);
{% endfor %}
{% for u in range(4) %}
        var y{{ u }}_{{ q }} = {{ T }}({% for c in range(4) %}{{ "w" ~ c ~ "_" ~ q ~ "." ~ "xyzw"[u] if operands.B_LANES == 4 else "b_at(b_from" ~ q ~ "_" ~ c ~ " + term" ~ u ~ " * p.b_term)" }}{{ ", " if c < 3 }}{% endfor %});
{% endfor %}
{% endif %}
{% endfor %}
{% endcall %}
{% call(q) blocks.results() %}
{{ sums.put4("at_row", "at_column", "sum") }}
{% endcall %}
}
