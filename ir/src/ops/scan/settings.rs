//! The settings of a scan and of its gradient, and the operands that both have.

use crate::ops::{Attr, Attrs, operands};
use crate::types::{DType, Dim, Type};

/// Recurrences of a scan, by what a row adds to the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanKind {
    /// `u = v` (Dao and Gu 2024, Mamba-2; Yang et al. 2023, gated linear attention).
    Linear,
    /// `u = beta (v - S^T k)`, S being the decayed state, with `beta f32[b, s, g, r]` (Yang et al. 2024, gated delta networks).
    Delta,
    /// `u = v`, and the decay of row i of a state is `decay rates_i` with `rates f32[g, r, k]` (Gu and Dao 2023, Mamba).
    Selective,
}

/// The settings of a scan and of its gradient.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScanSettings {
    /// The recurrence.
    pub kind: ScanKind,
    /// The factor of the results.
    pub scale: f64,
    /// The rows that are computed together as products. It changes no result but by rounding.
    pub chunk: u64,
}

/// A pass of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScanPass {
    Forward,
    Backward,
}

/// Operands of a scan, as its types say.
pub(super) struct Signature {
    /// The element type of queries, keys, values and results.
    pub(super) dtype: DType,
    /// The dims of values and results.
    pub(super) values: Vec<Dim>,
}

impl ScanKind {
    /// All kinds.
    pub const ALL: [ScanKind; 3] = [ScanKind::Linear, ScanKind::Delta, ScanKind::Selective];

    /// Its word in the text form.
    pub fn word(self) -> &'static str {
        match self {
            ScanKind::Linear => "linear",
            ScanKind::Delta => "delta",
            ScanKind::Selective => "selective",
        }
    }

    /// The operand between decay and positions.
    fn further(self) -> Option<&'static str> {
        match self {
            ScanKind::Linear => None,
            ScanKind::Delta => Some("beta"),
            ScanKind::Selective => Some("rates"),
        }
    }

    /// The names of the operands.
    pub(super) fn names(self) -> Vec<&'static str> {
        let before = ["q", "k", "v", "decay"];
        before.into_iter().chain(self.further()).chain(["pos"]).collect()
    }

    /// The factors of the operands; `partial` marks those of which gradients are sums.
    pub(super) fn rule(self, operands: &[&Type], partial: &str) -> String {
        let by_key = if has_decay_by_key(operands) { " k!" } else { "" };
        let further = match self {
            ScanKind::Linear => String::new(),
            ScanKind::Delta => format!(", b s! g r{partial}"),
            ScanKind::Selective => format!(", g r{partial} k!"),
        };
        let b = if self == ScanKind::Selective { format!("b{partial}") } else { "b".to_string() };
        let keys = format!("{b} s! g k!");
        format!("{keys}, {keys}, {b} s! g r{partial} c{partial}, {b} s! g r{partial}{by_key}{further}, {b} s!")
    }
}

/// True if each row of a state has a decay of its own.
pub(super) fn has_decay_by_key(operands: &[&Type]) -> bool {
    operands.get(3).is_some_and(|decay| decay.rank() == 5)
}

/// Checks the operands that a scan and its gradient have.
pub(super) fn signature(kind: ScanKind, operands: &[&Type]) -> Result<Signature, String> {
    let names = kind.names();
    let found = operands.len();
    let (Some(tensors), true) = (operands.get(..4), found == names.len()) else {
        return Err(format!("takes {} operands ({}), not {found}", names.len(), names.join(", ")));
    };
    let [q, k, v, decay] = [0, 1, 2, 3].map(|place| tensors[place].logical());
    let dtype = operands::float("v", &v)?;
    let [b, s, g, r, _] = operands::dims("v", &v, "b, s, g, r, c")?;
    let [_, _, _, keys] = operands::dims("k", &k, "b, s, g, k")?;
    let of_keys = [b, s, g, keys].map(Clone::clone);
    operands::expect("q", &q, dtype, &of_keys)?;
    operands::expect("k", &k, dtype, &of_keys)?;
    let heads = [b, s, g, r].map(Clone::clone);
    let by_key = has_decay_by_key(operands) && kind != ScanKind::Selective;
    let of_decay = if by_key { [&heads[..], std::slice::from_ref(keys)].concat() } else { heads.to_vec() };
    operands::expect("decay", &decay, DType::F32, &of_decay)?;
    match kind {
        ScanKind::Linear => {}
        ScanKind::Delta => operands::expect("beta", operands[4], DType::F32, &heads)?,
        ScanKind::Selective => operands::expect("rates", operands[4], DType::F32, &[g, r, keys].map(Clone::clone))?,
    }
    super::expect_positions(operands[found - 1], &v)?;
    Ok(Signature { dtype, values: v.dims })
}

