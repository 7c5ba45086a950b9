//! Costs of each stage: seconds and memory as plain numbers. A schedule needs nothing else of a model.

use ir::schedule::{Action, Item, Kind};
use serde::{Deserialize, Serialize};

/// Costs per stage, resolved and checked: all lists have one entry per stage, no number is negative or NaN.
///
/// In a sliced schedule each cost is that of one slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "CostsFile")]
pub struct StageCosts {
    /// Unit of all times, for print only.
    pub unit: String,
    /// Seconds of one forward.
    pub f: Vec<f64>,
    /// Seconds of one gradient of the inputs.
    pub i: Vec<f64>,
    /// Seconds of one gradient of the weights.
    pub w: Vec<f64>,
    /// Seconds from the end of an action to the arrival of its result on another rank. Entry s is the hop between stages s and
    /// s+1, in either direction.
    pub comm: Vec<f64>,
    /// Seconds of an overlapped pair of F and B; `None`: the sum of the two.
    pub fb: Option<f64>,
    /// Memory taken at the start of F: `mem_i + mem_w`.
    pub mem_f: Vec<f64>,
    /// Memory freed at the end of I.
    pub mem_i: Vec<f64>,
    /// Memory freed at the end of W.
    pub mem_w: Vec<f64>,
    /// Memory limit of each rank; `None`: no limit.
    pub limit: Option<Vec<f64>>,
}

/// Memory that an action takes and frees, in the unit of the costs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ActionMemory {
    /// Memory taken at the start.
    pub takes: f64,
    /// Memory freed at the end.
    pub frees: f64,
}

impl StageCosts {
    /// Builds equal costs for all stages. One forward saves one unit of memory; I and W free half of it each.
    pub fn uniform(stages: u32, f: f64, i: f64, w: f64, comm: f64) -> StageCosts {
        let n = stages as usize;
        StageCosts {
            unit: seconds(),
            f: vec![f; n],
            i: vec![i; n],
            w: vec![w; n],
            comm: vec![comm; n.saturating_sub(1)],
            fb: None,
            mem_f: vec![1.0; n],
            mem_i: vec![0.5; n],
            mem_w: vec![0.5; n],
            limit: None,
        }
    }

    /// Returns the seconds of one B of a stage, its I and its W in one action.
    pub fn b(&self, stage: usize) -> f64 {
        self.i[stage] + self.w[stage]
    }

    /// Returns the number of stages.
    pub fn stages(&self) -> u32 {
        self.f.len() as u32
    }

    /// Returns the seconds of one action. R, N, U, G, D, O and L take no compute time.
    pub fn seconds(&self, action: &Action) -> f64 {
        match (action, self.fb) {
            (Action::One(item), _) => self.seconds_of(item),
            (Action::Pair(a, b), Some(fb)) if matches!((a.kind, b.kind), (Kind::F, Kind::B) | (Kind::B, Kind::F)) => fb,
            (Action::Pair(a, b), _) => self.seconds_of(a) + self.seconds_of(b),
        }
    }

    /// Returns the memory of an action.
    pub fn memory(&self, action: &Action) -> ActionMemory {
        match action {
            Action::One(item) => self.memory_of(item),
            Action::Pair(a, b) => {
                let (a, b) = (self.memory_of(a), self.memory_of(b));
                ActionMemory { takes: a.takes + b.takes, frees: a.frees + b.frees }
            }
        }
    }

    fn memory_of(&self, item: &Item) -> ActionMemory {
        let Some(stage) = item.stage.map(|stage| stage as usize) else { return ActionMemory::default() };
        let frees = match item.kind {
            Kind::F => return ActionMemory { takes: self.mem_f[stage], frees: 0.0 },
            Kind::I => self.mem_i[stage],
            Kind::W => self.mem_w[stage],
            Kind::B => self.mem_i[stage] + self.mem_w[stage],
            _ => 0.0,
        };
        ActionMemory { takes: 0.0, frees }
    }

    fn seconds_of(&self, item: &Item) -> f64 {
        let Some(stage) = item.stage.map(|stage| stage as usize) else { return 0.0 };
        match item.kind {
            Kind::F => self.f[stage],
            Kind::I => self.i[stage],
            Kind::W => self.w[stage],
            Kind::B => self.b(stage),
            _ => 0.0,
        }
    }
}

