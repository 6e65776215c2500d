{#- One Adam step for several parameters, in place. The host folds the learning rate and the bias corrections into `step` and `correction`:
    p -= step * m / (sqrt(v) * correction + eps). With COUNTED the step count is in device memory; the kernel then computes both from it,
    from `step`, which is the learning rate, and from the logarithms of both betas. Step 0 changes nothing. -#}
{% set OPERANDS = OPERANDS | default([
  {"name": "p", "dtype": "float32"}, {"name": "g", "dtype": "float32", "read_only": true}, {"name": "m", "dtype": "float32"},
  {"name": "v", "dtype": "float32"}]) %}
{% set GROUP = GROUP | default(64) %}
{% set COUNTED = COUNTED | default(false) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/multi_tensor.wgsl" as slots with context %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ slots.declare(storage) }}
{% if COUNTED %}
{{ storage.input(slots.buffers, "step_count", STEP_COUNT_DTYPE | default("float32")) }}
{% endif %}
{{ storage.parameters(slots.members() ~ ("o_step_count: u32, " if COUNTED else "") ~ "step: f32, correction: f32, eps: f32, shrink: f32,
    coupled: f32, beta1: f32, one_minus_beta1: f32, beta2: f32, one_minus_beta2: f32" ~ (", log_beta1: f32, log_beta2: f32" if COUNTED else "")) }}
{% if COUNTED %}
// 1 - exp(x) for x <= 0: a series near 0, where the difference would cancel.
fn one_minus_exp(x: f32) -> f32 {
    let series = -x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0))));
    return select(1.0 - exp(x), series, x > -0.1);
}
{% endif %}
{{ storage.main(GROUP) }}
{% if COUNTED %}
    let t = step_count_at(p.o_step_count);
    if (t == 0.0) { return; }
    let step = p.step / one_minus_exp(t * p.log_beta1);
    let correction = inverseSqrt(one_minus_exp(t * p.log_beta2));
{% else %}
    let step = p.step;
    let correction = p.correction;
{% endif %}
{% call(s) slots.for_elements() %}
            let value = {{ slots.load("p", s) }};
            let given = {{ slots.load("g", s) }};
            let grad = select(given, given + value * p.coupled, p.coupled != 0.0);
            let first = {{ slots.load("m", s) }} * p.beta1 + grad * p.one_minus_beta1;
            let second = {{ slots.load("v", s) }} * p.beta2 + grad * grad * p.one_minus_beta2;
            let updated = value * p.shrink - first * step / (sqrt(second) * correction + p.eps);
{{ slots.store("m", s, "first") }}
{{ slots.store("v", s, "second") }}
{{ slots.store("p", s, "updated") }}
{% endcall %}
}
