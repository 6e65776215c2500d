{#- The buffers, parameters and batch offsets of two batches of matrices. Import it `with context`. With MATRICES there are further right
    ones, `b1` and `b2`, and with NORM the weights of a norm, `scale`. -#}
{% set DTYPE = DTYPE | default("float32") %}
{#- 4 where contiguous elements of an operand are loaded as vectors. -#}
{% set A_LANES = A_LANES | default(1) %}
{% set B_LANES = B_LANES | default(1) %}
{% set SCALE_LANES = SCALE_LANES | default(1) %}
{% set MATRICES = MATRICES | default(1) %}
{% set NORM = NORM | default(false) %}
{% set PAIRS = PAIRS | default(false) %}

{% macro declare(storage, sums) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "a", DTYPE, A_LANES) }}
{{ storage.input(1, "b", DTYPE, B_LANES) }}
{% for i in range(1, MATRICES) %}
{{ storage.input(1 + i, "b" ~ i, DTYPE, B_LANES) }}
{% endfor %}
{{ storage.input(1 + MATRICES, "scale", DTYPE, SCALE_LANES) if NORM }}
{{ sums.declare(1 + MATRICES + (1 if NORM else 0), storage) }}
{% set members %}
o_a: u32, o_b: u32, {% for i in range(1, MATRICES) %}o_b{{ i }}: u32, {% endfor %}{{ "o_scale: u32, " if NORM }}{{ sums.offsets() }}
{% for i in range(1, MATRICES) if not PAIRS %}first{{ i }}: u32, {% endfor %}{{ "eps: f32, " if NORM }}
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
