"""What is asked of a server: conversations, tool loops, and the checks of their answers."""
