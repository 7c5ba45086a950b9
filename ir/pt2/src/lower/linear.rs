//! Products with matrices.

use super::movement::Range;
use super::{Data, Form, Lowering, stepped};
use crate::atoms::{Atom, Axis};
use crate::graph::{RecordedNode, ValueId};
use crate::program::{Action, Argument, Use, View};
use crate::refusal::{Refusal, contradiction};
use ir::ops::BinaryKind;

/// A dim of a parameter, and the distance of its neighbours.
pub(super) type Factor = (Atom, u64);

/// A product of activations and a matrix that is not yet a statement.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    pub(super) x: Data,
    tensor: String,
    first: u64,
    /// The experts that each have a matrix.
    experts: Option<Factor>,
    input: Factor,
    outputs: Vec<Output>,
    /// The parameter of the bias and its first element.
    bias: Option<(String, u64)>,
    /// The experts that each have a bias.
    bias_experts: Option<Factor>,
    pub(super) axes: Vec<Axis>,
    /// The node that it comes from.
    pub(super) node: usize,
}

impl Linear {
    /// Rows of experts times their matrices.
    pub(super) fn of_experts(x: &Data, view: &View, [experts, input, output]: [Factor; 3], node: usize) -> Linear {
        let (atom, step) = output;
        Linear {
            x: x.clone(),
            tensor: view.tensor.clone(),
            first: view.first,
            experts: Some(experts),
            input,
            outputs: vec![Output { atom, step, bias_step: 1 }],
            bias: None,
            bias_experts: None,
            axes: vec![x.axes[0].clone(), vec![atom]],
            node,
        }
    }
}

impl Linear {
    /// Adds a bias of each expert.
    pub(super) fn with_row_biases(&mut self, tensor: &str, first: u64, experts: Factor) {
        (self.bias, self.bias_experts) = (Some((tensor.to_string(), first)), Some(experts));
    }

    /// Leaves out dims of one element.
    pub(super) fn drop_outputs(&mut self, atoms: &[Atom]) {
        self.outputs.retain(|output| !atoms.contains(&output.atom));
    }
}

/// A dim of the result, and the distances of its neighbours in the matrix and in the bias.
#[derive(Clone, Copy, Debug)]
struct Output {
    atom: Atom,
    step: u64,
    bias_step: u64,
}

impl<'a> Lowering<'a> {
    /// `aten.linear(x, w, b)` with outputs in rows, or `aten.addmm(b, x, w)` with outputs in columns.
    pub(super) fn linear(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let is_linear = node.family() == "aten.linear";
        let [x, w, bias] = if is_linear { ["input", "weight", "bias"] } else { ["mat1", "mat2", "self"] };
        let (x, w) = (self.argument(node, x)?, self.argument(node, w)?);
        let bias = node.arg(bias).map(|_| self.argument(node, bias)).transpose()?;
        let matrix = if self.known(w).is_none() { Some(self.form(w)?) } else { self.constant(w)?.map(Form::Weight) };
        let Some(Form::Weight(mut matrix)) = matrix else { return Err("the matrix is no parameter".into()) };
        if !is_linear {
            matrix.dims.reverse();
        }
        if matrix.shift != 0.0 || matrix.dims.len() != 2 {
            return Err("the matrix of a product is no matrix of the export".into());
        }
        self.times(x, &matrix, bias)
    }

    /// The product of activations and a matrix of the dims `[output, input]`.
    pub(super) fn times(&mut self, x: ValueId, matrix: &View, bias: Option<ValueId>) -> Result<Form, Refusal> {
        let [(output, step), input] = *matrix.dims.as_slice() else {
            return Err("the matrix has no two dims".into());
        };
        if matrix.shift != 0.0 {
            return Err("a matrix that is shifted is multiplied".into());
        }
        let x = self.data(x)?;
        let (last, lead) = x.axes.split_last().ok_or(contradiction("a scalar is multiplied with a matrix"))?;
        self.atoms.unify(last, &[input.0])?;
        let bias = bias.map(|bias| self.bias(bias, output)).transpose()?;
        // One output without a bias is a product with a vector: a number for each token.
        let is_vector = self.atoms.leaves(&[output]).len() == 1 && self.atoms.size(output) == 1 && bias.is_none();
        let outputs = if is_vector { Vec::new() } else { vec![Output { atom: output, step, bias_step: 1 }] };
        let last = outputs.iter().map(|output| output.atom).collect();
        let axes = lead.iter().cloned().chain([last]).collect();
        let (tensor, first, node) = (matrix.tensor.clone(), matrix.first, self.node);
        Ok(Form::Linear(Linear {
            x,
            tensor,
            first,
            experts: None,
            input,
            outputs,
            bias,
            bias_experts: None,
            axes,
            node,
        }))
    }

