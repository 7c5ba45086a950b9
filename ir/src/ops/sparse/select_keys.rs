//! `select_keys(%q, %k, %w, %qpos, %kpos, %qseg, %kseg, keys=2048)`: the keys that a query attends to.

use super::indexer;
use crate::ops::{Attr, Attrs, OpDef, OpFacts, OpResult, Shapes, Work, operands};
use crate::types::{DType, Dim, Type};

/// `(q [b, s, n, d], k [b, t, d], w [b, s, n], qpos i32[b, s], kpos i32[b, t], qseg i32[b, s], kseg i32[b, t]) -> i32[b, s, keys]`:
/// the visible keys with the highest scores `sum_n w_n relu(q_n k)`, in ascending order, then -1. A key is visible if it has the
/// segment of the query and no higher position. Of equal scores, which relu makes of zeros, the lower place wins (DeepSeek-V3.2,
/// equation 1).
#[derive(Clone, PartialEq, Debug)]
pub struct SelectKeys {
    /// The most keys of a query.
    pub keys: u64,
}

impl SelectKeys {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["select_keys"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> OpResult<SelectKeys> {
        Ok(SelectKeys { keys: attrs.int("keys")? })
    }
}

impl OpDef for SelectKeys {
    fn name(&self) -> &'static str {
        "select_keys"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("keys", Attr::int(self.keys))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { causal_operands: &[1, 4, 6], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        let [q, k, w, qpos, kpos, qseg, kseg] = operands::take(operands, "q, k, w, qpos, kpos, qseg, kseg")?;
        let indexer = indexer(q, k, w)?;
        let rows = [indexer.batch.clone(), indexer.queries];
        let keys = [indexer.batch, indexer.keys];
        for (name, ty, dims) in
            [("qpos", qpos, &rows), ("kpos", kpos, &keys), ("qseg", qseg, &rows), ("kseg", kseg, &keys)]
        {
            operands::expect(name, ty, DType::I32, dims)?;
        }
        if self.keys == 0 {
            return Err("`keys` must be at least 1".to_string());
        }
        let [batch, queries] = rows;
        Ok(vec![Type::new(DType::I32, vec![batch, queries, Dim::sized(self.keys)])])
    }

    /// Scores summed over shards of n would be as large as all pairs, so queries are sharded in its place.
    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b s n! d!, b t! d!, b s n!, b s, b t!, b s, b t! -> b s j!".to_string()
    }

    /// A product for each pair of a query and a visible key, of which a query has half on average.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let keys = operands[1].dims.get(1).map_or(1, |dim| dim.size);
        Work::of(operands[0].elements().saturating_mul(keys), operands, results)
    }
}
