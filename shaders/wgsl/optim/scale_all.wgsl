{#- Several tensors times one factor that lies in device memory, in place. A factor of 1, as of gradients that need no clipping,
    costs nothing. -#}
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
    let by = factor_at(p.o_factor);
    if (by == 1.0) { return; }
{% call(s) slots.each() %}
            let scaled = {{ slots.get("x", s) }} * by;
{{ slots.put("x", s, "scaled") }}
{% endcall %}
}
