"""The benchmark of Semel: `script/bench` (rules B1 to B9 of docs/rules.md)."""
