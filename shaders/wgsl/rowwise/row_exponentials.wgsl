{#- The largest element of a row and the sum of its exponentials, for kernels over the rows of lib/rows.wgsl. Import it `with context`.

  - `exponential()` declares exp_v, of a vector; `declarations()` declares what `statistics` needs. Both follow the declarations of
    lib/rows.wgsl.
  - `statistics(name, exponentials)` sets `shift`, the largest element, and `total`, the sum of exp(value - shift); with `exponentials`,
    these replace the values in registers. For a row of minus infinities the shift is 0. A NaN shows in the total, not in the shift.

  A row that is not in registers is still read only once (online softmax): the sum is rescaled when a larger element appears, UNROLL
  vectors at a time. -#}
{% import "lib/rows.wgsl" as rows with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% set WIDTH = WIDTH | default(4) %}
{% set ROW_VECTORS = ROW_VECTORS | default(2) %}
{% set GROUP = GROUP | default(64) %}
{% set LANES = LANES | default(GROUP) %}
{% set UNROLL = 4 %}

{% macro exponential(name="exp_v", function="exp_f32") %}
{% if WIDTH == 4 %}
fn {{ name }}(v: V) -> V { return V({{ function }}(v.x), {{ function }}(v.y), {{ function }}(v.z), {{ function }}(v.w)); }
{% else %}
fn {{ name }}(v: V) -> V { return {{ function }}(v); }
{% endif %}
{% endmacro %}

{% macro declarations() %}
{{ groups.reduction("group_max", "f32", "select(a, b, b > a)") }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ exponential("exp_shifted", "exp_nonpositive_f32") }}
fn shift_of(largest: f32) -> f32 { return select(largest, 0.0f, bitcast<u32>(largest) == 0xff800000u); }
{% endmacro %}

{% macro statistics(name, exponentials=false) %}
{% if ROW_VECTORS %}
    var maxima = V(-infinity());
{% call(k) rows.for_vectors() %}
        maxima = larger(maxima, {{ rows.value(name, k) }});
{% endcall %}
    let shift = shift_of(group_max(lanes_max(maxima)));
    var sums = V();
{% call(k) rows.for_vectors() %}
        let e = exp_shifted({{ rows.value(name, k) }} - shift);
        sums += e;
        {{ rows.set_value(name, k, "e") if exponentials }}
{% endcall %}
    let total = group_sum(lanes_sum(sums));
{% else %}
    var largest = -infinity();
    var sum = 0.0f;
    for (var start = lane_id * {{ WIDTH }}u; start < p.length; start += {{ UNROLL * LANES * WIDTH }}u) {
{% for k in range(UNROLL) %}
        let i{{ k }} = start + {{ k * LANES * WIDTH }}u;
        var v{{ k }} = V(-infinity());
        {{ "if (i" ~ k ~ " < p.length) " if k }}{ v{{ k }} = {{ rows.read(name, k) }}; }
{% endfor %}
        let new_largest = larger_scalar(largest, lanes_max(larger(larger(v0, v1), larger(v2, v3))));
        let new_shift = shift_of(new_largest);
        sum = sum * exp_nonpositive_f32(largest - new_shift) + lanes_sum((exp_shifted(v0 - new_shift) + exp_shifted(v1 - new_shift)) + (exp_shifted(v2 - new_shift) + exp_shifted(v3 - new_shift)));
        largest = new_largest;
    }
    let shift = shift_of(group_max(largest));
    let total = group_sum(sum * exp_nonpositive_f32(largest - shift));
{% endif %}
{% endmacro %}
