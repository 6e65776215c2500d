{#- A convolution, or one of its gradients, as an implicit GEMM in tiles (see conv/windows.wgsl and lib/gemm_tiles.wgsl). MAJOR says what
    neighbouring invocations load: windows of neighbouring columns ("n"), 32 invocations per term, or neighbouring terms of a window ("k"). -#}
{% set MAJOR = MAJOR | default("n") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "conv/windows.wgsl" as windows with context %}
{% import "lib/gemm_tiles.wgsl" as tiles with context %}
{% set D = tiles.DEPTH %}
{% set LEFT_LOADS = tiles.ROWS * D // 256 %}
{#- Terms, and columns of each term, that an invocation loads. -#}
{% set TERMS = D // 8 if MAJOR == "n" else 1 %}
{% set COLUMNS = (tiles.COLUMNS // 32) if MAJOR == "n" else (tiles.COLUMNS * D // 256) %}
{{ windows.declare(storage, sums) }}
{{ tiles.memory() }}
{{ storage.main(256) }}
{{ tiles.locate() }}
    let k_tile_step = multi_index({{ D }}u, p.term_lengths);
    let a_row_id = local_id / {{ D }}u;
    let a_term = local_id % {{ D }}u;
    var a_index = multi_index(start + a_term, p.term_lengths);
{% for e in range(LEFT_LOADS) %}
    let a_row{{ e }} = left_row_offset(batch, first_row + a_row_id + {{ e * 256 // D }}u);
    var a{{ e }}: {{ tiles.REAL }};
{% endfor %}
{% if MAJOR == "n" %}
    let x_column_id = local_id % 32u;
    let x_term = local_id / 32u;
{% for s in range(TERMS) %}
    var x_index{{ s }} = multi_index(start + x_term + {{ 8 * s }}u, p.term_lengths);
{% endfor %}
{% else %}
    let x_column_id = a_row_id;
    let x_term = a_term;
{% endif %}
{% set column_step = 32 if MAJOR == "n" else 256 // D %}
{% for e in range(COLUMNS) %}
    let window{{ e }} = window_of_column(batch, first_column + x_column_id + {{ e * column_step }}u);
{% for s in range(TERMS) %}
    var loaded{{ s }}_{{ e }}: {{ tiles.REAL }};
{% endfor %}
{% endfor %}
{% call(what) tiles.product() %}
{% if what == "load" %}
    {
        let valid = term + a_term < end;
        let at = select(0u, left_term_offset(a_index), valid);
{% for e in range(LEFT_LOADS) %}
        a{{ e }} = select({{ tiles.REAL }}(), a_at(a_row{{ e }} + at), valid);
{% endfor %}
    }
{% for s in range(TERMS) %}
    {
{% set d = "x_index" ~ s if MAJOR == "n" else "a_index" %}
        let valid = term + x_term + {{ 8 * s }}u < end;
        let term_window = window_of_term({{ d }});
{% for e in range(COLUMNS) %}
        loaded{{ s }}_{{ e }} = load_pixel(window{{ e }}, term_window, valid);
{% endfor %}
        {{ d }} = advance({{ d }}, k_tile_step);
    }
{% endfor %}
{% if MAJOR == "n" %}
    a_index = advance(a_index, k_tile_step);
{% endif %}
{% elif what == "stage" %}
{% for e in range(LEFT_LOADS) %}
    {{ tiles.stage("left", "a_term", "a_row_id + " ~ e * 256 // D ~ "u", "a" ~ e) }}
{% endfor %}
{% for s in range(TERMS) %}
{% for e in range(COLUMNS) %}
    {{ tiles.stage("right", "x_term + " ~ 8 * s ~ "u", "x_column_id + " ~ e * column_step ~ "u", "loaded" ~ s ~ "_" ~ e) }}
{% endfor %}
{% endfor %}
{% endif %}
{% endcall %}
{% for j in range(tiles.QUAD_COLUMNS) %}
{{ windows.columns("first_column + lane_column * 4u + " ~ 64 * j ~ "u", "out_at" ~ j, sums) }}
{% endfor %}
{% call(j) tiles.results() %}
{{ windows.store4("row", "column", "out_at" ~ j, sums) }}
{% endcall %}
}
