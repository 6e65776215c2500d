{#- Rows of tensors of any strides: lines along one axis, numbered over AXES further axes, up to three, of lengths (.., rows1, rows2). A
  team of LANES invocations takes a row, WIDTH elements (4 or 1) at a time. Import it `with context`:

  - HELD > 0: every invocation keeps its HELD vectors of a row in registers, so that the row is read once; unless FULL, the last of them
    may lie past the end. HELD = 0: every pass over the row reads it again.
  - `members(names)` are the numbers of the parameters, for operands of these names, which follow the offsets `o_NAME` in them.
  - `declarations()` come before the reductions of `lib/group_reduce.wgsl`: the type V of a vector and functions on it.
  - `main(names)` opens the kernel: `row` is the number of the row, `at_NAME` where it begins in each operand, `live` says whether
    this row may be written.
  - `hold(name)` reads the row into registers, where it is kept there.
  - `each()`, to be called with a block of the parameter k, repeats the block for each vector of the invocation: `value(name, k)` is the
    vector of an operand, `place(k)` the number of its first element, `keep(name, k, value)` replaces it where it is kept and
    `write(name, k, value)` writes one. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% set WIDTH = WIDTH | default(4) %}
{% set HELD = HELD | default(2) %}
{% set FULL = FULL | default(false) %}
{% set AXES = AXES | default(3) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}

{% macro members(names) %}
rows: u32, length: u32, rows1: u32, rows2: u32, {% for n in names %}{{ n }}_0: u32, {{ n }}_1: u32, {{ n }}_2: u32, {{ n }}_step: u32, {% endfor %}
{% endmacro %}

{% macro declarations() %}
{{ groups.declarations() }}
{% if WIDTH == 4 %}
alias V = vec4<f32>;
fn lanes_sum(v: V) -> f32 { return (v.x + v.y) + (v.z + v.w); }
fn lanes_max(v: V) -> f32 { return larger1(larger1(v.x, v.y), larger1(v.z, v.w)); }
fn larger(a: V, b: V) -> V { return select(a, b, b > a); }
{% else %}
alias V = f32;
fn lanes_sum(v: V) -> f32 { return v; }
fn lanes_max(v: V) -> f32 { return v; }
fn larger(a: V, b: V) -> V { return larger1(a, b); }
{% endif %}
// Passes over a NaN.
fn larger1(a: f32, b: f32) -> f32 { return select(a, b, b > a); }
{% endmacro %}

{% macro main(names) %}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let wanted = group{{ " * " ~ GROUP // LANES ~ "u + team" if LANES != GROUP }};
{% if LANES in (1, GROUP) %}
    if (wanted >= p.rows) { return; }
    let row = wanted;
{% else %}
    // Superfluous teams go along, because the others count on their presence.
    let live = wanted < p.rows;
    let row = min(wanted, p.rows - 1u);
{% endif %}
    let row_2 = {{ "row % p.rows2" if AXES > 1 else "row" }};
    let row_1 = {{ {1: "0u", 2: "row / p.rows2", 3: "row / p.rows2 % p.rows1"}[AXES] }};
    let row_0 = {{ "row / p.rows2 / p.rows1" if AXES > 2 else "0u" }};
{% for n in names %}
    let at_{{ n }} = p.o_{{ n }} + row_0 * p.{{ n }}_0 + row_1 * p.{{ n }}_1 + row_2 * p.{{ n }}_2;
{% endfor %}
{% for k in range(HELD) %}
    let i{{ k }} = (me + {{ k * LANES }}u) * {{ WIDTH }}u;
{% endfor %}
{% endmacro %}

{% macro live() %}{{ "true" if LANES in (1, GROUP) else "live" }}{% endmacro %}
{% macro place(k) %}i{{ k }}{% endmacro %}
{% macro read(name, k) %}
{%- if WIDTH == 4 -%} {{ name }}_at4(at_{{ name }} + i{{ k }}) {%- else -%} {{ name }}_at(at_{{ name }} + i{{ k }} * p.{{ name }}_step) {%- endif -%}
{% endmacro %}
{% macro value(name, k) %}{% if HELD %}{{ name }}_{{ k }}{% else %}{{ read(name, k) }}{% endif %}{% endmacro %}

{% macro hold(name) %}
{% for k in range(HELD) %}
    var {{ name }}_{{ k }} = V();
    {{ "if (i" ~ k ~ " < p.length) " if k == HELD - 1 and not FULL }}{ {{ name }}_{{ k }} = {{ read(name, k) }}; }
{% endfor %}
{% endmacro %}

{% macro each() %}
{% if HELD %}
{% for k in range(HELD) %}
    {{ "if (i" ~ k ~ " < p.length) " if k == HELD - 1 and not FULL }}{
{{ caller(k) }}
    }
{% endfor %}
{% else %}
    for (var i = me * {{ WIDTH }}u; i < p.length; i += {{ LANES * WIDTH }}u) {
{{ caller("") }}
    }
{% endif %}
{% endmacro %}

{% macro keep(name, k, value) %}{% if HELD %}{{ name }}_{{ k }} = {{ value }};{% endif %}{% endmacro %}

{% macro write(name, k, value) %}
        {{ "if (live) " if LANES not in (1, GROUP) }}{ {% if WIDTH == 4 %}{{ name }}_set4(at_{{ name }} + i{{ k }}, {{ value }});{% else %}{{ name }}_set(at_{{ name }} + i{{ k }} * p.{{ name }}_step, {{ value }});{% endif %} }
{% endmacro %}
