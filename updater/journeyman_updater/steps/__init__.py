"""One file a step: each is idempotent and journals what undoes it before it acts."""
