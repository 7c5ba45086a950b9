//! Flags that subcommands share, and how they become requests.

pub(super) mod job;
pub(super) mod parallel;
pub(super) mod present;
pub(super) mod request;
pub(super) mod sizes;