impl ScanSettings {
    pub(super) fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![
            ("kind", Attr::Word(self.kind.word().to_string())),
            ("scale", Attr::Float(self.scale)),
            ("chunk", Attr::int(self.chunk)),
        ]
    }

    /// Reads [`ScanSettings::attrs`].
    pub(super) fn parse(attrs: &mut Attrs) -> Result<ScanSettings, String> {
        let word = attrs.word("kind")?;
        let kind = ScanKind::ALL.into_iter().find(|kind| kind.word() == word);
        let kind = kind.ok_or_else(|| format!("`kind` must be linear, delta or selective, not `{word}`"))?;
        Ok(ScanSettings { kind, scale: attrs.float("scale")?, chunk: attrs.int("chunk")? })
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match (self.chunk, self.scale.is_finite()) {
            (0, _) => Err("`chunk` must be at least 1".to_string()),
            (_, false) => Err(format!("`scale` {} must be a finite number", self.scale)),
            _ => Ok(()),
        }
    }

    /// Floating-point operations in chunks of C rows, triangles counted by half, for each token and head of values. With r heads of values
    /// to a key the products of keys are shared, unless each row of the state has a decay of its own. The backward computes the states again.
    ///
    /// | | forward | backward |
    /// |---|---|---|
    /// | linear | `C k/r + C c + 4 k c` | `C k (2 + 1/r) + 2 C c + 10 k c` |
    /// | delta | `2 C k/r + 2 C c + 6 k c` | `C k (4 + 2/r) + 5 C c + 16 k c` |
    /// | selective | `7 k c` | `20 k c` |
    pub(super) fn flops(&self, operands: &[&Type], pass: ScanPass) -> u64 {
        let [s, r, c] = [1, 3, 4].map(|dim| size(operands, 2, dim));
        let (r, k) = (r.max(1), size(operands, 1, 3));
        let rows = self.chunk.min(s);
        let shared = if has_decay_by_key(operands) { 1 } else { r };
        let (of_keys, of_values, of_state) = (rows * k, rows * c, k * c);
        let of_token = match (self.kind, pass) {
            (ScanKind::Linear, ScanPass::Forward) => of_keys / shared + of_values + 4 * of_state,
            (ScanKind::Linear, ScanPass::Backward) => 2 * of_keys + of_keys / shared + 2 * of_values + 10 * of_state,
            (ScanKind::Delta, ScanPass::Forward) => 2 * of_keys / shared + 2 * of_values + 6 * of_state,
            (ScanKind::Delta, ScanPass::Backward) => 4 * of_keys + 2 * of_keys / shared + 5 * of_values + 16 * of_state,
            (ScanKind::Selective, ScanPass::Forward) => 7 * of_state,
            (ScanKind::Selective, ScanPass::Backward) => 20 * of_state,
        };
        let heads = [0, 1, 2, 3].map(|dim| size(operands, 2, dim));
        heads.into_iter().fold(of_token, u64::saturating_mul)
    }
}

/// The size of a dim of an operand; 1 if there is none.
fn size(operands: &[&Type], place: usize, dim: usize) -> u64 {
    operands.get(place).and_then(|ty| ty.dims.get(dim)).map_or(1, |dim| dim.size)
}
