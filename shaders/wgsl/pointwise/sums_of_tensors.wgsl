{#- The sum of the chunks of each of several tensors, with one workgroup per tensor; with ROOT the square root of each. `ranges` has the first
    chunk and the number of chunks of each tensor. -#}
{% set GROUP = GROUP | default(64) %}
{% set ROOT = ROOT | default(false) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{{ storage.enable() }}
{{ storage.scratch(0, "partial", "f32", "read") }}
{{ storage.output(1, "out", "float32") }}
{{ storage.scratch(2, "ranges", "i32", "read") }}
{{ storage.parameters("o_out: u32") }}
{{ groups.declarations() }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ storage.main(GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let first = u32(ranges[2u * group_id]);
    let end = first + u32(ranges[2u * group_id + 1u]);
    var sum = 0.0;
    for (var i = first + local_id; i < end; i += {{ GROUP }}u) { sum += partial[i]; }
    sum = group_sum(sum);
    if (local_id == 0u) { out_set(p.o_out + group_id, {{ "sqrt(sum)" if ROOT else "sum" }}); }
}
