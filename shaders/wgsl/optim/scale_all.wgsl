{#- Multiplies several tensors in place by a factor in device memory. A factor of 1, as for gradients that need no clipping, costs nothing. -#}
{% set OPERANDS = OPERANDS | default([{"name": "x", "dtype": "float32"}]) %}
{% set GROUP = GROUP | default(64) %}
{% set FACTOR_DTYPE = FACTOR_DTYPE | default("float32") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/multi_tensor.wgsl" as slots with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ slots.declare(storage) }}
{{ storage.input(slots.buffers, "factor", FACTOR_DTYPE) }}
{{ storage.parameters(slots.members() ~ "o_factor: u32") }}
{{ storage.main(GROUP) }}
    let scale = factor_at(p.o_factor);
    if (scale == 1.0) { return; }
{% call(s) slots.for_elements() %}
            let scaled = {{ slots.load("x", s) }} * scale;
{{ slots.store("x", s, "scaled") }}
{% endcall %}
}
