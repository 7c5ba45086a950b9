//! The traffic of a compiled program: the collectives of each body in a step, and the messages of the pipeline.

use ir::graph::Model;
use ir::ids::{BodyId, ParamId};
use ir::mesh::{Axes, Mesh};
use ir::ops::Collective;
use ir::program::{BodyInstr, Class, Instr, Program, Transfer};
use ir::text::File;
use ir::types::{DType, Type};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use support::table::table;
use support::units::bytes;

/// The collectives and messages of a program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CollectiveReport {
    /// `meshwright.collectives/1`.
    pub schema: &'static str,
    /// Micro-batches of a step.
    pub microbatches: u32,
    /// The classes of pipeline ranks.
    pub classes: Vec<ClassTraffic>,
}

/// The traffic of a rank of a class in a step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClassTraffic {
    /// The pipeline ranks, as `0` or `0..3`, the last one left out.
    pub ranks: String,
    /// Its collectives and messages, by body.
    pub rows: Vec<Sent>,
}

/// Transfers of one kind, of one body.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sent {
    /// The body, as `layer.F`; `pipeline` for messages between pipeline ranks.
    pub body: String,
    /// The collective, or `send`, `sum` or `share`.
    pub kind: String,
    /// The axes of the mesh.
    pub over: String,
    /// How often a rank takes part in a step. A bucket counts once.
    pub count: u64,
    /// Bytes of the larger side of them all on a rank: operands, or results.
    pub bytes: u64,
    /// The part of `bytes` that moves if tokens choose experts alike: of chunks of rows, those that are filled.
    pub filled: u64,
    /// Bytes that a rank sends of those that move. Of `n` ranks it is `(n-1)/n` of the larger side for gathers, scatters and all-to-alls, and
    /// twice as much for all-reduces (Thakur, Rabenseifner and Gropp 2005, section 4). It is all of a permute, a shift or a message.
    pub sent: u64,
}

/// Collectives and messages of a compiled file; `None` if it has no program.
///
/// ```
/// use compiler::compile::{CompileRequest, compile_source};
/// use compiler::model_source::ModelSource;
///
/// let request = CompileRequest { parallel: "tp=2".into(), ..CompileRequest::default() };
/// let file = compile_source(&ModelSource::open("tiny-llama")?, &request, None, &mut |_, _| ())?;
/// let report = meshwright_inspect::collectives::collectives(&file).expect("a program");
/// let layer = report.classes[0].rows.iter().find(|row| row.body == "layer.F").expect("a layer");
/// // Two sums in each of four layers and four micro-batches (Shoeybi et al. 2019, section 3).
/// assert_eq!((layer.kind.as_str(), layer.count), ("all_reduce", 2 * 4 * u64::from(report.microbatches)));
/// # Ok::<(), compiler::error::Error>(())
/// ```
pub fn collectives(file: &File) -> Option<CollectiveReport> {
    let (model, program) = (&file.model, file.program.as_ref()?);
    let of_class = |class: &Class| {
        let ranks = match class.ranks.len() {
            1 => class.ranks.start.to_string(),
            _ => format!("{}..{}", class.ranks.start, class.ranks.end),
        };
        ClassTraffic { ranks, rows: Tally { model, mesh: &model.mesh, program, rows: BTreeMap::new() }.of_class(class) }
    };
    let classes = program.classes.iter().map(of_class).collect();
    Some(CollectiveReport { schema: "meshwright.collectives/1", microbatches: program.microbatches, classes })
}

/// Body, kind and axes.
type Key = (String, String, String);

/// Counts, bytes and sent bytes so far.
struct Tally<'a> {
    model: &'a Model,
    mesh: &'a Mesh,
    program: &'a Program,
    rows: BTreeMap<Key, [u64; 4]>,
}

