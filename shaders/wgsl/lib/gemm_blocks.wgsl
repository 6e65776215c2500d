{#- Matrix products in register blocks, without workgroup memory, for any source of operands. Import it `with context`:

  An invocation computes ROWS rows of QUADS times four columns, four terms at a time. A workgroup is DOWN x ACROSS invocations. With
  BROADCAST, each invocation loads a quarter of the left operand and subgroups exchange the quarters: for devices on which a load costs
  as much as many multiply-adds. DOWN is then 1. Where there are few results, split-K lets several workgroups batch_split the terms.

  - `main(storage)` opens the kernel and locates the invocation: `row`, `column`, `batch`, `split`, and the terms from `start` to `end`,
    at least one. It needs p.m, p.n, p.k, p.split_length and p.count (the length of the batch). `quarter` is the invocation's quarter.
  - `product()` calls its caller for code that loads four terms from `term` on. Of the right operand, `y0_0` ... `y3_0`, `y0_1` ... are
    four columns for each term and quad. Of the left operand, LEFT_VECTORS variables `x0` ... hold vectors along A_MAJOR: "k", four terms
    of rows ROW_STEP apart from `loaded_row` on; or "mn", four rows. In the latter case, with BROADCAST each variable holds the next four
    rows for term number `quarter`; without it, one variable per term holds four rows, then come the next four rows.
  - `results()` calls its caller with the number of a quad, for code that stores the four sums `sum` of row `at_row` from column
    `at_column` on. -#}
{% set REAL = REAL | default("f32") %}
{% set ROWS = ROWS | default(4) %}
{% set QUADS = QUADS | default(1) %}
{% set ACROSS = ACROSS | default(16) %}
{% set DOWN = DOWN | default(4) %}
{% set BROADCAST = BROADCAST | default(false) %}
{#- Boolean products: or of ands. -#}
{% set LOGICAL = LOGICAL | default(false) %}
{% set LEFT_VECTORS = ROWS // 4 if BROADCAST else ROWS %}
{% set ROW_STEP = 4 if BROADCAST else 1 %}
{% set A_MAJOR = A_MAJOR | default("k") %}

{% macro main(storage) %}
{{ storage.main(ACROSS * DOWN, "@builtin(subgroup_invocation_id) subgroup_lane: u32," if BROADCAST else "") }}
    let across = (p.n + {{ 4 * QUADS * ACROSS - 1 }}u) / {{ 4 * QUADS * ACROSS }}u;
    let down = (p.m + {{ ROWS * DOWN - 1 }}u) / {{ ROWS * DOWN }}u;
    let block = group_id % (across * down);
    let batch_split = group_id / (across * down);
    let batch = batch_split % p.count;
    let split = batch_split / p.count;
    let start = split * p.split_length;
    if (start >= p.k) { return; }
    let end = min(start + p.split_length, p.k);
    let row = (block / across * {{ DOWN }}u + local_id / {{ ACROSS }}u) * {{ ROWS }}u;
    let column = (block % across * {{ QUADS * ACROSS }}u + local_id % {{ ACROSS }}u) * 4u;
{% if BROADCAST %}
    let quarter = subgroup_lane & 3u;
    let loaded_row = row + quarter;
{% else %}
    let loaded_row = row;
    if (row >= p.m || column >= p.n) { return; }
{% endif %}
{% endmacro %}

{#- Term u of row r of the left operand. -#}
{% macro left(r, u) %}
{% set vector, component = (r % 4, u) if A_MAJOR == "k" else (u, r % 4) %}
{% if BROADCAST %}
subgroupBroadcast(x{{ r // 4 }}.{{ "xyzw"[component] }}, {{ vector }}u)
{%- else %}
x{{ r // 4 * 4 + vector }}.{{ "xyzw"[component] }}
{%- endif %}
{% endmacro %}

{% macro product() %}
{% for r in range(ROWS) %}
{% for q in range(QUADS) %}
    var sum{{ r }}_{{ q }} = vec4<{{ REAL }}>();
{% endfor %}
{% endfor %}
    for (var term = start; term < end; term += 4u) {
{{ caller() }}
        if (term + 4u > end) {
            let inside = vec4<bool>(true, term + 1u < end, term + 2u < end, term + 3u < end);
{% for r in range(LEFT_VECTORS) %}
            x{{ r }} = select(vec4<{{ REAL }}>(), x{{ r }}, {{ "inside" if A_MAJOR == "k" else "inside[quarter]" if BROADCAST else "inside." ~ "xyzw"[r % 4] }});
{% endfor %}
{% for u in range(1, 4) %}
{% for q in range(QUADS) %}
            y{{ u }}_{{ q }} = select(vec4<{{ REAL }}>(), y{{ u }}_{{ q }}, inside.{{ "xyzw"[u] }});
{% endfor %}
{% endfor %}
        }
{% for u in range(4) %}
{% for r in range(ROWS) %}
        let z{{ u }}_{{ r }} = {{ left(r, u) }};
{% for q in range(QUADS) %}
        sum{{ r }}_{{ q }} = sum{{ r }}_{{ q }} {{ "|" if LOGICAL else "+" }} z{{ u }}_{{ r }} {{ "&" if LOGICAL else "*" }} y{{ u }}_{{ q }};
{% endfor %}
{% endfor %}
{% endfor %}
    }
{% endmacro %}

{% macro results() %}
{% for r in range(ROWS) %}
    if (row + {{ r }}u < p.m) {
        let at_row = row + {{ r }}u;
{% for q in range(QUADS) %}
        {
            let at_column = column + {{ 4 * ACROSS * q }}u;
            let sum = sum{{ r }}_{{ q }};
{{ caller(q) }}
        }
{% endfor %}
    }
{% endfor %}
{% endmacro %}
