{#- One step of Adam for several parameters, in place. The host has folded the corrections of the moments' start into `step` and
    `correction`: p -= step * m / (sqrt(v) * correction + eps). -#}
{% set OPERANDS = OPERANDS | default([
  {"name": "p", "dtype": "float32"}, {"name": "g", "dtype": "float32", "read_only": true}, {"name": "m", "dtype": "float32"},
  {"name": "v", "dtype": "float32"}]) %}
{% set GROUP = GROUP | default(64) %}
{% import "storage.wgsl" as storage with context %}
{% import "slots.wgsl" as slots with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ slots.declare(storage) }}
{{ storage.parameters(slots.members() ~ "step: f32, correction: f32, eps: f32, shrink: f32, coupled: f32, beta1: f32, rest1: f32,
    beta2: f32, rest2: f32") }}
{{ storage.main(GROUP) }}
{% call(s) slots.each() %}
            let value = {{ slots.get("p", s) }};
            let slope = {{ slots.get("g", s) }} + value * p.coupled;
            let first = {{ slots.get("m", s) }} * p.beta1 + slope * p.rest1;
            let second = {{ slots.get("v", s) }} * p.beta2 + slope * slope * p.rest2;
            let stepped = value * p.shrink - first * p.step / (sqrt(second) * p.correction + p.eps);
{{ slots.put("m", s, "first") }}
{{ slots.put("v", s, "second") }}
{{ slots.put("p", s, "stepped") }}
{% endcall %}
}
