{#- A convolution, or one of its gradients, as an implicit GEMM in register blocks (see conv/windows.wgsl and lib/gemm_blocks.wgsl). -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "conv/windows.wgsl" as windows with context %}
{% import "lib/gemm_blocks.wgsl" as blocks with context %}
{{ windows.declare(storage, sums) }}
{{ blocks.main(storage) }}
    let one_term = vec3<u32>(0u, 0u, 1u);
    var term_index = multi_index(start, p.term_lengths);
{% for r in range(blocks.LEFT_VECTORS) %}
    let a_row{{ r }} = left_row_offset(batch, loaded_row + {{ r * blocks.ROW_STEP }}u);
{% endfor %}
{% for q in range(blocks.QUADS) %}
{% for c in range(4) %}
    let window{{ q }}_{{ c }} = window_of_column(batch, column + {{ 4 * blocks.ACROSS * q + c }}u);
{% endfor %}
{% endfor %}
{% call blocks.product() %}
{% for u in range(4) %}
        let valid{{ u }} = term + {{ u }}u < end;
        let left{{ u }} = {{ "left_term_offset(term_index)" if u == 0 else "select(left0, left_term_offset(term_index), valid" ~ u ~ ")" }};
        let term_window{{ u }} = window_of_term(term_index);
{% for q in range(blocks.QUADS) %}
        var y{{ u }}_{{ q }} = vec4<{{ blocks.REAL }}>({% for c in range(4) %}load_pixel(window{{ q }}_{{ c }}, term_window{{ u }}, valid{{ u }}){{ ", " if c < 3 }}{% endfor %});
{% endfor %}
        term_index = advance(term_index, one_term);
{% endfor %}
{% for r in range(blocks.LEFT_VECTORS) %}
        var x{{ r }} = vec4<{{ blocks.REAL }}>({% for u in range(4) %}a_at(a_row{{ r }} + left{{ u }}){{ ", " if u < 3 }}{% endfor %});
{% endfor %}
{% endcall %}
{% for q in range(blocks.QUADS) %}
{{ windows.columns("column + " ~ 4 * blocks.ACROSS * q ~ "u", "out_at" ~ q, sums) }}
{% endfor %}
{% call(q) blocks.results() %}
{{ windows.store4("at_row", "at_column", "out_at" ~ q, sums) }}
{% endcall %}
}