/// Costs as a user writes them (`--costs FILE.json`): a number stands for all stages, a list has one number per stage.
///
/// Missing memory fields follow from `mem_f = mem_i + mem_w`. If only `mem_f` is given, I and W free half of it each. If none
/// is given, `mem_f` is 1, so that memory counts forward activations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostsFile {
    /// Unit of all times, for print only; seconds by default.
    pub unit: String,
    /// Time of F.
    pub f: PerStage,
    /// Time of I.
    pub i: PerStage,
    /// Time of W.
    pub w: PerStage,
    /// Time of an overlapped pair of F and B; by default the sum of the two.
    pub fb: Option<f64>,
    /// Time of a hop between ranks: one number for all, or one per pair of neighbouring stages.
    pub comm: PerStage,
    /// Memory taken by F.
    pub mem_f: Option<PerStage>,
    /// Memory freed by I.
    pub mem_i: Option<PerStage>,
    /// Memory freed by W.
    pub mem_w: Option<PerStage>,
    /// Memory limit of a rank: one number for all, or one per rank.
    pub limit: Option<PerStage>,
}

impl Default for CostsFile {
    /// F, I and W take 1 each, a hop 0.
    fn default() -> CostsFile {
        CostsFile {
            unit: seconds(),
            f: PerStage::All(1.0),
            i: PerStage::All(1.0),
            w: PerStage::All(1.0),
            fb: None,
            comm: PerStage::All(0.0),
            mem_f: None,
            mem_i: None,
            mem_w: None,
            limit: None,
        }
    }
}

fn seconds() -> String {
    "s".into()
}

/// One number for all, or a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a list of numbers")]
pub enum PerStage {
    /// The same number for all.
    All(f64),
    /// One number for each.
    Each(Vec<f64>),
}

/// Largest time or memory. Sums over all actions of a schedule stay far below the largest f64.
const MOST: f64 = 1e200;

/// An error in a user's costs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CostsError {
    /// A list is too short or too long.
    #[error("`{field}` lists {found} numbers, but there are {expected} {places}s")]
    Length {
        /// Name of the field.
        field: &'static str,
        /// Kind of place that a number belongs to: `stage`, `rank`, `hop`.
        places: &'static str,
        /// Number of entries needed.
        expected: u32,
        /// Number of entries found.
        found: usize,
    },
    /// A number is negative, NaN, or so large that sums of such numbers are infinite.
    #[error("`{field}` is {value:?}, but must lie between 0 and {MOST:e}")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// The rejected number.
        value: f64,
    },
    /// The three memory fields contradict each other.
    #[error("stage {stage}: `mem_f` is {mem_f}, but `mem_i` and `mem_w` free {freed}")]
    Memory {
        /// Index of the stage.
        stage: usize,
        /// Memory taken by F.
        mem_f: f64,
        /// Memory freed by I and W.
        freed: f64,
    },
}

impl CostsFile {
    /// Resolves the costs for a number of stages and ranks.
    ///
    /// # Errors
    ///
    /// Returns an error if a list has the wrong length, a number is out of range, or the memory fields disagree.
    pub fn resolve(&self, stages: u32, ranks: u32) -> Result<StageCosts, CostsError> {
        let mem_f = self.mem_f.as_ref().map(|values| values.of_stages("mem_f", stages)).transpose()?;
        let mem_i = self.mem_i.as_ref().map(|values| values.of_stages("mem_i", stages)).transpose()?;
        let mem_w = self.mem_w.as_ref().map(|values| values.of_stages("mem_w", stages)).transpose()?;
        let (mem_f, mem_i, mem_w) = complete_memory(stages, mem_f, mem_i, mem_w)?;
        Ok(StageCosts {
            unit: self.unit.clone(),
            f: self.f.of_stages("f", stages)?,
            i: self.i.of_stages("i", stages)?,
            w: self.w.of_stages("w", stages)?,
            comm: self.comm.spread("comm", "hop", stages.saturating_sub(1))?,
            fb: self.fb.map(|fb| checked("fb", fb)).transpose()?,
            mem_f,
            mem_i,
            mem_w,
            limit: self.limit.as_ref().map(|limit| limit.spread("limit", "rank", ranks)).transpose()?,
        })
    }
}

impl TryFrom<CostsFile> for StageCosts {
    type Error = CostsError;

    /// Resolves costs for the number of stages in `f` (1 if `f` is one number) and the number of ranks in `limit`.
    fn try_from(file: CostsFile) -> Result<StageCosts, CostsError> {
        let stages = file.f.len().unwrap_or(1);
        let ranks = file.limit.as_ref().and_then(PerStage::len).unwrap_or(stages);
        file.resolve(stages, ranks)
    }
}

impl PerStage {
    fn len(&self) -> Option<u32> {
        match self {
            PerStage::All(_) => None,
            PerStage::Each(values) => Some(values.len() as u32),
        }
    }

    fn of_stages(&self, field: &'static str, stages: u32) -> Result<Vec<f64>, CostsError> {
        self.spread(field, "stage", stages)
    }

    fn spread(&self, field: &'static str, places: &'static str, expected: u32) -> Result<Vec<f64>, CostsError> {
        match self {
            PerStage::All(value) => Ok(vec![checked(field, *value)?; expected as usize]),
            PerStage::Each(values) if values.len() != expected as usize => {
                Err(CostsError::Length { field, places, expected, found: values.len() })
            }
            PerStage::Each(values) => values.iter().map(|&value| checked(field, value)).collect(),
        }
    }
}

