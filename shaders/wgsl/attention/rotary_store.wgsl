{#- Rows of queries and keys rotated by angles that depend on the position; queries are written to `out` (batch, heads, rows, width), keys and
    values to a cache (batch, cached, capacity, width): in sequence i at row `lengths[i]` and after. One pair of features per invocation,
    `size` of them. The first 2 half_ features are rotated. Rows outside of the cache are dropped. With INTERLEAVED, neighbouring features
    are pairs. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set CACHE_DTYPE = CACHE_DTYPE | default("float32") %}
{% set TABLE_DTYPE = TABLE_DTYPE | default("float32") %}
{% set INTERLEAVED = INTERLEAVED | default(false) %}
{% set GROUP = GROUP | default(64) %}
{% import "lib/storage.wgsl" as storage with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "q", DTYPE) }}
{{ storage.input(1, "k", DTYPE) }}
{{ storage.input(2, "v", DTYPE) }}
{{ storage.scratch(3, "lengths", "i32", "read") }}
{{ storage.input(4, "cosines", TABLE_DTYPE) }}
{{ storage.input(5, "sines", TABLE_DTYPE) }}
{{ storage.output(6, "keys", CACHE_DTYPE) }}
{{ storage.output(7, "values", CACHE_DTYPE) }}
{{ storage.output(8, "out", DTYPE) }}
{{ storage.parameters("o_q: u32, o_k: u32, o_v: u32, o_lengths: u32, o_cosines: u32, o_sines: u32, o_keys: u32, o_values: u32, o_out: u32,
    q_b0: u32, q_b1: u32, q_row: u32, k_b0: u32, k_b1: u32, k_row: u32, v_b0: u32, v_b1: u32, v_row: u32, cosines_b0: u32, cosines_row: u32,
    sines_b0: u32, sines_row: u32, lengths_step: u32, size: u32, heads: u32, cached: u32, rows: u32, width: u32, half_: u32, capacity: u32") }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.size) { return; }
    let pairs = p.width / 2u;
    let pair = item % pairs;
    let row = item / pairs % p.rows;
    let line = item / pairs / p.rows;
    let all = p.heads + 2u * p.cached;
    let batch = line / all;
    let head = line % all;
    let is_query = head < p.heads;
    let is_key = !is_query && head < p.heads + p.cached;
    let rotated = pair < p.half_;
{% if INTERLEAVED %}
    let first = 2u * pair;
    let second = first + 1u;
{% else %}
    // Pairs of features that are not rotated are neighbours.
    let first = select(2u * pair, pair, rotated);
    let second = select(first + 1u, pair + p.half_, rotated);
{% endif %}
    let kept = head - p.heads - select(p.cached, 0u, is_key);
    var a = 0.0f;
    var b = 0.0f;
    if (is_query) {
        let at = p.o_q + batch * p.q_b0 + head * p.q_b1 + row * p.q_row;
        a = q_at(at + first);
        b = q_at(at + second);
    } else if (is_key) {
        let at = p.o_k + batch * p.k_b0 + kept * p.k_b1 + row * p.k_row;
        a = k_at(at + first);
        b = k_at(at + second);
    } else {
        let at = p.o_v + batch * p.v_b0 + kept * p.v_b1 + row * p.v_row;
        a = v_at(at + first);
        b = v_at(at + second);
    }
    if (rotated && (is_query || is_key)) {
        let c = cosines_at(p.o_cosines + batch * p.cosines_b0 + row * p.cosines_row + pair);
        let s = sines_at(p.o_sines + batch * p.sines_b0 + row * p.sines_row + pair);
        let along = a * c - b * s;
        b = b * c + a * s;
        a = along;
    }
    if (is_query) {
        let to = p.o_out + ((batch * p.heads + head) * p.rows + row) * p.width;
        out_set(to + first, a);
        out_set(to + second, b);
        return;
    }
    let place = lengths[p.o_lengths + batch * p.lengths_step] + i32(row);
    if (place < 0 || place >= i32(p.capacity)) { return; }
    let to = ((batch * p.cached + kept) * p.capacity + u32(place)) * p.width;
    if (is_key) {
        keys_set(p.o_keys + to + first, a);
        keys_set(p.o_keys + to + second, b);
    } else {
        values_set(p.o_values + to + first, a);
        values_set(p.o_values + to + second, b);
    }
}
