//! Inputs of a graph: the tokens of a text, or any tensors with the batch as their first dim.

use super::{Data, Form};
use crate::atoms::{Atom, Atoms, Axis};
use crate::graph::{InputSize, Recording, ValueId};
use crate::program::{Input, LoweredModel, Var};
use std::collections::BTreeMap;

/// Sequences and tokens of the sample where the export left them open.
const SAMPLE: [u64; 2] = [2, 11];

/// A dim of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Length {
    pub(crate) atom: Atom,
    /// Its size is that of the batch's sequences; else the export fixed it.
    pub(crate) is_open: bool,
}

/// The inputs as values.
pub(super) struct Taken {
    pub(super) batch: Atom,
    /// The tokens of the last input that has some.
    pub(super) sequence: Atom,
    /// The other dims of tokens.
    pub(super) lengths: Vec<Length>,
    pub(super) forms: BTreeMap<ValueId, Form>,
    pub(super) program: LoweredModel,
}

/// The inputs of a graph.
pub(super) fn taken(graph: &Recording, atoms: &mut Atoms) -> Taken {
    let size = |size: &InputSize, sample: u64| match size {
        InputSize::Fixed(size) => *size,
        InputSize::Open(_) => sample,
    };
    let first = graph.inputs.first().and_then(|input| input.sizes.first());
    let batch = atoms.add_whole(first.map_or(1, |first| size(first, SAMPLE[0])));
    let mut program = LoweredModel::default();
    let mut forms = BTreeMap::new();
    let mut lengths: Vec<Length> = Vec::new();
    let mut open: BTreeMap<&str, Atom> = BTreeMap::new();
    for input in &graph.inputs {
        let mut axes: Vec<Axis> = vec![vec![batch]];
        for own in &input.sizes[1..] {
            let atom = match own {
                InputSize::Open(name) => match open.get(name.as_str()) {
                    Some(&known) => known,
                    None => {
                        // Sizes of their own tell dims apart.
                        let atom = atoms.add_whole(SAMPLE[1] + 2 * lengths.len() as u64);
                        open.insert(name, atom);
                        lengths.push(Length { atom, is_open: true });
                        atom
                    }
                },
                InputSize::Fixed(size) if input.is_int => {
                    let atom = atoms.add_whole(*size);
                    lengths.push(Length { atom, is_open: false });
                    atom
                }
                InputSize::Fixed(size) => atoms.add(*size),
            };
            axes.push(vec![atom]);
        }
        let form = if graph.is_text() {
            Form::Tokens { input: None, axes }
        } else {
            let var = Var(program.vars.len());
            program.vars.push(axes.concat());
            program.inputs.push(Input { var, name: input.name.clone(), is_int: input.is_int });
            if input.is_int { Form::Tokens { input: Some(var), axes } } else { Form::Data(Data { var, axes }) }
        };
        forms.insert(input.value, form);
    }
    // A model without tokens has one in each sample.
    let sequence = lengths.pop().map_or_else(|| atoms.add_whole(1), |length| length.atom);
    Taken { batch, sequence, lengths, forms, program }
}
