"""What users ask: doctor, self-test, profiler, and pictures and explanations of graphs."""
