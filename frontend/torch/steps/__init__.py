"""Record whole steps of PyTorch programs as graphs: arguments, guards, host work and replay."""
