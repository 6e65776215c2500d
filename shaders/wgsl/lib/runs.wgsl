{#- Walking the terms of a reduction: neighbours in runs of length r1, which lie apart. Import it `with context`.

  - `members(names)` are the numbers of the parameters for operands of these names: r1 and `turn`, how many places on in its run an invocation
    steps, and, per operand, the strides NAME_outer from run to run and NAME_inner from term to term, NAME_jump, how many elements on it
    steps, and NAME_wrap, how many more when that leaves the run.
  - `declarations(names)` declare `walk_NAME(base, t)`, the place of term t, and `next_NAME(walk)`, that after one step. Unless RUNS,
    there is one run. -#}
{% set RUNS = RUNS | default(true) %}

{% macro members(names) %}
r1: u32, turn: u32, {% for n in names %}{{ n }}_outer: u32, {{ n }}_inner: u32, {{ n }}_jump: u32, {{ n }}_wrap: u32, {% endfor %}
{% endmacro %}

{% macro declarations(names) %}
struct Walk { at: u32, inner: u32 }
{% for n in names %}
fn walk_{{ n }}(base: u32, t: u32) -> Walk {
{% if RUNS %}
    return Walk(base + t / p.r1 * p.{{ n }}_outer + t % p.r1 * p.{{ n }}_inner, t % p.r1);
{% else %}
    return Walk(base + t * p.{{ n }}_inner, 0u);
{% endif %}
}
fn next_{{ n }}(walk: Walk) -> Walk {
{% if RUNS %}
    let inner = walk.inner + p.turn;
    let out = inner >= p.r1;
    return Walk(walk.at + p.{{ n }}_jump + select(0u, p.{{ n }}_wrap, out), select(inner, inner - p.r1, out));
{% else %}
    return Walk(walk.at + p.{{ n }}_jump, 0u);
{% endif %}
}
{% endfor %}
{% endmacro %}
