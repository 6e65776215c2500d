{#- Products in tiles, wherever the operands come from. Import it `with context`:

  A group of 256 invocations makes a tile of ROWS x COLUMNS results from strips of DEPTH terms staged in workgroup memory.
  While one strip is multiplied, the next is already on its way into registers; with STAGES = 2 it is staged beside the one
  in use, which saves a barrier. An invocation makes QUAD_ROWS x QUAD_COLUMNS blocks of 4 x 4, interleaved over the tile,
  so that neighbours read neighbouring memory. Where there are few tiles, several groups share out the terms of each.

  - `memory()` declares workgroup memory.
  - `place()` finds this group's tile: `first_row`, `first_column`, `batch`, `split`, and the terms from `start` to `end`, of
    which there is at least one. It needs p.m, p.n, p.k, p.terms (per split) and p.count (the length of the batch).
  - `product()` calls its caller for three pieces of code: "fetch" brings the terms from `term` on into registers of the
    caller's, "mask" replaces those from `end` on by zeros, and "stage" puts all of them in place with `put` and `put4`.
  - `results()` calls its caller with the number of a block of columns, for code that stores the four sums `sum` of `row` from
    `column` on. -#}
{% set REAL = REAL | default("f32") %}
{% set QUAD_ROWS = QUAD_ROWS | default(2) %}
{% set QUAD_COLUMNS = QUAD_COLUMNS | default(2) %}
{% set DEPTH = DEPTH | default(8) %}
{% set STAGES = STAGES | default(2) %}
{#- Invocations that follow each other read this many vectors of the right operand before the next of the left. -#}
{% set BLOCK_COLUMNS = BLOCK_COLUMNS | default(16) %}
{% set ROWS = 64 * QUAD_ROWS %}
{% set COLUMNS = 64 * QUAD_COLUMNS %}
{#- Vectors between the terms of a strip: one more than a row has, so that the terms of a place lie in different banks. -#}
{% set LEFT_PITCH = 16 * QUAD_ROWS + 1 %}
{% set RIGHT_PITCH = 16 * QUAD_COLUMNS + 1 %}
{#- Tiles are taken in bands of this many rows, so that groups at work together share operands in the cache. -#}
{% set BAND = BAND | default(8) %}

{% macro memory() %}
var<workgroup> left: array<vec4<{{ REAL }}>, {{ STAGES * DEPTH * LEFT_PITCH }}>;
var<workgroup> right: array<vec4<{{ REAL }}>, {{ STAGES * DEPTH * RIGHT_PITCH }}>;
{% endmacro %}

{% macro place() %}
    let across = (p.n + {{ COLUMNS - 1 }}u) / {{ COLUMNS }}u;
    let down = (p.m + {{ ROWS - 1 }}u) / {{ ROWS }}u;
    let tile = group % (across * down);
    let share = group / (across * down);
    let batch = share % p.count;
    let split = share / p.count;
    let start = split * p.terms;
    if (start >= p.k) { return; }
    let end = min(start + p.terms, p.k);
    let band = tile / ({{ BAND }}u * across);
    let height = min({{ BAND }}u, down - band * {{ BAND }}u);
    let within = tile - band * {{ BAND }}u * across;
    let first_row = (band * {{ BAND }}u + within % height) * {{ ROWS }}u;
    let first_column = within / height * {{ COLUMNS }}u;
{% endmacro %}

{% macro put(side, term, at, value) %}
{{ side }}[{{ side }}_stage + ({{ term }}) * {{ LEFT_PITCH if side == "left" else RIGHT_PITCH }}u + (({{ at }}) >> 2u)][({{ at }}) & 3u] = {{ value }};
{%- endmacro %}

{% macro put4(side, term, quad, values) %}
{{ side }}[{{ side }}_stage + ({{ term }}) * {{ LEFT_PITCH if side == "left" else RIGHT_PITCH }}u + {{ quad }}] = {{ values }};
{%- endmacro %}

{% macro fused(x, y, sum) %}
{{ "fma(vec4<f32>(" ~ x ~ "), " ~ y ~ ", " ~ sum ~ ")" if REAL == "f32" else sum ~ " + " ~ x ~ " * " ~ y }}
{%- endmacro %}

{% macro multiply() %}
{% for t in range(DEPTH) %}
{% for i in range(QUAD_ROWS) %}
        let x{{ t }}_{{ i }} = left[left_from + {{ t * LEFT_PITCH + 16 * i }}u];
{% endfor %}
{% for j in range(QUAD_COLUMNS) %}
        let y{{ t }}_{{ j }} = right[right_from + {{ t * RIGHT_PITCH + 16 * j }}u];
{% endfor %}
{% for i in range(4 * QUAD_ROWS) %}
{% for j in range(QUAD_COLUMNS) %}
        sum{{ i }}_{{ j }} = {{ fused("x" ~ t ~ "_" ~ i // 4 ~ "." ~ "xyzw"[i % 4], "y" ~ t ~ "_" ~ j, "sum" ~ i ~ "_" ~ j) }};
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro product() %}
    // Runs of 32 invocations make a block of 32 / BLOCK_COLUMNS by BLOCK_COLUMNS, and these blocks the square of 16 by 16.
    let my_column = lane / 32u % {{ 16 // BLOCK_COLUMNS }}u * {{ BLOCK_COLUMNS }}u + lane % {{ BLOCK_COLUMNS }}u;
    let my_row = lane / {{ 512 // BLOCK_COLUMNS }}u * {{ 32 // BLOCK_COLUMNS }}u + lane % 32u / {{ BLOCK_COLUMNS }}u;
{% for i in range(4 * QUAD_ROWS) %}
{% for j in range(QUAD_COLUMNS) %}
    var sum{{ i }}_{{ j }} = vec4<{{ REAL }}>();
{% endfor %}
{% endfor %}
    var term = start;
    var left_stage = 0u;
    var right_stage = 0u;
{{ caller("fetch") }}
    if (term + {{ DEPTH }}u > end) {
{{ caller("mask") }}
    }
{{ caller("stage") }}
    workgroupBarrier();
    loop {
        let left_from = left_stage + my_row;
        let right_from = right_stage + my_column;
        term += {{ DEPTH }}u;
        let more = term < end;
        if (more) {
{{ caller("fetch") }}
            if (term + {{ DEPTH }}u > end) {
{{ caller("mask") }}
            }
        }
{{ multiply() }}
{% if STAGES == 2 %}
        left_stage = {{ DEPTH * LEFT_PITCH }}u - left_stage;
        right_stage = {{ DEPTH * RIGHT_PITCH }}u - right_stage;
{% else %}
        workgroupBarrier();
{% endif %}
        if (!more) { break; }
{{ caller("stage") }}
        workgroupBarrier();
    }
{% endmacro %}

{% macro results() %}
{% for i in range(4 * QUAD_ROWS) %}
{% for j in range(QUAD_COLUMNS) %}
    {
        let sum = sum{{ i }}_{{ j }};
        let row = first_row + my_row * 4u + {{ i // 4 * 64 + i % 4 }}u;
        let column = first_column + my_column * 4u + {{ j * 64 }}u;
        if (row < p.m) {
{{ caller(j) }}
        }
    }
{% endfor %}
{% endfor %}
{% endmacro %}
