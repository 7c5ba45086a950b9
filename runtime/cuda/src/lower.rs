//! Values of a program that compute an op on a rank's sizes. Composite computations are in f32: only results are rounded to their types.

use comm::local_len;
use device::backend::KernelSite;
use device::region::row_major;
use device::scalar;
use device::sizes::strides_in;
use ir::ops::{Binary, Compare, CompareKind, Equation, Iota, KernelOp, Piece, Reduce, Rope, Selected, Slice, Windows};
use ir::types::{DType, PartialKind, Type};
use kernels::cpu::dropout::Noise;
use kernels::group::{Beyond, Comparison, Index, Node, Program, Random, Read, Reduction, Rotate, Select, Take};
use kernels::scalar::{Access, Element, Strides, Unary};

/// A result of an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Made {
    /// A value.
    Value(usize),
    /// The sum of a value over its rows of a number of elements.
    Sum(usize, usize),
}

/// The element type of kernels.
pub(super) fn element(dtype: DType) -> Element {
    match dtype {
        DType::F32 => Element::F32,
        DType::BF16 => Element::Bf16,
        DType::F16 => Element::F16,
        DType::I32 => Element::I32,
        DType::F8E4M3 => Element::F8E4M3,
        DType::F8E5M2 => Element::F8E5M2,
    }
}

/// The elements of a tensor on a rank.
pub(super) fn len(ty: &Type, site: &KernelSite<'_>) -> usize {
    local_len(ty, site.mesh, site.coordinates)
}

/// A program that grows by the values of an op.
pub(super) struct Lowering<'a> {
    pub(super) program: &'a mut Program,
    pub(super) site: &'a KernelSite<'a>,
    /// The values of the operands.
    pub(super) operands: Vec<usize>,
}

