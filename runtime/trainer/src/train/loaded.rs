//! All that a run reads before its first step, and what it states to other processes about it.

use super::agreement::{Fact, settings};
use super::backend::Place;
use super::checkpoint::{Verifier, find, fixed};
use super::data::Data;
use super::lock::Lock;
use super::memory::{self, FreeMemory};
use super::prepare::Prepared;
use crate::error::Error;
use checkpoint::Checkpoint;
use comm::wire::World;
use data::tokens::Extent;
use ir::text::File;
use serde_json::Value;

/// Everything that a process of a run has read.
pub(super) struct Loaded {
    pub(super) memory: FreeMemory,
    pub(super) data: Data,
    /// Options that checkpoints record, and that a resumed run must not change.
    pub(super) fixed: Value,
    /// None but in the first process.
    pub(super) lock: Option<Lock>,
    /// The checkpoint to resume from.
    pub(super) from: Option<Checkpoint>,
}

impl Loaded {
    /// Reads the data and finds the checkpoint of a run. Of several processes the first one alone locks the folder.
    ///
    /// # Errors
    /// There is too little memory, the data or the checkpoint cannot be read, or another run is in the folder.
    pub(super) fn read(prepared: &mut Prepared, place: &Place, world: Option<&World>) -> Result<Loaded, Error> {
        let memory = check_memory(&prepared.compiled, place)?;
        let opened = std::mem::take(&mut prepared.data);
        let request = &prepared.request;
        let data = Data::load(request, opened, memory.left)?;
        // Data that is too little for a sample is found before the processes compare what they have.
        data.samples(prepared.feed.seq as usize, prepared.feed.vocabulary, request.seed)?;
        let fixed = fixed(request, &prepared.source, &data)?;
        let lock = world.is_none_or(|world| world.me == 0).then(|| Lock::take(&request.out)).transpose()?;
        let from = find(request, &fixed, Verifier::of(world))?;
        Ok(Loaded { memory, data, fixed, lock, from })
    }

    /// Everything that must be the same in all processes.
    ///
    /// # Errors
    /// A file of the data or of the weights has become shorter, or cannot be read.
    pub(super) fn facts(&self, prepared: &Prepared) -> Result<Vec<Fact>, Error> {
        let Prepared { request, compiled, weights, .. } = prepared;
        let extent = if request.compare_data { Extent::Whole } else { Extent::Sampled };
        let data = &self.data;
        let weights = weights.as_ref().map(|weights| weights.fingerprint(extent)).transpose()?;
        let weights = weights.map_or("none".to_string(), |sum| format!("{sum:08x}"));
        let step = self.from.as_ref().map(|from| from.manifest.position.step);
        let mut facts = settings(request);
        facts.extend([
            Fact::new("the number of training tokens", data.train_tokens()),
            Fact::new("the number of held-out tokens", data.valid_tokens()),
            Fact::new("the share of each set of data", format!("{:?}", data.shares())),
            Fact::new("the checksum of the data", data.fingerprint(extent)?),
            Fact::new("the checksum of the first weights", weights),
            Fact::new("the step to resume after", step.map_or("none".to_string(), |step| step.to_string())),
            Fact::digest(
                "the checksum of the checkpoint",
                format!("{:?}", self.from.as_ref().map(|from| &from.manifest)),
            ),
            Fact::digest("the checksum of the model", format!("{:?}", compiled.model)),
            Fact::digest("the checksum of the program", format!("{:?}", compiled.program)),
        ]);
        Ok(facts)
    }
}

/// Checks that the program fits into memory. Returns the free memory.
fn check_memory(compiled: &File, place: &Place) -> Result<FreeMemory, Error> {
    let program = compiled.program.as_ref().ok_or_else(|| Error::fault("compile", "there is no program"))?;
    memory::check(&compiled.model, program, place)
}
