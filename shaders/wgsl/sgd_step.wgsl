{#- One step of gradient descent for several parameters, in place, as PyTorch's SGD: with MOMENTUM there is a buffer `b` per parameter. -#}
{% set OPERANDS = OPERANDS | default([
  {"name": "p", "dtype": "float32"}, {"name": "g", "dtype": "float32", "read_only": true}, {"name": "b", "dtype": "float32"}]) %}
{% set GROUP = GROUP | default(64) %}
{% set MOMENTUM = MOMENTUM | default(true) %}
{% set NESTEROV = NESTEROV | default(false) %}
{% import "storage.wgsl" as storage with context %}
{% import "slots.wgsl" as slots with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ slots.declare(storage) }}
{{ storage.parameters(slots.members() ~ "rate: f32, decay: f32, momentum: f32, fresh: f32") }}
{{ storage.main(GROUP) }}
{% call(s) slots.each() %}
            let value = {{ slots.get("p", s) }};
            let slope = {{ slots.get("g", s) }} + value * p.decay;
{% if MOMENTUM %}
            let kept = {{ slots.get("b", s) }} * p.momentum + slope * p.fresh;
            let direction = {{ "slope + kept * p.momentum" if NESTEROV else "kept" }};
{{ slots.put("b", s, "kept") }}
{% else %}
            let direction = slope;
{% endif %}
            let stepped = value - direction * p.rate;
{{ slots.put("p", s, "stepped") }}
{% endcall %}
}
