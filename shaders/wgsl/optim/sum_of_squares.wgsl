{#- Sums of squares of the chunks of several tensors; the sum of chunk n goes to partial[first + n]. -#}
{% set OPERANDS = OPERANDS | default([{"name": "x", "dtype": "float32", "read_only": true}]) %}
{% set GROUP = GROUP | default(64) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/multi_tensor.wgsl" as slots with context %}
{{ storage.enable() }}
{{ slots.declare(storage) }}
{{ storage.scratch(slots.buffers, "partial", "f32") }}
{{ storage.parameters(slots.members() ~ "first: u32") }}
{{ groups.declarations() }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    var squares = vec4<f32>();
{% call(s) slots.for_elements() %}
            let x = select(vec4<f32>(), {{ slots.load("x", s) }}, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(remaining));
            squares += x * x;
{% endcall %}
    let sum = group_sum((squares.x + squares.y) + (squares.z + squares.w));
    if (local_id == 0u) { partial[p.first + group_id] = sum; }
}
