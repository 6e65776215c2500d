{#- Matrix products in tiles of workgroup memory, for any source of operands. Import it `with context`:

  A workgroup of 256 invocations computes a tile of ROWS x COLUMNS results from k-tiles of DEPTH terms staged in workgroup memory. While
  one k-tile is multiplied, the next is loaded into registers; with STAGES = 2 it is staged beside the current one, which saves a
  barrier. An invocation computes QUAD_ROWS x QUAD_COLUMNS blocks of 4 x 4, interleaved over the tile, so that neighbours access
  neighbouring memory. Where there are few tiles, split-K lets several workgroups batch_split the terms.

  - `memory()` declares workgroup memory.
  - `locate()` finds this workgroup's tile: `first_row`, `first_column`, `batch`, `split`, and the terms from `start` to `end`, at least
    one. It needs p.m, p.n, p.k, p.split_length and p.count (the length of the batch).
  - `product()` calls its caller for three pieces of code: "load" loads the terms from `term` on into registers, "mask" sets those from
    `end` on to zero, and "stage" stores them to workgroup memory with `stage` and `stage4`.
  - `results()` calls its caller with the number of a block of columns, for code that stores the four sums `sum` of `row` from
    `column` on. -#}
{% set REAL = REAL | default("f32") %}
{% set QUAD_ROWS = QUAD_ROWS | default(2) %}
{% set QUAD_COLUMNS = QUAD_COLUMNS | default(2) %}
{% set DEPTH = DEPTH | default(8) %}
{% set STAGES = STAGES | default(2) %}
{#- Consecutive invocations read this many vectors of the right operand before the next vector of the left one. -#}
{% set BLOCK_COLUMNS = BLOCK_COLUMNS | default(16) %}
{% set ROWS = 64 * QUAD_ROWS %}
{% set COLUMNS = 64 * QUAD_COLUMNS %}
{#- Distance between terms in vectors: padded by one to avoid bank conflicts. -#}
{% set LEFT_PITCH = 16 * QUAD_ROWS + 1 %}
{% set RIGHT_PITCH = 16 * QUAD_COLUMNS + 1 %}
{#- Tiles are ordered in bands of this many rows, so that concurrent workgroups batch_split operands in the cache. -#}
{% set BAND = BAND | default(8) %}

{% macro memory() %}
var<workgroup> left: array<vec4<{{ REAL }}>, {{ STAGES * DEPTH * LEFT_PITCH }}>;
var<workgroup> right: array<vec4<{{ REAL }}>, {{ STAGES * DEPTH * RIGHT_PITCH }}>;
{% endmacro %}

{% macro locate() %}
    let across = (p.n + {{ COLUMNS - 1 }}u) / {{ COLUMNS }}u;
    let down = (p.m + {{ ROWS - 1 }}u) / {{ ROWS }}u;
    let tile = group_id % (across * down);
    let batch_split = group_id / (across * down);
    let batch = batch_split % p.count;
    let split = batch_split / p.count;
    let start = split * p.split_length;
    if (start >= p.k) { return; }
    let end = min(start + p.split_length, p.k);
    let band = tile / ({{ BAND }}u * across);
    let height = min({{ BAND }}u, down - band * {{ BAND }}u);
    let within = tile - band * {{ BAND }}u * across;
    let first_row = (band * {{ BAND }}u + within % height) * {{ ROWS }}u;
    let first_column = within / height * {{ COLUMNS }}u;
{% endmacro %}

{% macro stage(side, term, at, value) %}
{{ side }}[{{ side }}_stage + ({{ term }}) * {{ LEFT_PITCH if side == "left" else RIGHT_PITCH }}u + (({{ at }}) >> 2u)][({{ at }}) & 3u] = {{ value }};
{%- endmacro %}

{% macro stage4(side, term, quad, values) %}
{{ side }}[{{ side }}_stage + ({{ term }}) * {{ LEFT_PITCH if side == "left" else RIGHT_PITCH }}u + {{ quad }}] = {{ values }};
{%- endmacro %}

{% macro multiply_add(x, y, sum) %}
{{ "fma(vec4<f32>(" ~ x ~ "), " ~ y ~ ", " ~ sum ~ ")" if REAL == "f32" else sum ~ " + " ~ x ~ " * " ~ y }}
{%- endmacro %}

{% macro multiply() %}
{% for t in range(DEPTH) %}
{% for i in range(QUAD_ROWS) %}
        let x{{ t }}_{{ i }} = left[left_begin + {{ t * LEFT_PITCH + 16 * i }}u];
{% endfor %}
{% for j in range(QUAD_COLUMNS) %}
        let y{{ t }}_{{ j }} = right[right_begin + {{ t * RIGHT_PITCH + 16 * j }}u];
{% endfor %}
{% for i in range(4 * QUAD_ROWS) %}
{% for j in range(QUAD_COLUMNS) %}
        sum{{ i }}_{{ j }} = {{ multiply_add("x" ~ t ~ "_" ~ i // 4 ~ "." ~ "xyzw"[i % 4], "y" ~ t ~ "_" ~ j, "sum" ~ i ~ "_" ~ j) }};
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}

{% macro product() %}
    // 32 consecutive invocations form a block of 32 / BLOCK_COLUMNS by BLOCK_COLUMNS; these blocks form the 16 x 16 workgroup.
    let lane_column = local_id / 32u % {{ 16 // BLOCK_COLUMNS }}u * {{ BLOCK_COLUMNS }}u + local_id % {{ BLOCK_COLUMNS }}u;
    let lane_row = local_id / {{ 512 // BLOCK_COLUMNS }}u * {{ 32 // BLOCK_COLUMNS }}u + local_id % 32u / {{ BLOCK_COLUMNS }}u;
{% for i in range(4 * QUAD_ROWS) %}
{% for j in range(QUAD_COLUMNS) %}
    var sum{{ i }}_{{ j }} = vec4<{{ REAL }}>();
{% endfor %}
{% endfor %}
    var term = start;
    var left_stage = 0u;
    var right_stage = 0u;
{{ caller("load") }}
    if (term + {{ DEPTH }}u > end) {
{{ caller("mask") }}
    }
{{ caller("stage") }}
    workgroupBarrier();
    loop {
        let left_begin = left_stage + lane_row;
        let right_begin = right_stage + lane_column;
        term += {{ DEPTH }}u;
        let has_next = term < end;
        if (has_next) {
{{ caller("load") }}
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
        if (!has_next) { break; }
{{ caller("stage") }}
        workgroupBarrier();
    }
{% endmacro %}

{% macro results() %}
{% for i in range(4 * QUAD_ROWS) %}
{% for j in range(QUAD_COLUMNS) %}
    {
        let sum = sum{{ i }}_{{ j }};
        let row = first_row + lane_row * 4u + {{ i // 4 * 64 + i % 4 }}u;
        let column = first_column + lane_column * 4u + {{ j * 64 }}u;
        if (row < p.m) {
{{ caller(j) }}
        }
    }
{% endfor %}
{% endfor %}
{% endmacro %}
