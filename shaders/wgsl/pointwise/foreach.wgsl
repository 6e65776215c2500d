{#- A group of elementwise ops on each of several contiguous tensors (lib/multi_tensor.wgsl). SHARED lists tensors of one element and NUMBERS
    declares numbers that all slots use; PROLOGUE computes values that are the same for all elements. READS lists registers and the operands
    whose elements they hold, COMPUTE evaluates one element, WRITES lists operands and the expressions of their new elements. Operands that
    are `single` have one element per slot. The defaults copy. -#}
{% set OPERANDS = OPERANDS | default([
  {"name": "q0", "dtype": "float32", "read_only": true}, {"name": "q1", "dtype": "float32"}]) %}
{% set GROUP = GROUP | default(64) %}
{% set SHARED = SHARED | default([]) %}
{% set NUMBERS = NUMBERS | default("") %}
{% set PROLOGUE = PROLOGUE | default([]) %}
{% set COMPUTE = COMPUTE | default([]) %}
{% set READS = READS | default([("r_a0", "q0")]) %}
{% set WRITES = WRITES | default([("q1", "r_a0")]) %}
{% set SINGLE = OPERANDS | selectattr("single", "defined") | selectattr("single") | map(attribute="name") | list %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/multi_tensor.wgsl" as slots with context %}
{{ storage.enable() }}
{% include "lib/float_functions.wgsl" %}
{% include "lib/conversions.wgsl" %}
{{ storage.half_functions() }}
{{ slots.declare(storage) }}
{% for o in SHARED %}
{{ storage.input(slots.buffers + loop.index0, o.name, o.dtype) }}
{% endfor %}
{% set members %}{{ slots.members() }}{% for o in SHARED %}o_{{ o.name }}: u32, {% endfor %}{{ NUMBERS }}{% endset %}
{{ storage.parameters(members) }}
{{ storage.main(GROUP) }}
{% for line in PROLOGUE %}
    {{ line }}
{% endfor %}
{% call(s) slots.for_elements() %}
{% for register, name in READS %}
            let v_{{ name }} = {% if name in SINGLE %}vec4<f32>({{ name ~ s }}_at(p.o_{{ name ~ s }})){% else %}{{ slots.load(name, s) }}{% endif %};
{% endfor %}
{% for name, expression in WRITES %}
            var w_{{ name }}: vec4<f32>;
{% endfor %}
{% for k in range(4) %}
            {
{% for register, name in READS %}
                let {{ register }} = v_{{ name }}[{{ k }}];
{% endfor %}
{% for line in COMPUTE %}
                {{ line }}
{% endfor %}
{% for name, expression in WRITES %}
                w_{{ name }}[{{ k }}] = {{ expression }};
{% endfor %}
            }
{% endfor %}
{% for name, expression in WRITES %}
{{ slots.store(name, s, "w_" ~ name) }}
{% endfor %}
{% endcall %}
}
