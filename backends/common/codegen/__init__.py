"""Source text for shader languages: expressions, statements of elementwise groups, templates."""
