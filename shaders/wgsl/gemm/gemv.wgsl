{#- A few row vectors times a matrix that is contiguous along k: out[r, c] = sum over i of a[r, i] b[i, c] (+ bias), for up to ROWS rows. A
    workgroup computes COLUMNS columns; its invocations divide k among them, and the matrix is read once. -#}
{% set ROWS = ROWS | default(1) %}
{% set COLUMNS = COLUMNS | default(4) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "gemm/operands.wgsl" as operands with context %}
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
{% for c in range(COLUMNS) %}
    var sum{{ r }}_{{ c }} = vec4<{{ sums.REAL }}>();
{% endfor %}
{% endfor %}
{% for c in range(COLUMNS) %}
    let b_offset{{ c }} = b_batch + min(first + {{ c }}u, p.n - 1u) * p.stride_bn;
{% endfor %}
    let whole = p.k & ~3u;
    for (var i = lane_id * 4u; i < whole; i += {{ 4 * groups.LANES }}u) {
{% for r in range(ROWS) %}
        let x{{ r }} = a_at4(a_offset{{ r }} + i);
{% endfor %}
{% for c in range(COLUMNS) %}
        let y{{ c }} = b_at4(b_offset{{ c }} + i);
{% for r in range(ROWS) %}
        sum{{ r }}_{{ c }} += x{{ r }} * y{{ c }};
{% endfor %}
{% endfor %}
    }
    let remainder = whole + lane_id;
    if (remainder < p.k) {
{% for c in range(COLUMNS) %}
{% for r in range(ROWS) %}
        sum{{ r }}_{{ c }}.x += a_at(a_offset{{ r }} + remainder) * b_at(b_offset{{ c }} + remainder);
{% endfor %}
{% endfor %}
    }
{% for r in range(ROWS) %}
{% for c in range(COLUMNS) %}
{% set sum = "sum" ~ r ~ "_" ~ c %}
    let total{{ r }}_{{ c }} = total(({{ sum }}.x + {{ sum }}.y) + ({{ sum }}.z + {{ sum }}.w));
{% endfor %}
{% endfor %}
{% for r in range(ROWS) %}
{% for c in range(COLUMNS) %}
    if (lane_id == {{ r * COLUMNS + c }}u && {{ r }}u < p.m && first + {{ c }}u < p.n) {
        {{ sums.store(r ~ "u", "first + " ~ c ~ "u", "total" ~ r ~ "_" ~ c) }}
    }
{% endfor %}
{% endfor %}
}
