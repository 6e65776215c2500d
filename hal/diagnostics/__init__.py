"""Tools that answer users' questions: doctor, self-test, profiler, and explanations and pictures of graphs."""
