"""Recurrent layers: a launch runs a layer, or the part of its gradient that depends on the next time step, over all steps."""
