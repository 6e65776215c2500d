{#- Discrete Fourier transforms of a few complex numbers in variables, in place. Import it and call `butterfly(names)` with the names of
    as many variables of type vec2<f32> as the radix: a power of two up to 8, or an odd prime up to 13. `functions()` declares the
    functions that it calls. -#}
{% macro functions() %}
fn product(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
fn minus_i(a: vec2<f32>) -> vec2<f32> { return vec2<f32>(a.y, -a.x); }
{% endmacro %}

{% macro two(a, b) %}
{ let s = {{ a }}; {{ a }} = s + {{ b }}; {{ b }} = s - {{ b }}; }
{% endmacro %}

{% macro four(a, b, c, d) %}
{
    let even = {{ a }} + {{ c }}; let odd = {{ a }} - {{ c }};
    let sum = {{ b }} + {{ d }}; let turned = minus_i({{ b }} - {{ d }});
    {{ a }} = even + sum; {{ b }} = odd + turned; {{ c }} = even - sum; {{ d }} = odd - turned;
}
{% endmacro %}

{% macro eight(v) %}
{{ four(v[0], v[2], v[4], v[6]) }}
{{ four(v[1], v[3], v[5], v[7]) }}
{
    let a = {{ v[1] }}; let b = product({{ v[3] }}, vec2<f32>(0.70710678118654752f, -0.70710678118654752f));
    let c = minus_i({{ v[5] }}); let d = product({{ v[7] }}, vec2<f32>(-0.70710678118654752f, -0.70710678118654752f));
    let e = {{ v[0] }}; let f = {{ v[2] }}; let g = {{ v[4] }}; let h = {{ v[6] }};
    {{ v[0] }} = e + a; {{ v[1] }} = f + b; {{ v[2] }} = g + c; {{ v[3] }} = h + d;
    {{ v[4] }} = e - a; {{ v[5] }} = f - b; {{ v[6] }} = g - c; {{ v[7] }} = h - d;
}
{% endmacro %}

{#- Elements k and R - k in pairs: their sums meet cosines, and their differences, turned by -i, sines. -#}
{% macro odd(v) %}
{% set R = v | length %}
{
{% for k in range(1, R // 2 + 1) %}
    let s{{ k }} = {{ v[k] }} + {{ v[R - k] }}; let d{{ k }} = minus_i({{ v[k] }} - {{ v[R - k] }});
{% endfor %}
    let first = {{ v[0] }};
    {{ v[0] }} = first{% for k in range(1, R // 2 + 1) %} + s{{ k }}{% endfor %};
{% for m in range(1, R // 2 + 1) %}
    let even{{ m }} = first{% for k in range(1, R // 2 + 1) %} + s{{ k }} * {{ cosine(m * k % R, R) }}{% endfor %};
    let odd{{ m }} = {% for k in range(1, R // 2 + 1) %}{{ " + " if k > 1 }}d{{ k }} * {{ sine(m * k % R, R) }}{% endfor %};
    {{ v[m] }} = even{{ m }} + odd{{ m }};
    {{ v[R - m] }} = even{{ m }} - odd{{ m }};
{% endfor %}
}
{% endmacro %}

{#- Cosines and sines of 2 pi k / R for k up to R // 2. -#}
{% set COSINES = {
  3: ["1.0f", "-0.5f"],
  5: ["1.0f", "0.309016994375f", "-0.809016994375f"],
  7: ["1.0f", "0.623489801859f", "-0.222520933956f", "-0.900968867902f"],
  11: ["1.0f", "0.841253532831f", "0.415415013002f", "-0.142314838273f", "-0.654860733945f", "-0.959492973614f"],
  13: ["1.0f", "0.885456025653f", "0.568064746731f", "0.120536680255f", "-0.354604887043f", "-0.748510748171f", "-0.970941817426f"]} %}
{% set SINES = {
  3: ["0.0f", "0.866025403784f"],
  5: ["0.0f", "0.951056516295f", "0.587785252292f"],
  7: ["0.0f", "0.781831482468f", "0.974927912182f", "0.433883739118f"],
  11: ["0.0f", "0.540640817456f", "0.909631995355f", "0.989821441881f", "0.755749574354f", "0.281732556841f"],
  13: ["0.0f", "0.464723172044f", "0.822983865894f", "0.992708874098f", "0.935016242685f", "0.663122658241f", "0.239315664288f"]} %}
{% macro cosine(k, R) %}({{ COSINES[R][k if k <= R // 2 else R - k] }}){% endmacro %}
{% macro sine(k, R) %}({{ SINES[R][k] if k <= R // 2 else "-" ~ SINES[R][R - k] }}){% endmacro %}

{% macro butterfly(v) %}
{% set R = v | length %}
{% if R == 2 %}{{ two(v[0], v[1]) }}{% elif R == 4 %}{{ four(v[0], v[1], v[2], v[3]) }}{% elif R == 8 %}{{ eight(v) }}{% elif R > 1 %}{{ odd(v) }}{% endif %}
{% endmacro %}
