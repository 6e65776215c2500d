"""Forecasts of training on many devices, for `polyhal plan`.

A pass of the real model is captured on a simulated device and divided into sections (`trace`, `sections`). A strategy
assembles stages from them (`stage`), and adds collectives (`collective_times`, `lanes`, `pipeline_times`), `memory` and the
`prediction`; `search` finds the fastest strategy. Nothing here runs kernels or allocates device memory.
"""
