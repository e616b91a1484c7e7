"""Between a local database and a server: what is published, how it gets there, and how it comes back."""
