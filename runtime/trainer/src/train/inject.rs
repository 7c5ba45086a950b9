//! Faults that a run is told to have, to test what finds them.

use super::checkpoint::refused;
use crate::error::Error;
use exec::{Executor, Platform};
use ir::catalogue::Code;
use std::time::Duration;

/// Faults, at most one of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Faults {
    /// A parameter becomes not a number before this step, on this rank.
    nan: Option<(u64, usize)>,
    /// A bit of a parameter flips after this step, on this rank.
    flip: Option<(u64, usize)>,
    /// This rank takes so much longer for each step.
    pub(super) slow: Option<(usize, Duration)>,
    /// A kernel of this step never ends, on this rank.
    pub(super) stuck: Option<(u64, usize)>,
}

impl Faults {
    /// Reads `nan=STEP:RANK,flip=STEP:RANK,slow=RANK:MILLISECONDS,stuck=STEP:RANK`, or some of them.
    ///
    /// # Errors
    /// It is none of them.
    pub(super) fn parse(text: Option<&str>) -> Result<Faults, Error> {
        let mut faults = Faults::default();
        for part in text.into_iter().flat_map(|text| text.split(',')) {
            faults.add(part).ok_or_else(|| {
                Error::input(Code::BadOption, format!("`inject` has `{part}`")).help(
                    "--inject is a list of nan=STEP:RANK, flip=STEP:RANK, slow=RANK:MILLISECONDS and stuck=STEP:RANK",
                )
            })?;
        }
        Ok(faults)
    }

    fn add(&mut self, part: &str) -> Option<()> {
        let (kind, numbers) = part.split_once('=')?;
        let (first, second) = numbers.split_once(':')?;
        let (first, second): (u64, u64) = (first.parse().ok()?, second.parse().ok()?);
        match kind {
            "nan" => self.nan = Some((first, second as usize)),
            "flip" => self.flip = Some((first, second as usize)),
            "stuck" => self.stuck = Some((first, second as usize)),
            "slow" => self.slow = Some((first as usize, Duration::from_millis(second))),
            _ => return None,
        }
        Some(())
    }

    /// Makes the fault that comes before a step.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn before<P: Platform>(&self, step: u64, executor: &mut Executor<P>) -> Result<(), Error> {
        let Some((_, victim)) = self.nan.filter(|(at, _)| *at == step) else { return Ok(()) };
        let visited = executor.visit(move |rank, state| {
            if rank == victim {
                let nothing = vec![f32::NAN; state.slots()[0].region.len()];
                state.write(0, &nothing);
            }
        });
        visited.map(drop).map_err(|why| refused(why.into()))
    }

    /// Makes the fault that comes after a step.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn after<P: Platform>(&self, step: u64, executor: &mut Executor<P>) -> Result<(), Error> {
        let Some((_, victim)) = self.flip.filter(|(at, _)| *at == step) else { return Ok(()) };
        let visited = executor.visit(move |rank, state| {
            if rank == victim {
                let mut bytes = state.stored(0);
                bytes[0] ^= 0x10;
                state.store(0, &bytes);
            }
        });
        visited.map(drop).map_err(|why| refused(why.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_others_refused() {
        let faults = Faults::parse(Some("flip=3:1,slow=2:50,stuck=4:0")).unwrap();
        let slow = Some((2, Duration::from_millis(50)));
        assert_eq!(faults, Faults { flip: Some((3, 1)), slow, nan: None, stuck: Some((4, 0)) });
        assert_eq!(Faults::parse(None).unwrap(), Faults::default());
        for text in ["", "nan", "nan=1", "nan=x:1", "fire=1:1", "nan=1:1,"] {
            assert!(Faults::parse(Some(text)).is_err(), "{text}");
        }
    }
}
