{#- A convolution or a gradient of it straight from memory; see conv/windows.wgsl and lib/gemm_blocks.wgsl. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "conv/windows.wgsl" as windows with context %}
{% import "lib/gemm_blocks.wgsl" as blocks with context %}
{{ windows.declare(storage, sums) }}
{{ blocks.main(storage) }}
    let next = vec3<u32>(0u, 0u, 1u);
    var number = digits(start, p.term_lengths);
{% for r in range(blocks.LOADED) %}
    let a_row{{ r }} = row_of_left(batch, loaded_row + {{ r * blocks.STEP }}u);
{% endfor %}
{% for q in range(blocks.QUADS) %}
{% for c in range(4) %}
    let window{{ q }}_{{ c }} = window_of_column(batch, column + {{ 4 * blocks.ACROSS * q + c }}u);
{% endfor %}
{% endfor %}
{% call blocks.product() %}
{% for u in range(4) %}
        let wanted{{ u }} = term + {{ u }}u < end;
        let left{{ u }} = {{ "term_of_left(number)" if u == 0 else "select(left0, term_of_left(number), wanted" ~ u ~ ")" }};
        let displacement{{ u }} = window_of_term(number);
{% for q in range(blocks.QUADS) %}
        var y{{ u }}_{{ q }} = vec4<{{ blocks.REAL }}>({% for c in range(4) %}pixel(window{{ q }}_{{ c }}, displacement{{ u }}, wanted{{ u }}){{ ", " if c < 3 }}{% endfor %});
{% endfor %}
        number = advanced(number, next);
{% endfor %}
{% for r in range(blocks.LOADED) %}
        var x{{ r }} = vec4<{{ blocks.REAL }}>({% for u in range(4) %}a_at(a_row{{ r }} + left{{ u }}){{ ", " if u < 3 }}{% endfor %});
{% endfor %}
{% endcall %}
{% for q in range(blocks.QUADS) %}
{{ windows.columns("column + " ~ 4 * blocks.ACROSS * q ~ "u", "out_at" ~ q, sums) }}
{% endfor %}
{% call(q) blocks.results() %}
{{ windows.put4("at_row", "at_column", "out_at" ~ q, sums) }}
{% endcall %}
}
