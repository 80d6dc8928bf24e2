"""How models get onto this machine and into Hugging Face folders."""
