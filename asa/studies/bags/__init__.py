"""How much sooner workflows end whose shapes are chosen, beside every single width."""
