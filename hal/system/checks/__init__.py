"""Checks of op results: observers of every launch, eager and in captured steps, off by default."""
