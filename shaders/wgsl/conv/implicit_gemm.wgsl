{#- A convolution or a gradient of it in tiles; see conv/windows.wgsl and lib/gemm_tiles.wgsl. ALONG says whether neighbours read windows of neighbouring
    columns, each run of 32 invocations for a term of its own ("columns"), or neighbouring terms of a window ("terms"). -#}
{% set ALONG = ALONG | default("columns") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "conv/windows.wgsl" as windows with context %}
{% import "lib/gemm_tiles.wgsl" as tiles with context %}
{% set D = tiles.DEPTH %}
{% set LEFT_LOADS = tiles.ROWS * D // 256 %}
{#- Terms, and columns for each of them, that an invocation reads. -#}
{% set TERMS = D // 8 if ALONG == "columns" else 1 %}
{% set COLUMNS = (tiles.COLUMNS // 32) if ALONG == "columns" else (tiles.COLUMNS * D // 256) %}
{{ windows.declare(storage, sums) }}
{{ tiles.memory() }}
{{ storage.main(256) }}
{{ tiles.place() }}
    let strip_step = digits({{ D }}u, p.term_lengths);
    let a_place = lane / {{ D }}u;
    let a_term = lane % {{ D }}u;
    var a_digits = digits(start + a_term, p.term_lengths);
{% for e in range(LEFT_LOADS) %}
    let a_row{{ e }} = row_of_left(batch, first_row + a_place + {{ e * 256 // D }}u);
    var a{{ e }}: {{ tiles.REAL }};
{% endfor %}
{% if ALONG == "columns" %}
    let x_place = lane % 32u;
    let x_term = lane / 32u;
{% for s in range(TERMS) %}
    var x_digits{{ s }} = digits(start + x_term + {{ 8 * s }}u, p.term_lengths);
{% endfor %}
{% else %}
    let x_place = a_place;
    let x_term = a_term;
{% endif %}
{% set apart = 32 if ALONG == "columns" else 256 // D %}
{% for e in range(COLUMNS) %}
    let window{{ e }} = window_of_column(batch, first_column + x_place + {{ e * apart }}u);
{% for s in range(TERMS) %}
    var loaded{{ s }}_{{ e }}: {{ tiles.REAL }};
{% endfor %}
{% endfor %}
{% call(what) tiles.product() %}
{% if what == "fetch" %}
    {
        let wanted = term + a_term < end;
        let at = select(0u, term_of_left(a_digits), wanted);
{% for e in range(LEFT_LOADS) %}
        a{{ e }} = select({{ tiles.REAL }}(), a_at(a_row{{ e }} + at), wanted);
{% endfor %}
    }
{% for s in range(TERMS) %}
    {
{% set d = "x_digits" ~ s if ALONG == "columns" else "a_digits" %}
        let wanted = term + x_term + {{ 8 * s }}u < end;
        let displacement = window_of_term({{ d }});
{% for e in range(COLUMNS) %}
        loaded{{ s }}_{{ e }} = pixel(window{{ e }}, displacement, wanted);
{% endfor %}
        {{ d }} = advanced({{ d }}, strip_step);
    }
{% endfor %}
{% if ALONG == "columns" %}
    a_digits = advanced(a_digits, strip_step);
{% endif %}
{% elif what == "stage" %}
{% for e in range(LEFT_LOADS) %}
    {{ tiles.put("left", "a_term", "a_place + " ~ e * 256 // D ~ "u", "a" ~ e) }}
{% endfor %}
{% for s in range(TERMS) %}
{% for e in range(COLUMNS) %}
    {{ tiles.put("right", "x_term + " ~ 8 * s ~ "u", "x_place + " ~ e * apart ~ "u", "loaded" ~ s ~ "_" ~ e) }}
{% endfor %}
{% endfor %}
{% endif %}
{% endcall %}
{% for j in range(tiles.QUAD_COLUMNS) %}
{{ windows.columns("first_column + my_column * 4u + " ~ 64 * j ~ "u", "out_at" ~ j, sums) }}
{% endfor %}
{% call(j) tiles.results() %}
{{ windows.put4("row", "column", "out_at" ~ j, sums) }}
{% endcall %}
}