impl Lowering<'_> {
    /// Adds the values of an op, and gives its results.
    ///
    /// # Errors
    /// The op has no kernel, or none on these types.
    pub(super) fn lower(&mut self, op: &KernelOp) -> Result<Vec<Made>, String> {
        use KernelOp as Op;
        let value = match op {
            Op::Unary(op) => match scalar::unary(op.0) {
                Some(kind) => self.leave(Node::Unary(kind, self.same(0))),
                None => self.leave(Node::Convert(self.same(0))),
            },
            Op::Binary(op) => self.binary(op),
            Op::Compare(Compare(kind)) => {
                let kind = match kind {
                    CompareKind::Less => Comparison::Less,
                    CompareKind::LessEqual => Comparison::LessEqual,
                    CompareKind::Equal => Comparison::Equal,
                };
                self.leave(Node::Compare(kind, self.same(0), self.same(1)))
            }
            Op::Select(op) => {
                let other = (self.operands.len() == 3).then(|| self.same(2));
                self.leave(Node::Select(Select { mask: self.same(0), not: op.not, of: self.same(1), other }))
            }
            Op::Iota(op) => self.iota(op),
            Op::Dropout(op) => self.drawn(Noise::Zeros(op.p as f32), &op.path, op.piece),
            Op::Jitter(op) => self.drawn(Noise::Factors(op.width as f32), &op.path, op.piece),
            Op::Broadcast(op) => self.spread(&op.equation),
            Op::Permute(op) => self.spread(&op.equation),
            Op::Reshape(_) => self.leave(Node::Convert(self.same(0))),
            Op::Slice(op) => self.slice(op),
            Op::Windows(op) => self.windows(op),
            Op::Take(op) => self.take(op.at),
            Op::Embedding(_) => self.embedding(),
            Op::Rope(op) => self.rope(op),
            Op::Quantise(_) => self.quantise(),
            Op::Reduce(op) => return self.reduce(op).map(|made| vec![made]),
            op => return super::lower_rows::lower(self, op),
        };
        value.map(|value| vec![Made::Value(value)])
    }

    /// The element of an operand that is also that of the result.
    pub(super) fn same(&self, operand: usize) -> Read {
        Read::same(self.operands[operand])
    }

    /// A value in f32.
    pub(super) fn float(&mut self, node: Node, len: usize) -> usize {
        self.program.push(node, Element::F32, len)
    }

    /// A number as an operand.
    pub(super) fn number(&mut self, x: f32) -> Read {
        Read::one(self.float(Node::Number(x), 1))
    }

    /// The integer 0 as an operand.
    pub(super) fn zero(&mut self) -> Read {
        Read::one(self.program.push(Node::Number(0.0), Element::I32, 1))
    }

    /// The value of a result.
    pub(super) fn result(&mut self, number: usize, node: Node) -> Result<usize, String> {
        let ty = self.site.results[number];
        Ok(self.program.push(node, element(ty.dtype), len(ty, self.site)))
    }

    /// The value of the one result.
    fn leave(&mut self, node: Node) -> Result<usize, String> {
        self.result(0, node)
    }

    /// An operand along some dims.
    pub(super) fn along(&self, operand: usize, dims: Vec<(usize, usize)>) -> Read {
        Read { value: self.operands[operand], access: Access::Strided(Strides { dims, offset: 0 }) }
    }

    fn binary(&mut self, op: &Binary) -> Result<usize, String> {
        let [a, b] = match &op.equation {
            None => [self.same(0), self.same(1)],
            Some(equation) => [self.letters(equation, 0)?, self.letters(equation, 1)?],
        };
        self.leave(Node::Binary(scalar::binary(op.kind), a, b))
    }

    /// Each letter of the result walks along the operand's stride of it.
    fn letters(&self, equation: &Equation, operand: usize) -> Result<Read, String> {
        let strides = strides_in(&equation.operands[operand], &self.site.operand(operand)?, &equation.result);
        Ok(Read { value: self.operands[operand], access: access(&self.site.result(0)?, &strides, 0) })
    }

    /// Each element over the scale of its block; the type of the result saturates.
    fn quantise(&mut self) -> Result<usize, String> {
        let scales = of_blocks(&self.site.operand(0)?, &self.site.operand(1)?)?;
        let by = Read { value: self.operands[1], access: scales };
        self.leave(Node::Binary(kernels::scalar::Binary::Div, self.same(0), by))
    }

    fn spread(&mut self, equation: &Equation) -> Result<usize, String> {
        let of = self.letters(equation, 0)?;
        self.leave(Node::Convert(of))
    }

    fn slice(&mut self, op: &Slice) -> Result<usize, String> {
        let strides = row_major(&self.site.operand(0)?);
        let access = access(&self.site.result(0)?, &strides, op.start as usize * strides[op.dim]);
        self.leave(Node::Convert(Read { value: self.operands[0], access }))
    }

    fn windows(&mut self, Windows { frame }: &Windows) -> Result<usize, String> {
        let mut strides = row_major(&self.site.operand(0)?);
        let steps = [frame.stride, frame.dilation].map(|step| step as usize * strides[frame.dim]);
        strides.splice(frame.dim..=frame.dim, steps);
        let access = access(&self.site.result(0)?, &strides, 0);
        self.leave(Node::Convert(Read { value: self.operands[0], access }))
    }

    fn iota(&mut self, op: &Iota) -> Result<usize, String> {
        let (sizes, origin) = (self.site.result(0)?, self.site.origin(self.site.results[0], op.dim));
        let inner = sizes[op.dim + 1..].iter().product();
        self.leave(Node::Index(Index { origin, size: sizes[op.dim], inner }))
    }

    fn drawn(&mut self, noise: Noise, path: &str, piece: Option<Piece>) -> Result<usize, String> {
        if noise.is_identity() {
            return self.leave(Node::Convert(self.same(0)));
        }
        let (ty, sizes) = (self.site.operands[0], self.site.operand(0)?);
        let (mut origin, mut whole) = (ty.local_origin(self.site.mesh, self.site.coordinates), ty.sizes());
        if let Some(piece) = piece {
            origin[1] += piece.origin;
            whole[1] = piece.whole;
        }
        let strides = row_major(&whole.iter().map(|&size| size as usize).collect::<Vec<_>>());
        let offset = origin.iter().zip(&strides).map(|(&origin, stride)| origin as usize * stride).sum();
        let microbatch = whole.iter().product();
        let counter = Strides { dims: sizes.into_iter().zip(strides).collect(), offset };
        let (len, path) = (len(ty, self.site), path.to_string());
        let random = Read::same(self.float(Node::Random(Random { path, counter, microbatch }), len));
        match noise {
            Noise::Zeros(p) => {
                let least = self.number(p);
                let mask = Node::Compare(Comparison::LessEqual, least, random);
                let mask = Read::same(self.program.push(mask, Element::I32, len));
                let scaled = self.float(Node::Unary(Unary::Scale(1.0 / (1.0 - p)), self.same(0)), len);
                self.leave(Node::Select(Select { mask, not: false, of: Read::same(scaled), other: None }))
            }
            Noise::Factors(width) => {
                let range = self.float(Node::Unary(Unary::Scale(2.0 * width), random), len);
                let factor = self.float(Node::Unary(Unary::Shift(1.0 - width), Read::same(range)), len);
                self.leave(Node::Binary(kernels::scalar::Binary::Mul, self.same(0), Read::same(factor)))
            }
        }
    }

    fn take(&mut self, Selected { dim, batch }: Selected) -> Result<usize, String> {
        let (whole, index) = (self.site.operand(0)?, self.site.operand(1)?);
        let product = |sizes: &[usize]| sizes.iter().product::<usize>();
        let (batches, outer, picks) = (product(&whole[..batch]), product(&whole[batch..dim]), product(&index[batch..]));
        let (size, inner) = (whole[dim], product(&whole[dim + 1..]));
        let dims = vec![(batches, outer * size * inner), (outer, size * inner), (picks, 0), (inner, 1)];
        let index = self.along(1, vec![(batches, picks), (outer, 0), (picks, 1), (inner, 0)]);
        let origin = self.site.origin(self.site.operands[0], dim);
        let base = Strides { dims, offset: 0 };
        self.leave(Node::Take(Take { of: self.operands[0], base, index, origin, size, stride: inner }))
    }

    fn embedding(&mut self) -> Result<usize, String> {
        let (ids, table) = (len(self.site.operands[0], self.site), self.site.operand(1)?);
        let [size, h] = table[..] else { return Err("the table needs dims v and h".to_string()) };
        let (base, index) =
            (Strides { dims: vec![(ids, 0), (h, 1)], offset: 0 }, self.along(0, vec![(ids, 1), (h, 0)]));
        let origin = self.site.origin(self.site.operands[1], 0);
        self.leave(Node::Take(Take { of: self.operands[1], base, index, origin, size, stride: h }))
    }

    fn rope(&mut self, op: &Rope) -> Result<usize, String> {
        let sizes = self.site.operand(0)?;
        let [b, s, heads @ .., d] = sizes.as_slice() else {
            return Err("the operand needs dims b, s and d".to_string());
        };
        let turns = turns_of(&op.frequencies(*d), op.inverse);
        if turns.is_empty() {
            return self.leave(Node::Convert(self.same(0)));
        }
        let of_token = |operand| self.along(operand, vec![(b * s, 1), (heads.iter().product::<usize>() * d, 0)]);
        let beyond = op.beyond(*d).map(|beyond| Beyond {
            length: of_token(2),
            context: beyond.context,
            turns: turns_of(&beyond.frequencies, op.inverse),
        });
        let (of, position, gain) = (self.operands[0], of_token(1), op.gain as f32);
        self.leave(Node::Rotate(Rotate { of, position, turns, beyond, gain, head: *d }))
    }

    /// Along the last dims each row is reduced; along the first ones the rows are summed.
    fn reduce(&mut self, op: &Reduce) -> Result<Made, String> {
        let (from, to) = (&op.equation.operands[0], &op.equation.result);
        let width: usize = self.site.operand(0)?[to.len()..].iter().product();
        let kind = if op.kind == PartialKind::Sum { Reduction::Sum } else { Reduction::Max };
        if from.starts_with(to) {
            let rows = len(self.site.results[0], self.site);
            let reduced = self.float(Node::Reduce(kind, self.operands[0], width), rows);
            return self.leave(Node::Convert(Read::same(reduced))).map(Made::Value);
        }
        if from.ends_with(to) && kind == Reduction::Sum {
            return Ok(Made::Sum(self.operands[0], self.site.result(0)?.iter().product()));
        }
        Err("a reduction over inner dims has no kernel on the cuda backend".to_string())
    }
}

