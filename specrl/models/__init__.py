"""Policies as local Hugging Face folders, and how questions become prompts for them."""
