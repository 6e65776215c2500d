{#- Half the spectra of twice as many real numbers, from the spectra of the complex numbers that their pairs are: the last step of transforms
    of several passes. An invocation stores one element, and one stores two. -#}
{% set GROUP = GROUP | default(64) %}
{% set HALF_TARGET = 1 %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "fft/elements.wgsl" as elements with context %}
{% import "fft/butterflies.wgsl" as butterflies %}
{{ storage.enable() }}
{{ elements.declare(storage) }}
{{ storage.parameters(elements.members()) }}
{{ butterflies.functions() }}
{{ elements.functions() }}
{{ storage.main(GROUP) }}
    let item = group_id * {{ GROUP }}u + local_id;
    let index = item / {{ elements.number("whole") }};
    if (index >= {{ elements.number("groups") }}) { return; }
    let k = item % {{ elements.number("whole") }};
{{ elements.outer("index") }}
    let source = {{ elements.begin("source", "0u") }};
    let stored = {{ elements.begin("target", "0u") }} + k * {{ elements.step("target") }};
    let mirror = select({{ elements.number("whole") }} - k, 0u, k == 0u);
    store_half(load_parts(source + k, 0u), load_parts(source + mirror, 0u), stored, k);
}
