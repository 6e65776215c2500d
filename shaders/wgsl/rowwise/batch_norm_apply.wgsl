{#- Batch norm of x (images, channels, inner) from mean and variance; or with GRADIENT its gradient with respect to x, from g and, in
    `sums`, the gradients of weight and bias. A lane group of LANES invocations processes a plane of `inner` elements, WIDTH at a time. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set GRADIENT = GRADIENT | default(false) %}
{% set WEIGHT = WEIGHT | default("float32") %}
{% set BIAS = BIAS | default("" if GRADIENT else "float32") %}
{% set WIDTH = WIDTH | default(4) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% import "lib/storage.wgsl" as storage with context %}
{% set operands = (["g"] if GRADIENT else []) + ["x"] %}
{% set dtypes = {"weight": WEIGHT, "bias": BIAS, "mean": "float32", "variance": "float32"} %}
{% set names = (["weight"] if WEIGHT else []) + (["bias"] if BIAS else []) + ["mean", "variance"] %}
{% set at = "at4" if WIDTH == 4 else "at" %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{{ storage.half_functions() }}
{% for n in operands %}
{{ storage.input(loop.index0, n, DTYPE, WIDTH) }}
{% endfor %}
{% for n in names %}
{{ storage.input(operands | length + loop.index0, n, dtypes[n]) }}
{% endfor %}
{{ storage.output((operands + names) | length, "out", DTYPE, WIDTH) }}
{% if GRADIENT %}
{{ storage.scratch((operands + names) | length + 1, "sums", "vec2<f32>", "read") }}
{% endif %}
{% set members %}
{% for n in operands + names %}o_{{ n }}: u32, {% endfor %}o_out: u32, eps: f32, images: u32, channels: u32, inner: u32,
{% for n in operands %}{{ n }}_image: u32, {{ n }}_channel: u32, {% endfor %}
{% endset %}
{{ storage.parameters(members) }}
alias V = {{ "vec4<f32>" if WIDTH == 4 else "f32" }};
{{ storage.main(GROUP) }}
    let plane = group_id * {{ GROUP // LANES }}u + local_id / {{ LANES }}u;
    if (plane >= p.images * p.channels) { return; }
    let channel = plane % p.channels;
    let image = plane / p.channels;
{% for n in operands %}
    let at_{{ n }} = p.o_{{ n }} + image * p.{{ n }}_image + channel * p.{{ n }}_channel;
{% endfor %}
    let at_out = p.o_out + plane * p.inner;
    let mean = mean_at(p.o_mean + channel);
    let inverse_deviation = 1.0f / sqrt_f32(variance_at(p.o_variance + channel) + p.eps);
    let scale = inverse_deviation{{ " * weight_at(p.o_weight + channel)" if WEIGHT }};
{% if GRADIENT %}
    let means = sums[channel] / (f32(p.images) * f32(p.inner));
    let product = means.x * inverse_deviation;
{% elif BIAS %}
    let shift = bias_at(p.o_bias + channel);
{% endif %}
    for (var i = local_id % {{ LANES }}u * {{ WIDTH }}u; i < p.inner; i += {{ LANES * WIDTH }}u) {
        let centred = x_{{ at }}(at_x + i) - mean;
{% if GRADIENT %}
        let value = (g_{{ at }}(at_g + i) - means.y - centred * product) * scale;
{% else %}
        let value = centred * scale{{ " + shift" if BIAS }};
{% endif %}
        out_{{ "set4" if WIDTH == 4 else "set" }}(at_out + i, value);
    }
}
