"""From an op to a launch in any shader language: lowering tables, kernel arguments, core methods, disk cache."""
