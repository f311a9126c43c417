"""The figures of docs/benchmarks.md, one module a part."""
