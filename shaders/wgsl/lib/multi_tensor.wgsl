{#- Several tensors in one launch: SLOTS slots of one tensor per operand in OPERANDS, divided into chunks of CHUNK elements. The chunks of all
    slots are numbered consecutively; each workgroup of GROUP invocations processes one. Import it `with context`:

  - `declare(storage)` declares the buffers of slot s as NAMEs, from binding 0 on; `buffers` is their number.
  - `members()` are parameters: for each slot the offsets of its tensors, its numbers, which are operands of the access `number`, and its
    size; rows and columns if an operand has an element for each row, column or matrix.
  - `for_elements()` repeats its block for the four elements at `i` of slot s; `remaining` of them and of those that follow exist.
  - `load_access(name, s, access)` loads the elements of an operand that correspond to these four: its own, or of their rows, columns or matrices.
  - `load(name, s)` and `store(name, s, values)` access these four elements; `store` skips those out of range. -#}
{% set OPERANDS = OPERANDS | default([]) %}
{% set SLOTS = SLOTS | default(2) %}
{% set WIDTH = WIDTH | default(4) %}
{% set CHUNK = CHUNK | default(4096) %}
{% set GROUP = GROUP | default(64) %}
{% set MATRICES = (OPERANDS | selectattr("access", "defined") | selectattr("access", "in", ["rows", "columns", "matrices"]) | list | length) > 0 %}
{% set TENSORS = [] %}
{% for o in OPERANDS if o.access | default("elements") != "number" %}{% set _ = TENSORS.append(o) %}{% endfor %}
{% set buffers = SLOTS * TENSORS | length %}

{% macro declare(storage) %}
{% for s in range(SLOTS) %}
{% for o in TENSORS %}
{% set binding = s * TENSORS | length + loop.index0 %}
{{ storage.input(binding, o.name ~ s, o.dtype, WIDTH) if o.read_only | default(false) else storage.inout(binding, o.name ~ s, o.dtype, WIDTH) }}
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro members() %}
{% for s in range(SLOTS) %}{% for o in OPERANDS %}{{ o.name ~ s ~ ": f32" if o.access | default("elements") == "number" else "o_" ~ o.name ~ s ~ ": u32" }}, {% endfor %}size{{ s }}: u32, {% if MATRICES %}rows{{ s }}: u32, columns{{ s }}: u32, {% endif %}{% endfor %}
{% endmacro %}

{% macro for_elements() %}
    let end0 = (p.size0 + {{ CHUNK - 1 }}u) / {{ CHUNK }}u;
{% for s in range(1, SLOTS) %}
    let end{{ s }} = end{{ s - 1 }} + (p.size{{ s }} + {{ CHUNK - 1 }}u) / {{ CHUNK }}u;
{% endfor %}
{% for s in range(SLOTS) %}
    {{ "else " if s }}if (group_id < end{{ s }}) {
        let begin = (group_id{{ " - end" ~ (s - 1) if s }}) * {{ CHUNK }}u;
        let stop = min(begin + {{ CHUNK }}u, p.size{{ s }});
        for (var i = begin + local_id * 4u; i < stop; i += {{ GROUP * 4 }}u) {
            let remaining = stop - i;
{{ caller(s) }}
        }
    }
{% endfor %}
{% endmacro %}

{% macro store(name, s, values) %}
            if (remaining >= 4u) {
                {{ name ~ s }}_set4(p.o_{{ name ~ s }} + i, {{ values }});
            } else {
{% for k in range(3) %}
                if (remaining > {{ k }}u) { {{ name ~ s }}_set(p.o_{{ name ~ s }} + i + {{ k }}u, {{ values }}[{{ k }}]); }
{% endfor %}
            }
{% endmacro %}

{% macro load(name, s) %}
{%- set x = name ~ s -%}
{%- if WIDTH == 4 -%}
{{ x }}_at4(p.o_{{ x }} + i)
{%- else -%}
vec4<f32>({{ x }}_at(p.o_{{ x }} + i){% for k in range(1, 4) %}, {{ x }}_at(p.o_{{ x }} + min(i + {{ k }}u, stop - 1u)){% endfor %})
{%- endif -%}
{% endmacro %}

{% macro load_access(name, s, access) %}
{%- set x = name ~ s -%}
{%- if access == "number" -%}
vec4<f32>(p.{{ x }})
{%- elif access == "single" -%}
vec4<f32>({{ x }}_at(p.o_{{ x }}))
{%- elif access in ("rows", "columns", "matrices") -%}
vec4<f32>({% for k in range(4) %}{{ ", " if k }}{{ x }}_at(p.o_{{ x }} + {{ {"rows": "row", "columns": "column", "matrices": "matrix"}[access] }}(min(i + {{ k }}u, stop - 1u), p.rows{{ s }}, p.columns{{ s }})){% endfor %})
{%- else -%}
{{ load(name, s) }}
{%- endif -%}
{% endmacro %}

{% macro positions() %}
fn row(i: u32, rows: u32, columns: u32) -> u32 { return i / columns; }
fn matrix(i: u32, rows: u32, columns: u32) -> u32 { return i / (rows * columns); }
fn column(i: u32, rows: u32, columns: u32) -> u32 { return i / (rows * columns) * columns + i % columns; }
{% endmacro %}
