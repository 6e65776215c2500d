{#- What batch norm gathers of a channel of x (images, channels, inner), in parts of which a team of LANES invocations takes one. Part n of
    channel c goes to partial[n * channels + c]: its mean and the sum of the squares around it, because plain sums of squares would
    cancel; or with GRADIENT the sums of g * (x - mean) and of g. Elements are walked WIDTH at a time as lib/runs.wgsl does. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set GRADIENT = GRADIENT | default(false) %}
{% set WIDTH = WIDTH | default(4) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/runs.wgsl" as runs with context %}
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
{% for n in operands %}o_{{ n }}: u32, {% endfor %}{{ "o_mean: u32, " if GRADIENT }}channels: u32, parts: u32, part_length: u32, length: u32,
{% for n in operands %}{{ n }}_channel: u32, {% endfor %}
{% endset %}
{{ storage.parameters(members ~ runs.members(operands)) }}
{{ groups.declarations() }}
{{ runs.declarations(operands) }}
alias V = {{ "vec4<f32>" if WIDTH == 4 else "f32" }};
fn lanes_sum(v: V) -> f32 { return {{ "(v.x + v.y) + (v.z + v.w)" if WIDTH == 4 else "v" }}; }
{{ groups.reduction("team_sum", "f32", "a + b") }}
{{ groups.reduction("team_sums", "vec2<f32>", "a + b") }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let wanted = group * {{ GROUP // LANES }}u + team;
    // Superfluous teams go along, because the others count on their presence.
    let task = min(wanted, p.channels * p.parts - 1u);
    let channel = task % p.channels;
    let start = task / p.channels * p.part_length;
    let end = min(start + p.part_length, p.length);
    let first = start + me * {{ WIDTH }}u;
{% for n in operands %}
    var {{ n }}_walk = walk_{{ n }}(p.o_{{ n }} + channel * p.{{ n }}_channel, first);
{% endfor %}
    var sums = V();
{% if GRADIENT %}
    let mean = means_at(p.o_mean + channel);
    var products = V();
    for (var t = first; t < end; t += {{ STEP }}u) {
        let slope = g_{{ at }}(g_walk.at);
        products += slope * (x_{{ at }}(x_walk.at) - mean);
        sums += slope;
        g_walk = next_g(g_walk);
        x_walk = next_x(x_walk);
    }
    let result = team_sums(vec2<f32>(lanes_sum(products), lanes_sum(sums)));
{% else %}
    let begin = x_walk;
    for (var t = first; t < end; t += {{ STEP }}u) {
        sums += x_{{ at }}(x_walk.at);
        x_walk = next_x(x_walk);
    }
    let mean = team_sum(lanes_sum(sums)) / f32(end - start);
    var squares = V();
    x_walk = begin;
    for (var t = first; t < end; t += {{ STEP }}u) {
        let centred = x_{{ at }}(x_walk.at) - mean;
        squares += centred * centred;
        x_walk = next_x(x_walk);
    }
    let result = vec2<f32>(mean, team_sum(lanes_sum(squares)));
{% endif %}
    if (me == 0u && wanted == task) { partial[task] = result; }
}
