"""The trained rankers: one method per file, each serving the models that its training makes."""
