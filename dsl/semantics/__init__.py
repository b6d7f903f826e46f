"""What an operation gives and what a mistake says, whoever runs it."""
