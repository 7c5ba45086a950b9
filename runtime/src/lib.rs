//! Does it: backends, communicators, training.
