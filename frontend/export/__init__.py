"""Captured steps as programs that run without Python: in browsers through WebGPU, and in C through OpenCL.

`webgpu` writes a page and `c` a C project; `record_program` describes a step as launches of kernels, and `save_program` writes
it in the format of docs/exporting.md.
"""

from polyhal.export.c_project import c
from polyhal.export.program import StepProgram
from polyhal.export.program_file import load_program, save_program
from polyhal.export.recording import record_program
from polyhal.export.web import webgpu

__all__ = ["StepProgram", "c", "load_program", "record_program", "save_program", "webgpu"]
