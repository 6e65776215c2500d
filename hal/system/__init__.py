"""Whole machines and programs: discovery, communicators, checks, diagnostics."""
