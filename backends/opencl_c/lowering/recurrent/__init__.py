"""Recurrent layers: one launch runs all time steps of a layer, or the sequential part of its gradient."""
