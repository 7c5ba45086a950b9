//! Agreement of the processes of a run about a checkpoint: who holds what, what was written, and whether all went well.

use super::assign::{StatePart, state_parts};
use super::error::Error;
use super::shard::Shard;
use exec::{Executor, Platform};
use ir::types::DType;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Gives a value to all processes and takes theirs, by process.
///
/// # Errors
/// A rank failed, or another process is of another version.
pub(super) fn share<P: Platform, T: Serialize + DeserializeOwned>(
    executor: &mut Executor<P>,
    own: T,
) -> Result<Vec<T>, Error> {
    if executor.platform().world().is_none() {
        return Ok(vec![own]);
    }
    let bytes = serde_json::to_vec(&own).map_err(|_| other_version())?;
    let all = executor.share(bytes)?;
    Ok(all.iter().map(|bytes| serde_json::from_slice(bytes)).collect::<Result<_, _>>().map_err(|_| other_version())?)
}

fn other_version() -> exec::Error {
    exec::Error::Load("a process of another version takes part".to_string())
}

/// The reason why a process cannot go on, as it goes to the others.
#[derive(Serialize, Deserialize, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(String);

impl Refusal {
    pub(super) fn of(why: &impl ToString) -> Refusal {
        Refusal(why.to_string())
    }
}

/// The outcome of all processes: what each has, or the first refusal.
///
/// # Errors
/// A rank failed.
pub(super) fn verdict<P: Platform, T: Serialize + DeserializeOwned>(
    executor: &mut Executor<P>,
    own: Result<T, Refusal>,
) -> Result<Result<Vec<T>, Refusal>, Error> {
    let hosts = executor.platform().world().map(|world| world.processes.clone());
    let all: Vec<Result<T, Refusal>> = share(executor, own)?;
    let outcomes = all.into_iter().enumerate().map(|(number, outcome)| {
        outcome.map_err(|why| match &hosts {
            Some(hosts) if number > 0 => Refusal(format!("{why} (process {number} on {})", hosts[number].host)),
            _ => why,
        })
    });
    Ok(outcomes.collect())
}

/// A part as it goes to other processes.
#[derive(Serialize, Deserialize)]
struct SharedPart {
    rank: usize,
    slot: usize,
    name: String,
    param: String,
    state: Option<String>,
    dtype: String,
    sizes: Vec<u64>,
    shards: Vec<Shard>,
}

/// The parts of all ranks, of this and of other processes.
///
/// # Errors
/// A rank failed.
pub(super) fn all_parts<P: Platform>(executor: &mut Executor<P>) -> Result<Vec<Vec<StatePart>>, Error> {
    let own = executor.visit(|_, kept| state_parts(kept.slots()))?;
    if executor.platform().world().is_none() {
        return Ok(own);
    }
    let numbered = executor.platform().ranks().iter().zip(own);
    let shared = numbered.flat_map(|(&rank, parts)| parts.into_iter().map(move |part| SharedPart::of(rank, part)));
    let shared: Vec<SharedPart> = shared.collect();
    let all: Vec<SharedPart> = share(executor, shared)?.into_iter().flatten().collect();
    let count = all.iter().map(|part| part.rank + 1).max().unwrap_or(0);
    let mut ranks = vec![Vec::new(); count];
    for part in all {
        let rank = part.rank;
        ranks[rank].push(part.part());
    }
    Ok(ranks)
}

impl SharedPart {
    fn of(rank: usize, StatePart { slot, name, param, state, dtype, sizes, shards }: StatePart) -> SharedPart {
        SharedPart { rank, slot, name, param, state, dtype: dtype.name().to_string(), sizes, shards }
    }

    fn part(self) -> StatePart {
        let SharedPart { slot, name, param, state, dtype, sizes, shards, .. } = self;
        StatePart { slot, name, param, state, dtype: DType::from_name(&dtype).unwrap_or(DType::F32), sizes, shards }
    }
}
