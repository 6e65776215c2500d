{#- Iterates over the terms of a reduction over two axes, `step` terms at a time. Import it `with context`.

  - `members(names)` are parameters: inner_length, the length of the inner axis; inner_step, the step modulo that length; and for each
    operand the strides NAME_outer and NAME_inner, NAME_step, how far a step moves, and NAME_carry, how much farther if it leaves the
    inner axis.
  - `declarations(names)` declares `begin_NAME(base, t)`, an iterator at term t, and `next_NAME(iterator)`, the iterator one step on. Without
    TWO_AXES there is only the inner axis, of any length. -#}
{% set TWO_AXES = TWO_AXES | default(true) %}

{% macro members(names) %}
inner_length: u32, inner_step: u32, {% for n in names %}{{ n }}_outer: u32, {{ n }}_inner: u32, {{ n }}_step: u32, {{ n }}_carry: u32, {% endfor %}
{% endmacro %}

{% macro declarations(names) %}
struct TermIterator { at: u32, inner: u32 }
{% for n in names %}
fn begin_{{ n }}(base: u32, t: u32) -> TermIterator {
{% if TWO_AXES %}
    return TermIterator(base + t / p.inner_length * p.{{ n }}_outer + t % p.inner_length * p.{{ n }}_inner, t % p.inner_length);
{% else %}
    return TermIterator(base + t * p.{{ n }}_inner, 0u);
{% endif %}
}
fn next_{{ n }}(iterator: TermIterator) -> TermIterator {
{% if TWO_AXES %}
    let inner = iterator.inner + p.inner_step;
    let carry = inner >= p.inner_length;
    return TermIterator(iterator.at + p.{{ n }}_step + select(0u, p.{{ n }}_carry, carry), select(inner, inner - p.inner_length, carry));
{% else %}
    return TermIterator(iterator.at + p.{{ n }}_step, 0u);
{% endif %}
}
{% endfor %}
{% endmacro %}
