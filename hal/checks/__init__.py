"""Checks of what ops compute: observers of every launch, eager and in captured steps, that are off unless asked for."""
