"""Signing in to remote servers: the sign-in itself, where its tokens are kept, and which token a request gets."""
