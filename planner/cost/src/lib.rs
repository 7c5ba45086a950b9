//! What a computation takes on a cluster.
