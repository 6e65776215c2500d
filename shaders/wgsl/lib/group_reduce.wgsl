{#- Reductions over lane groups: LANES invocations that share a task, as a logical warp does. The order is fixed, and every lane gets
    the result. Import it `with context`:

  - GROUP is the size of a workgroup, LANES that of a lane group; both are powers of two. SUBGROUP is the smallest subgroup size of the
    device, 0 if it has no subgroup operations.
  - `builtins()` are additional arguments of main. `begin()` at its start sets `lane_group`, the index of the lane group in its
    workgroup, and `lane_id`, the index of the invocation in its lane group.
  - `reduction(name, type, combined)` declares `name(value)`; `combined` is a commutative expression of `a` and `b`. The whole workgroup
    must reach it. 64-bit types go through workgroup memory.

  Within aligned segments of a subgroup, values are exchanged by shuffles; between segments, through workgroup memory. -#}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% set SUBGROUP = SUBGROUP | default(0) %}
{% set SHUFFLES = LANES > 1 and SUBGROUP > 1 %}

{% macro builtins() %}
{% if SHUFFLES %}@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_size) subgroup_width: u32, @builtin(subgroup_invocation_id) subgroup_lane: u32,{% endif %}
{% endmacro %}

{% macro declarations() %}
var<private> lane_group: u32;
var<private> lane_id: u32;
{% endmacro %}

{% macro begin() %}
{% if LANES == 1 %}
    lane_group = local_id;
    lane_id = 0u;
{% elif SHUFFLES %}
    // Not from `local_id`: how invocations map to subgroups is up to the device.
    let linear = subgroup * subgroup_width + subgroup_lane;
    lane_group = linear / {{ LANES }}u;
    lane_id = linear % {{ LANES }}u;
{% else %}
    lane_group = local_id / {{ LANES }}u;
    lane_id = local_id % {{ LANES }}u;
{% endif %}
{% endmacro %}

{% macro butterfly(name, count) %}
{% for step in range(8) if 2 ** step < count %}
    v = {{ name }}_combine(v, subgroupShuffleXor(v, {{ 2 ** step }}u));
{% endfor %}
{% endmacro %}

{% macro reduction(name, type, combined) %}
{% set segment = [LANES, SUBGROUP] | min if SHUFFLES and "64" not in type else 1 %}
{% set segments = LANES // segment %}
fn {{ name }}_combine(a: {{ type }}, b: {{ type }}) -> {{ type }} { return {{ combined }}; }
{% if segments > 1 %}
var<workgroup> {{ name }}_scratch: array<{{ type }}, {{ GROUP // segment }}>;
{% endif %}
fn {{ name }}(value: {{ type }}) -> {{ type }} {
    var v = value;
{{ butterfly(name, segment) }}
{% if segments > 1 and segment > 1 %}
    // The first barrier protects values that other invocations still read from the previous reduction.
    workgroupBarrier();
    if (lane_id % {{ segment }}u == 0u) { {{ name }}_scratch[lane_group * {{ segments }}u + lane_id / {{ segment }}u] = v; }
    workgroupBarrier();
    let slot = lane_group * {{ segments }}u + lane_id % {{ [segments, segment] | min }}u;
    v = {{ name }}_scratch[slot];
{% for j in range(1, segments // segment) %}
    v = {{ name }}_combine(v, {{ name }}_scratch[slot + {{ j * segment }}u]);
{% endfor %}
{{ butterfly(name, [segments, segment] | min) }}
{% elif segments > 1 %}
    let slot = lane_group * {{ LANES }}u + lane_id;
    workgroupBarrier();
    {{ name }}_scratch[slot] = v;
{% for step in range(10, -1, -1) if 2 ** step < LANES %}
    workgroupBarrier();
    if (lane_id < {{ 2 ** step }}u) { {{ name }}_scratch[slot] = {{ name }}_combine({{ name }}_scratch[slot], {{ name }}_scratch[slot + {{ 2 ** step }}u]); }
{% endfor %}
    workgroupBarrier();
    v = {{ name }}_scratch[lane_group * {{ LANES }}u];
{% endif %}
    return v;
}
{% endmacro %}

{#- Declares `name(value, across, down)`: reduces over the `rows` invocations of a workgroup of `rows` x `columns` that share `across`. The
    result is valid where `down` is 0. The whole workgroup must reach it. -#}
{% macro column_reduction(name, type, combined, columns, rows) %}
{% if rows > 1 %}
fn {{ name }}_combine(a: {{ type }}, b: {{ type }}) -> {{ type }} { return {{ combined }}; }
var<workgroup> {{ name }}_scratch: array<{{ type }}, {{ columns * rows }}>;
{% endif %}
fn {{ name }}(value: {{ type }}, across: u32, down: u32) -> {{ type }} {
{% if rows == 1 %}
    return value;
{% else %}
    let slot = down * {{ columns }}u + across;
    workgroupBarrier();
    {{ name }}_scratch[slot] = value;
{% for step in range(10, -1, -1) if 2 ** step < rows %}
    workgroupBarrier();
    if (down < {{ 2 ** step }}u) {
        {{ name }}_scratch[slot] = {{ name }}_combine({{ name }}_scratch[slot], {{ name }}_scratch[slot + {{ 2 ** step * columns }}u]);
    }
{% endfor %}
    return {{ name }}_scratch[slot];
{% endif %}
}
{% endmacro %}
