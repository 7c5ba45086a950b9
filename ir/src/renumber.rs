//! Gives the values of a block the ids that they have when its text is read back: in order of definition, and no id for a
//! value that nothing defines. Later passes then do the same on a model and on its text.

use crate::entity::{EntityRef, PrimaryMap, SecondaryMap};
use crate::graph::Block;
use crate::ids::Value;

/// Renumbers the values of a block. Every value in use is defined in it.
pub fn renumber(block: &mut Block) {
    let order = definitions(block);
    let mut new = SecondaryMap::with_default(Value::new(0));
    for (place, &old) in order.iter().enumerate() {
        new[old] = Value::new(place);
    }
    let mut values = PrimaryMap::new();
    for &old in &order {
        let mut data = block.values[old].clone();
        for count in data.ty.dims.iter_mut().filter_map(|dim| dim.count.as_mut()) {
            *count = new[*count];
        }
        values.push(data);
    }
    block.values = values;
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
