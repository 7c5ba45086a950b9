//! Values of ops on rows along the last dim: norms, softmax, the loss.

use super::lower::{Lowering, Made, len};
use ir::ops::KernelOp;
use kernels::group::{Comparison, Index, Node, Read, Reduction, Select, Take};
use kernels::scalar::{Access, Binary, Element, Strides, Unary};

/// 2^96: in f32 no row has so many squares up to it that their sum overflows.
const LARGE: f32 = 79_228_162_514_264_337_593_543_950_336.0;
/// 2^-80: the squares of numbers that are beyond 2^48 are from 2^-64 to 2^96 then.
const DOWN: f32 = 8.271_806e-25;

/// Adds the values of an op, and gives its results.
///
/// # Errors
/// The op has no kernel here.
pub(super) fn lower(low: &mut Lowering<'_>, op: &KernelOp) -> Result<Vec<Made>, String> {
    use KernelOp as Op;
    match op {
        Op::RmsNorm(op) => Rows::of(low)?.rms_norm(op.eps as f32),
        Op::RmsNormDx(_) => Rows::of(low)?.rms_norm_dx(),
        Op::RmsNormDgamma(_) => Rows::of(low)?.dgamma(None, 1, 2),
        Op::LayerNorm(op) => Rows::of(low)?.layer_norm(op.eps as f32),
        Op::LayerNormDx(_) => Rows::of(low)?.layer_norm_dx(),
        Op::LayerNormDgamma(_) => Rows::of(low)?.dgamma(Some(1), 2, 3),
        Op::Softmax(_) => Rows::of(low)?.softmax(),
        Op::SoftmaxGrad(_) => Rows::of(low)?.softmax_grad(),
        Op::CrossEntropy(_) => Rows::of(low)?.cross_entropy(),
        Op::CrossEntropyGrad(_) => Rows::of(low)?.cross_entropy_grad(),
        Op::SumExp(_) => Rows::of(low)?.sum_exp(),
        Op::Pick(_) => Rows::of(low)?.pick(),
        Op::TokenLoss(_) => token_loss(low),
        // A new op is missing here until it has a plan.
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select(_)
        | Op::Iota(_)
        | Op::Dropout(_)
        | Op::Jitter(_)
        | Op::Broadcast(_)
        | Op::Permute(_)
        | Op::Reshape(_)
        | Op::Slice(_)
        | Op::Windows(_)
        | Op::Take(_)
        | Op::Embedding(_)
        | Op::Rope(_)
        | Op::Quantise(_)
        | Op::Reduce(_) => Err(format!("`{}` is no op on rows", op.def().name())),
        Op::Einsum(_) => Err("a matrix product is no value of a kernel".to_string()),
        Op::Composite(_) => Err(format!("`{}` has no kernel", op.def().name())),
        Op::Scan(_)
        | Op::ScanGrad(_)
        | Op::ScanState(_)
        | Op::ScanDstart(_)
        | Op::Carry(_)
        | Op::ShortConv(_)
        | Op::ShortConvDx(_)
        | Op::ShortConvDw(_)
        | Op::ShortConvDstart(_) => {
            Err(format!("`{}` has no kernel on the cuda backend yet; the cpu backend has one", op.def().name()))
        }
        Op::Concat(_)
        | Op::Pad(_)
        | Op::Reverse(_)
        | Op::DynamicSlice(_)
        | Op::DynamicPad(_)
        | Op::Fold(_)
        | Op::ScatterAdd(_)
        | Op::EmbeddingGrad(_)
        | Op::SumSquares(_)
        | Op::AbsMax(_)
        | Op::ScaleFor(_)
        | Op::Exponents(_)
        | Op::Ages(_)
        | Op::DelayedScale(_)
        | Op::AdamW(_)
        | Op::Sgd(_)
        | Op::TopK(_)
        | Op::TopKGrad(_)
        | Op::Dispatch(_)
        | Op::Combine(_)
        | Op::CombineDw(_)
        | Op::Attention(_)
        | Op::AttentionGrad(_) => Err(format!("the kernels of `{}` are written by hand", op.def().name())),
        Op::SelectKeys(_)
        | Op::IndexScores(_)
        | Op::IndexScoresGrad(_)
        | Op::SparseAttention(_)
        | Op::SparseAttentionGrad(_)
        | Op::KeyMass(_)
        | Op::IndexLoss(_)
        | Op::IndexLossGrad(_) => {
            Err(format!("`{}` has no kernel for a GPU yet: train this model on a processor", op.def().name()))
        }
    }
}

/// The rows of the first operand.
struct Rows<'a, 'b> {
    low: &'a mut Lowering<'b>,
    rows: usize,
    width: usize,
}

