"""Words to tokens: one tokeniser for the index and for queries."""
