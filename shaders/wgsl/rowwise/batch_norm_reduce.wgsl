{#- The parts of rowwise/batch_norm_partials.wgsl joined: a team of LANES invocations takes a channel. Gives mean and variance; or, with GRADIENT, the
    gradients of weight and bias, and for rowwise/batch_norm_apply.wgsl the same sums once more in `sums`, where they are not rounded.
    Means of parts of n elements that are d off the whole's add n d^2 to the squares (Chan, Golub and LeVeque, 1983). -#}
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
{{ storage.parameters("o_variance: u32, o_dweight: u32, o_dbias: u32, channels: u32, parts: u32, eps: f32") }}
{% else %}
{{ storage.output(1, "means", "float32") }}
{{ storage.output(2, "variances", "float32") }}
{{ storage.parameters("o_mean: u32, o_variance: u32, channels: u32, parts: u32, part_length: u32, length: u32") }}
fn size(part: u32) -> f32 { return f32(min(p.part_length, p.length - part * p.part_length)); }
{% endif %}
{{ groups.declarations() }}
{{ groups.reduction("team_sum", "f32", "a + b") }}
{{ groups.reduction("team_sums", "vec2<f32>", "a + b") }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let wanted = group * {{ GROUP // LANES }}u + team;
    // Superfluous teams go along, because the others count on their presence.
    let channel = min(wanted, p.channels - 1u);
    let writes = me == 0u && wanted == channel;
{% if GRADIENT %}
    var both = vec2<f32>();
    for (var part = me; part < p.parts; part += {{ LANES }}u) { both += partial[part * p.channels + channel]; }
    both = team_sums(both);
    if (writes) {
        both.x /= sqrt_f32(variances_at(p.o_variance + channel) + p.eps);
        sums[channel] = both;
        dweight_set(p.o_dweight + channel, both.x);
        dbias_set(p.o_dbias + channel, both.y);
    }
{% else %}
    var sum = 0.0f;
    for (var part = me; part < p.parts; part += {{ LANES }}u) { sum += partial[part * p.channels + channel].x * size(part); }
    let mean = team_sum(sum) / f32(p.length);
    var squares = 0.0f;
    for (var part = me; part < p.parts; part += {{ LANES }}u) {
        let found = partial[part * p.channels + channel];
        let off = found.x - mean;
        squares += found.y + size(part) * off * off;
    }
    squares = team_sum(squares);
    if (writes) {
        means_set(p.o_mean + channel, mean);
        variances_set(p.o_variance + channel, squares / f32(p.length));
    }
{% endif %}
}
