{#- The product of a banded matrix with x along one axis, which is how axes are resampled: x has the shape (outer, length, inner), and
    out[o, r, i] is the sum over taps t of weights[r, t] * x[o, starts[r] + t, i]. A weight of 0 reads nothing. One invocation per
    element. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% set DTYPE = DTYPE | default("float32") %}
{% set WEIGHT_DTYPE = WEIGHT_DTYPE | default("float32") %}
{% set GROUP = GROUP | default(64) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE) }}
{{ storage.input(1, "starts", "int32") }}
{{ storage.input(2, "weights", WEIGHT_DTYPE) }}
{{ storage.output(3, "out", DTYPE) }}
{{ storage.parameters("o_x: u32, o_starts: u32, o_weights: u32, o_out: u32, size: u32, rows: u32, inner: u32, taps: u32, x_outer: u32,
    x_axis: u32, x_inner: u32") }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.size) { return; }
    let i = item % p.inner;
    let row = item / p.inner % p.rows;
    let o = item / p.inner / p.rows;
    let first = p.o_x + o * p.x_outer + u32(starts_at(p.o_starts + row)) * p.x_axis + i * p.x_inner;
    var sum = 0.0f;
    for (var t = 0u; t < p.taps; t++) {
        let weight = weights_at(p.o_weights + row * p.taps + t);
        if (weight != 0.0f) { sum += weight * x_at(first + t * p.x_axis); }
    }
    out_set(p.o_out + item, sum);
}
