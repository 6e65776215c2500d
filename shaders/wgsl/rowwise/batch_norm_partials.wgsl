{#- Partial statistics of batch norm, one lane group per split of a channel of x (images, channels, inner). Split n of channel c goes to
    partial[n * channels + c]: its mean and the sum of squared deviations from it, because plain sums of squares would cancel; or with
    GRADIENT the sums of g * (x - mean) and of g. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set GRADIENT = GRADIENT | default(false) %}
{% set WIDTH = WIDTH | default(4) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/term_iterator.wgsl" as terms with context %}
{% set operands = (["g"] if GRADIENT else []) + ["x"] %}
{% set STEP = LANES * WIDTH %}
{% set at = "at4" if WIDTH == 4 else "at" %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% for n in operands %}
{{ storage.input(loop.index0, n, DTYPE, WIDTH) }}
{% endfor %}
{% if GRADIENT %}
{{ storage.input(2, "means", "float32") }}
{% endif %}
{{ storage.scratch(3 if GRADIENT else 1, "partial", "vec2<f32>") }}
{% set members %}
{% for n in operands %}o_{{ n }}: u32, {% endfor %}{{ "o_means: u32, " if GRADIENT }}channels: u32, splits: u32, split_length: u32, length: u32,
{% for n in operands %}{{ n }}_channel: u32, {% endfor %}
{% endset %}
{{ storage.parameters(members ~ terms.members(operands)) }}
{{ groups.declarations() }}
{{ terms.declarations(operands) }}
alias V = {{ "vec4<f32>" if WIDTH == 4 else "f32" }};
fn lanes_sum(v: V) -> f32 { return {{ "(v.x + v.y) + (v.z + v.w)" if WIDTH == 4 else "v" }}; }
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ groups.reduction("group_sums", "vec2<f32>", "a + b") }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let index = group_id * {{ GROUP // LANES }}u + lane_group;
    // Surplus lane groups stay active, because the whole workgroup must reach the barriers.
    let task = min(index, p.channels * p.splits - 1u);
    let channel = task % p.channels;
    let start = task / p.channels * p.split_length;
    let end = min(start + p.split_length, p.length);
    let first = start + lane_id * {{ WIDTH }}u;
{% for n in operands %}
    var {{ n }}_iterator = begin_{{ n }}(p.o_{{ n }} + channel * p.{{ n }}_channel, first);
{% endfor %}
    var sums = V();
{% if GRADIENT %}
    let mean = means_at(p.o_means + channel);
    var products = V();
    for (var t = first; t < end; t += {{ STEP }}u) {
        let grad = g_{{ at }}(g_iterator.at);
        products += grad * (x_{{ at }}(x_iterator.at) - mean);
        sums += grad;
        g_iterator = next_g(g_iterator);
        x_iterator = next_x(x_iterator);
    }
    let result = group_sums(vec2<f32>(lanes_sum(products), lanes_sum(sums)));
{% else %}
    let first_iterator = x_iterator;
    for (var t = first; t < end; t += {{ STEP }}u) {
        sums += x_{{ at }}(x_iterator.at);
        x_iterator = next_x(x_iterator);
    }
    let mean = group_sum(lanes_sum(sums)) / f32(end - start);
    var squares = V();
    x_iterator = first_iterator;
    for (var t = first; t < end; t += {{ STEP }}u) {
        let centred = x_{{ at }}(x_iterator.at) - mean;
        squares += centred * centred;
        x_iterator = next_x(x_iterator);
    }
    let result = vec2<f32>(mean, group_sum(lanes_sum(squares)));
{% endif %}
    if (lane_id == 0u && index == task) { partial[task] = result; }
}
