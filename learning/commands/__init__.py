"""What a person types to learn, to ask a model for wordings, and to move what was learned."""