/// Turns per position of frequencies in radians. An inverse rotation turns the other way.
fn turns_of(frequencies: &[f64], inverse: bool) -> Vec<f64> {
    let sign = if inverse { -1.0 } else { 1.0 };
    frequencies.iter().map(|frequency| sign * frequency / std::f64::consts::TAU).collect()
}

/// How the elements of a tensor of these sizes walk its scales, of which there are equally many for the indices of each dim.
///
/// # Errors
/// The ranks differ, or the scales along a dim do not divide it.
pub(super) fn of_blocks(sizes: &[usize], scales: &[usize]) -> Result<Access, String> {
    if sizes.len() != scales.len() {
        return Err(format!("a tensor of shape {sizes:?} with scales of shape {scales:?}"));
    }
    let (mut dims, mut walked) = (Vec::new(), Vec::new());
    for ((&size, &count), stride) in sizes.iter().zip(scales).zip(row_major(scales)) {
        if size % count.max(1) != 0 || count == 0 && size > 0 {
            return Err(format!("{count} scales do not divide a dim of {size}"));
        }
        dims.extend([count, size / count.max(1)]);
        walked.extend([stride, 0]);
    }
    Ok(access(&dims, &walked, 0))
}

/// The simplest access that walks a result of these sizes by these strides.
pub(super) fn access(sizes: &[usize], strides: &[usize], offset: usize) -> Access {
    let dims: Vec<(usize, usize)> =
        sizes.iter().copied().zip(strides.iter().copied()).filter(|(size, _)| *size != 1).collect();
    let dense = row_major(&dims.iter().map(|dim| dim.0).collect::<Vec<_>>());
    if offset == 0 && dims.iter().all(|(_, stride)| *stride == 0) {
        Access::One
    } else if offset == 0 && dims.iter().map(|dim| dim.1).eq(dense) {
        Access::Same
    } else {
        Access::Strided(Strides { dims, offset })
    }
}
