{#- A few row vectors times a matrix that is contiguous along k: out[r, c] = sum over i of a[r, i] b[i, c] (+ bias), for up to ROWS rows. A
    workgroup computes COLUMNS columns; its invocations divide k among them, and the matrix is read once.

    There are up to three MATRICES: each has columns of the result of its own, or with PAIRS every result has a sum for each of two, the
    second an operand of the epilogue. With NORM, a is multiplied by `scale`, and the sums by the reciprocal root of the mean of a row's
    squares. -#}
{% set ROWS = ROWS | default(1) %}
{% set COLUMNS = COLUMNS | default(4) %}
{% set UNROLL = UNROLL | default(1) %}
{% set MATRICES = MATRICES | default(1) %}
{% set PAIRS = PAIRS | default(false) %}
{% set NORM = NORM | default(false) %}
{% set B_LANES = B_LANES | default(1) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "gemm/operands.wgsl" as operands with context %}
{#- Terms of a row that the invocations of a workgroup load at a time. -#}
{% set TERMS = 8 if B_LANES == 8 else 4 %}
{% set STEP = TERMS * groups.LANES %}
{#- Loads TERMS terms of each row and column, to variables with the number `u`. -#}
{% macro load_terms(matrices, u, at) %}
{% if NORM %}
        let scales{{ u }} = scale_at{{ TERMS }}(p.o_scale + {{ at }});
{% endif %}
{% for r in range(ROWS) %}
        let x{{ u }}_{{ r }} = a_at{{ TERMS }}(a_offset{{ r }} + {{ at }});
{% endfor %}
{% for i in matrices %}
{% for c in range(COLUMNS) %}
        let y{{ u }}_{{ i }}_{{ c }} = b{{ i or "" }}_at{{ TERMS }}(b_offset{{ i }}_{{ c }} + {{ at }});
{% endfor %}
{% endfor %}
{% endmacro %}
{#- Adds their products, four at a time. -#}
{% macro add_terms(matrices, u) %}
{% for part in (["[0]", "[1]"] if TERMS == 8 else [""]) %}
{% for r in range(ROWS) %}
{% set x = "x" ~ u ~ "_" ~ r ~ part %}
{% if NORM %}
        squares{{ r }} += {{ x }} * {{ x }};
        let s{{ u }}_{{ r }}_{{ loop.index0 ~ part[1:2] }} = {{ x }} * scales{{ u }}{{ part }};
{% set x = "s" ~ u ~ "_" ~ r ~ "_" ~ loop.index0 ~ part[1:2] %}
{% endif %}
{% for i in matrices %}
{% set side = loop.index0 %}
{% for c in range(COLUMNS) %}
        sum{{ side }}_{{ r }}_{{ c }} += {{ x }} * y{{ u }}_{{ i }}_{{ c }}{{ part }};
{% endfor %}
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}
{#- Adds up the products with each of `matrices`, whose first column of the result is `start`. -#}
{% macro add_up(matrices, start) %}
{% for i in matrices %}
{% for c in range(COLUMNS) %}
    let b_offset{{ i }}_{{ c }} = {{ "p.o_b" ~ i if i else "b_batch" }} + (min(first + {{ c }}u, p.n - 1u){{ " - " ~ start if start }}) * p.stride_bn;
{% endfor %}
{% endfor %}
    var i = lane_id * {{ TERMS }}u;
{% if UNROLL > 1 %}
    for (; i + {{ STEP * (UNROLL - 1) }}u < whole; i += {{ STEP * UNROLL }}u) {
{% for u in range(UNROLL) %}
{{ load_terms(matrices, u, "i + " ~ STEP * u ~ "u") }}
{% endfor %}
{% for u in range(UNROLL) %}
{{ add_terms(matrices, u) }}
{% endfor %}
    }
{% endif %}
    for (; i < whole; i += {{ STEP }}u) {
{{ load_terms(matrices, 0, "i") }}
{{ add_terms(matrices, 0) }}
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
{#- The sums of a row, which are reduced together. -#}
{% set V = {1: sums.REAL, 2: "vec2<" ~ sums.REAL ~ ">", 4: "vec4<" ~ sums.REAL ~ ">"}[SIDES * COLUMNS] %}
{{ operands.declare(storage, sums) }}
{{ groups.declarations() }}
{{ groups.reduction("total", sums.REAL, "a + b") if NORM }}
{{ groups.reduction("totals", V, "a + b") }}
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
    let whole = p.k & ~{{ TERMS - 1 }}u;
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
    let all{{ r }} = totals({{ V }}({% for s in range(SIDES * COLUMNS) %}{% set sum = "sum" ~ s // COLUMNS ~ "_" ~ r ~ "_" ~ s % COLUMNS %}{{ ", " if s }}({{ sum }}.x + {{ sum }}.y) + ({{ sum }}.z + {{ sum }}.w){% endfor %})){{ " * factor" ~ r if NORM }};
{% endfor %}
{% for r in range(ROWS) %}
{% for c in range(COLUMNS) %}
    if (lane_id == {{ r * COLUMNS + c }}u && {{ r }}u < p.m && first + {{ c }}u < p.n) {
        {{ sums.store(r ~ "u", "first + " ~ c ~ "u", "all" ~ r ~ ("." ~ "xyzw"[c] if SIDES * COLUMNS > 1 else ""), "all" ~ r ~ "." ~ "xyzw"[COLUMNS + c] if PAIRS else "") }}
    }
{% endfor %}
{% endfor %}
}
