//! The check of replicas every few steps: ranks that hold the same part of a tensor have the same bytes in it.

use super::checkpoint::refused;
use super::outputs::go_on;
use crate::error::Error;
use checkpoint::{Divergence, Replicas};
use comm::wire::World;
use exec::{Executor, Platform};
use ir::catalogue::Code;
use std::path::Path;

/// The check of a run.
pub(super) struct ReplicaCheck {
    /// Steps between two checks; 0 for none.
    every: u64,
    replicas: Option<Replicas>,
}

impl ReplicaCheck {
    /// A check every so often.
    pub(super) fn new(every: u64) -> ReplicaCheck {
        ReplicaCheck { every, replicas: None }
    }

    /// Compares the replicas after a step, if it is time.
    ///
    /// # Errors
    /// They differ, or a rank failed.
    pub(super) fn after<P: Platform>(
        &mut self,
        step: u64,
        executor: &mut Executor<P>,
        out: &Path,
    ) -> Result<(), Error> {
        if self.every == 0 || !step.is_multiple_of(self.every) {
            return Ok(());
        }
        let replicas = match self.replicas.take() {
            Some(replicas) => replicas,
            None => Replicas::of(executor).map_err(refused)?,
        };
        let divergence = replicas.compare(executor).map_err(refused)?;
        self.replicas = Some(replicas);
        divergence.map_or(Ok(()), |found| Err(diverged(&found, step, executor.platform().world(), out)))
    }
}

/// Ranks in words: `ranks 1, 3`.
fn listed(ranks: &[usize]) -> String {
    let numbers = ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    format!("{} {numbers}", if ranks.len() == 1 { "rank" } else { "ranks" })
}

fn diverged(found: &Divergence, step: u64, world: Option<&World>, out: &Path) -> Error {
    let Divergence { name, odd, others, parts } = found;
    let mut places: Vec<String> = Vec::new();
    for (number, process) in world.iter().flat_map(|world| world.processes.iter().enumerate()) {
        if process.ranks.iter().any(|rank| odd.contains(rank)) {
            places.push(format!("process {number} on {}", process.host));
        }
    }
    let places = if places.is_empty() { String::new() } else { format!(" ({})", places.join(", ")) };
    let how = match (others.as_slice(), odd.len()) {
        ([], 1) => " differs".to_string(),
        ([], _) => " differ from each other".to_string(),
        (others, 1) => format!(" differs from {}", listed(others)),
        (others, _) => format!(" differ from {}", listed(others)),
    };
    let more = match parts - 1 {
        0 => String::new(),
        1 => "; 1 other part of a tensor differs too".to_string(),
        more => format!("; {more} other parts of tensors differ too"),
    };
    Error::Failed {
        code: Code::ReplicasDiffer,
        message: format!(
            "step {step}: `{name}` should be the same on all its ranks, but {}{places}{how}{more}",
            listed(odd)
        ),
        help: format!(
            "suspect the memory of that host; a checkpoint may be damaged if saved since the last check; {}",
            go_on(out)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comm::wire::Process;

    #[test]
    fn tensor_ranks_and_hosts_are_named() {
        let process = |host: &str, ranks: [usize; 2]| Process { host: host.to_string(), ranks: ranks.to_vec() };
        let world = World { me: 0, processes: vec![process("a", [0, 1]), process("b", [2, 3])] };
        let text = |odd: &[usize], others: &[usize], parts| {
            let found = Divergence { name: "w".to_string(), odd: odd.to_vec(), others: others.to_vec(), parts };
            diverged(&found, 7, Some(&world), Path::new("none")).message()
        };
        let one =
            "step 7: `w` should be the same on all its ranks, but rank 3 (process 1 on b) differs from ranks 0, 1, 2";
        assert_eq!(text(&[3], &[0, 1, 2], 1), one);
        let two = "but ranks 0, 2 (process 0 on a, process 1 on b) differ from each other; 2 other parts of tensors differ too";
        assert!(text(&[0, 2], &[], 3).ends_with(two));
    }
}
