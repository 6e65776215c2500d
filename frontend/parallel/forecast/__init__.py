"""Forecasts of training on many devices, for `polyhal plan`.

A pass through the real model is captured on a simulated device, and taken apart (`trace`, `sections`); a strategy puts the
parts together again (`stage`), with the collectives that it needs (`collective_times`, `lanes`, `pipeline_times`, `memory`,
`prediction`); `search` finds the best one. Nothing here computes or allocates anything.
"""
