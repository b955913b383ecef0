"""What a person looks at: tables in the terminal, figures, and the sentences beside them."""
