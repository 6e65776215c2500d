{#- The largest element of a row and the sum of its exponentials, for kernels over the rows of `lib/rows.wgsl`. Import it `with context`.

  - `exponential()` declares exp_v, of a vector, and `declarations()` what `statistics` needs, part_v among it, exp of a vector of
    differences to the largest element. They follow those of `lib/rows.wgsl`.
  - `statistics(name, exponentials)` sets `shift`, the largest element, and `total`, the sum of exp(value - shift); with `exponentials`,
    these replace the values that are kept. Of a row of minus infinities the shift is 0. A NaN is in the total, not in the shift.

  A row that is not kept is still read only once: the sum so far is rescaled when a larger element comes, BLOCK vectors at a time. -#}
{% import "lib/rows.wgsl" as rows with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% set WIDTH = WIDTH | default(4) %}
{% set HELD = HELD | default(2) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% set BLOCK = 4 %}

{% macro exponential(name="exp_v", function="exp_f32") %}
{% if WIDTH == 4 %}
fn {{ name }}(v: V) -> V { return V({{ function }}(v.x), {{ function }}(v.y), {{ function }}(v.z), {{ function }}(v.w)); }
{% else %}
fn {{ name }}(v: V) -> V { return {{ function }}(v); }
{% endif %}
{% endmacro %}

{% macro declarations() %}
{{ groups.reduction("team_max", "f32", "select(a, b, b > a)") }}
{{ groups.reduction("team_sum", "f32", "a + b") }}
{{ exponential("part_v", "exp_nonpositive_f32") }}
fn shift_of(top: f32) -> f32 { return select(top, 0.0f, bitcast<u32>(top) == 0xff800000u); }
{% endmacro %}

{% macro statistics(name, exponentials=false) %}
{% if HELD %}
    var tops = V(-infinity());
{% call(k) rows.each() %}
        tops = larger(tops, {{ rows.value(name, k) }});
{% endcall %}
    let shift = shift_of(team_max(lanes_max(tops)));
    var sums = V();
{% call(k) rows.each() %}
        let e = part_v({{ rows.value(name, k) }} - shift);
        sums += e;
        {{ rows.keep(name, k, "e") if exponentials }}
{% endcall %}
    let total = team_sum(lanes_sum(sums));
{% else %}
    var top = -infinity();
    var sum = 0.0f;
    for (var start = me * {{ WIDTH }}u; start < p.length; start += {{ BLOCK * LANES * WIDTH }}u) {
{% for k in range(BLOCK) %}
        let i{{ k }} = start + {{ k * LANES * WIDTH }}u;
        var v{{ k }} = V(-infinity());
        {{ "if (i" ~ k ~ " < p.length) " if k }}{ v{{ k }} = {{ rows.read(name, k) }}; }
{% endfor %}
        let higher = larger1(top, lanes_max(larger(larger(v0, v1), larger(v2, v3))));
        let base = shift_of(higher);
        sum = sum * exp_nonpositive_f32(top - base) + lanes_sum((part_v(v0 - base) + part_v(v1 - base)) + (part_v(v2 - base) + part_v(v3 - base)));
        top = higher;
    }
    let shift = shift_of(team_max(top));
    let total = team_sum(sum * exp_nonpositive_f32(top - shift));
{% endif %}
{% endmacro %}
