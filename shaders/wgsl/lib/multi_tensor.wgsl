{#- Several tensors in one launch. They are given in SLOTS slots of OPERANDS each and cut into chunks of CHUNK elements; the chunks of all
    slots are numbered one after the other, and each group of GROUP invocations takes one. Import it `with context`:

  - `declare(storage)` declares the buffers of slot s as NAMEs, from binding 0 on; `buffers` is how many there are.
  - `members()` are the parameters: for each slot the offsets of its tensors and its size.
  - `each()` is called around what is to be done for the four elements from `i` on of slot s, of which `left` exist. -#}
{% set OPERANDS = OPERANDS | default([]) %}
{% set SLOTS = SLOTS | default(2) %}
{% set WIDTH = WIDTH | default(4) %}
{% set CHUNK = CHUNK | default(4096) %}
{% set GROUP = GROUP | default(64) %}
{% set buffers = SLOTS * OPERANDS | length %}

{% macro declare(storage) %}
{% for s in range(SLOTS) %}
{% for o in OPERANDS %}
{% set binding = s * OPERANDS | length + loop.index0 %}
{{ storage.input(binding, o.name ~ s, o.dtype, WIDTH) if o.read_only | default(false) else storage.inout(binding, o.name ~ s, o.dtype, WIDTH) }}
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro members() %}
{% for s in range(SLOTS) %}{% for o in OPERANDS %}o_{{ o.name ~ s }}: u32, {% endfor %}size{{ s }}: u32, {% endfor %}
{% endmacro %}

{% macro each() %}
    let end0 = (p.size0 + {{ CHUNK - 1 }}u) / {{ CHUNK }}u;
{% for s in range(1, SLOTS) %}
    let end{{ s }} = end{{ s - 1 }} + (p.size{{ s }} + {{ CHUNK - 1 }}u) / {{ CHUNK }}u;
{% endfor %}
{% for s in range(SLOTS) %}
    {{ "else " if s }}if (group < end{{ s }}) {
        let begin = (group{{ " - end" ~ (s - 1) if s }}) * {{ CHUNK }}u;
        let stop = min(begin + {{ CHUNK }}u, p.size{{ s }});
        for (var i = begin + lane * 4u; i < stop; i += {{ GROUP * 4 }}u) {
            let left = stop - i;
{{ caller(s) }}
        }
    }
{% endfor %}
{% endmacro %}

{#- Writes the first `left` of four elements. -#}
{% macro put(name, s, values) %}
            if (left >= 4u) {
                {{ name ~ s }}_set4(p.o_{{ name ~ s }} + i, {{ values }});
            } else {
{% for k in range(3) %}
                if (left > {{ k }}u) { {{ name ~ s }}_set(p.o_{{ name ~ s }} + i + {{ k }}u, {{ values }}[{{ k }}]); }
{% endfor %}
            }
{% endmacro %}

{#- Four elements, of which those past the end are whatever lies there. -#}
{% macro get(name, s) %}
{%- set x = name ~ s -%}
{%- if WIDTH == 4 -%}
{{ x }}_at4(p.o_{{ x }} + i)
{%- else -%}
vec4<f32>({{ x }}_at(p.o_{{ x }} + i){% for k in range(1, 4) %}, {{ x }}_at(p.o_{{ x }} + min(i + {{ k }}u, stop - 1u)){% endfor %})
{%- endif -%}
{% endmacro %}
