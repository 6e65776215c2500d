{#- One step of gradient descent for several parameters, in place, as PyTorch's SGD: with MOMENTUM there is a buffer `b` per parameter.
    With COUNTED the number of the step lies in device memory: the first gradient enters the buffer whole, step 0 changes nothing. -#}
{% set OPERANDS = OPERANDS | default([
  {"name": "p", "dtype": "float32"}, {"name": "g", "dtype": "float32", "read_only": true}, {"name": "b", "dtype": "float32"}]) %}
{% set GROUP = GROUP | default(64) %}
{% set COUNTED = COUNTED | default(false) %}
{% set MOMENTUM = MOMENTUM | default(true) %}
{% set NESTEROV = NESTEROV | default(false) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/multi_tensor.wgsl" as slots with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ slots.declare(storage) }}
{% if COUNTED %}
{{ storage.input(slots.buffers, "step_count", STEP_COUNT_DTYPE | default("float32")) }}
{% endif %}
{{ storage.parameters(slots.members() ~ ("o_step_count: u32, " if COUNTED else "") ~ "rate: f32, decay: f32, momentum: f32, fresh: f32") }}
{{ storage.main(GROUP) }}
{% if COUNTED %}
    let t = step_count_at(p.o_step_count);
    if (t == 0.0) { return; }
    let fresh = select(p.fresh, 1.0, t == 1.0);
{% else %}
    let fresh = p.fresh;
{% endif %}
{% call(s) slots.each() %}
            let value = {{ slots.get("p", s) }};
            let slope = {{ slots.get("g", s) }} + value * p.decay;
{% if MOMENTUM %}
            let kept = {{ slots.get("b", s) }} * p.momentum + slope * fresh;
            let direction = {{ "slope + kept * p.momentum" if NESTEROV else "kept" }};
{{ slots.put("b", s, "kept") }}
{% else %}
            let direction = slope;
{% endif %}
            let stepped = value - direction * p.rate;
{{ slots.put("p", s, "stepped") }}
{% endcall %}
}
