{#- Combines the splits of rowwise/batch_norm_partials.wgsl, one lane group per channel, to mean and variance; or, with GRADIENT, to the
    gradients of weight and bias, and to the same sums in float32 in `sums` for rowwise/batch_norm_apply.wgsl. A split of n elements
    whose mean differs by d from the total mean contributes n d^2 to the sum of squares (Chan, Golub and LeVeque, 1983). -#}
{% set GRADIENT = GRADIENT | default(false) %}
{% set OUT_DTYPE = OUT_DTYPE | default("float32") %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{{ storage.half_functions() }}
{{ storage.scratch(0, "partial", "vec2<f32>", "read") }}
{% if GRADIENT %}
{{ storage.input(1, "variances", "float32") }}
{{ storage.output(2, "dweight", OUT_DTYPE) }}
{{ storage.output(3, "dbias", OUT_DTYPE) }}
{{ storage.scratch(4, "sums", "vec2<f32>") }}
{{ storage.parameters("o_variances: u32, o_dweight: u32, o_dbias: u32, channels: u32, splits: u32, eps: f32") }}
{% else %}
{{ storage.output(1, "means", "float32") }}
{{ storage.output(2, "variances", "float32") }}
{{ storage.parameters("o_means: u32, o_variances: u32, channels: u32, splits: u32, split_length: u32, length: u32") }}
fn size(split: u32) -> f32 { return f32(min(p.split_length, p.length - split * p.split_length)); }
{% endif %}
{{ groups.declarations() }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ groups.reduction("group_sums", "vec2<f32>", "a + b") }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let index = group_id * {{ GROUP // LANES }}u + lane_group;
    // Surplus lane groups stay active, because the whole workgroup must reach the barriers.
    let channel = min(index, p.channels - 1u);
    let writes = lane_id == 0u && index == channel;
{% if GRADIENT %}
    var gradients = vec2<f32>();
    for (var split = lane_id; split < p.splits; split += {{ LANES }}u) { gradients += partial[split * p.channels + channel]; }
    gradients = group_sums(gradients);
    if (writes) {
        gradients.x /= sqrt_f32(variances_at(p.o_variances + channel) + p.eps);
        sums[channel] = gradients;
        dweight_set(p.o_dweight + channel, gradients.x);
        dbias_set(p.o_dbias + channel, gradients.y);
    }
{% else %}
    var sum = 0.0f;
    for (var split = lane_id; split < p.splits; split += {{ LANES }}u) { sum += partial[split * p.channels + channel].x * size(split); }
    let mean = group_sum(sum) / f32(p.length);
    var squares = 0.0f;
    for (var split = lane_id; split < p.splits; split += {{ LANES }}u) {
        let statistics = partial[split * p.channels + channel];
        let difference = statistics.x - mean;
        squares += statistics.y + size(split) * difference * difference;
    }
    squares = group_sum(squares);
    if (writes) {
        means_set(p.o_means + channel, mean);
        variances_set(p.o_variances + channel, squares / f32(p.length));
    }
{% endif %}
}
