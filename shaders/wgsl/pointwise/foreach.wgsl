{#- A group of elementwise ops on each of several contiguous tensors (lib/multi_tensor.wgsl). SHARED lists tensors of one element and NUMBERS
    declares numbers that all slots use; PROLOGUE computes values that are the same for all elements. READS lists registers and the operands
    whose elements they hold, COMPUTE evaluates one element, WRITES lists operands and the expressions of their new elements, SUMS
    expressions that are summed over the elements of each chunk: sum k of chunk n goes to sums<k>[first_chunk + n]. Operands may have one
    element per slot (access `single`), or one for each row, column or matrix of it. The defaults copy. -#}
{% set OPERANDS = OPERANDS | default([
  {"name": "q0", "dtype": "float32", "read_only": true}, {"name": "q1", "dtype": "float32"}]) %}
{% set GROUP = GROUP | default(64) %}
{% set SHARED = SHARED | default([]) %}
{% set NUMBERS = NUMBERS | default("") %}
{% set PROLOGUE = PROLOGUE | default([]) %}
{% set COMPUTE = COMPUTE | default([]) %}
{% set READS = READS | default([("r_a0", "q0")]) %}
{% set WRITES = WRITES | default([("q1", "r_a0")]) %}
{% set SUMS = SUMS | default([]) %}
{% set SLOTS = SLOTS | default(2) %}
{% set ACCESS_OF = {} %}
{% for o in OPERANDS %}{% set _ = ACCESS_OF.update({o.name: o.access | default("elements")}) %}{% endfor %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/multi_tensor.wgsl" as slots with context %}
{{ storage.enable() }}
{% include "lib/float_functions.wgsl" %}
{% include "lib/conversions.wgsl" %}
{{ storage.half_functions() }}
{{ slots.declare(storage) }}
{{ slots.positions() }}
{% for o in SHARED %}
{{ storage.input(slots.buffers + loop.index0, o.name, o.dtype) }}
{% endfor %}
{% for _ in SUMS %}
{{ storage.output(slots.buffers + SHARED | length + loop.index0, "sums" ~ loop.index0, "float32") }}
{% endfor %}
{% set members %}{{ slots.members() }}{% for o in SHARED %}o_{{ o.name }}: u32, {% endfor %}{% for _ in SUMS %}o_sums{{ loop.index0 }}: u32, {% endfor %}{% if SUMS %}first_chunk: u32, {% endif %}{{ NUMBERS }}{% endset %}
{{ storage.parameters(members) }}
{% if SUMS %}
{{ groups.declarations() }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
{% for _ in SUMS %}
    var s{{ loop.index0 }} = 0.0;
{% endfor %}
{% else %}
{{ storage.main(GROUP) }}
{% endif %}
{% for line in PROLOGUE %}
    {{ line }}
{% endfor %}
{% call(s) slots.for_elements() %}
{% for register, name in READS %}
            let v_{{ name }} = {{ slots.load_access(name, s, ACCESS_OF[name]) }};
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
{% for expression in SUMS %}
                s{{ loop.index0 }} += select(0.0, {{ expression }}, remaining > {{ k }}u);
{% endfor %}
            }
{% endfor %}
{% for name, expression in WRITES %}
{{ slots.store(name, s, "w_" ~ name) }}
{% endfor %}
{% endcall %}
{% for _ in SUMS %}
    let total{{ loop.index0 }} = group_sum(s{{ loop.index0 }});
    if (local_id == 0u && group_id < end{{ SLOTS - 1 }}) { sums{{ loop.index0 }}_set(p.o_sums{{ loop.index0 }} + p.first_chunk + group_id, total{{ loop.index0 }}); }
{% endfor %}
}
