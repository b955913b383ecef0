"""Output for people: tables in the terminal, figures, and pages."""
