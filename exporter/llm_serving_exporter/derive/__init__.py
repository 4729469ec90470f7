"""Window and facts -> Derived; pure functions, no clock, no I/O."""
