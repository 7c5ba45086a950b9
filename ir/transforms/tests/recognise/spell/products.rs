//! Products with parameters: as matrices of two dims, with heads in front of the sequence, or one product in place of three.

use super::{Speller, Style};
use ir::graph::Stmt;
use ir::ids::Value;
use ir::ops::{Binary, BinaryKind, Concat, Equation, KernelOp, Op, Slice};
use ir::types::Dim;

/// Products of one tensor with parameters of heads.
pub(super) struct Joint {
    x: Value,
    parts: Vec<Part>,
    /// The joint product, once it is there.
    flat: Option<Value>,
}

struct Part {
    weight: Value,
    bias: Option<Value>,
    /// The product, or its sum with the bias.
    result: Value,
}

/// The products with parameters of heads, by their tensor.
pub(super) fn joint(stmts: &[Stmt]) -> Vec<Joint> {
    let mut all: Vec<Joint> = Vec::new();
    for stmt in stmts {
        let Op::Kernel(KernelOp::Einsum(op)) = &stmt.op else { continue };
        if !op.equation.print().starts_with("b s h, h g") {
            continue;
        }
        let product = stmt.results[0];
        let is_sum = |other: &&Stmt| other.op.name() == "add" && other.operands[0] == product;
        let sum = stmts.iter().find(is_sum).filter(|sum| !sum.op.attrs().is_empty());
        let part = Part {
            weight: stmt.operands[1],
            bias: sum.map(|sum| sum.operands[1]),
            result: sum.map_or(product, |sum| sum.results[0]),
        };
        match all.iter_mut().find(|joint| joint.x == stmt.operands[0]) {
            Some(joint) => joint.parts.push(part),
            None => all.push(Joint { x: stmt.operands[0], parts: vec![part], flat: None }),
        }
    }
    all
}

fn count(dims: &[Dim]) -> u64 {
    dims.iter().map(|dim| dim.size).product()
}

impl Speller<'_> {
    /// The part of a joint product that has a name, with the dims of heads.
    pub(super) fn joint_part(&mut self, result: Value) -> Option<Value> {
        let has = |joint: &Joint| joint.parts.iter().position(|part| part.result == result);
        let (place, part) = self.joint.iter().enumerate().find_map(|(place, joint)| Some((place, has(joint)?)))?;
        let flat = match self.joint[place].flat {
            Some(flat) => flat,
            None => self.joint_product(place),
        };
        self.joint[place].flat = Some(flat);
        let sizes: Vec<u64> = self.joint[place].parts.iter().map(|part| count(&self.dims(part.weight)[1..])).collect();
        let (start, length) = (sizes[..part].iter().sum(), sizes[part]);
        let slice = self.one(Slice { dim: 2, start, length }, &[flat]);
        let dims = self.dims(result);
        Some(self.reshape(slice, dims))
    }

    fn joint_product(&mut self, place: usize) -> Value {
        let x = self.joint[place].x;
        let weights: Vec<Value> = self.joint[place].parts.iter().map(|part| part.weight).collect();
        let biases: Vec<Value> = self.joint[place].parts.iter().filter_map(|part| part.bias).collect();
        let matrix = |weight: Value, all: &mut Self| {
            let dims = all.dims(weight);
            all.reshape(weight, vec![dims[0].clone(), Dim::sized(count(&dims[1..]))])
        };
        let weights: Vec<Value> = weights.into_iter().map(|weight| matrix(weight, self)).collect();
        let weight = self.one(Concat { dim: 1 }, &weights);
        let product = self.einsum(x, weight, "b s h, h k -> b s k");
        if biases.is_empty() {
            return product;
        }
        let vector = |bias: Value, all: &mut Self| {
            let size = count(&all.dims(bias));
            all.reshape(bias, vec![Dim::sized(size)])
        };
        let biases: Vec<Value> = biases.into_iter().map(|bias| vector(bias, self)).collect();
        let bias = self.one(Concat { dim: 0 }, &biases);
        self.one(Binary::spread(BinaryKind::Add, "b s k, k -> b s k").unwrap(), &[product, bias])
    }

    /// A product with a parameter of heads, as a matrix of two dims, or with heads in front of the sequence.
    pub(super) fn product(&mut self, equation: &Equation, x: Value, w: Value, result: Value) -> Option<Value> {
        let (text, dims) = (equation.print(), self.dims(w));
        let [to, from] = [text.starts_with("b s h, h g"), text.starts_with("b s g r d, g r d h")];
        match self.style {
            Style::Export => self.of_rows(equation, [x, w], result, [to, from]),
            Style::HuggingFace if to => {
                let size = dims[1..].iter().map(|dim| dim.size).product();
                let matrix = self.reshape(w, vec![dims[0].clone(), Dim::sized(size)]);
                let flat = self.einsum(x, matrix, "b s h, h k -> b s k");
                let dims = self.dims(result);
                Some(self.reshape(flat, dims))
            }
            Style::HuggingFace if from => {
                let size = dims[..3].iter().map(|dim| dim.size).product();
                let matrix = self.reshape(w, vec![Dim::sized(size), dims[3].clone()]);
                let rows = [self.dims(x)[..2].to_vec(), vec![Dim::sized(size)]].concat();
                let flat = self.reshape(x, rows);
                Some(self.einsum(flat, matrix, "b s k, k h -> b s h"))
            }
            Style::Transposed if to => {
                let heads = if dims.len() == 4 { "g r" } else { "g" };
                let y = self.einsum(x, w, &format!("b s h, h {heads} d -> b {heads} s d"));
                Some(self.permute(y, &format!("b {heads} s d -> b s {heads} d")))
            }
            _ => None,
        }
    }

    /// A product of a matrix of all rows and a matrix with its rows as outputs.
    fn of_rows(
        &mut self,
        equation: &Equation,
        [x, w]: [Value; 2],
        result: Value,
        [to, from]: [bool; 2],
    ) -> Option<Value> {
        let (dims, ends) = (self.dims(w), self.dims(result));
        let [a, b] = equation.operands.as_slice() else { return None };
        let is_plain = a.len() == 3 && b.len() == 2 && equation.result.len() == 3 && a[..2] == equation.result[..2];
        if !(to || from || is_plain) {
            return None;
        }
        let split = if from { dims.len() - 1 } else { 1 };
        let mut matrix = w;
        if to || from {
            let flat = vec![Dim::sized(count(&dims[..split])), Dim::sized(count(&dims[split..]))];
            matrix = self.reshape(w, flat);
        }
        if to || from || b[0] == a[2] {
            matrix = self.permute(matrix, "h k -> k h");
        }
        let (rows, sizes) = (self.dims(x), self.dims(matrix));
        let flat = self.reshape(x, vec![Dim::sized(count(&rows[..2])), sizes[1].clone()]);
        let product = self.einsum(flat, matrix, "m h, k h -> m k");
        let kept = self.reshape(product, vec![rows[0].clone(), rows[1].clone(), sizes[0].clone()]);
        Some(if to { self.reshape(kept, ends) } else { kept })
    }
}
