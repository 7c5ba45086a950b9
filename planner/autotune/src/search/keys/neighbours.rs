//! Configurations near another one, as the rows list them.

use ir::config_key::ConfigKey;
use ir::options::{Offload, ParallelConfig, Recompute};

/// A configuration that differs in one choice.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Neighbour {
    /// Key of the choice.
    pub(crate) key: ConfigKey,
    /// `true` if it has more of the choice, `false` if less or none.
    pub(crate) more: bool,
    /// The configuration.
    pub(crate) parallel: ParallelConfig,
}

/// The neighbours of a configuration so far.
pub(crate) struct Neighbours<'a> {
    /// The configuration.
    pub(crate) best: &'a ParallelConfig,
    /// Its neighbours. Other keys may have to change with the choice.
    pub(crate) found: Vec<Neighbour>,
}

impl Neighbours<'_> {
    /// Adds one with less of a choice, or without it.
    pub(super) fn less(&mut self, key: ConfigKey, parallel: ParallelConfig) {
        self.found.push(Neighbour { key, more: false, parallel });
    }

    /// Adds one with more of a choice.
    pub(super) fn more(&mut self, key: ConfigKey, parallel: ParallelConfig) {
        self.found.push(Neighbour { key, more: true, parallel });
    }

    /// The configuration with its recomputation, and the number of layers that it offloads, left to the memory budget.
    pub(super) fn open_memory(&self) -> ParallelConfig {
        let offload = if self.best.offload.is_in_part() { Offload::Auto } else { self.best.offload };
        ParallelConfig { recompute: Recompute::Auto, offload, ..self.best.clone() }
    }
}
