{#- Reductions over teams of LANES invocations, in a fixed order; all of a team know the result. Import it `with context`:

  - GROUP is the size of a group and LANES that of its teams, both powers of two. SUBGROUP is how many invocations every subgroup of the
    device has at least, 0 where there are no subgroup operations.
  - `builtins()` are more arguments of main, `begin()` at its start sets `team`, the number of the team in its group, and `me`,
    the invocation's number in its team.
  - `reduction(name, type, joined)` declares `name(value)`, where `joined` is the expression that joins `a` and `b`, the same when they are
    swapped. It must be reached by the whole group. 64-bit types go through workgroup memory.

  Values travel inside aligned runs of a subgroup by shuffles, and between those through workgroup memory. -#}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% set SUBGROUP = SUBGROUP | default(0) %}
{% set SHUFFLED = LANES > 1 and SUBGROUP > 1 %}

{% macro builtins() %}
{% if SHUFFLED %}@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_size) subgroup_width: u32, @builtin(subgroup_invocation_id) subgroup_lane: u32,{% endif %}
{% endmacro %}

{% macro declarations() %}
var<private> team: u32;
var<private> me: u32;
{% endmacro %}

{% macro begin() %}
{% if LANES == 1 %}
    team = lane;
    me = 0u;
{% elif SHUFFLED %}
    // Not `lane`: how invocations are spread over subgroups is the device's affair.
    let numbered = subgroup * subgroup_width + subgroup_lane;
    team = numbered / {{ LANES }}u;
    me = numbered % {{ LANES }}u;
{% else %}
    team = lane / {{ LANES }}u;
    me = lane % {{ LANES }}u;
{% endif %}
{% endmacro %}

{% macro butterfly(name, count) %}
{% for step in range(8) if 2 ** step < count %}
    v = {{ name }}_joined(v, subgroupShuffleXor(v, {{ 2 ** step }}u));
{% endfor %}
{% endmacro %}

{% macro reduction(name, type, joined) %}
{% set run = [LANES, SUBGROUP] | min if SHUFFLED and type not in ("i64", "u64") else 1 %}
{% set runs = LANES // run %}
fn {{ name }}_joined(a: {{ type }}, b: {{ type }}) -> {{ type }} { return {{ joined }}; }
{% if runs > 1 %}
var<workgroup> {{ name }}_scratch: array<{{ type }}, {{ GROUP // run }}>;
{% endif %}
fn {{ name }}(value: {{ type }}) -> {{ type }} {
    var v = value;
{{ butterfly(name, run) }}
{% if runs > 1 and run > 1 %}
    // The first barrier keeps an invocation from overwriting what another still reads of the reduction before.
    workgroupBarrier();
    if (me % {{ run }}u == 0u) { {{ name }}_scratch[team * {{ runs }}u + me / {{ run }}u] = v; }
    workgroupBarrier();
    let mine = team * {{ runs }}u + me % {{ [runs, run] | min }}u;
    v = {{ name }}_scratch[mine];
{% for j in range(1, runs // run) %}
    v = {{ name }}_joined(v, {{ name }}_scratch[mine + {{ j * run }}u]);
{% endfor %}
{{ butterfly(name, [runs, run] | min) }}
{% elif runs > 1 %}
    let mine = team * {{ LANES }}u + me;
    workgroupBarrier();
    {{ name }}_scratch[mine] = v;
{% for step in range(10, -1, -1) if 2 ** step < LANES %}
    workgroupBarrier();
    if (me < {{ 2 ** step }}u) { {{ name }}_scratch[mine] = {{ name }}_joined({{ name }}_scratch[mine], {{ name }}_scratch[mine + {{ 2 ** step }}u]); }
{% endfor %}
    workgroupBarrier();
    v = {{ name }}_scratch[team * {{ LANES }}u];
{% endif %}
    return v;
}
{% endmacro %}

{#- Declares `name(value, across, down)`: joins what `tall` invocations of a group, `wide` of which stand side by side, have for the same
    `across`. The result is right where `down` is 0. It must be reached by the whole group. -#}
{% macro stack(name, type, joined, wide, tall) %}
{% if tall > 1 %}
fn {{ name }}_joined(a: {{ type }}, b: {{ type }}) -> {{ type }} { return {{ joined }}; }
var<workgroup> {{ name }}_scratch: array<{{ type }}, {{ wide * tall }}>;
{% endif %}
fn {{ name }}(value: {{ type }}, across: u32, down: u32) -> {{ type }} {
{% if tall == 1 %}
    return value;
{% else %}
    let mine = down * {{ wide }}u + across;
    workgroupBarrier();
    {{ name }}_scratch[mine] = value;
{% for step in range(10, -1, -1) if 2 ** step < tall %}
    workgroupBarrier();
    if (down < {{ 2 ** step }}u) {
        {{ name }}_scratch[mine] = {{ name }}_joined({{ name }}_scratch[mine], {{ name }}_scratch[mine + {{ 2 ** step * wide }}u]);
    }
{% endfor %}
    return {{ name }}_scratch[mine];
{% endif %}
}
{% endmacro %}
