"""From an op to a launch, whatever the shader language: tables, records of parameters, core methods, disk cache."""
