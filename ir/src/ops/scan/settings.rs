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
    /// The rows of a block, each of which begins with a state of its own; `None`: a sequence begins with a zero state.
    pub block: Option<u64>,
}

/// A pass of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScanPass {
    Forward,
    Backward,
    /// The state behind each block alone.
    State,
    /// The gradient by the state before each block alone.
    StateBackward,
}

/// Operands of a scan, as its types say.
pub(super) struct Signature {
    /// The element type of queries, keys, values and results.
    pub(super) dtype: DType,
    /// The dims of values and results.
    pub(super) values: Vec<Dim>,
    /// The state before each block, if there are blocks: `f32[b, n, g, r, k, c]`.
    pub(super) states: Option<Type>,
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

    /// The number of operands of a scan without blocks.
    pub(super) fn operands(self) -> usize {
        5 + usize::from(self.further().is_some())
    }
}

/// True if each row of a state has a decay of its own.
pub(super) fn has_decay_by_key(operands: &[&Type]) -> bool {
    operands.get(3).is_some_and(|decay| decay.rank() == 5)
}

impl ScanSettings {
    /// The same scan in blocks of this length, or none.
    pub fn in_blocks(&self, block: Option<u64>) -> ScanSettings {
        ScanSettings { block, ..*self }
    }

    /// The names of the operands.
    fn names(&self) -> Vec<&'static str> {
        let (before, start) = (["q", "k", "v", "decay"], self.block.map(|_| "start"));
        before.into_iter().chain(self.kind.further()).chain(["pos"]).chain(start).collect()
    }

    /// The number of operands.
    pub fn operands(&self) -> usize {
        self.kind.operands() + usize::from(self.block.is_some())
    }

    /// The number of results of the gradient: an operand each, but positions and states.
    pub(super) fn results(&self) -> usize {
        self.kind.operands() - 1
    }

    /// Marks of batch and blocks, over which the gradients by rates are sums.
    fn across<'m>(&self, partial: &'m str) -> &'m str {
        if self.kind == ScanKind::Selective { partial } else { "" }
    }

    /// The factors of the dims `b, s`. A block is on one rank.
    pub(super) fn rows(&self, partial: &str) -> String {
        let across = self.across(partial);
        match self.block {
            None => format!("b{across} s!"),
            Some(block) => format!("b{across} (n{across} s!={block})"),
        }
    }

    /// The factors of states before blocks.
    pub(super) fn of_states(&self, partial: &str) -> String {
        let across = self.across(partial);
        format!("b{across} n{across} g r{partial} k! c{partial}")
    }

    /// The factors of the operands that a scan without blocks has; `partial` marks those of which gradients are sums.
    pub(super) fn rules(&self, operands: &[&Type], partial: &str) -> Vec<String> {
        let (rows, by_key) = (self.rows(partial), if has_decay_by_key(operands) { " k!" } else { "" });
        let further = match self.kind {
            ScanKind::Linear => None,
            ScanKind::Delta => Some(format!("{rows} g r{partial}")),
            ScanKind::Selective => Some(format!("g r{partial} k!")),
        };
        let keys = format!("{rows} g k!");
        let (values, decay) = (format!("{rows} g r{partial} c{partial}"), format!("{rows} g r{partial}{by_key}"));
        [keys.clone(), keys, values, decay].into_iter().chain(further).chain([rows]).collect()
    }

    /// Checks the operands that a scan and its gradient have.
    pub(super) fn signature(&self, operands: &[&Type]) -> Result<Signature, String> {
        let (names, found) = (self.names(), operands.len());
        let (Some(tensors), true) = (operands.get(..4), found == names.len()) else {
            return Err(format!("takes {} operands ({}), not {found}", names.len(), names.join(", ")));
        };
        let [q, k, v, decay] = [0, 1, 2, 3].map(|place| tensors[place].logical());
        let dtype = operands::float("v", &v)?;
        let [b, s, g, r, c] = operands::dims("v", &v, "b, s, g, r, c")?;
        let [_, _, _, keys] = operands::dims("k", &k, "b, s, g, k")?;
        let of_keys = [b, s, g, keys].map(Clone::clone);
        operands::expect("q", &q, dtype, &of_keys)?;
        operands::expect("k", &k, dtype, &of_keys)?;
        let heads = [b, s, g, r].map(Clone::clone);
        let by_key = has_decay_by_key(operands) && self.kind != ScanKind::Selective;
        let of_decay = if by_key { [&heads[..], std::slice::from_ref(keys)].concat() } else { heads.to_vec() };
        operands::expect("decay", &decay, DType::F32, &of_decay)?;
        match self.kind {
            ScanKind::Linear => {}
            ScanKind::Delta => operands::expect("beta", operands[4], DType::F32, &heads)?,
            ScanKind::Selective => operands::expect("rates", operands[4], DType::F32, &[g, r, keys].map(Clone::clone))?,
        }
        super::expect_positions(operands[self.kind.operands() - 1], &v)?;
        let states = self.block.map(|block| {
            let blocks = super::blocks_of(s.size, block)?;
            Ok::<_, String>(Type::new(DType::F32, [b, &blocks, g, r, keys, c].map(Clone::clone).to_vec()))
        });
        let states = states.transpose()?;
        if let (Some(states), Some(start)) = (&states, operands.last()) {
            operands::expect("start", start, DType::F32, &states.dims)?;
        }
        Ok(Signature { dtype, values: v.dims, states })
    }

    pub(super) fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let attrs = [
            ("kind", Attr::Word(self.kind.word().to_string())),
            ("scale", Attr::Float(self.scale)),
            ("chunk", Attr::int(self.chunk)),
        ];
        attrs.into_iter().chain(self.block.map(|block| ("block", Attr::int(block)))).collect()
    }

    /// Reads [`ScanSettings::attrs`].
    pub(super) fn parse(attrs: &mut Attrs) -> Result<ScanSettings, String> {
        let word = attrs.word("kind")?;
        let kind = ScanKind::ALL.into_iter().find(|kind| kind.word() == word);
        let kind = kind.ok_or_else(|| format!("`kind` must be linear, delta or selective, not `{word}`"))?;
        let (scale, chunk) = (attrs.float("scale")?, attrs.int("chunk")?);
        Ok(ScanSettings { kind, scale, chunk, block: attrs.optional_int("block")? })
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
    /// With the delta rule the state behind a block has `k` columns more, which are the transition of states through the block.
    ///
    /// | | forward | backward | state | its backward |
    /// |---|---|---|---|---|
    /// | linear | `C k/r + C c + 4 k c` | `C k (2 + 1/r) + 2 C c + 10 k c` | `2 k c` | `2 k c` |
    /// | delta | `2 C k/r + 2 C c + 6 k c` | `C k (4 + 2/r) + 5 C c + 16 k c` | `C k/r + (C + 4 k)(c + k)` | `2 C k/r + 2 C c + 6 k c` |
    /// | selective | `7 k c` | `20 k c` | `5 k c` | `5 k c` |
    pub(super) fn flops(&self, operands: &[&Type], pass: ScanPass) -> u64 {
        let [s, r, c] = [1, 3, 4].map(|dim| size(operands, 2, dim));
        let (r, k) = (r.max(1), size(operands, 1, 3));
        let rows = self.chunk.min(self.block.unwrap_or(s));
        let shared = if has_decay_by_key(operands) { 1 } else { r };
        let (of_keys, of_values, of_state) = (rows * k, rows * c, k * c);
        let of_token = match (self.kind, pass) {
            (ScanKind::Linear, ScanPass::Forward) => of_keys / shared + of_values + 4 * of_state,
            (ScanKind::Linear, ScanPass::Backward) => 2 * of_keys + of_keys / shared + 2 * of_values + 10 * of_state,
            (ScanKind::Delta, ScanPass::Forward) => 2 * of_keys / shared + 2 * of_values + 6 * of_state,
            (ScanKind::Delta, ScanPass::Backward) => 4 * of_keys + 2 * of_keys / shared + 5 * of_values + 16 * of_state,
            (ScanKind::Selective, ScanPass::Forward) => 7 * of_state,
            (ScanKind::Selective, ScanPass::Backward) => 20 * of_state,
            (ScanKind::Linear, ScanPass::State | ScanPass::StateBackward) => 2 * of_state,
            (ScanKind::Delta, ScanPass::State) => of_keys / shared + (rows + 4 * k) * (c + k),
            (ScanKind::Delta, ScanPass::StateBackward) => 2 * of_keys / shared + 2 * of_values + 6 * of_state,
            (ScanKind::Selective, ScanPass::State | ScanPass::StateBackward) => 5 * of_state,
        };
        let heads = [0, 1, 2, 3].map(|dim| size(operands, 2, dim));
        heads.into_iter().fold(of_token, u64::saturating_mul)
    }
}

/// The size of a dim of an operand; 1 if there is none.
fn size(operands: &[&Type], place: usize, dim: usize) -> u64 {
    operands.get(place).and_then(|ty| ty.dims.get(dim)).map_or(1, |dim| dim.size)
}
