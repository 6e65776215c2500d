{#- Replaces the bits of `mask` in one word: the ends of uploads that do not fill whole words. -#}
{% import "lib/storage.wgsl" as storage with context %}
{{ storage.scratch(0, "words", "u32") }}
{{ storage.parameters("word: u32, mask: u32, bits: u32") }}
{{ storage.main(1) }}
    if (group_id + local_id == 0u) { words[p.word] = (words[p.word] & ~p.mask) | p.bits; }
}
