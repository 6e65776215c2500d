{#- out = a b (+ bias) in register blocks, without workgroup memory (see lib/gemm_blocks.wgsl). Operands may have any strides. A_MAJOR says
    along which axis a is contiguous, "k" or "mn" (its rows), and B_MAJOR the same of b, whose "mn" axis is its columns. With A_LANES or
    B_LANES = 4, vectors are loaded along that axis. -#}
{% set B_MAJOR = B_MAJOR | default("mn") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "gemm/operands.wgsl" as operands with context %}
{% import "lib/gemm_blocks.wgsl" as blocks with context %}
{% set T = "vec4<" ~ sums.REAL ~ ">" %}
{% set A_ROWS = blocks.A_MAJOR == "mn" %}
{% set B_COLUMNS = B_MAJOR == "mn" and operands.B_LANES == 4 %}
{{ operands.declare(storage, sums) }}
{{ blocks.main(storage) }}
{{ operands.begin() }}
{% for r in range(blocks.ROWS // 4 if A_ROWS else blocks.LEFT_VECTORS) %}
    let a_offset{{ r }} = a_batch + {{ "min(row + " ~ 4 * r ~ "u, (p.m - 1u) & ~3u)" if A_ROWS else "min(loaded_row + " ~ r * blocks.ROW_STEP ~ "u, p.m - 1u)" }} * p.stride_am;
{% endfor %}
{% for q in range(blocks.QUADS) %}
{% for c in range(1 if B_COLUMNS else 4) %}
    let b_offset{{ q }}_{{ c }} = b_batch + min(column + {{ 4 * blocks.ACROSS * q + c }}u, {{ "(p.n - 1u) & ~3u" if B_COLUMNS else "p.n - 1u" }}) * p.stride_bn;
{% endfor %}
{% endfor %}
{% call blocks.product() %}
{% for u in range(4) %}
        let term{{ u }} = min(term + {{ u }}u, end - 1u);
{% endfor %}
{% for r in range(blocks.LEFT_VECTORS) %}
{% if A_ROWS and blocks.BROADCAST %}
        var x{{ r }} = a_at4(a_offset{{ r }} + min(term + quarter, end - 1u) * p.stride_ak);
{% elif A_ROWS %}
        var x{{ r }} = a_at4(a_offset{{ r // 4 }} + term{{ r % 4 }} * p.stride_ak);
{% elif operands.A_LANES == 4 %}
        var x{{ r }} = a_at4(a_offset{{ r }} + term);
{% else %}
        var x{{ r }} = {{ T }}({% for u in range(4) %}a_at(a_offset{{ r }} + term{{ u }} * p.stride_ak){{ ", " if u < 3 }}{% endfor %});
{% endif %}
{% endfor %}
{% for q in range(blocks.QUADS) %}
{% if B_COLUMNS %}
{% for u in range(4) %}
        var y{{ u }}_{{ q }} = b_at4(b_offset{{ q }}_0 + term{{ u }} * p.stride_bk);
{% endfor %}
{% else %}
{% for c in range(4) if operands.B_LANES == 4 %}
        let w{{ c }}_{{ q }} = b_at4(b_offset{{ q }}_{{ c }} + term);
{% endfor %}
{% for u in range(4) %}
        var y{{ u }}_{{ q }} = {{ T }}({% for c in range(4) %}{{ "w" ~ c ~ "_" ~ q ~ "." ~ "xyzw"[u] if operands.B_LANES == 4 else "b_at(b_offset" ~ q ~ "_" ~ c ~ " + term" ~ u ~ " * p.stride_bk)" }}{{ ", " if c < 3 }}{% endfor %});
{% endfor %}
{% endif %}
{% endfor %}
{% endcall %}
{% call(q) blocks.results() %}
{{ sums.store4("at_row", "at_column", "sum") }}
{% endcall %}
}
