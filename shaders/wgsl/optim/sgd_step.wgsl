{#- One SGD step for several parameters, in place, as in PyTorch. With MOMENTUM there is a momentum buffer `b` per parameter. With COUNTED the
    step count is in device memory: step 1 initialises the buffer with the gradient, step 0 changes nothing. -#}
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
{{ storage.parameters(slots.members() ~ ("o_step_count: u32, " if COUNTED else "") ~ "rate: f32, decay: f32, momentum: f32, gradient_weight: f32") }}
{{ storage.main(GROUP) }}
{% if COUNTED %}
    let t = step_count_at(p.o_step_count);
    if (t == 0.0) { return; }
    let gradient_weight = select(p.gradient_weight, 1.0, t == 1.0);
{% else %}
    let gradient_weight = p.gradient_weight;
{% endif %}
{% call(s) slots.for_elements() %}
            let value = {{ slots.load("p", s) }};
            let given = {{ slots.load("g", s) }};
            let grad = select(given, given + value * p.decay, p.decay != 0.0);
{% if MOMENTUM %}
            let buffer = {{ slots.load("b", s) }} * p.momentum + grad * gradient_weight;
            let direction = {{ "grad + buffer * p.momentum" if NESTEROV else "buffer" }};
{{ slots.store("b", s, "buffer") }}
{% else %}
            let direction = grad;
{% endif %}
            let updated = value - direction * p.rate;
{{ slots.store("p", s, "updated") }}
{% endcall %}
}
