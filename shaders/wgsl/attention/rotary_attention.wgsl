{#- One new position per sequence: its query and key are rotated, its key and value become row `lengths[i]` of a cache (batch, cached,
    capacity, HEAD_SIZE), and its queries attend to the filled rows. A workgroup takes ROWS of the queries that share a head of the cache,
    and rotates the new key itself, so that no group waits for another. FEATURE_LANES neighbouring invocations share a key, eight features
    each, and exchange partial scores by shuffles; a workgroup reads KEYS of them per invocation at a time, the next ones while it uses
    the current ones. Features and their pairs are as in attention/rotary_store.wgsl. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set CACHE_DTYPE = CACHE_DTYPE | default("float32") %}
{% set TABLE_DTYPE = TABLE_DTYPE | default("float32") %}
{% set HEAD_SIZE = HEAD_SIZE | default(32) %}
{% set INTERLEAVED = INTERLEAVED | default(false) %}
{% set SOFTCAP = SOFTCAP | default(false) %}
{% set ROWS = ROWS | default(1) %}
{% set KEYS = KEYS | default(1) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = GROUP %}
{% set SUBGROUP = SUBGROUP | default(8) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% set FEATURE_LANES = HEAD_SIZE // 8 %}
{% set KEY_LANES = GROUP // FEATURE_LANES %}
{% set PAIRS = HEAD_SIZE // 2 %}
{% set QUADS = HEAD_SIZE // 4 %}
{#- Lanes of a subgroup whose results are combined by shuffles, and the parts that are left. -#}
{% set SEGMENT = [SUBGROUP, GROUP] | min %}
{% set PARTS = GROUP // SEGMENT %}
{% set IN_WORDS = CACHE_DTYPE != "float32" %}
{% set RAW = "vec4<u32>" if IN_WORDS else "vec4<f32>" %}
{#- Vectors of a cache that hold eight features. -#}
{% set VECTORS = 1 if IN_WORDS else 2 %}
{% set V = {1: "f32", 2: "vec2<f32>", 4: "vec4<f32>"}[KEYS] %}
{% macro of_key(name, i) %}{{ name }}{{ "." ~ "xyzw"[i] if KEYS > 1 }}{% endmacro %}
{{ storage.enable() }}
{% include "lib/float_functions.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "q", DTYPE) }}
{{ storage.input(1, "k", DTYPE) }}
{{ storage.input(2, "v", DTYPE) }}
{{ storage.scratch(3, "lengths", "i32", "read") }}
{{ storage.input(4, "cosines", TABLE_DTYPE) }}
{{ storage.input(5, "sines", TABLE_DTYPE) }}
{{ storage.scratch(6, "keys", RAW) }}
{{ storage.scratch(7, "values", RAW) }}
{{ storage.output(8, "out", DTYPE, 4) }}
{{ storage.parameters("o_q: u32, o_k: u32, o_v: u32, o_lengths: u32, o_cosines: u32, o_sines: u32, o_keys: u32, o_values: u32, o_out: u32,
    q_b0: u32, q_b1: u32, k_b0: u32, k_b1: u32, v_b0: u32, v_b1: u32, cosines_b0: u32, sines_b0: u32, lengths_step: u32, size: u32,
    shared_: u32, cached: u32, half_: u32, capacity: u32, window: i32, scale: f32, softcap: f32") }}
{#- As it is after storing it. -#}
{% macro rounded(dtype, value) %}
{%- if dtype == "bfloat16" -%} bitcast<f32>(bfloat16_bits({{ value }}) << 16u)
{%- elif dtype == "float16" -%} unpack2x16float(float16_bits({{ value }})).x
{%- else -%} {{ value }}
{%- endif -%}
{% endmacro %}
{% if CACHE_DTYPE == "bfloat16" %}
fn first_four(x: vec4<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(x.x << 16u, x.x & 0xffff0000u, x.y << 16u, x.y & 0xffff0000u));
}
{% elif IN_WORDS %}
fn first_four(x: vec4<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(x.x), unpack2x16float(x.y)); }
{% endif %}
{% if IN_WORDS %}
{% set bits = "bfloat16_bits" if CACHE_DTYPE == "bfloat16" else "float16_bits" %}
fn words(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
    return vec4<u32>({% for pair in ("a.x a.y", "a.z a.w", "b.x b.y", "b.z b.w") %}{{ ", " if not loop.first }}{{ bits }}({{ pair.split()[0] }}) | ({{ bits }}({{ pair.split()[1] }}) << 16u){% endfor %});
}
{% endif %}
{% macro four(name, i) %}{{ "first_four(" ~ name ~ "0" ~ (".zwzw" if i) ~ ")" if IN_WORDS else name ~ i }}{% endmacro %}
{#- Rotated queries, the rotated new key, and the new value. -#}
var<workgroup> rows: array<vec4<f32>, {{ (ROWS + 2) * QUADS }}>;
var<workgroup> part_sums: array<vec4<f32>, {{ PARTS * ROWS * QUADS }}>;
var<workgroup> part_max: array<f32, {{ PARTS * ROWS }}>;
var<workgroup> part_total: array<f32, {{ PARTS * ROWS }}>;
{{ groups.declarations() }}
fn shift_of(x: f32) -> f32 { return select(x, 0.0f, bitcast<u32>(x) == 0xff800000u); }
fn sum_of_features(value: {{ V }}) -> {{ V }} {
    var sum = value;
{% for step in range(5) if 2 ** step < FEATURE_LANES %}
    sum += subgroupShuffleXor(sum, {{ 2 ** step }}u);
{% endfor %}
    return sum;
}
fn capped(score: f32) -> f32 { return {{ "p.softcap * tanh_f32(score / p.softcap)" if SOFTCAP else "score" }}; }
{% macro load_keys(step) %}
{% for i in range(KEYS) %}
            {
                let at = {{ VECTORS }}u * (min(first + ({{ step }} * {{ KEYS }}u + {{ i }}u) * {{ KEY_LANES }}u + key_lane, end - 1u) * {{ FEATURE_LANES }}u + feature_lane);
{% for j in range(VECTORS) %}
                next_k{{ i }}_{{ j }} = keys[k_base + at + {{ j }}u];
                next_v{{ i }}_{{ j }} = values[v_base + at + {{ j }}u];
{% endfor %}
            }
{% endfor %}
{% endmacro %}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let blocks = (p.shared_ + {{ ROWS - 1 }}u) / {{ ROWS }}u;
    let head = group_id / blocks;
    if (head >= p.size) { return; }
    let first_row = group_id % blocks * {{ ROWS }}u;
    let batch = head / p.cached;
    let kept = head % p.cached;
    let feature_lane = lane_id % {{ FEATURE_LANES }}u;
    let key_lane = lane_id / {{ FEATURE_LANES }}u;
    let place = lengths[p.o_lengths + batch * p.lengths_step];
    // The positions before the new one.
    let end = u32(clamp(place, 0, i32(p.capacity)));
    let first = select(0u, u32(clamp(place - p.window + 1, 0, i32(end))), p.window > 0);
    let steps = (end - first + {{ KEYS * KEY_LANES - 1 }}u) / {{ KEYS * KEY_LANES }}u;
    let head_start = head * p.capacity * {{ FEATURE_LANES * VECTORS }}u;
    let k_base = p.o_keys / {{ 8 // VECTORS }}u + head_start;
    let v_base = p.o_values / {{ 8 // VECTORS }}u + head_start;
{% for i in range(KEYS) %}
{% for j in range(VECTORS) %}
    var next_k{{ i }}_{{ j }} = {{ RAW }}();
    var next_v{{ i }}_{{ j }} = {{ RAW }}();
{% endfor %}
{% endfor %}
    if (steps > 0u) {
{{ load_keys("0u") }}
    }
    for (var item = local_id; item < {{ (ROWS + 2) * PAIRS }}u; item += {{ GROUP }}u) {
        let row = item / {{ PAIRS }}u;
        let pair = item % {{ PAIRS }}u;
        let in_pairs = pair < p.half_;
{% if INTERLEAVED %}
        let one = 2u * pair;
        let other = one + 1u;
{% else %}
        // Pairs of features that are not rotated are neighbours.
        let one = select(2u * pair, pair, in_pairs);
        let other = select(one + 1u, pair + p.half_, in_pairs);
{% endif %}
        var a = 0.0f;
        var b = 0.0f;
        if (row < {{ ROWS }}u) {
            let at = p.o_q + batch * p.q_b0 + (kept * p.shared_ + min(first_row + row, p.shared_ - 1u)) * p.q_b1;
            a = q_at(at + one);
            b = q_at(at + other);
        } else if (row == {{ ROWS }}u) {
            let at = p.o_k + batch * p.k_b0 + kept * p.k_b1;
            a = k_at(at + one);
            b = k_at(at + other);
        } else {
            let at = p.o_v + batch * p.v_b0 + kept * p.v_b1;
            a = v_at(at + one);
            b = v_at(at + other);
        }
        if (in_pairs && row <= {{ ROWS }}u) {
            let c = cosines_at(p.o_cosines + batch * p.cosines_b0 + pair);
            let s = sines_at(p.o_sines + batch * p.sines_b0 + pair);
            let along = a * c - b * s;
            b = b * c + a * s;
            a = along;
        }
        if (row < {{ ROWS }}u) {
            a = {{ rounded(DTYPE, "a") }};
            b = {{ rounded(DTYPE, "b") }};
        } else {
            a = {{ rounded(CACHE_DTYPE, "a") }};
            b = {{ rounded(CACHE_DTYPE, "b") }};
        }
        let to = row * {{ HEAD_SIZE }}u;
        rows[(to + one) >> 2u][one & 3u] = a;
        rows[(to + other) >> 2u][other & 3u] = b;
    }
    workgroupBarrier();
    let quad = 2u * feature_lane;
    let stored = place >= 0 && place < i32(p.capacity);
    if (stored && first_row == 0u && key_lane == 0u) {
        let to = {{ VECTORS }}u * (u32(place) * {{ FEATURE_LANES }}u + feature_lane);
        let key = {{ ROWS * QUADS }}u + quad;
        let value = key + {{ QUADS }}u;
{% if IN_WORDS %}
        keys[k_base + to] = words(rows[key], rows[key + 1u]);
        values[v_base + to] = words(rows[value], rows[value + 1u]);
{% else %}
{% for j in range(2) %}
        keys[k_base + to + {{ j }}u] = rows[key + {{ j }}u];
        values[v_base + to + {{ j }}u] = rows[value + {{ j }}u];
{% endfor %}
{% endif %}
    }
    // One row of invocations begins with the new position.
    let begins = stored && key_lane == 0u;
{% for r in range(ROWS) %}
    let q{{ r }}_0 = rows[{{ r * QUADS }}u + quad] * p.scale;
    let q{{ r }}_1 = rows[{{ r * QUADS }}u + quad + 1u] * p.scale;
    let new_score{{ r }} = sum_of_features({{ V }}(dot(q{{ r }}_0, rows[{{ ROWS * QUADS }}u + quad]) + dot(q{{ r }}_1, rows[{{ ROWS * QUADS }}u + quad + 1u])));
    var running_max{{ r }} = select(-infinity(), capped({{ of_key("new_score" ~ r, 0) }}), begins);
    var running_sum{{ r }} = select(0.0f, 1.0f, begins);
    var sum{{ r }}_0 = select(vec4<f32>(), rows[{{ (ROWS + 1) * QUADS }}u + quad], begins);
    var sum{{ r }}_1 = select(vec4<f32>(), rows[{{ (ROWS + 1) * QUADS }}u + quad + 1u], begins);
{% endfor %}
    for (var step = 0u; step < steps; step++) {
{% for i in range(KEYS) %}
{% for j in range(VECTORS) %}
        let k{{ i }}_{{ j }} = next_k{{ i }}_{{ j }};
        let v{{ i }}_{{ j }} = next_v{{ i }}_{{ j }};
{% endfor %}
{% endfor %}
        if (step + 1u < steps) {
{{ load_keys("(step + 1u)") }}
        }
{% for i in range(KEYS) %}
        let here{{ i }} = first + (step * {{ KEYS }}u + {{ i }}u) * {{ KEY_LANES }}u + key_lane < end;
{% for j in range(2) %}
        let key{{ i }}_{{ j }} = {{ four("k" ~ i ~ "_", j) }};
        let value{{ i }}_{{ j }} = {{ four("v" ~ i ~ "_", j) }};
{% endfor %}
{% endfor %}
{% for r in range(ROWS) %}
        {
            let scores = sum_of_features({{ V }}({% for i in range(KEYS) %}{{ ", " if i }}dot(q{{ r }}_0, key{{ i }}_0) + dot(q{{ r }}_1, key{{ i }}_1){% endfor %}));
            var new_max = running_max{{ r }};
{% for i in range(KEYS) %}
            let score{{ i }} = select(-infinity(), capped({{ of_key("scores", i) }}), here{{ i }});
            new_max = max(new_max, score{{ i }});
{% endfor %}
            // While an invocation has had no key, 0 is subtracted: the exponential of -inf is 0.
            let shift = shift_of(new_max);
            let rescale = exp_nonpositive_f32(running_max{{ r }} - shift);
            running_max{{ r }} = new_max;
            running_sum{{ r }} *= rescale;
            sum{{ r }}_0 *= rescale;
            sum{{ r }}_1 *= rescale;
{% for i in range(KEYS) %}
            let weight{{ i }} = exp_nonpositive_f32(score{{ i }} - shift);
            running_sum{{ r }} += weight{{ i }};
{% for j in range(2) %}
            sum{{ r }}_{{ j }} += weight{{ i }} * value{{ i }}_{{ j }};
{% endfor %}
{% endfor %}
        }
{% endfor %}
    }
    let part = lane_id / {{ SEGMENT }}u;
{% for r in range(ROWS) %}
    {
{% if SEGMENT > FEATURE_LANES %}
        var largest = running_max{{ r }};
{% for step in range(7) if FEATURE_LANES <= 2 ** step < SEGMENT %}
        largest = max(largest, subgroupShuffleXor(largest, {{ 2 ** step }}u));
{% endfor %}
        let factor = exp_nonpositive_f32(running_max{{ r }} - shift_of(largest));
        running_max{{ r }} = largest;
        running_sum{{ r }} *= factor;
        sum{{ r }}_0 *= factor;
        sum{{ r }}_1 *= factor;
{% for step in range(7) if FEATURE_LANES <= 2 ** step < SEGMENT %}
        running_sum{{ r }} += subgroupShuffleXor(running_sum{{ r }}, {{ 2 ** step }}u);
{% for j in range(2) %}
        sum{{ r }}_{{ j }} += subgroupShuffleXor(sum{{ r }}_{{ j }}, {{ 2 ** step }}u);
{% endfor %}
{% endfor %}
{% endif %}
        if (lane_id % {{ SEGMENT }}u < {{ FEATURE_LANES }}u) {
            let to = (part * {{ ROWS }}u + {{ r }}u) * {{ QUADS }}u + quad;
            part_sums[to] = sum{{ r }}_0;
            part_sums[to + 1u] = sum{{ r }}_1;
            part_max[part * {{ ROWS }}u + {{ r }}u] = running_max{{ r }};
            part_total[part * {{ ROWS }}u + {{ r }}u] = running_sum{{ r }};
        }
    }
{% endfor %}
    workgroupBarrier();
    for (var at = local_id; at < {{ ROWS * QUADS }}u; at += {{ GROUP }}u) {
        let row = at / {{ QUADS }}u;
        if (first_row + row < p.shared_) {
            var largest = -infinity();
            for (var i = 0u; i < {{ PARTS }}u; i++) { largest = max(largest, part_max[i * {{ ROWS }}u + row]); }
            let shift = shift_of(largest);
            var total = 0.0f;
            var sum = vec4<f32>();
            for (var i = 0u; i < {{ PARTS }}u; i++) {
                let factor = exp_nonpositive_f32(part_max[i * {{ ROWS }}u + row] - shift);
                total += factor * part_total[i * {{ ROWS }}u + row];
                sum += factor * part_sums[i * {{ ROWS * QUADS }}u + at];
            }
            let to = p.o_out + (head * p.shared_ + first_row) * {{ HEAD_SIZE }}u + 4u * at;
            out_set4(to, sum * select(1.0f / total, 0.0f, total == 0.0f));
        }
    }
}
