{#- Elements that are only moved: UNIT bytes at a time, whatever their type. Import it `with context`:

      import "lib/copy_units.wgsl" as units with context

  `source(binding, name, unit, storage)` declares a buffer that is read and `NAME_unit(i)`; `target(...)` one that is written and
  `NAME_put(i, value)`; `type(unit)` is the type of a value, and `type(unit)()` zero. Units are 1, 2, 4, 8 or 16 bytes. -#}
{% macro type(unit) %}{{ {8: "vec2<u32>", 16: "vec4<u32>"}.get(unit, "u32") }}{% endmacro %}

{% macro source(binding, name, unit, storage) %}
{% if unit < 4 %}
{{ storage.input(binding, name, "uint8" if unit == 1 else "uint16") }}
fn {{ name }}_unit(i: u32) -> u32 { return {{ name }}_at(i); }
{% else %}
{{ storage.scratch(binding, name, type(unit), "read") }}
fn {{ name }}_unit(i: u32) -> {{ type(unit) }} { return {{ name }}[i]; }
{% endif %}
{% endmacro %}

{% macro target(binding, name, unit, storage) %}
{% if unit < 4 %}
{{ storage.output(binding, name, "uint8" if unit == 1 else "uint16") }}
fn {{ name }}_put(i: u32, value: u32) { {{ name }}_set(i, value); }
{% else %}
{{ storage.scratch(binding, name, type(unit)) }}
fn {{ name }}_put(i: u32, value: {{ type(unit) }}) { {{ name }}[i] = value; }
{% endif %}
{% endmacro %}
