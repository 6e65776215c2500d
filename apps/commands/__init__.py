"""Commands of the applications: `polyhal train`, `generate`, `plan`, `sim calibrate` and `doctor --report`.

`polyhal.cli` finds them by entry points of the group `polyhal.commands`. They import their applications when they run.
"""
