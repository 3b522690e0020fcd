"""Whom a token of an authorization server stands for, what that person may use, and servers that each person reaches
with a token of their own."""
