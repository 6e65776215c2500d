"""Recording a whole step as a graph."""
