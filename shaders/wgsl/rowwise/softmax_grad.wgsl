{#- Gradient of softmax from its result: out * (g - sum(g * out)), or with LOG that of log softmax: g - exp(out) * sum(g). -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set LOG = LOG | default(false) %}
{% set WIDTH = WIDTH | default(4) %}
{% set ROW_VECTORS = ROW_VECTORS | default(2) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/rows.wgsl" as rows with context %}
{% import "rowwise/row_exponentials.wgsl" as exponentials with context %}
{{ storage.enable() }}
{% include "lib/exponential.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "g", DTYPE, WIDTH) }}
{{ storage.input(1, "out", DTYPE, WIDTH) }}
{{ storage.output(2, "dx", DTYPE, WIDTH) }}
{{ storage.parameters("o_g: u32, o_out: u32, o_dx: u32, " ~ rows.members(["g", "out", "dx"])) }}
{{ rows.declarations() }}
{{ exponentials.exponential() }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ rows.main(["g", "out", "dx"]) }}
{{ rows.load_row("g") }}
{{ rows.load_row("out") }}
    var sums = V();
{% call(k) rows.for_vectors() %}
        sums += {{ rows.value("g", k) }}{{ " * " ~ rows.value("out", k) if not LOG }};
{% endcall %}
    let sum = group_sum(lanes_sum(sums));
{% call(k) rows.for_vectors() %}
{% if LOG %}
{{ rows.write("dx", k, rows.value("g", k) ~ " - exp_v(" ~ rows.value("out", k) ~ ") * sum") }}
{% else %}
{{ rows.write("dx", k, rows.value("out", k) ~ " * (" ~ rows.value("g", k) ~ " - sum)") }}
{% endif %}
{% endcall %}
}
