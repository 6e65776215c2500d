{#- Products without workgroup memory, wherever the operands come from. Import it `with context`:

  An invocation makes ROWS rows of QUADS times four columns straight from memory, four terms at a time. DOWN x ACROSS invocations
  make a group. With BROADCAST each loads a quarter of the left operand, and the quarters of a subgroup exchange it: where a load
  costs as much as many multiplications. Then DOWN is 1. Where there are few results, several groups share out the terms of each.

  - `main(storage)` opens the kernel and finds the invocation's place: `row`, `column`, `batch`, `split`, and the terms from
    `start` to `end`, of which there is at least one. It needs p.m, p.n, p.k, p.terms (per split) and p.count (the length of the
    batch). `quarter` is the invocation's share.
  - `product()` calls its caller for code that loads four terms from `term` on. Of the right operand, `y0_0` ... `y3_0`, `y0_1` ... are
    four columns for each term and quad. Of the left operand, LOADED variables `x0` ... hold vectors along A_ALONG: four terms of rows
    STEP apart from `loaded_row` on, or four rows ("places"). Of the latter, with BROADCAST, the next four rows in each
    variable, for term number `quarter`; else one variable for each of the four terms before the next four rows.
  - `results()` calls its caller with the number of a quad, for code that stores the four sums `sum` of row `at_row` from column
    `at_column` on. -#}
{% set REAL = REAL | default("f32") %}
{% set ROWS = ROWS | default(4) %}
{% set QUADS = QUADS | default(1) %}
{% set ACROSS = ACROSS | default(16) %}
{% set DOWN = DOWN | default(4) %}
{% set BROADCAST = BROADCAST | default(false) %}
{#- A product of booleans is an `or` of `and`s. -#}
{% set LOGICAL = LOGICAL | default(false) %}
{% set LOADED = ROWS // 4 if BROADCAST else ROWS %}
{% set STEP = 4 if BROADCAST else 1 %}
{% set A_ALONG = A_ALONG | default("terms") %}

{% macro main(storage) %}
{{ storage.main(ACROSS * DOWN, "@builtin(subgroup_invocation_id) subgroup_lane: u32," if BROADCAST else "") }}
    let across = (p.n + {{ 4 * QUADS * ACROSS - 1 }}u) / {{ 4 * QUADS * ACROSS }}u;
    let down = (p.m + {{ ROWS * DOWN - 1 }}u) / {{ ROWS * DOWN }}u;
    let block = group % (across * down);
    let share = group / (across * down);
    let batch = share % p.count;
    let split = share / p.count;
    let start = split * p.terms;
    if (start >= p.k) { return; }
    let end = min(start + p.terms, p.k);
    let row = (block / across * {{ DOWN }}u + lane / {{ ACROSS }}u) * {{ ROWS }}u;
    let column = (block % across * {{ QUADS * ACROSS }}u + lane % {{ ACROSS }}u) * 4u;
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
{% set holder, other = (r % 4, u) if A_ALONG == "terms" else (u, r % 4) %}
{% if BROADCAST %}
subgroupBroadcast(x{{ r // 4 }}.{{ "xyzw"[other] }}, {{ holder }}u)
{%- else %}
x{{ r // 4 * 4 + holder }}.{{ "xyzw"[other] }}
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
{% for r in range(LOADED) %}
            x{{ r }} = select(vec4<{{ REAL }}>(), x{{ r }}, {{ "inside" if A_ALONG == "terms" else "inside[quarter]" if BROADCAST else "inside." ~ "xyzw"[r % 4] }});
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
