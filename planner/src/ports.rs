//! Block signatures: the arguments and results that must have one type because values pass between blocks.
//!
//! A model value joins the result that produces it with every argument that receives it. A repeated call joins each
//! carried argument with the result that feeds it. A layer's block and its variant share all boundaries, since the
//! variant may replace the block once stages are known.

use ir::graph::{ArgKind, Model, ResultKind};
use ir::ids::{BlockId, ModelValue, Value};
use ir::types::Type;
use petgraph::unionfind::UnionFind;
use rustc_hash::FxHashMap;
use transforms::recompute::variants_of;

/// Boundary types, decided while the blocks are planned.
pub(crate) struct Ports {
    union: UnionFind<usize>,
    index: FxHashMap<Port, usize>,
    types: FxHashMap<usize, Type>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Port {
    Model(ModelValue),
    Argument(BlockId, usize),
    Result(BlockId, usize),
}

impl Ports {
    /// Joins the arguments and results that calls connect.
    pub(crate) fn new(model: &Model) -> Ports {
        let mut ports =
            Ports { union: UnionFind::new_empty(), index: FxHashMap::default(), types: FxHashMap::default() };
        for call in &model.calls {
            let block = &model.blocks[call.block];
            for (place, &value) in call.args.iter().enumerate() {
                ports.join(Port::Model(value), Port::Argument(call.block, place));
            }
            let results = value_results(&block.results);
            for (place, &value) in call.results.iter().enumerate() {
                ports.join(Port::Model(value), Port::Result(call.block, place));
            }
            if call.instances() > 1 {
                for place in 0..results.len() {
                    ports.join(Port::Argument(call.block, place), Port::Result(call.block, place));
                }
            }
        }
        for (id, block) in &model.blocks {
            let like = variants_of(model, id).map_or(id, |[kept, _]| kept);
            for place in 0..passed(block).len() {
                ports.join(Port::Argument(id, place), Port::Argument(like, place));
            }
            for place in 0..value_results(&block.results).len() {
                ports.join(Port::Result(id, place), Port::Result(like, place));
            }
        }
        ports
    }

    fn port(&mut self, port: Port) -> usize {
        let union = &mut self.union;
        *self.index.entry(port).or_insert_with(|| union.new_set())
    }

    fn join(&mut self, a: Port, b: Port) {
        let (a, b) = (self.port(a), self.port(b));
        self.union.union(a, b);
    }

    fn root(&self, port: Port) -> usize {
        self.union.find(self.index[&port])
    }

    /// Type class of an argument; members of a class share one type.
    pub(crate) fn of_argument(&self, block: BlockId, place: usize) -> usize {
        self.root(Port::Argument(block, place))
    }

    /// Type class of a value result.
    pub(crate) fn of_result(&self, block: BlockId, place: usize) -> usize {
        self.root(Port::Result(block, place))
    }

    /// Type class of a model value, if a call takes or produces it.
    pub(crate) fn of_value(&self, value: ModelValue) -> Option<usize> {
        self.index.get(&Port::Model(value)).map(|&port| self.union.find(port))
    }

    /// Type of an argument (a value or an input, by position), if decided.
    pub(crate) fn argument(&self, block: BlockId, place: usize) -> Option<&Type> {
        self.types.get(&self.root(Port::Argument(block, place)))
    }

    /// Sets the type of an argument.
    pub(crate) fn set_argument(&mut self, block: BlockId, place: usize, ty: Type) {
        let root = self.root(Port::Argument(block, place));
        self.types.insert(root, ty);
    }

    /// Type of a value result (by position among value results), if decided.
    pub(crate) fn result(&self, block: BlockId, place: usize) -> Option<&Type> {
        self.types.get(&self.root(Port::Result(block, place)))
    }

    /// Sets the type of a value result.
    pub(crate) fn set_result(&mut self, block: BlockId, place: usize, ty: Type) {
        let root = self.root(Port::Result(block, place));
        self.types.insert(root, ty);
    }
}

/// Arguments that calls pass: values and inputs.
pub(crate) fn passed(block: &ir::graph::Block) -> Vec<(Value, ArgKind)> {
    let passed = block.args.iter().filter(|arg| matches!(arg.kind, ArgKind::Value | ArgKind::Input));
    passed.map(|arg| (arg.value, arg.kind)).collect()
}

/// Positions of the results that calls receive.
pub(crate) fn value_results(results: &[ResultKind]) -> Vec<usize> {
    (0..results.len()).filter(|&place| results[place] == ResultKind::Value).collect()
}
