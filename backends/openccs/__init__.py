"""OpenCCS: a scheduler that gives every request its start at once, by planning all of them (Keller, PC2 Paderborn)."""
