{#- Gradient of rowwise/cross_entropy.wgsl with respect to the logits: g * (softmax - target distribution), from the saved logsumexp. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set INDEX_DTYPE = INDEX_DTYPE | default("int32") %}
{% set GRADIENT_DTYPE = GRADIENT_DTYPE | default("float32") %}
{% set WIDTH = WIDTH | default(4) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/rows.wgsl" as rows with context %}
{% import "rowwise/classes.wgsl" as classes with context %}
{% import "rowwise/row_exponentials.wgsl" as exponentials with context %}
{{ storage.enable() }}
{% include "lib/exponential.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "g", GRADIENT_DTYPE) }}
{{ storage.input(1, "x", DTYPE, WIDTH) }}
{{ storage.input(2, "labels", INDEX_DTYPE) }}
{{ storage.input(3, "lse", "float32") }}
{{ storage.output(4, "dx", DTYPE, WIDTH) }}
{{ storage.parameters("o_g: u32, o_x: u32, o_labels: u32, o_lse: u32, o_dx: u32, g_step: u32, labels_step: u32, lse_step: u32, "
   ~ "lse_part: u32, ignored_low: u32, ignored_high: u32, smoothing: f32, " ~ rows.members(["x", "dx"])) }}
{{ rows.declarations() }}
{{ exponentials.exponential() }}
{{ classes.declarations() }}
{{ rows.main(["x", "dx"]) }}
{{ rows.load_row("x") }}
    let label = class_of(row);
    let grad = g_at(p.o_g + row * p.g_step);
    let top = lse_at(p.o_lse + row * p.lse_step);
    let logarithm = lse_at(p.o_lse + row * p.lse_step + p.lse_part);
    let smoothed = p.smoothing / f32(p.length);
    let confidence = 1.0f - p.smoothing;
{% call(k) rows.for_vectors() %}
        var value = exp_v({{ rows.value("x", k) }} - top - logarithm) - smoothed;
{% if WIDTH == 4 %}
        value -= select(V(), V(confidence), vec4<u32>({{ rows.index(k) }}) + vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(label));
{% else %}
        value -= select(0.0f, confidence, {{ rows.index(k) }} == label);
{% endif %}
{{ rows.write("dx", k, "select(V(unused(label)), value * grad, label < p.length)") }}
{% endcall %}
}
