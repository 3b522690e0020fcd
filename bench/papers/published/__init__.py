"""The published forms of the papers, for tests and benchmarks. The product never imports them."""