impl<'a, 'b> Rows<'a, 'b> {
    fn of(low: &'a mut Lowering<'b>) -> Result<Rows<'a, 'b>, String> {
        let sizes = low.site.operand(0)?;
        let (&width, rows) = sizes.split_last().ok_or("a scalar has no rows")?;
        let rows = rows.iter().product();
        Ok(Rows { low, rows, width })
    }

    /// The number of each element's row.
    fn row(&self, value: usize) -> Read {
        self.along(value, [(self.rows, 1), (self.width, 0)])
    }

    /// The element of each element's column.
    fn column(&self, value: usize) -> Read {
        self.along(value, [(self.rows, 0), (self.width, 1)])
    }

    fn along(&self, value: usize, dims: [(usize, usize); 2]) -> Read {
        Read { value, access: Access::Strided(Strides { dims: dims.to_vec(), offset: 0 }) }
    }

    fn operand(&self, number: usize) -> usize {
        self.low.operands[number]
    }

    /// A value in f32 of every element.
    fn each(&mut self, op: Binary, a: Read, b: Read) -> usize {
        let len = self.rows * self.width;
        self.low.float(Node::Binary(op, a, b), len)
    }

    fn each_unary(&mut self, op: Unary, x: usize) -> usize {
        let len = self.rows * self.width;
        self.low.float(Node::Unary(op, Read::same(x)), len)
    }

    /// A value in f32 of every row.
    fn per_row(&mut self, op: Binary, a: usize, b: Read) -> usize {
        let rows = self.rows;
        self.low.float(Node::Binary(op, Read::same(a), b), rows)
    }

    fn per_row_unary(&mut self, op: Unary, x: usize) -> usize {
        let rows = self.rows;
        self.low.float(Node::Unary(op, Read::same(x)), rows)
    }

    fn reduce(&mut self, kind: Reduction, of: usize) -> usize {
        let (rows, width) = (self.rows, self.width);
        self.low.float(Node::Reduce(kind, of, width), rows)
    }

    fn mean(&mut self, of: usize) -> usize {
        let sum = self.reduce(Reduction::Sum, of);
        let width = self.low.number(self.width as f32);
        self.per_row(Binary::Div, sum, width)
    }

    /// The mean of numbers whose sum may overflow: each is divided first.
    fn mean_of_parts(&mut self, of: usize) -> usize {
        let parts = self.each_unary(Unary::Scale(1.0 / self.width as f32), of);
        self.reduce(Reduction::Sum, parts)
    }

    /// The reciprocal of a root-mean-square. Squares may overflow: those beyond `LARGE` are summed apart, of numbers times `DOWN`, which
    /// brings the squares of all others within the same range.
    fn rstd(&mut self, x: usize, eps: f32) -> usize {
        let (rows, len) = (self.rows, self.rows * self.width);
        let square = self.each_unary(Unary::Square, x);
        let less = self.each_unary(Unary::Scale(DOWN), x);
        let less = self.each_unary(Unary::Square, less);
        let limit = self.low.number(LARGE);
        let mask = Node::Compare(Comparison::Less, limit, Read::same(square));
        let mask = Read::same(self.low.program.push(mask, Element::I32, len));
        let [rest, large] = [(square, true), (less, false)].map(|(of, not)| {
            let select = Select { mask: mask.clone(), not, of: Read::same(of), other: None };
            let chosen = self.low.float(Node::Select(select), len);
            self.mean(chosen)
        });
        let shifted = self.per_row_unary(Unary::Shift(eps), rest);
        let usual = self.per_row_unary(Unary::Rsqrt, shifted);
        let once = self.per_row_unary(Unary::Scale(DOWN), rest);
        let twice = self.per_row_unary(Unary::Scale(DOWN), once);
        let all = self.per_row(Binary::Add, large, Read::same(twice));
        let root = self.per_row_unary(Unary::Rsqrt, all);
        let root = self.per_row_unary(Unary::Scale(DOWN), root);
        let none = self.low.number(0.0);
        let has_large = Node::Compare(Comparison::Less, none, Read::same(large));
        let mask = Read::same(self.low.program.push(has_large, Element::I32, rows));
        let select = Select { mask, not: false, of: Read::same(root), other: Some(Read::same(usual)) };
        self.low.float(Node::Select(select), rows)
    }

    /// The last of the values so far is a result.
    fn result(&mut self, number: usize, of: usize) -> Result<Made, String> {
        self.low.result(number, Node::Convert(Read::same(of))).map(Made::Value)
    }

