{#- How two partial results `a` and `b` are joined, as WGSL expressions in the type T. largest and smallest keep a NaN from either side.
    Import it `with context`. -#}
{% macro joined(operation, T) %}
{#- Both are tested for NaN, because OpenGL's compilers turn comparisons around. -#}
{% set float = T == "f32" %}
{{- {"sum": "a + b", "prod": "a * b", "either": "a | b", "both": "a & b",
     "largest": "select(b, a, isnan_f32(a) || (a > b && !isnan_f32(b)))" if float else "max(a, b)",
     "smallest": "select(b, a, isnan_f32(a) || (a < b && !isnan_f32(b)))" if float else "min(a, b)"}[operation] -}}
{% endmacro %}

{#- The value that changes nothing when it is joined. -#}
{% macro identity(operation, T) %}
{%- if operation == "largest" -%}
{{ {"f32": "-infinity()", "i32": "-2147483647 - 1", "i64": "-9223372036854775807li - 1li"}.get(T, T ~ "(0)") }}
{%- elif operation == "smallest" -%}
{{ {"f32": "infinity()", "i32": "2147483647", "i64": "9223372036854775807li", "u32": "0xffffffffu", "u64": "18446744073709551615lu"}[T] }}
{%- else -%}
{{ T }}({{ 1 if operation in ("prod", "both") else 0 }})
{%- endif -%}
{% endmacro %}

{#- Declares V, WIDTH partial results side by side, and functions on it. -#}
{% macro declarations(operation, T, register, map, width) %}
fn joined(a: {{ T }}, b: {{ T }}) -> {{ T }} { return {{ joined(operation, T) }}; }
fn term(v: {{ register }}) -> {{ T }} { return {{ map }}; }
{% if width == 4 %}
alias V = vec4<{{ T }}>;
fn joined_v(a: V, b: V) -> V { return V(joined(a.x, b.x), joined(a.y, b.y), joined(a.z, b.z), joined(a.w, b.w)); }
fn terms(v: vec4<{{ register }}>) -> V { return V(term(v.x), term(v.y), term(v.z), term(v.w)); }
{% else %}
alias V = {{ T }};
fn joined_v(a: V, b: V) -> V { return joined(a, b); }
fn terms(v: {{ register }}) -> V { return term(v); }
{% endif %}
{% endmacro %}
