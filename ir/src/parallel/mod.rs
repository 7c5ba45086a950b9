//! The parallel configuration that a user asks for, and what follows from its degrees alone: heads on ranks of tp and cp, the
//! placement of experts, and the groups of ZeRO.

pub mod config_key;
pub mod experts;
pub mod heads;
pub mod options;
pub mod zero_groups;
