//! The update of records of counts, and of the biases that even the counts out.

use super::update::{gradient, master, round, store};
use crate::build_error::BuildError;
use ir::graph::{Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{Binary, BinaryKind, Builder, Equation, Reduce, Unary, UnaryKind};

/// A record of a block, whose gradient is the counts of a step.
#[derive(Clone, Copy)]
pub(super) struct Record {
    /// The parameter.
    pub(super) param: Value,
    /// The bias that its counts move.
    pub(super) bias: Option<MovedBias>,
}

/// A bias that is moved towards even counts.
#[derive(Clone, Copy)]
pub(super) struct MovedBias {
    param: Value,
    /// How far a step moves it.
    rate: f64,
}

/// The records of a block whose counts are summed.
pub(super) fn records(block: &Block) -> Vec<Record> {
    let found = block[SectionKind::F].stmts.iter().filter_map(record);
    found.filter(|record| block.gradient_of(record.param).is_some()).collect()
}

fn record(stmt: &Stmt) -> Option<Record> {
    let noted = stmt.op.facts().noted?;
    let bias = noted.bias.map(|bias| MovedBias { param: stmt.operands[bias.operand], rate: bias.rate });
    Some(Record { param: stmt.operands[noted.record], bias })
}

/// Replaces a record by the counts of the step, and moves its bias where `goes_on` is 1.
pub(super) fn update(builder: &mut Builder<'_>, record: &Record, goes_on: Option<Value>) -> Result<(), BuildError> {
    let counts = gradient(builder.block, record.param)?;
    store(builder, Unary(UnaryKind::Scale(1.0)), &[counts], &[record.param])?;
    let (Some(bias), Some(goes_on)) = (record.bias, goes_on) else { return Ok(()) };
    let master = master(builder.block, bias.param)?;
    let moved = step(builder, counts, goes_on, bias.rate)?;
    store(builder, Binary::of(BinaryKind::Add), &[master, moved], &[master])?;
    round(builder, master, bias.param)
}

/// `rate` for an expert that got fewer tokens than the mean, `-rate` for one that got more.
fn step(builder: &mut Builder<'_>, counts: Value, goes_on: Value, rate: f64) -> Result<Value, BuildError> {
    let experts = builder.ty(counts).dims[0].size as f64;
    // Products of whole numbers are exact where a mean is not, and the difference of two is 0 or at least 1.
    let own = builder.one(Unary(UnaryKind::Scale(experts)), &[counts])?;
    let total = builder.one(Reduce::sum(Equation::parse("e -> ()")?), &[counts])?;
    let mut moved = builder.one(Binary::spread(BinaryKind::Sub, "(), e -> e")?, &[total, own])?;
    for kind in [UnaryKind::AtMost(1.0), UnaryKind::AtLeast(-1.0), UnaryKind::Scale(rate)] {
        moved = builder.one(Unary(kind), &[moved])?;
    }
    Ok(builder.one(Binary::spread(BinaryKind::Mul, "e, () -> e")?, &[moved, goes_on])?)
}
