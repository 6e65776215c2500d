{#- One step of Adam for several parameters, in place. The host has folded the corrections of the moments' start into `step` and
    `correction`: p -= step * m / (sqrt(v) * correction + eps). With COUNTED they follow from the number of the step, which lies in
    device memory, the rate `step`, and the logarithms of both betas; step 0 leaves everything as it is. -#}
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
    coupled: f32, beta1: f32, rest1: f32, beta2: f32, rest2: f32" ~ (", log1: f32, log2: f32" if COUNTED else "")) }}
{% if COUNTED %}
// 1 - exp(x) for x up to 0: by its series near 0, where little is left of the difference.
fn rest_of_exp(x: f32) -> f32 {
    let series = -x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0))));
    return select(1.0 - exp(x), series, x > -0.1);
}
{% endif %}
{{ storage.main(GROUP) }}
{% if COUNTED %}
    let t = step_count_at(p.o_step_count);
    if (t == 0.0) { return; }
    let step = p.step / rest_of_exp(t * p.log1);
    let correction = inverseSqrt(rest_of_exp(t * p.log2));
{% else %}
    let step = p.step;
    let correction = p.correction;
{% endif %}
{% call(s) slots.each() %}
            let value = {{ slots.get("p", s) }};
            let slope = {{ slots.get("g", s) }} + value * p.coupled;
            let first = {{ slots.get("m", s) }} * p.beta1 + slope * p.rest1;
            let second = {{ slots.get("v", s) }} * p.beta2 + slope * slope * p.rest2;
            let stepped = value * p.shrink - first * step / (sqrt(second) * correction + p.eps);
{{ slots.put("m", s, "first") }}
{{ slots.put("v", s, "second") }}
{{ slots.put("p", s, "stepped") }}
{% endcall %}
}
