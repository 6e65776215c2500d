{#- The buffers, parameters and batch offsets of two batches of matrices. Import it `with context`. -#}
{% set DTYPE = DTYPE | default("float32") %}
{#- 4 where contiguous elements of an operand are loaded as vectors. -#}
{% set A_LANES = A_LANES | default(1) %}
{% set B_LANES = B_LANES | default(1) %}

{% macro declare(storage, sums) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "a", DTYPE, A_LANES) }}
{{ storage.input(1, "b", DTYPE, B_LANES) }}
{{ sums.declare(2, storage) }}
{% set members %}
o_a: u32, o_b: u32, {{ sums.offsets() }}
m: u32, n: u32, k: u32, split_length: u32, count: u32, batch1: u32, batch2: u32,
stride_am: u32, stride_ak: u32, a_batch0: u32, a_batch1: u32, a_batch2: u32,
stride_bn: u32, stride_bk: u32, b_batch0: u32, b_batch1: u32, b_batch2: u32, {{ sums.members() }}
{% endset %}
{{ storage.parameters(members) }}
{% endmacro %}

{% macro begin() %}
    let i2 = batch % p.batch2;
    let i1 = batch / p.batch2 % p.batch1;
    let i0 = batch / p.batch2 / p.batch1;
    let a_batch = p.o_a + i0 * p.a_batch0 + i1 * p.a_batch1 + i2 * p.a_batch2;
    let b_batch = p.o_b + i0 * p.b_batch0 + i1 * p.b_batch1 + i2 * p.b_batch2;
{% endmacro %}
