"""Passes that remove work: dead code, common subexpressions, constants, needless views and arithmetic."""
