"""Where knowledge lives: the catalog, one database per knowledge base, and the statements over it."""
