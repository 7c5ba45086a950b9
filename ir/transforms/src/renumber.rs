//! Renumbers the values of a block as if its text were read back: in order of definition, without ids for undefined values.
//! Later passes then give the same result on a model and on its text.

use ir::entity::{EntityRef, SecondaryMap};
use ir::graph::{Block, ValueData};
use ir::ids::Value;

/// Renumbers the values of a block. Every value in use is defined in it.
pub fn renumber(block: &mut Block) {
    let order = definitions(block);
    let mut old: Vec<Option<ValueData>> =
        std::mem::take(&mut block.values).into_iter().map(|(_, data)| Some(data)).collect();
    let mut new = SecondaryMap::with_default(Value::new(0));
    for value in order {
        if let Some(data) = old[value.index()].take() {
            new[value] = block.values.push(data);
        }
    }
    let dims = block.values.values_mut().flat_map(|data| &mut data.ty.dims);
    for count in dims.filter_map(|dim| dim.count.as_mut()) {
        *count = new[*count];
    }
    for value in uses(block) {
        *value = new[*value];
    }
}

fn definitions(block: &Block) -> Vec<Value> {
    let mut order: Vec<Value> = block.args.iter().map(|arg| arg.value).collect();
    for section in &block.sections {
        order.extend(&section.args);
        for &result in section.stmts.iter().flat_map(|stmt| &stmt.results) {
            let stored = block.arg_kind(result).is_some();
            order.extend((!stored).then_some(result));
        }
    }
    order
}

fn uses(block: &mut Block) -> impl Iterator<Item = &mut Value> {
    let args = block.args.iter_mut().map(|arg| &mut arg.value);
    args.chain(block.sections.iter_mut().flat_map(|section| {
        let stmts = section.stmts.iter_mut().flat_map(|stmt| stmt.results.iter_mut().chain(&mut stmt.operands));
        section.args.iter_mut().chain(stmts).chain(&mut section.ret)
    }))
}
