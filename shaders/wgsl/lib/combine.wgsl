{#- How two partial results `a` and `b` are combined, as WGSL expressions of type T. largest and smallest propagate NaN from either side.
    Import it `with context`. -#}
{% macro combine(operation, T) %}
{#- Both are tested for NaN, because OpenGL compilers invert comparisons. -#}
{% set float = T == "f32" %}
{{- {"sum": "a + b", "prod": "a * b", "either": "a | b", "both": "a & b",
     "largest": "select(b, a, isnan_f32(a) || (a > b && !isnan_f32(b)))" if float else "max(a, b)",
     "smallest": "select(b, a, isnan_f32(a) || (a < b && !isnan_f32(b)))" if float else "min(a, b)"}[operation] -}}
{% endmacro %}

{#- The identity element of the operation. -#}
{% macro identity(operation, T) %}
{%- if operation == "largest" -%}
{{ {"f32": "-infinity()", "i32": "-2147483647 - 1", "i64": "-9223372036854775807li - 1li"}.get(T, T ~ "(0)") }}
{%- elif operation == "smallest" -%}
{{ {"f32": "infinity()", "i32": "2147483647", "i64": "9223372036854775807li", "u32": "0xffffffffu", "u64": "18446744073709551615lu"}[T] }}
{%- else -%}
{{ T }}({{ 1 if operation in ("prod", "both") else 0 }})
{%- endif -%}
{% endmacro %}

{#- Declares V, a vector of partial results, and functions on it. -#}
{% macro declarations(operation, T, register, map, width) %}
fn combine(a: {{ T }}, b: {{ T }}) -> {{ T }} { return {{ combine(operation, T) }}; }
fn map_term(v: {{ register }}) -> {{ T }} { return {{ map }}; }
{% if width == 4 %}
alias V = vec4<{{ T }}>;
fn combine_v(a: V, b: V) -> V { return V(combine(a.x, b.x), combine(a.y, b.y), combine(a.z, b.z), combine(a.w, b.w)); }
fn map_terms(v: vec4<{{ register }}>) -> V { return V(map_term(v.x), map_term(v.y), map_term(v.z), map_term(v.w)); }
{% else %}
alias V = {{ T }};
fn combine_v(a: V, b: V) -> V { return combine(a, b); }
fn map_terms(v: {{ register }}) -> V { return map_term(v); }
{% endif %}
{% endmacro %}
