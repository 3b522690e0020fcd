"""What `foretool doctor` looks at, one subject per file. Each check yields findings with what to do about them."""
