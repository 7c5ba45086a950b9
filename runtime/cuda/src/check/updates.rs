//! Groups that begin with an update: they leave, to the bit, what their statements leave one at a time.

use super::groups::{Compared, SEED, SITE, STEP};
use super::numbers::encoded;
use crate::backend::Cuda;
use comm::local_len;
use device::backend::{Backend, GroupSite, GroupValue, Memory, Span};
use kernels::cpu::dropout::normal;

/// Runs a group, and its statements one at a time, on the same positive numbers, with which no update is skipped.
///
/// # Errors
/// The backend cannot run it, or a result differs.
pub(super) fn compare(cuda: &mut Cuda, site: &GroupSite<'_>) -> Result<Compared, String> {
    let tensors = Tensors::new(site);
    let grouped = tensors.run(cuda, |cuda| {
        let mut kernel = cuda.prepare_group(site)?;
        cuda.launch_group(&mut kernel, SITE, &tensors.operands, &tensors.results, &[]);
        Ok(())
    })?;
    let apart = tensors.run(cuda, |cuda| {
        for stmt in &site.stmts {
            let [operands, results] = [&stmt.operands, &stmt.results].map(|values| tensors.places(values));
            let mut kernel = cuda.prepare(stmt.op, &stmt.site)?;
            cuda.launch(&mut kernel, SITE, &operands, &results, false);
        }
        Ok(())
    })?;
    match grouped.iter().zip(&apart).position(|(one, other)| one != other) {
        None => Ok(Compared { error: 0.0, bytes: grouped.concat() }),
        Some(result) => Err(format!("result {result} is not that of the statements one at a time")),
    }
}

/// The places of the operands and results of a group.
struct Tensors {
    operands: Vec<Span>,
    results: Vec<Span>,
    size: usize,
}

impl Tensors {
    /// An operand that is a result has the place of that one alone.
    fn new(site: &GroupSite<'_>) -> Tensors {
        let none = Span::new(ir::types::DType::F32, 0, 0);
        let mut tensors = Tensors { operands: Vec::new(), results: Vec::new(), size: 0 };
        for stmt in &site.stmts {
            let operands = stmt.operands.iter().zip(stmt.site.operands);
            for (value, ty) in operands.chain(stmt.results.iter().zip(stmt.site.results)) {
                let (side, at) = match *value {
                    GroupValue::Operand(at) => (&mut tensors.operands, at),
                    GroupValue::Result(at) => (&mut tensors.results, at),
                    GroupValue::Interior(_) => continue,
                };
                side.resize(side.len().max(at + 1), none);
                if side[at].len == 0 {
                    side[at] = Span::new(ty.dtype, tensors.size, local_len(ty, stmt.site.mesh, stmt.site.coordinates));
                    tensors.size = (side[at].offset + side[at].bytes()).next_multiple_of(64);
                }
            }
        }
        tensors
    }

    fn places(&self, values: &[GroupValue]) -> Vec<Span> {
        let place = |value: &GroupValue| match *value {
            GroupValue::Operand(at) => self.operands[at],
            GroupValue::Result(at) => self.results[at],
            GroupValue::Interior(at) => panic!("value {at} of an update is not left"),
        };
        values.iter().map(place).collect()
    }

    /// The bytes of the results after some launches.
    fn run(
        &self,
        cuda: &mut Cuda,
        launch: impl FnOnce(&mut Cuda) -> Result<(), String>,
    ) -> Result<Vec<Vec<u8>>, String> {
        cuda.reserve(self.size)?;
        for (span, number) in self.operands.iter().chain(&self.results).zip(0..) {
            let numbers: Vec<f32> = (0..span.len as u64).map(|i| normal([number, 7], i).abs()).collect();
            cuda.write(*span, &encoded(span.dtype, &numbers));
        }
        cuda.begin_step(SEED, STEP);
        launch(cuda)?;
        let read = |span: &Span| {
            let mut bytes = vec![0; span.bytes()];
            cuda.read(*span, &mut bytes);
            bytes
        };
        Ok(self.results.iter().map(read).collect())
    }
}
