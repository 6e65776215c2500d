{#- Elements that are only moved, whatever their dtype, of 1, 2, 4, 8 or 16 bytes. Import it `with context`:

      import "lib/raw_elements.wgsl" as raw with context

  `source(binding, name, nbytes, storage)` declares a read-only buffer and `NAME_load(i)`; `target(...)` a write-only one and
  `NAME_store(i, value)`. `type(nbytes)` is the type of an element, and `type(nbytes)()` zero. -#}
{% macro type(nbytes) %}{{ {8: "vec2<u32>", 16: "vec4<u32>"}.get(nbytes, "u32") }}{% endmacro %}

{% macro source(binding, name, nbytes, storage) %}
{% if nbytes < 4 %}
{{ storage.input(binding, name, "uint8" if nbytes == 1 else "uint16") }}
fn {{ name }}_load(i: u32) -> u32 { return {{ name }}_at(i); }
{% else %}
{{ storage.scratch(binding, name, type(nbytes), "read") }}
fn {{ name }}_load(i: u32) -> {{ type(nbytes) }} { return {{ name }}[i]; }
{% endif %}
{% endmacro %}

{% macro target(binding, name, nbytes, storage) %}
{% if nbytes < 4 %}
{{ storage.output(binding, name, "uint8" if nbytes == 1 else "uint16") }}
fn {{ name }}_store(i: u32, value: u32) { {{ name }}_set(i, value); }
{% else %}
{{ storage.scratch(binding, name, type(nbytes)) }}
fn {{ name }}_store(i: u32, value: {{ type(nbytes) }}) { {{ name }}[i] = value; }
{% endif %}
{% endmacro %}
