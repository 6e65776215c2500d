{#- Softmax, or with LOG its logarithm, of rows. Subtracting the largest element of the row keeps the exponentials from overflowing; a NaN
    makes the whole row NaN through the sum. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set LOG = LOG | default(false) %}
{% set WIDTH = WIDTH | default(4) %}
{% set ROW_VECTORS = ROW_VECTORS | default(2) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/rows.wgsl" as rows with context %}
{% import "rowwise/row_exponentials.wgsl" as exponentials with context %}
{{ storage.enable() }}
{% include "lib/logarithm.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE, WIDTH) }}
{{ storage.output(1, "out", DTYPE, WIDTH) }}
{{ storage.parameters("o_x: u32, o_out: u32, " ~ rows.members(["x", "out"])) }}
{{ rows.declarations() }}
{{ exponentials.declarations() }}
{{ rows.main(["x", "out"]) }}
{{ rows.load_row("x") }}
{{ exponentials.statistics("x", not LOG) }}
{% if LOG %}
    let log_total = log_f32(total);
{% else %}
    let scale = 1.0f / total;
{% endif %}
{% call(k) rows.for_vectors() %}
{% set value = rows.value("x", k) %}
{% if LOG %}
{{ rows.write("out", k, value ~ " - shift - log_total") }}
{% elif ROW_VECTORS %}
{{ rows.write("out", k, value ~ " * scale") }}
{% else %}
{{ rows.write("out", k, "exp_shifted(" ~ value ~ " - shift) * scale") }}
{% endif %}
{% endcall %}
}
