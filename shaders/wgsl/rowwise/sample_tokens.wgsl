{#- Token ids drawn from rows of logits: temperature, top-k, top-p, min-p and typical sampling. A workgroup takes one row. Nothing is sorted:
    each filter is a threshold, found by bisection over the bits of the weights, whose order as integers is their order as numbers.
    Weights are kept in `weights` (rows, size). Filters that are off are loops without iterations. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = GROUP %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% set PARAMETERS = [("temperature", "f32"), ("top_k", "i32"), ("top_p", "f32"), ("min_p", "f32"), ("typical_p", "f32"), ("seeds", "i32"), ("counters", "i32")] %}
{% set OFFSETS %}{% for name, type in PARAMETERS %}o_{{ name }}: u32, {% endfor %}{% endset %}
{#- Bits of the largest weight, 1, and of infinity. -#}
{% set ONE = "0x3f800000u" %}
{% set INFINITE = "0x7f800000u" %}
{{ storage.enable() }}
{% include "lib/exponential.wgsl" %}
{% include "lib/philox.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "logits", DTYPE) }}
{% for name, type in PARAMETERS %}
{{ storage.scratch(loop.index, name, type, "read") }}
{% endfor %}
{{ storage.scratch(8, "out", "i32") }}
{{ storage.scratch(9, "weights", "f32") }}
{{ storage.parameters("o_logits: u32, " ~ OFFSETS ~ "o_out: u32, pitch: u32, rows: u32, size: u32") }}
{{ groups.declarations() }}
{{ groups.reduction("largest", "f32", "select(a, b, b > a)") }}
{{ groups.reduction("smallest", "u32", "min(a, b)") }}
{{ groups.reduction("total", "f32", "a + b") }}
var<workgroup> parts: array<f32, {{ GROUP }}>;
var<workgroup> chosen: u32;
{#- The sum over the row of `term` over the elements for which `condition` holds. -#}
{% macro sum_where(name, condition, term) %}
    var {{ name }}_part = 0.0f;
    for (var i = lane_id; i < p.size; i += {{ GROUP }}u) {
        let weight = weights[first + i];
        if ({{ condition }}) { {{ name }}_part += {{ term }}; }
    }
    let {{ name }} = total({{ name }}_part);
{% endmacro %}
{% set kept = "bitcast<u32>(weight) >= threshold && weight > 0.0f" %}
{% set shifted = "(logits_at(at + i) - top) / heat" %}
{% set distance = "bitcast<u32>(fabs_f32(mean - " ~ shifted ~ "))" %}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let row = group_id;
    if (row >= p.rows) { return; }
    let at = p.o_logits + row * p.pitch;
    let first = row * p.size;
    let given = temperature[p.o_temperature + row];
    let greedy = given == 0.0f;
    let heat = select(given, 1.0f, greedy);
    var most = -infinity();
    for (var i = lane_id; i < p.size; i += {{ GROUP }}u) { most = select(most, logits_at(at + i), logits_at(at + i) > most); }
    let top = largest(most);
    var earliest = p.size - 1u;
    for (var i = lane_id; i < p.size; i += {{ GROUP }}u) {
        if (logits_at(at + i) == top) { earliest = min(earliest, i); }
        weights[first + i] = exp_nonpositive_f32({{ shifted }});
    }
    let best = smallest(earliest);
    var threshold = 0u;
    let k = top_k[p.o_top_k + row];
    var limit = select(0u, {{ ONE }} + 1u, k > 0 && k < i32(p.size) && !greedy);
    while (limit > threshold + 1u) {
        let middle = threshold + (limit - threshold) / 2u;
{{ sum_where("count", "bitcast<u32>(weight) >= middle", "1.0f") }}
        let enough = count >= f32(k);
        threshold = select(threshold, middle, enough);
        limit = select(middle, limit, enough);
    }
    let nucleus = top_p[p.o_top_p + row];
{{ sum_where("mass", "bitcast<u32>(weight) >= threshold", "weight") }}
    limit = select(0u, {{ ONE }} + 1u, nucleus < 1.0f && !greedy);
    while (limit > threshold + 1u) {
        let middle = threshold + (limit - threshold) / 2u;
{{ sum_where("sum", "bitcast<u32>(weight) >= middle", "weight") }}
        let enough = sum >= nucleus * mass;
        threshold = select(threshold, middle, enough);
        limit = select(middle, limit, enough);
    }
    threshold = max(threshold, bitcast<u32>(max(min_p[p.o_min_p + row], 0.0f)));
    // Information of a token relative to its mean: the logarithm of a weight is its shifted logit.
{{ sum_where("whole", kept, "weight") }}
{{ sum_where("moment", kept, "weight * (" ~ shifted ~ ")") }}
    let mean = moment / whole;
    let typical = typical_p[p.o_typical_p + row];
    var least = 0u;
    limit = select(0u, {{ INFINITE }}, typical < 1.0f && !greedy);
    while (least < limit) {
        let middle = least + (limit - least) / 2u;
{{ sum_where("near", kept ~ " && " ~ distance ~ " <= middle", "weight") }}
        let enough = near >= typical * whole;
        limit = select(limit, middle, enough);
        least = select(middle + 1u, least, enough);
    }
    for (var i = lane_id; i < p.size; i += {{ GROUP }}u) {
        let weight = weights[first + i];
        if (!({{ kept }} && (typical >= 1.0f || {{ distance }} <= least))) { weights[first + i] = 0.0f; }
    }
    // Each invocation sums consecutive weights; the one in whose part the drawn number falls walks it.
    let seed = vec2<u32>(bitcast<u32>(seeds[p.o_seeds + 2u * row]), bitcast<u32>(seeds[p.o_seeds + 2u * row + 1u]));
    let word = philox(vec2<u32>(bitcast<u32>(counters[p.o_counters + row]), 0u), seed).x;
    let fraction = f32(word >> 8u) * {{ 2.0 ** -24 }}f;
    let share = (p.size + {{ GROUP - 1 }}u) / {{ GROUP }}u;
    let begin = min(lane_id * share, p.size);
    let end = min(begin + share, p.size);
    storageBarrier();
    workgroupBarrier();
    var part = 0.0f;
    for (var i = begin; i < end; i++) { part += weights[first + i]; }
    parts[lane_id] = part;
    workgroupBarrier();
    if (lane_id == 0u) {
        var sum = 0.0f;
        var last = 0u;
        for (var lane = 0u; lane < {{ GROUP }}u; lane++) {
            if (parts[lane] > 0.0f) { last = lane; }
            sum += parts[lane];
        }
        let aim = fraction * sum;
        var before = 0.0f;
        var lane = 0u;
        while (lane < last && before + parts[lane] <= aim) {
            before += parts[lane];
            lane += 1u;
        }
        chosen = lane;
        parts[0] = aim - before;
    }
    workgroupBarrier();
    if (lane_id == chosen) {
        let aim = parts[0];
        var sum = 0.0f;
        var token = begin;
        for (var i = begin; i < end && sum <= aim; i++) {
            let weight = weights[first + i];
            sum += weight;
            token = select(token, i, weight > 0.0f);
        }
        out[p.o_out + row] = i32(select(token, best, greedy));
    }
}
