"""The generated header of a C export: inputs and outputs as structs, and the functions of the step; and a small program."""

from __future__ import annotations

from math import prod

from polyhal.export import c_text
from polyhal.export.program import ProgramTensor, StepProgram

_TYPES = {
    "bool_": "uint8_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
"""C's types by dtype; floats of 16 bits are passed as their bits."""
_FUNCTIONS = """\
/* Open a device and load the step; `device` is part of "PLATFORM / DEVICE", NULL for the device of the export. Free the step
 * after a failure, too. Every function returns POLYHAL_OK or another polyhal_code, with a message in @_last_error. */
static inline int @_init_with(polyhal_step **made, const polyhal_options *options) {
    return polyhal_step_init(made, &@_program, options);
}

static inline int @_init(polyhal_step **made, const char *device) {
    polyhal_options options = {NULL, @UPPER_FOLDER, NULL, 0, NULL};
    options.device = device;
    return @_init_with(made, &options);
}

/* Run once. An output that is NULL is not copied. */
static inline int @_run(polyhal_step *step, const @_inputs *inputs, const @_outputs *outputs) {
@LISTS
    return polyhal_step_run(step, @INPUTS, @OUTPUTS);
}

/* A number of the step: @NUMBERS. */
static inline int @_set_number(polyhal_step *step, const char *name, double value) {
    return polyhal_step_set_number(step, name, value);
}

static inline int @_state_save(polyhal_step *step, const char *path) { return polyhal_step_state_save(step, path); }

static inline int @_state_load(polyhal_step *step, const char *path) { return polyhal_step_state_load(step, path); }

static inline const char *@_last_error(const polyhal_step *step) { return polyhal_step_last_error(step); }

static inline void @_free(polyhal_step *step) { polyhal_step_free(step); }
"""


def header(program: StepProgram, prefix: str, numbers: list[str]) -> str:
    """Return the header of a step whose functions begin with `prefix`."""
    upper = prefix.upper()
    inputs, outputs = _fields(program.inputs, "input"), _fields(program.outputs, "output")
    lists = [
        f"    const void *in[{len(inputs)}];" if inputs else "",
        f"    void *out[{len(outputs)}];" if outputs else "",
        *[f"    in[{i}] = inputs->{name};" for i, (name, _) in enumerate(inputs)],
        *[f"    out[{i}] = outputs->{name};" for i, (name, _) in enumerate(outputs)],
        "" if inputs else "    (void)inputs;",
        "" if outputs else "    (void)outputs;",
    ]
    functions = (
        _FUNCTIONS.replace("@LISTS", "\n".join(filter(None, lists)))
        .replace("@INPUTS", "in" if inputs else "NULL")
        .replace("@OUTPUTS", "out" if outputs else "NULL")
        .replace("@NUMBERS", c_text.comment(", ".join(numbers) or "it has none"))
        .replace("@UPPER", upper)
        .replace("@", prefix)
    )
    return (
        f"/* {c_text.comment(program.name)}, a step that Polyhal exported: see main.c for its use. */\n"
        f"#ifndef {upper}_H\n#define {upper}_H\n\n"
        '#include "polyhal_step.h"\n\n#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
        f'#ifndef {upper}_FOLDER\n#define {upper}_FOLDER "." /* the folder of the data files */\n#endif\n\n'
        f"{_struct(f'{prefix}_inputs', inputs, 'const ')}{_struct(f'{prefix}_outputs', outputs, '')}"
        f"{_counts(upper, inputs, outputs)}extern const polyhal_program {prefix}_program;\n\n"
        f"{functions}\n#ifdef __cplusplus\n}}\n#endif\n#endif\n"
    )


def example(program: StepProgram, prefix: str) -> str:
    """Return a program that runs the step twice on zeros and prints the first number of each output."""
    upper = prefix.upper()
    inputs, outputs = _fields(program.inputs, "input"), _fields(program.outputs, "output")
    arrays = [
        f"static {_TYPES[x.dtype]} {kind}_{name}[{_count_name(upper, kind, name)}];"
        for kind, fields in (("input", inputs), ("output", outputs))
        for name, x in fields
    ]
    prints = [
        f'        (void)printf("{name}: {_shown(x, f"output_{name}[0]")});' for name, x in outputs if prod(x.shape)
    ]
    values = [f"    {k}s.{n} = {k}_{n};" for k, fields in (("input", inputs), ("output", outputs)) for n, _ in fields]
    empty = [f"    (void){k}s;" for k, fields in (("input", inputs), ("output", outputs)) if not fields]
    return f"""\
/* Runs {c_text.comment(program.name)} twice on zeros; an argument names another device. */
#include "{prefix}.h"

#include <stdio.h>
#include <string.h>

{chr(10).join(arrays)}

int main(int count, char **arguments) {{
    polyhal_step *step;
    {prefix}_inputs inputs;
    {prefix}_outputs outputs;
    int code = {prefix}_init(&step, count > 1 ? arguments[1] : NULL), run;
    memset(&inputs, 0, sizeof inputs);
    memset(&outputs, 0, sizeof outputs);
{chr(10).join([*values, *empty])}
    for (run = 0; run < 2 && code == POLYHAL_OK; run++) {{
        code = {prefix}_run(step, &inputs, &outputs);
{chr(10).join(prints)}
    }}
    if (code == POLYHAL_OK) {{
        (void)printf("%s\\n", polyhal_step_device(step));
    }} else {{
        (void)fprintf(stderr, "error %d: %s\\n", code, {prefix}_last_error(step));
    }}
    {prefix}_free(step);
    return code;
}}
"""


def _fields(tensors: list[ProgramTensor], prefix: str) -> list[tuple[str, ProgramTensor]]:
    return list(zip(c_text.identifiers([x.name for x in tensors], prefix), tensors, strict=True))


def _struct(name: str, fields: list[tuple[str, ProgramTensor]], qualifier: str) -> str:
    rows = [f"    {qualifier}{_TYPES[x.dtype]} *{n}; /* {_described(x)} */\n" for n, x in fields]
    body = "".join(rows or ["    int none; /* C has no empty structs */\n"])
    return f"typedef struct {name} {{\n{body}}} {name};\n\n"


def _described(x: ProgramTensor) -> str:
    bits = ", as bits" if x.dtype in ("float16", "bfloat16") else ""
    return c_text.comment(f"{x.name}: {x.dtype}{list(x.shape)}{bits}")


def _counts(upper: str, inputs: list[tuple[str, ProgramTensor]], outputs: list[tuple[str, ProgramTensor]]) -> str:
    """Return constants with the number of elements of each array; one for an empty array, which C does not have."""
    rows = [
        f"    {_count_name(upper, kind, name)} = {max(prod(x.shape), 1)}"
        for kind, fields in (("input", inputs), ("output", outputs))
        for name, x in fields
    ]
    return f"/* Elements of each array. */\nenum {{\n{(',' + chr(10)).join(rows)}\n}};\n\n" if rows else ""


def _count_name(upper: str, kind: str, name: str) -> str:
    return f"{upper}_{kind.upper()}_{name.upper()}_COUNT"


def _shown(x: ProgramTensor, value: str) -> str:
    """Return the rest of a call of printf for one number."""
    if x.dtype in ("float32", "float64"):
        return f'%.9g\\n", (double){value}'
    return f'%ld\\n", (long){value}'
