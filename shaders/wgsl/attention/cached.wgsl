{#- Attention of few queries to a key-value cache, of which only the filled positions are read: their number comes from memory, so that one
    recorded launch serves all lengths. The queries of all heads that share keys are rows; a workgroup takes ROWS of them and a range of
    the keys. It iterates over GROUP keys at a time: an invocation first computes the scores of one key, then adds to four features the
    values of several keys. Where workgroups share the keys (SPLIT), attention/cached_reduce.wgsl combines their results. Source: Dao et
    al., Flash-Decoding for long-context inference, 2023. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set CACHE_DTYPE = CACHE_DTYPE | default("float32") %}
{% set ROWS = ROWS | default(1) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = GROUP %}
{% set QUADS = QUADS | default(16) %}
{% set VALUE_QUADS = VALUE_QUADS | default(16) %}
{% set Q_WIDTH = Q_WIDTH | default(1) %}
{% set WIDTH = WIDTH | default(1) %}
{% set SOFTCAP = SOFTCAP | default(false) %}
{% set SPLIT = SPLIT | default(false) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{#- Keys whose values are added at a time. -#}
{% set SLICES = GROUP // VALUE_QUADS %}
{% set V = {1: "f32", 2: "vec2<f32>", 4: "vec4<f32>"}[ROWS] %}
{% macro of_row(name, r) %}{{ name }}{{ "." ~ "xyzw"[r] if ROWS > 1 }}{% endmacro %}
{% macro each_row(name) %}{{ V }}({% for r in range(ROWS) %}{{ ", " if r }}{{ name ~ r }}{% endfor %}){% endmacro %}
{{ storage.enable() }}
{% include "lib/float_functions.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "q", DTYPE, Q_WIDTH) }}
{{ storage.input(1, "k", CACHE_DTYPE, WIDTH) }}
{{ storage.input(2, "v", CACHE_DTYPE, WIDTH) }}
{{ storage.scratch(3, "lengths", "i32", "read") }}
{% if SPLIT %}
{{ storage.scratch(4, "partial", "vec4<f32>") }}
{% else %}
{{ storage.output(4, "out", DTYPE) }}
{% endif %}
{{ storage.parameters("o_q: u32, o_k: u32, o_v: u32, o_lengths: u32, " ~ ("" if SPLIT else "o_out: u32, ") ~ "heads: u32, kept: u32,
    queries: u32, rows: u32, capacity: u32, splits: u32, length_step: u32, q_batch: u32, q_head: u32, q_row: u32, k_batch: u32, k_head: u32,
    k_row: u32, v_batch: u32, v_head: u32, v_row: u32, window: i32, scale: f32, softcap: f32") }}
var<workgroup> query: array<vec4<f32>, {{ ROWS * QUADS }}>;
var<workgroup> weights: array<{{ V }}, {{ GROUP }}>;
var<workgroup> sums: array<vec4<f32>, {{ SLICES * VALUE_QUADS }}>;
{{ groups.declarations() }}
{{ groups.reduction("largest", V, "max(a, b)") }}
{{ groups.reduction("total", V, "a + b") }}
fn exponentials(x: {{ V }}) -> {{ V }} { return {{ V }}({% for r in range(ROWS) %}{{ ", " if r }}exp_nonpositive_f32({{ of_row("x", r) }}){% endfor %}); }
fn shift_of_row(x: f32) -> f32 { return select(x, 0.0f, bitcast<u32>(x) == 0xff800000u); }
fn shifts(x: {{ V }}) -> {{ V }} { return {{ V }}({% for r in range(ROWS) %}{{ ", " if r }}shift_of_row({{ of_row("x", r) }}){% endfor %}); }
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let split = group_id % p.splits;
    let blocks = (p.rows + {{ ROWS - 1 }}u) / {{ ROWS }}u;
    let first_row = group_id / p.splits % blocks * {{ ROWS }}u;
    let head = group_id / p.splits / blocks;
    if (head >= p.heads) { return; }
    let batch = head / p.kept;
    let kept = head % p.kept;
    let filled = lengths[p.o_lengths + batch * p.length_step];
    // The first query sees the first key, the last one the last key.
    let start = select(0, max(filled + 1 - p.window, 0), p.window > 0);
    let stop = min(max(filled, 0) + i32(p.queries), i32(p.capacity));
    let each = (max(stop - start, 0) + i32(p.splits) - 1) / i32(p.splits);
    let begin = start + i32(split) * each;
    let end = min(begin + each, stop);
    let k_base = p.o_k + batch * p.k_batch + kept * p.k_head;
    let v_base = p.o_v + batch * p.v_batch + kept * p.v_head;
    for (var i = local_id; i < {{ ROWS * QUADS }}u; i += {{ GROUP }}u) {
        let row = min(first_row + i / {{ QUADS }}u, p.rows - 1u);
        let q_head = kept * (p.rows / p.queries) + row / p.queries;
        query[i] = q_at4(p.o_q + batch * p.q_batch + q_head * p.q_head + row % p.queries * p.q_row + i % {{ QUADS }}u * 4u) * p.scale;
    }
{% for r in range(ROWS) %}
    let place{{ r }} = filled + i32(min(first_row + {{ r }}u, p.rows - 1u) % p.queries);
    var result{{ r }} = vec4<f32>();
{% endfor %}
    var running_max = {{ V }}(-infinity());
    var running_sum = {{ V }}();
    let quad = local_id % {{ VALUE_QUADS }}u;
    let slice = local_id / {{ VALUE_QUADS }}u;
    workgroupBarrier();
    for (var first = begin; first < end; first += {{ GROUP }}) {
        // Not `local_id`: the reductions number invocations by subgroups.
        let key = first + i32(lane_id);
{% for r in range(ROWS) %}
        var score{{ r }} = 0.0f;
{% endfor %}
        if (key < end) {
            let at = k_base + u32(key) * p.k_row;
            for (var j = 0u; j < {{ QUADS }}u; j++) {
                let x = k_at4(at + 4u * j);
{% for r in range(ROWS) %}
                score{{ r }} += dot(query[j + {{ r * QUADS }}u], x);
{% endfor %}
            }
        }
{% for r in range(ROWS) %}
{% if SOFTCAP %}
        score{{ r }} = p.softcap * tanh_f32(score{{ r }} / p.softcap);
{% endif %}
        score{{ r }} = select(-infinity(), score{{ r }}, key < end && key <= place{{ r }} && (p.window == 0 || key > place{{ r }} - p.window));
{% endfor %}
        let scores = {{ each_row("score") }};
        let new_max = max(running_max, largest(scores));
        let shift = shifts(new_max);
        let rescale = exponentials(running_max - shift);
        let weight = exponentials(scores - shift);
        running_sum = running_sum * rescale + weight;
        running_max = new_max;
        weights[lane_id] = weight;
        workgroupBarrier();
{% for r in range(ROWS) %}
        result{{ r }} *= {{ of_row("rescale", r) }};
{% endfor %}
        if (slice < {{ SLICES }}u) {
            let count = min(u32(end - first), {{ GROUP }}u);
            let at = v_base + u32(first) * p.v_row + 4u * quad;
            for (var i = slice; i < count; i += {{ SLICES }}u) {
                let x = v_at4(at + i * p.v_row);
                let w = weights[i];
{% for r in range(ROWS) %}
                result{{ r }} += {{ of_row("w", r) }} * x;
{% endfor %}
            }
        }
        workgroupBarrier();
    }
    let whole = total(running_sum);
{% for r in range(ROWS) %}
    workgroupBarrier();
    if (slice < {{ SLICES }}u) { sums[local_id] = result{{ r }}; }
    workgroupBarrier();
    if (local_id < {{ VALUE_QUADS }}u && first_row + {{ r }}u < p.rows) {
        var sum = sums[local_id];
{% for s in range(1, SLICES) %}
        sum += sums[local_id + {{ s * VALUE_QUADS }}u];
{% endfor %}
        let row = head * p.rows + first_row + {{ r }}u;
{% if SPLIT %}
        let to = (row * p.splits + split) * {{ VALUE_QUADS + 1 }}u;
        partial[to + local_id] = sum;
        if (local_id == 0u) { partial[to + {{ VALUE_QUADS }}u] = vec4<f32>({{ of_row("running_max", r) }}, {{ of_row("whole", r) }}, 0.0f, 0.0f); }
{% else %}
        let inverse = select(1.0f / {{ of_row("whole", r) }}, 0.0f, {{ of_row("whole", r) }} == 0.0f);
        out_set4(p.o_out + row * {{ 4 * VALUE_QUADS }}u + 4u * local_id, sum * inverse);
{% endif %}
    }
{% endfor %}
}