    /// The normed row, which does not overflow, and the mean of its product with `g`.
    fn share(&mut self, x: usize, g: usize, rstd: usize) -> [usize; 2] {
        let normed = self.each(Binary::Mul, Read::same(x), self.row(rstd));
        let product = self.each(Binary::Mul, Read::same(normed), Read::same(g));
        [normed, self.mean(product)]
    }

    fn rms_norm(mut self, eps: f32) -> Result<Vec<Made>, String> {
        let [x, gamma] = [0, 1].map(|at| self.operand(at));
        let rstd = self.rstd(x, eps);
        let normed = self.each(Binary::Mul, Read::same(x), self.row(rstd));
        let y = self.each(Binary::Mul, Read::same(normed), self.column(gamma));
        Ok(vec![self.result(0, y)?, self.result(1, rstd)?])
    }

    fn rms_norm_dx(mut self) -> Result<Vec<Made>, String> {
        let [x, gamma, rstd, dy] = [0, 1, 2, 3].map(|at| self.operand(at));
        let g = self.each(Binary::Mul, Read::same(dy), self.column(gamma));
        let [normed, share] = self.share(x, g, rstd);
        let along = self.each(Binary::Mul, Read::same(normed), self.row(share));
        let rest = self.each(Binary::Sub, Read::same(g), Read::same(along));
        let dx = self.each(Binary::Mul, self.row(rstd), Read::same(rest));
        Ok(vec![self.result(0, dx)?])
    }

    /// The sum over rows of `dy` times what was normed, with the places of the operands.
    fn dgamma(mut self, mean: Option<usize>, rstd: usize, dy: usize) -> Result<Vec<Made>, String> {
        let [x, rstd, dy] = [0, rstd, dy].map(|at| self.operand(at));
        let centred = match mean.map(|at| self.operand(at)) {
            Some(mean) => self.each(Binary::Sub, Read::same(x), self.row(mean)),
            None => x,
        };
        let normed = self.each(Binary::Mul, Read::same(centred), self.row(rstd));
        let product = self.each(Binary::Mul, Read::same(dy), Read::same(normed));
        Ok(vec![Made::Sum(product, self.width)])
    }

    fn layer_norm(mut self, eps: f32) -> Result<Vec<Made>, String> {
        let [x, gamma, beta] = [0, 1, 2].map(|at| self.operand(at));
        let first = self.mean_of_parts(x);
        let off = self.each(Binary::Sub, Read::same(x), self.row(first));
        let rest = self.mean_of_parts(off);
        let mean = self.per_row(Binary::Add, first, Read::same(rest));
        let centred = self.each(Binary::Sub, Read::same(x), self.row(mean));
        let rstd = self.rstd(centred, eps);
        let normed = self.each(Binary::Mul, Read::same(centred), self.row(rstd));
        let scaled = self.each(Binary::Mul, Read::same(normed), self.column(gamma));
        let y = self.each(Binary::Add, Read::same(scaled), self.column(beta));
        Ok(vec![self.result(0, y)?, self.result(1, mean)?, self.result(2, rstd)?])
    }

    fn layer_norm_dx(mut self) -> Result<Vec<Made>, String> {
        let [x, gamma, mean, rstd, dy] = [0, 1, 2, 3, 4].map(|at| self.operand(at));
        let g = self.each(Binary::Mul, Read::same(dy), self.column(gamma));
        let mean_of_g = self.mean(g);
        let centred = self.each(Binary::Sub, Read::same(x), self.row(mean));
        let [normed, share] = self.share(centred, g, rstd);
        let off = self.each(Binary::Sub, Read::same(g), self.row(mean_of_g));
        let along = self.each(Binary::Mul, Read::same(normed), self.row(share));
        let rest = self.each(Binary::Sub, Read::same(off), Read::same(along));
        let dx = self.each(Binary::Mul, self.row(rstd), Read::same(rest));
        Ok(vec![self.result(0, dx)?])
    }

    /// `e^(x - max)` with a number of each row.
    fn exps(&mut self, x: usize, max: usize) -> usize {
        let less = self.each(Binary::Sub, Read::same(x), self.row(max));
        self.each_unary(Unary::Exp, less)
    }

    fn softmax(mut self) -> Result<Vec<Made>, String> {
        let x = self.operand(0);
        let max = self.reduce(Reduction::Max, x);
        let exps = self.exps(x, max);
        let sum = self.reduce(Reduction::Sum, exps);
        let scale = self.per_row_unary(Unary::Recip, sum);
        let y = self.each(Binary::Mul, Read::same(exps), self.row(scale));
        Ok(vec![self.result(0, y)?])
    }

