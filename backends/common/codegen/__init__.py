"""Shader source generation: elementwise expressions, statements of elementwise groups, include and define handling."""