    fn bias(&mut self, bias: ValueId, output: Atom) -> Result<(String, u64), Refusal> {
        let Form::Weight(view) = self.form(bias)? else { return Err("the bias is no parameter".into()) };
        let [(atom, 1)] = *view.dims.as_slice() else {
            return Err(contradiction("the bias is no vector"));
        };
        self.atoms.unify(&[output], &[atom])?;
        Ok((view.tensor, view.first))
    }

    /// The statements of a product.
    pub(super) fn product(&mut self, linear: &Linear) -> Result<Data, Refusal> {
        let outputs = self.outputs(linear);
        let dims = |step: fn(&Output) -> u64| outputs.iter().map(move |output| (output.atom, step(output)));
        let matrix = View {
            tensor: linear.tensor.clone(),
            first: linear.first,
            dims: linear.experts.into_iter().chain([linear.input]).chain(dims(|output| output.step)).collect(),
            shift: 0.0,
        };
        let bias = linear.bias.clone().map(|(tensor, first)| View {
            tensor,
            first,
            dims: linear.bias_experts.into_iter().chain(dims(|output| output.bias_step)).collect(),
            shift: 0.0,
        });
        let inner = self.atoms.leaves(&[linear.input.0]);
        let lead = self.dims(linear.x.var).into_iter().filter(|atom| !inner.contains(atom));
        let result: Vec<Atom> = lead.chain(outputs.iter().map(|output| output.atom)).collect();
        let node = std::mem::replace(&mut self.node, linear.node);
        let matrix = self.weight(matrix, Use::Matrix);
        let mut var = self.state(Action::Product, vec![Argument::Var(linear.x.var), matrix], result.clone());
        if let Some(bias) = bias {
            let bias = self.weight(bias, Use::Bias);
            var = self.state(Action::Binary(BinaryKind::Add), vec![Argument::Var(var), bias], result);
        }
        self.node = node;
        Ok(Data { var, axes: linear.axes.clone() })
    }

    /// The dims of the result as far as they are split.
    fn outputs(&self, linear: &Linear) -> Vec<Output> {
        linear
            .outputs
            .iter()
            .flat_map(|output: &Output| {
                let steps = stepped(&self.atoms, (output.atom, output.step));
                let bias_steps = stepped(&self.atoms, (output.atom, output.bias_step));
                steps.into_iter().zip(bias_steps).map(|((atom, step), (_, bias_step))| Output { atom, step, bias_step })
            })
            .collect()
    }

    /// Elements of an axis: the product with a part of the matrix. Its dims are new, since parts have sizes of their own.
    pub(super) fn part_of_product(&mut self, linear: &Linear, axis: usize, range: Range) -> Result<Linear, Refusal> {
        let axes: Vec<Axis> = linear.axes.iter().map(|axis| self.atoms.leaves(axis)).collect();
        let Some(&[parted]) = axes.get(axis).map(Vec::as_slice) else {
            return Err("a part of joined dims is taken".into());
        };
        let mut part = Linear { outputs: Vec::new(), axes: axes.clone(), ..linear.clone() };
        let mut is_output = false;
        for output in self.outputs(linear) {
            let is_parted = output.atom == parted;
            let (size, step) = if is_parted { (range.length, range.step) } else { (self.atoms.size(output.atom), 1) };
            let atom = self.atoms.add(size);
            if is_parted {
                is_output = true;
                part.first += range.start * output.step;
                part.bias = part.bias.map(|(tensor, first)| (tensor, first + range.start * output.bias_step));
            }
            part.axes.iter_mut().flatten().filter(|own| **own == output.atom).for_each(|own| *own = atom);
            part.outputs.push(Output { atom, step: output.step * step, bias_step: output.bias_step * step });
        }
        if is_output { Ok(part) } else { Err("a part of what a projection reads is taken".into()) }
    }

    /// True if an axis of a product is one dim of its matrix.
    pub(super) fn is_output(&self, linear: &Linear, axis: usize) -> bool {
        let leaves = self.atoms.leaves(&linear.axes[axis]);
        matches!(leaves.as_slice(), [one] if self.outputs(linear).iter().any(|output| output.atom == *one))
    }

    /// Moves a dim of the result before others.
    pub(super) fn outputs_before(&mut self, linear: &mut Linear, atom: Atom, others: &[Atom]) -> Result<(), Refusal> {
        let mut outputs = self.outputs(linear);
        let place = outputs.iter().position(|output| output.atom == atom).ok_or("no dim of a product is moved")?;
        let moved = outputs.remove(place);
        let before = outputs.iter().position(|output| others.contains(&output.atom)).unwrap_or(place);
        outputs.insert(before, moved);
        linear.outputs = outputs;
        Ok(())
    }
}