impl Tally<'_> {
    fn of_class(mut self, class: &Class) -> Vec<Sent> {
        for instr in &class.instrs {
            match instr {
                Instr::Run { body, .. } => self.body(*body),
                Instr::Start { transfer, operand, .. } => {
                    let ty = operand.and_then(|reg| class.regs[reg].ty.as_ref());
                    self.transfer(transfer, ty.map_or(0, |ty| ty.local_bytes(self.mesh)));
                }
                _ => {}
            }
        }
        let row = |((body, kind, over), [count, bytes, filled, sent]): (Key, [u64; 4])| Sent {
            body,
            kind,
            over,
            count,
            bytes,
            filled,
            sent,
        };
        self.rows.into_iter().map(row).collect()
    }

    /// Counts the collectives of a call.
    fn body(&mut self, id: BodyId) {
        let body = &self.program.bodies[id];
        for instr in &body.instrs {
            let BodyInstr::Start { token, collective, operands } = instr else { continue };
            if !collective.communicates() {
                continue;
            }
            let results = body.instrs.iter().find_map(|instr| match instr {
                BodyInstr::Wait { token: of, results } if of == token => Some(&results[..]),
                _ => None,
            });
            let results = results.unwrap_or_default();
            let larger = |of: &dyn Fn(&Type) -> u64| {
                let sides = [collective.moved(operands), results];
                let bytes = sides.map(|values| values.iter().map(|&value| of(&body.values[value].ty)).sum::<u64>());
                bytes[0].max(bytes[1])
            };
            let whole = |ty: &Type| ty.local_bytes(self.mesh);
            let filled =
                |ty: &Type| collective.ragged().map_or_else(|| whole(ty), |ragged| ragged.mean_bytes(ty, whole(ty)));
            let [bytes, filled] = [larger(&whole), larger(&filled)];
            let key = (body.name.clone(), collective.name().to_string(), named(self.mesh, collective.over()));
            self.add(key, [bytes, filled, sent(collective, self.mesh.size(collective.over()), filled)]);
        }
    }

    /// Counts a transfer between pipeline ranks, of a register of some bytes or of a parameter.
    fn transfer(&mut self, transfer: &Transfer, bytes: u64) {
        let param = |param: ParamId| self.model.params[param].ty.local_bytes(self.mesh);
        // Gradients are f32.
        let gradient = |id: ParamId| param(id) / self.model.params[id].ty.dtype.bytes() * DType::F32.bytes();
        let (kind, bytes) = match transfer {
            Transfer::Send { .. } => ("send", bytes),
            Transfer::Sum { .. } => ("sum", bytes),
            Transfer::SumGradient { param, .. } => ("sum", gradient(*param)),
            Transfer::ShareParam { param: id, .. } => ("share", param(*id)),
            // Copies to the host and back are between no ranks.
            Transfer::Recv { .. } => return,
            Transfer::Offload | Transfer::Load | Transfer::LoadStates { .. } | Transfer::StoreStates { .. } => return,
        };
        let pipeline = self.mesh.pipeline().map_or_else(Axes::none, Axes::one);
        let key = ("pipeline".to_string(), kind.to_string(), named(self.mesh, &pipeline));
        self.add(key, [bytes; 3]);
    }

    fn add(&mut self, key: Key, bytes: [u64; 3]) {
        let row = self.rows.entry(key).or_default();
        row[0] += 1;
        row[1..].iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
    }
}

fn named(mesh: &Mesh, axes: &Axes) -> String {
    axes.iter().map(|axis| mesh.axes[axis].name.as_str()).collect::<Vec<_>>().join(",")
}

/// Bytes that a rank sends of a collective among some ranks, whose larger side on a rank has some bytes.
fn sent(collective: &Collective, ranks: u64, larger: u64) -> u64 {
    let share = larger * ranks.saturating_sub(1) / ranks.max(1);
    match collective {
        Collective::AllGather { .. } | Collective::ReduceScatter { .. } | Collective::AllToAll { .. } => share,
        Collective::AllReduce { .. } => 2 * share,
        Collective::Permute { .. } | Collective::Shift { .. } => larger,
        Collective::AllSlice { .. } | Collective::ToPartial { .. } => 0,
    }
}

impl fmt::Display for CollectiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in &self.classes {
            writeln!(f, "pipeline rank {}: a step of {} micro-batches", class.ranks, self.microbatches)?;
            let text = |row: &Sent| {
                let Sent { body, kind, over, count, .. } = row;
                let [larger, filled, sent] = [row.bytes, row.filled, row.sent].map(bytes);
                [body.clone(), kind.clone(), over.clone(), count.to_string(), larger, filled, sent]
            };
            let mut lines: Vec<[String; 7]> = class.rows.iter().map(text).collect();
            let total = |of: fn(&Sent) -> u64| class.rows.iter().map(of).sum::<u64>();
            let none = String::new;
            lines.push([
                "all".into(),
                none(),
                none(),
                none(),
                bytes(total(|row| row.bytes)),
                bytes(total(|row| row.filled)),
                bytes(total(|row| row.sent)),
            ]);
            writeln!(
                f,
                "{}",
                table(["body", "collective", "over", "a step", "larger side", "filled", "sent"], &lines)
            )?;
        }
        Ok(())
    }
}
