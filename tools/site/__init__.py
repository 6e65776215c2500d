"""The documentation site: pages of docs, and a reference of all public names, as HTML by Sphinx.

make site    # into build/site
"""