fn checked(field: &'static str, value: f64) -> Result<f64, CostsError> {
    if (0.0..=MOST).contains(&value) { Ok(value) } else { Err(CostsError::Value { field, value }) }
}

type Memory = (Vec<f64>, Vec<f64>, Vec<f64>);

fn complete_memory(
    stages: u32,
    f: Option<Vec<f64>>,
    i: Option<Vec<f64>>,
    w: Option<Vec<f64>>,
) -> Result<Memory, CostsError> {
    let f = match (f, &i, &w) {
        (Some(f), _, _) => f,
        (None, Some(i), Some(w)) => zip(i, w, |i, w| i + w),
        (None, Some(half), None) | (None, None, Some(half)) => zip(half, half, |a, b| a + b),
        (None, None, None) => vec![1.0; stages as usize],
    };
    let (i, w) = match (i, w) {
        (Some(i), Some(w)) => (i, w),
        (Some(i), None) => (i.clone(), zip(&f, &i, |f, i| (f - i).max(0.0))),
        (None, Some(w)) => (zip(&f, &w, |f, w| (f - w).max(0.0)), w),
        (None, None) => (zip(&f, &f, |f, _| f / 2.0), zip(&f, &f, |f, _| f / 2.0)),
    };
    for (stage, (&mem_f, freed)) in f.iter().zip(zip(&i, &w, |i, w| i + w)).enumerate() {
        if (mem_f - freed).abs() > 1e-9 * mem_f.max(freed) {
            return Err(CostsError::Memory { stage, mem_f, freed });
        }
    }
    Ok((f, i, w))
}

fn zip(a: &[f64], b: &[f64], op: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).map(|(&a, &b)| op(a, b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(json: &str, stages: u32, ranks: u32) -> Result<StageCosts, String> {
        let file: CostsFile = serde_json::from_str(json).map_err(|e| e.to_string())?;
        file.resolve(stages, ranks).map_err(|e| e.to_string())
    }

    #[test]
    fn numbers_and_lists_mix() {
        let costs = resolve(r#"{"unit":"ms","f":2,"i":[1,3],"mem_f":4,"mem_w":[1,0],"limit":[9,8,7]}"#, 2, 3).unwrap();
        assert_eq!(
            (costs.unit.as_str(), &costs.f, &costs.i, &costs.w),
            ("ms", &vec![2., 2.], &vec![1., 3.], &vec![1., 1.])
        );
        assert_eq!((&costs.mem_i, &costs.mem_w), (&vec![3., 4.], &vec![1., 0.]));
        assert_eq!(costs.limit, Some(vec![9., 8., 7.]));
        let again: StageCosts = serde_json::from_str(&serde_json::to_string(&costs).unwrap()).unwrap();
        assert_eq!(again, costs);
    }

    #[test]
    fn the_default_is_the_unit_case() {
        assert_eq!(resolve("{}", 3, 3).unwrap(), StageCosts::uniform(3, 1.0, 1.0, 1.0, 0.0));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let message = |json| resolve(json, 3, 3).unwrap_err();
        assert_eq!(message(r#"{"f":[1,2]}"#), "`f` lists 2 numbers, but there are 3 stages");
        assert_eq!(message(r#"{"limit":[1]}"#), "`limit` lists 1 numbers, but there are 3 ranks");
        assert_eq!(message(r#"{"w":[1,-2,1]}"#), "`w` is -2.0, but must lie between 0 and 1e200");
        assert_eq!(message(r#"{"mem_f":1,"mem_w":2}"#), "stage 0: `mem_f` is 1, but `mem_i` and `mem_w` free 2");
        assert!(message(r#"{"f":"fast"}"#).contains("expected a number, or a list of numbers"));
        assert!(message(r#"{"g":1}"#).contains("unknown field `g`"));
        let nan = CostsFile { comm: PerStage::All(f64::NAN), ..CostsFile::default() };
        assert!(matches!(nan.resolve(1, 1), Err(CostsError::Value { field: "comm", .. })));
    }

    #[test]
    fn a_pair_of_f_and_b_takes_fb() {
        let mut costs = StageCosts::uniform(2, 1.0, 2.0, 4.0, 0.0);
        let pair = |kind| Action::Pair(Item::new(Kind::F, 0, 0), Item::new(kind, 1, 0));
        assert_eq!(costs.seconds(&pair(Kind::B)), 7.0);
        costs.fb = Some(6.5);
        assert_eq!(costs.seconds(&pair(Kind::B)), 6.5);
        assert_eq!(costs.seconds(&pair(Kind::W)), 5.0);
        assert_eq!(costs.seconds(&Action::One(Item::step(Kind::U))), 0.0);
    }
}
