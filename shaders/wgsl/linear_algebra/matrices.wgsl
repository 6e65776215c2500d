{#- Batches of small matrices: a workgroup of GROUP invocations has one matrix in workgroup memory, in rows of PITCH elements. Batches have
  up to three axes of lengths (.., batch1, batch2); results are contiguous. Import it `with context`:

  - `members(names)` are parameters for strided operands of these names, after the offsets `o_NAME`.
  - `functions()` declares `tile`, functions on elements, and `at_NAME(matrix)`: the index of an operand's first element.
  - `main()` opens the kernel, and `matrix` is the workgroup's matrix; with `tiles`, this many workgroups share a matrix.
  - `element(name, i, j)` is an element of an operand, after `locate(names)`.
  - `own(i, begin, end)` opens a loop over the indices of a range that belong to the invocation.
  - `wait()` waits for the workgroup. With IN_GLOBAL the workgroup also shares a matrix in a buffer. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% set SIZE = SIZE | default(16) %}
{% set GROUP = GROUP | default(32) %}
{% set IN_GLOBAL = IN_GLOBAL | default(false) %}
{#- An odd distance of rows keeps the rows of neighbouring invocations in different banks. -#}
{% set PITCH = SIZE + 1 %}

{% macro members(names) %}
{% for n in names %}{{ n }}_batch0: u32, {{ n }}_batch1: u32, {{ n }}_batch2: u32, {{ n }}_row: u32, {{ n }}_column: u32, {% endfor %}batch1: u32, batch2: u32, count: u32
{%- endmacro %}

{% macro functions(names) %}
var<workgroup> tile: array<f32, {{ SIZE * PITCH }}>;
// Compilers may assume that there is no NaN and flush small numbers, so that bits are compared.
fn magnitude(x: f32) -> u32 { return min(bitcast<u32>(x) & 0x7fffffffu, 0x7f800000u); }
fn is_zero(x: f32) -> bool { return magnitude(x) < 0x00800000u; }
fn is_positive(x: f32) -> bool { return bitcast<u32>(x) - 0x00800000u <= 0x7f000000u; }
{% for n in names %}
fn at_{{ n }}(matrix: u32) -> u32 {
    return p.o_{{ n }} + matrix / p.batch2 / p.batch1 * p.{{ n }}_batch0 + matrix / p.batch2 % p.batch1 * p.{{ n }}_batch1 + matrix % p.batch2 * p.{{ n }}_batch2;
}
{% endfor %}
{% endmacro %}

{% macro main(names, tiles="") %}
{{ storage.main(GROUP) }}
    let matrix = group_id{{ " / " ~ tiles if tiles }};
    if (matrix >= p.count) { return; }
{% for n in names %}
    let {{ n }}_start = at_{{ n }}(matrix);
{% endfor %}
{% endmacro %}

{% macro element(name, i, j) %}{{ name }}_at({{ name }}_start + ({{ i }}) * p.{{ name }}_row + ({{ j }}) * p.{{ name }}_column){% endmacro %}
{% macro at(i, j) %}tile[({{ i }}) * {{ PITCH }}u + {{ j }}]{% endmacro %}
{% macro own(i, begin, end) %}for (var {{ i }} = {{ begin }} + local_id; {{ i }} < {{ end }}; {{ i }} += {{ GROUP }}u){% endmacro %}
{% macro wait() %}workgroupBarrier();{{ " storageBarrier();" if IN_GLOBAL }}{% endmacro %}

{#- Loops over the elements (i, j) of a matrix that belong to the invocation; `index` is their index in a contiguous result. -#}
{% macro elements(rows, columns) %}
    for (var index = local_id; index < ({{ rows }}) * ({{ columns }}); index += {{ GROUP }}u) {
        let i = index / ({{ columns }});
        let j = index - i * ({{ columns }});
{{ caller() }}
    }
{% endmacro %}

{#- LU factors with partial pivoting of the matrix in `tile`, as LAPACK's getrf: `chosen` receives the row that each step exchanges, and the
    variable `failed` is the number of the first pivot that is 0, or 0. The steps are also applied to `width` columns of the array
    `right`, if there is one, with rows of `pitch` elements from `start`. -#}
{% macro eliminate(rows, columns, exchange, right="", start="0u", pitch="", width="0u") %}
    var failed = 0u;
    for (var j = 0u; j < min({{ rows }}, {{ columns }}); j++) {
        {{ wait() }}
        var found = j;
        if ({{ exchange }}) {
            var largest = magnitude({{ at("j", "j") }});
            for (var i = j + 1u; i < {{ rows }}; i++) {
                let size = magnitude({{ at("i", "j") }});
                if (size > largest) {
                    largest = size;
                    found = i;
                }
            }
        }
        let pivot = {{ at("found", "j") }};
        let vanishes = is_zero(pivot);
        if (local_id == 0u) { chosen[j] = found; }
        if (vanishes && failed == 0u) { failed = j + 1u; }
        {{ wait() }}
        if (found != j) {
            {{ own("c", "0u", columns) }} {
                let value = {{ at("j", "c") }};
                {{ at("j", "c") }} = {{ at("found", "c") }};
                {{ at("found", "c") }} = value;
            }
{% if right %}
            {{ own("c", "0u", width) }} {
                let value = {{ right }}[{{ start }} + j * {{ pitch }} + c];
                {{ right }}[{{ start }} + j * {{ pitch }} + c] = {{ right }}[{{ start }} + found * {{ pitch }} + c];
                {{ right }}[{{ start }} + found * {{ pitch }} + c] = value;
            }
{% endif %}
        }
        {{ wait() }}
        {{ own("i", "j + 1u", rows) }} {
            let below = {{ at("i", "j") }};
            var factor = below;
            if (!vanishes) { factor = below / pivot; }
            {{ at("i", "j") }} = factor;
            for (var c = j + 1u; c < {{ columns }}; c++) { {{ at("i", "c") }} -= factor * {{ at("j", "c") }}; }
{% if right %}
            for (var c = 0u; c < {{ width }}; c++) {
                {{ right }}[{{ start }} + i * {{ pitch }} + c] -= factor * {{ right }}[{{ start }} + j * {{ pitch }} + c];
            }
{% endif %}
        }
    }
    {{ wait() }}
{% endmacro %}
