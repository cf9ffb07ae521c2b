"""Pure planning: plain data in, a plan out; no clock, no I/O."""
