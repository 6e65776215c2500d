{#- The second stage of split-K: adds `partial` (split, batch, m, n) in order, and stores the sums (see lib/store_sums.wgsl). -#}
{% set GROUP = GROUP | default(64) %}
{% set REAL = REAL | default("f32") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.scratch(0, "partial", REAL, "read") }}
{{ sums.declare(1, storage) }}
{{ storage.parameters(sums.offsets() ~ "m: u32, n: u32, size: u32, splits: u32, " ~ sums.members()) }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    if (item >= p.size) { return; }
    let column = item % p.n;
    let row = item / p.n % p.m;
    let batch = item / p.n / p.m;
    var sum = partial[item];
    for (var split = 1u; split < p.splits; split++) { sum += partial[split * p.size + item]; }
    {{ sums.store("row", "column", "sum") }}
}