    fn softmax_grad(mut self) -> Result<Vec<Made>, String> {
        let [y, dy] = [0, 1].map(|at| self.operand(at));
        let product = self.each(Binary::Mul, Read::same(y), Read::same(dy));
        let inner = self.reduce(Reduction::Sum, product);
        let rest = self.each(Binary::Sub, Read::same(dy), self.row(inner));
        let dx = self.each(Binary::Mul, Read::same(y), Read::same(rest));
        Ok(vec![self.result(0, dx)?])
    }

    fn sum_exp(mut self) -> Result<Vec<Made>, String> {
        let exps = self.exps(self.operand(0), self.operand(1));
        let sum = self.reduce(Reduction::Sum, exps);
        Ok(vec![self.result(0, sum)?])
    }

    /// The logit at the label of each row, in the logits' type.
    fn picked(&mut self) -> usize {
        let ty = self.low.site.operands[0];
        let base = Strides { dims: vec![(self.rows, self.width)], offset: 0 };
        let (of, index) = (self.operand(0), Read::same(self.operand(1)));
        let origin = self.low.site.origin(ty, ty.rank() - 1);
        let (rows, size) = (self.rows, self.width);
        self.low.float(Node::Take(Take { of, base, index, origin, size, stride: 1 }), rows)
    }

    fn pick(mut self) -> Result<Vec<Made>, String> {
        let picked = self.picked();
        Ok(vec![self.result(0, picked)?])
    }

    fn cross_entropy(mut self) -> Result<Vec<Made>, String> {
        let x = self.operand(0);
        let max = self.reduce(Reduction::Max, x);
        let exps = self.exps(x, max);
        let sum = self.reduce(Reduction::Sum, exps);
        let log = self.per_row_unary(Unary::Log, sum);
        let finite = self.per_row(Binary::Add, max, Read::same(log));
        let (rows, least) = (self.rows, self.low.number(f32::NEG_INFINITY));
        let mask = Node::Compare(Comparison::Less, least, Read::same(max));
        let mask = Read::same(self.low.program.push(mask, Element::I32, rows));
        let select = Select { mask, not: false, of: Read::same(finite), other: Some(Read::same(max)) };
        let lse = self.low.float(Node::Select(select), rows);
        let picked = self.picked();
        let label = Read::same(self.operand(1));
        let loss = loss(self.low, [lse, picked], label, rows);
        Ok(vec![Made::Sum(loss, 1), self.result(1, lse)?])
    }

    fn cross_entropy_grad(mut self) -> Result<Vec<Made>, String> {
        let [x, label, lse, dloss] = [0, 1, 2, 3].map(|at| self.operand(at));
        let len = self.rows * self.width;
        let exps = self.exps(x, lse);
        let scaled = self.each(Binary::Mul, Read::same(exps), Read::one(dloss));
        let less = self.each(Binary::Sub, Read::same(scaled), Read::one(dloss));
        let ty = self.low.site.operands[0];
        let index = Index { origin: self.low.site.origin(ty, ty.rank() - 1), size: self.width, inner: 1 };
        let place = self.low.program.push(Node::Index(index), Element::I32, len);
        let hit = Node::Compare(Comparison::Equal, Read::same(place), self.row(label));
        let mask = Read::same(self.low.program.push(hit, Element::I32, len));
        let select = Select { mask, not: false, of: Read::same(less), other: Some(Read::same(scaled)) };
        let all = self.low.float(Node::Select(select), len);
        let zero = self.low.zero();
        let ignored = Node::Compare(Comparison::Less, Read::same(label), zero);
        let rows = self.rows;
        let ignored = self.low.program.push(ignored, Element::I32, rows);
        let select = Select { mask: self.row(ignored), not: true, of: Read::same(all), other: None };
        let kept = self.low.float(Node::Select(select), len);
        Ok(vec![self.result(0, kept)?])
    }
}

/// Share of the loss of each row that has a label.
fn loss(low: &mut Lowering<'_>, [lse, picked]: [usize; 2], label: Read, rows: usize) -> usize {
    let zero = low.zero();
    let mask = low.program.push(Node::Compare(Comparison::LessEqual, zero, label), Element::I32, rows);
    let rest = low.float(Node::Binary(Binary::Sub, Read::same(lse), Read::same(picked)), rows);
    let select = Select { mask: Read::same(mask), not: false, of: Read::same(rest), other: None };
    low.float(Node::Select(select), rows)
}

fn token_loss(low: &mut Lowering<'_>) -> Result<Vec<Made>, String> {
    let [lse, picked] = [0, 1].map(|at| low.operands[at]);
    let rows = len(low.site.operands[0], low.site);
    let label = low.same(2);
    Ok(vec![Made::Sum(loss(low, [lse, picked], label, rows), 1)])
}
