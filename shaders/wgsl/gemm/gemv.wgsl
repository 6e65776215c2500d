{#- A few row vectors times a matrix that is contiguous along k: out[r, c] = sum over i of a[r, i] b[i, c] (+ bias), for up to ROWS rows. A
    workgroup computes COLUMNS columns; its invocations divide k among them, and the matrix is read once.

    There are up to three MATRICES: each has columns of the result of its own, or with PAIRS every result has a sum for each of two, the
    second an operand of the epilogue. With NORM, a is multiplied by `scale`, and the sums by the reciprocal root of the mean of a row's
    squares. -#}
{% set ROWS = ROWS | default(1) %}
{% set COLUMNS = COLUMNS | default(4) %}
{% set MATRICES = MATRICES | default(1) %}
{% set PAIRS = PAIRS | default(false) %}
{% set NORM = NORM | default(false) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "gemm/operands.wgsl" as operands with context %}
{#- Adds up the products with each of `matrices`, whose first column of the result is `start`. -#}
{% macro add_up(matrices, start) %}
{% for i in matrices %}
{% for c in range(COLUMNS) %}
    let b_offset{{ i }}_{{ c }} = {{ "p.o_b" ~ i if i else "b_batch" }} + (min(first + {{ c }}u, p.n - 1u){{ " - " ~ start if start }}) * p.stride_bn;
{% endfor %}
{% endfor %}
    for (var i = lane_id * 4u; i < whole; i += {{ 4 * groups.LANES }}u) {
{% if NORM %}
        let scales = scale_at4(p.o_scale + i);
{% endif %}
{% for r in range(ROWS) %}
{% if NORM %}
        let plain{{ r }} = a_at4(a_offset{{ r }} + i);
        squares{{ r }} += plain{{ r }} * plain{{ r }};
        let x{{ r }} = plain{{ r }} * scales;
{% else %}
        let x{{ r }} = a_at4(a_offset{{ r }} + i);
{% endif %}
{% endfor %}
{% for i in matrices %}
{% set side = loop.index0 %}
{% for c in range(COLUMNS) %}
        let y{{ i }}_{{ c }} = b{{ i or "" }}_at4(b_offset{{ i }}_{{ c }} + i);
{% for r in range(ROWS) %}
        sum{{ side }}_{{ r }}_{{ c }} += x{{ r }} * y{{ i }}_{{ c }};
{% endfor %}
{% endfor %}
{% endfor %}
    }
    if (remainder < p.k) {
{% for r in range(ROWS) %}
        let end{{ r }} = a_at(a_offset{{ r }} + remainder);
{% if NORM %}
        squares{{ r }}.x += end{{ r }} * end{{ r }};
{% endif %}
{% for i in matrices %}
{% set side = loop.index0 %}
{% for c in range(COLUMNS) %}
        sum{{ side }}_{{ r }}_{{ c }}.x += end{{ r }}{{ " * scale_at(p.o_scale + remainder)" if NORM }} * b{{ i or "" }}_at(b_offset{{ i }}_{{ c }} + remainder);
{% endfor %}
{% endfor %}
{% endfor %}
    }
{% endmacro %}
{% set SIDES = 2 if PAIRS else 1 %}
{{ operands.declare(storage, sums) }}
{{ groups.declarations() }}
{{ groups.reduction("total", sums.REAL, "a + b") }}
{{ storage.main(groups.GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let across = (p.n + {{ COLUMNS - 1 }}u) / {{ COLUMNS }}u;
    let batch = group_id / across;
    if (batch >= p.count) { return; }
    let first = group_id % across * {{ COLUMNS }}u;
{{ operands.begin() }}
{% for r in range(ROWS) %}
    let a_offset{{ r }} = a_batch + min({{ r }}u, p.m - 1u) * p.stride_am;
{% if NORM %}
    var squares{{ r }} = vec4<{{ sums.REAL }}>();
{% endif %}
{% for side in range(SIDES) %}
{% for c in range(COLUMNS) %}
    var sum{{ side }}_{{ r }}_{{ c }} = vec4<{{ sums.REAL }}>();
{% endfor %}
{% endfor %}
{% endfor %}
    let whole = p.k & ~3u;
    let remainder = whole + lane_id;
{% if MATRICES == 1 or PAIRS %}
{{ add_up(range(MATRICES), "") }}
{% else %}
{% for i in range(MATRICES - 1, 0, -1) %}
    {{ "} else " if not loop.first }}if (first >= p.first{{ i }}) {
{{ add_up([i], "p.first" ~ i) }}
{% endfor %}
    } else {
{{ add_up([0], "") }}
    }
{% endif %}
{% for r in range(ROWS) %}
{% if NORM %}
    let mean{{ r }} = total((squares{{ r }}.x + squares{{ r }}.y) + (squares{{ r }}.z + squares{{ r }}.w)) / f32(p.k);
    let factor{{ r }} = 1.0f / sqrt(mean{{ r }} + p.eps);
{% endif %}
{% for side in range(SIDES) %}
{% for c in range(COLUMNS) %}
{% set sum = "sum" ~ side ~ "_" ~ r ~ "_" ~ c %}
    let total{{ side }}_{{ r }}_{{ c }} = total(({{ sum }}.x + {{ sum }}.y) + ({{ sum }}.z + {{ sum }}.w)){{ " * factor" ~ r if NORM }};
{% endfor %}
{% endfor %}
{% endfor %}
{% for r in range(ROWS) %}
{% for c in range(COLUMNS) %}
    if (lane_id == {{ r * COLUMNS + c }}u && {{ r }}u < p.m && first + {{ c }}u < p.n) {
        {{ sums.store(r ~ "u", "first + " ~ c ~ "u", "total0_" ~ r ~ "_" ~ c, "total1_" ~ r ~ "_" ~ c) }}
    }
{% endfor %}
{% endfor %}
}
