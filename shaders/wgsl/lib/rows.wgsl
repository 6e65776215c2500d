{#- Rows of tensors of any strides, along one axis and numbered over up to three other AXES of lengths (.., rows1, rows2). A lane group of
  LANES invocations process a row, WIDTH elements (4 or 1) at a time. Import it `with context`:

  - ROW_VECTORS > 0: every invocation keeps its ROW_VECTORS vectors of a row in registers, so that the row is read once; unless FULL, the
    last of them may be out of range. ROW_VECTORS = 0: every pass reads the row again.
  - `members(names)` are parameters for operands of these names, after the offsets `o_NAME`.
  - `declarations()`, before the reductions of lib/group_reduce.wgsl, declares the vector type V and functions on it.
  - `main(names)` opens the kernel: `row` is the index of the row, `at_NAME` where it begins in each operand, `in_range()` whether the row
    exists, so that results may be written.
  - `load_row(name)` reads a row into registers if ROW_VECTORS.
  - `for_vectors()`, called with a block of the parameter k, repeats the block for each vector of the invocation: `value(name, k)` is the
    vector of an operand, `index(k)` the index of its first element, `set_value(name, k, value)` replaces it if it is in registers, and
    `write(name, k, value)` stores one. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% set WIDTH = WIDTH | default(4) %}
{% set ROW_VECTORS = ROW_VECTORS | default(2) %}
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
fn lanes_max(v: V) -> f32 { return larger_scalar(larger_scalar(v.x, v.y), larger_scalar(v.z, v.w)); }
fn larger(a: V, b: V) -> V { return select(a, b, b > a); }
{% else %}
alias V = f32;
fn lanes_sum(v: V) -> f32 { return v; }
fn lanes_max(v: V) -> f32 { return v; }
fn larger(a: V, b: V) -> V { return larger_scalar(a, b); }
{% endif %}
// Ignores NaN.
fn larger_scalar(a: f32, b: f32) -> f32 { return select(a, b, b > a); }
{% endmacro %}

{% macro main(names) %}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let task = group_id{{ " * " ~ GROUP // LANES ~ "u + lane_group" if LANES != GROUP }};
{% if LANES in (1, GROUP) %}
    if (task >= p.rows) { return; }
    let row = task;
{% else %}
    // Surplus lane groups stay active, because the whole workgroup must reach the barriers.
    let row_exists = task < p.rows;
    let row = min(task, p.rows - 1u);
{% endif %}
    let row_2 = {{ "row % p.rows2" if AXES > 1 else "row" }};
    let row_1 = {{ {1: "0u", 2: "row / p.rows2", 3: "row / p.rows2 % p.rows1"}[AXES] }};
    let row_0 = {{ "row / p.rows2 / p.rows1" if AXES > 2 else "0u" }};
{% for n in names %}
    let at_{{ n }} = p.o_{{ n }} + row_0 * p.{{ n }}_0 + row_1 * p.{{ n }}_1 + row_2 * p.{{ n }}_2;
{% endfor %}
{% for k in range(ROW_VECTORS) %}
    let i{{ k }} = (lane_id + {{ k * LANES }}u) * {{ WIDTH }}u;
{% endfor %}
{% endmacro %}

{% macro in_range() %}{{ "true" if LANES in (1, GROUP) else "row_exists" }}{% endmacro %}
{% macro index(k) %}i{{ k }}{% endmacro %}
{% macro read(name, k) %}
{%- if WIDTH == 4 -%} {{ name }}_at4(at_{{ name }} + i{{ k }}) {%- else -%} {{ name }}_at(at_{{ name }} + i{{ k }} * p.{{ name }}_step) {%- endif -%}
{% endmacro %}
{% macro value(name, k) %}{% if ROW_VECTORS %}{{ name }}_{{ k }}{% else %}{{ read(name, k) }}{% endif %}{% endmacro %}

{% macro load_row(name) %}
{% for k in range(ROW_VECTORS) %}
    var {{ name }}_{{ k }} = V();
    {{ "if (i" ~ k ~ " < p.length) " if k == ROW_VECTORS - 1 and not FULL }}{ {{ name }}_{{ k }} = {{ read(name, k) }}; }
{% endfor %}
{% endmacro %}

{% macro for_vectors() %}
{% if ROW_VECTORS %}
{% for k in range(ROW_VECTORS) %}
    {{ "if (i" ~ k ~ " < p.length) " if k == ROW_VECTORS - 1 and not FULL }}{
{{ caller(k) }}
    }
{% endfor %}
{% else %}
    for (var i = lane_id * {{ WIDTH }}u; i < p.length; i += {{ LANES * WIDTH }}u) {
{{ caller("") }}
    }
{% endif %}
{% endmacro %}

{% macro set_value(name, k, value) %}{% if ROW_VECTORS %}{{ name }}_{{ k }} = {{ value }};{% endif %}{% endmacro %}

{% macro write(name, k, value) %}
        {{ "if (row_exists) " if LANES not in (1, GROUP) }}{ {% if WIDTH == 4 %}{{ name }}_set4(at_{{ name }} + i{{ k }}, {{ value }});{% else %}{{ name }}_set(at_{{ name }} + i{{ k }} * p.{{ name }}_step, {{ value }});{% endif %} }
{% endmacro %}
