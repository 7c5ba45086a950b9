//! Where: shardings and collectives.
