"""What a process keeps between requests: opened databases with their vectors, and the embedder."""
