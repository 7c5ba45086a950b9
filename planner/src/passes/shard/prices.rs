//! Costs of ops and reshards, in seconds, each computed once.

use crate::fault::Fault;
use crate::passes::decompose::expand_section;
use crate::passes::reshard::{Moved, reshard_section};
use crate::reshard::hops::{Fare, Least};
use crate::reshard::sharding::Sharding;
use crate::reshard::table::Table;
use crate::reshard::{Site, cheapest};
use crate::sections;
use cost::{Scope, local_type};
use ir::graph::{Arg, ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::mesh::Axes;
use ir::ops::Op;
use ir::types::{DType, Type};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// Tensor properties that determine reshard costs: dtype, per dim its size and whether it is indivisible or cannot be
/// sharded, and whether flat storage is allowed.
type Key = (DType, Vec<(u64, bool, bool)>, bool);

/// Cost tables on a mesh.
pub(super) struct Prices<'a> {
    /// Mesh, dims and platform.
    pub(super) site: Site<'a>,
    tables: Vec<Table<'a>>,
    known: HashMap<Key, usize>,
    /// Fractions of the costs that count in a lower bound.
    shares: Option<Shares>,
}

/// Share of some axes in the costs, if the other axes are assumed to shard every tensor evenly.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    /// Cost parameters of reshards.
    pub(super) least: Least,
    /// Fraction of the compute that these axes are charged.
    pub(super) compute: f64,
}

/// Largest number of axes for which all shardings of a tensor are searched.
const SEARCHED: usize = 3;

impl<'a> Prices<'a> {
    /// Empty cost tables.
    pub(super) fn new(site: Site<'a>) -> Prices<'a> {
        Prices { site, tables: Vec::new(), known: HashMap::new(), shares: None }
    }

    /// Costs whose sum over groups of axes is at most the cost of any choice.
    pub(super) fn relaxed(site: Site<'a>, shares: Shares) -> Prices<'a> {
        Prices { shares: Some(shares), ..Prices::new(site) }
    }

    /// Returns whether these are the costs of a lower bound.
    pub(super) fn is_relaxed(&self) -> bool {
        self.shares.is_some()
    }

    /// Index of the table for all tensors like this one; with `stored`, they may be flat-sharded.
    pub(super) fn tensor(&mut self, ty: &Type, stored: bool) -> usize {
        let dims = ty.dims.iter().map(|dim| {
            let indivisible = dim.name.is_some_and(|name| self.site.dims[name].indivisible);
            (dim.size, indivisible, dim.count.is_some())
        });
        let key = (ty.dtype, dims.collect(), stored);
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        self.tables.push(Table::new(self.site, ty, stored, self.fare(ty)));
        self.known.insert(key, self.tables.len() - 1);
        self.tables.len() - 1
    }

    /// Cost of a tensor's reshards in a lower bound, or on a mesh with many axes.
    fn fare(&self, ty: &Type) -> Option<Fare<'a>> {
        match self.shares {
            Some(shares) => Some(Fare::least(&self.site, shares.least, ty.logical().bytes() as f64)),
            None => (self.site.mesh.tensor_axes().len() > SEARCHED).then(|| Fare::new(&self.site)),
        }
    }

    /// Table with this index.
    pub(super) fn table(&mut self, tensor: usize) -> &mut Table<'a> {
        &mut self.tables[tensor]
    }

    /// Seconds of an op on the local shards of its tensors.
    pub(super) fn op(&self, op: &Op, operands: &[Type], results: &[Type], accumulate: bool) -> f64 {
        let Op::Kernel(op) = op else { return 0.0 };
        let [operands, results] = [operands, results]
            .map(|types| types.iter().map(|ty| local_type(ty, self.site.mesh)).collect::<Vec<Type>>());
        let own = self.site.platform.op(self.site.dims, op, &operands, &results, accumulate);
        own * self.shares.map_or(1.0, |shares| shares.compute / shares.least.others)
    }

    /// Seconds from each sharding of `from` to each of `to`, row by row.
    pub(super) fn between(&mut self, tensor: usize, from: &[u32], to: &[u32]) -> Vec<f64> {
        let table = &mut self.tables[tensor];
        let mut known: FxHashMap<(u32, u32), f64> = FxHashMap::default();
        let pairs = from.iter().flat_map(|&from| to.iter().map(move |&to| (from, to)));
        pairs.map(|pair| *known.entry(pair).or_insert_with(|| table.seconds(pair.0, pair.1))).collect()
    }

    /// Seconds of the decomposition that replaces a statement with these shardings.
    ///
    /// # Errors
    /// The op has no decomposition, or no decomposition with these shardings.
    pub(super) fn expanded(&self, stmt: &Stmt, operands: &[Type], results: &[Type]) -> Result<f64, Fault> {
        if self.is_relaxed() {
            return Ok(0.0);
        }
        let mut block = Block::default();
        let [operands, results] = [operands, results]
            .map(|types| types.iter().map(|ty| block.add_value("", ty.clone())).collect::<Vec<Value>>());
        block.args = operands.iter().map(|&value| Arg { value, kind: ArgKind::Value }).collect();
        block[SectionKind::F].ret.clone_from(&results);
        block[SectionKind::F].stmts = vec![Stmt { operands, results, ..stmt.clone() }];
        let Site { mesh, dims, platform, .. } = self.site;
        expand_section(&sections::Site { mesh, dims }, &mut block, SectionKind::F)?;
        reshard_section(mesh, &mut block, SectionKind::F, &mut Moved::default())?;
        let mut seconds = 0.0;
        for stmt in &block[SectionKind::F].stmts {
            seconds += match stmt.op {
                Op::Reshard => {
                    let (from, to) = (block.ty(stmt.operands[0]), block.ty(stmt.results[0]));
                    let path = cheapest(&self.site, from, to, &Axes::none())?;
                    path.iter().map(|step| step.seconds).sum()
                }
                _ => platform.stmt(Scope { mesh, dims, values: &block.values }, stmt),
            };
        }
        Ok(seconds)
    }

    /// Seconds from one sharding of a tensor to another.
    pub(super) fn path_seconds(&mut self, ty: &Type, from: &Sharding, to: &Sharding) -> f64 {
        let tensor = self.tensor(ty, true);
        let table = self.table(tensor);
        let (from, to) = (table.place(from), table.place(to));
        self.between(tensor, &[from], &[to])[0]
    }
}
