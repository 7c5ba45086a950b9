//! Recomputation: the backward recomputes forward values that it reads instead of saving them (Chen et al. 2016, "Training
//! Deep Nets with Sublinear Memory Cost").
//!
//! Statements of `F` are copied into `I`, or into `W` if only `W` reads their results. The inputs of the copies are saved
//! instead of their results, unless they are recomputed too. The pass runs before sharding, so the copies get shardings,
//! collectives, costs and memory like any statement. Dropout depends on logical coordinates, so its copy drops the same
//! elements.
//!
//! With `full:n` the first layers of each stage call a variant of their block, which `partition` assigns. With `offload`
//! the saved values of a block leave for the host while the next block runs. They come back while the block before their
//! backward runs. With `offload_optimizer` the host holds the states that U alone reads: a load gives a bundle, U changes
//! it, and a store copies it back.

use ir::graph::{ArgKind, Block, ResultKind, SectionKind, Stmt};
use ir::ids::Value;
use std::collections::{BTreeSet, HashMap};

mod modules;
mod names;
mod remade;
mod variants;

pub use modules::{MODULES, of_module};
pub use names::{UnknownName, check_names, is_module, of_value};
pub use remade::remade;
pub(crate) use variants::{CallPart, split};
pub use variants::{add_variants, call_variants, calls_of, recomputed_layers, variants_of};

/// The suffix of a recomputed value, and of the recomputed variant of a block.
pub const RECOMPUTED: &str = ".recomputed";

/// True if a block is a layer between embedding and head; only layers are recomputed.
pub fn is_layer(block: &Block) -> bool {
    block.args_of(ArgKind::Value).next().is_some()
        && block.results.contains(&ResultKind::Value)
        && !block.results.iter().any(|kind| kind.is_loss())
}

/// Makes the backward of a block recompute the results of some statements of `F`, given by index. A block whose backward
/// reads none of them does not change.
pub fn recompute(block: &mut Block, recomputed: &BTreeSet<usize>) {
    let mut inputs = std::mem::take(&mut block[SectionKind::I].stmts);
    let mut weights = std::mem::take(&mut block[SectionKind::W].stmts);
    let made = copy_forward(block, &mut inputs, |place, _| recomputed.contains(&place), RECOMPUTED);
    replace(&mut weights, &made);
    copy_forward(
        block,
        &mut weights,
        |place, stmt| recomputed.contains(&place) && !made.contains_key(&stmt.results[0]),
        RECOMPUTED,
    );
    replace(&mut weights, &made);
    block[SectionKind::I].stmts = inputs;
    block[SectionKind::W].stmts = weights;
}

fn replace(stmts: &mut [Stmt], made: &HashMap<Value, Value>) {
    let operands = stmts.iter_mut().flat_map(|stmt| &mut stmt.operands);
    operands.for_each(|operand| *operand = made.get(operand).copied().unwrap_or(*operand));
}

/// Copies those statements of `F` whose results a section reads to before their first readers in the section, and returns the
/// copy of each result. A copy has the name of its original with a suffix; without a suffix it is numbered.
pub(crate) fn copy_forward(
    block: &mut Block,
    stmts: &mut Vec<Stmt>,
    recomputed: impl Fn(usize, &Stmt) -> bool,
    suffix: &str,
) -> HashMap<Value, Value> {
    let forward = block[SectionKind::F].stmts.iter().enumerate();
    let copies: Vec<Stmt> =
        forward.filter(|(place, stmt)| recomputed(*place, stmt)).map(|(_, stmt)| stmt.clone()).collect();
    let mut all = HashMap::new();
    for mut copy in copies.into_iter().rev() {
        let first = stmts.iter().position(|stmt| stmt.operands.iter().any(|operand| copy.results.contains(operand)));
        let Some(first) = first else { continue };
        let mut made = HashMap::new();
        for result in &mut copy.results {
            let (name, ty) = (copy_name(block, *result, suffix), block.ty(*result).clone());
            let value = block.add_value(&name, ty);
            made.insert(*result, value);
            *result = value;
        }
        replace(stmts, &made);
        all.extend(made);
        stmts.insert(first, Stmt { comments: Vec::new(), ..copy });
    }
    all
}

/// Empty where the copy has a number.
fn copy_name(block: &Block, value: Value, suffix: &str) -> String {
    let name = block.value_name(value);
    let named = !suffix.is_empty() && name.parse::<u32>().is_err();
    let name = if named { format!("{name}{suffix}") } else { String::new() };
    if block.find(&name).is_some() { String::new() } else { name }
}
