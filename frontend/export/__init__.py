"""Captured steps as programs that run without Python: in browsers through WebGPU.

`webgpu` writes a page; `record_program` describes a step as launches of kernels, and `save_program` writes it in the format of
docs/exporting.md.
"""

from polyhal.export.program import StepProgram
from polyhal.export.program_file import load_program, save_program
from polyhal.export.recording import record_program
from polyhal.export.web import webgpu

__all__ = ["StepProgram", "load_program", "record_program", "save_program", "webgpu"]
